package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/engine/state/postgres/postgrestest"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

// refuses opens a store where none can be; the error is one line that says what
// to do, and holds no password.
func refuses(t *testing.T, url string, o postgres.Options, kind error, hint string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	st, err := postgres.Open(ctx, url, o)
	if err == nil {
		st.Close()
		t.Fatalf("opened; want an error with %q", hint)
	}
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "geheim") {
		t.Fatalf("got %q, want one line with %q", err, hint)
	}
	t.Log(err)
}

func TestRefusedAtTheDoor(t *testing.T) {
	s := postgrestest.Need(t)
	plain := func(user, database, more string) string {
		return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable%s", user, s.Port, database, more)
	}
	t.Run("no server", func(t *testing.T) {
		refuses(t, "postgres://fusebox:geheim@127.0.0.1:1/postgres?sslmode=disable", postgres.Options{}, state.ErrUnavailable, "127.0.0.1:1/postgres")
	})
	t.Run("bad url", func(t *testing.T) {
		refuses(t, "postgres://fusebox:geheim@127.0.0.1:x/postgres", postgres.Options{}, state.ErrInvalid, "open state store")
	})
	t.Run("bad schema", func(t *testing.T) {
		refuses(t, s.URL("postgres"), postgres.Options{Schema: `a"; DROP`}, state.ErrInvalid, "not a plain lower-case name")
	})
	t.Run("no database", func(t *testing.T) {
		refuses(t, plain("fusebox", "missing", ""), postgres.Options{}, state.ErrUnavailable, "the database does not exist; create it")
	})
	t.Run("no user", func(t *testing.T) {
		refuses(t, plain("nobody", "postgres", ""), postgres.Options{}, state.ErrUnavailable, "check user, password and pg_hba.conf")
	})
	t.Run("synchronous_commit off", func(t *testing.T) {
		refuses(t, plain("fusebox", "postgres", "&synchronous_commit=off"), postgres.Options{}, state.ErrUnavailable, "synchronous_commit is off")
	})
	t.Run("newer schema", func(t *testing.T) {
		name := schema()
		open(t, postgres.Options{Schema: name}).Close()
		s.Exec(t, "INSERT INTO "+name+".version VALUES (99, 0)")
		refuses(t, s.URL("postgres"), postgres.Options{Schema: name}, state.ErrUnavailable, "has version 99 and this program knows")
	})
	t.Run("no right to make the schema", func(t *testing.T) {
		s.Exec(t, "CREATE ROLE plain LOGIN")
		refuses(t, plain("plain", "postgres", ""), postgres.Options{Schema: "forbidden"}, state.ErrUnavailable, "make it and give it to this user")
	})
	t.Run("fsync off", func(t *testing.T) {
		own := postgrestest.Own(t, "fsync=off")
		refuses(t, own.URL("postgres"), postgres.Options{}, state.ErrUnavailable, "would lose what it acknowledged")
	})
}

// A user without any special right serves, once the schema is its own.
func TestPlainUser(t *testing.T) {
	s := postgrestest.Need(t)
	name := schema()
	s.Exec(t, "CREATE ROLE modest LOGIN")
	s.Exec(t, "CREATE SCHEMA "+name+" AUTHORIZATION modest")
	st, err := postgres.Open(t.Context(), fmt.Sprintf("postgres://modest@127.0.0.1:%d/postgres?sslmode=disable", s.Port), postgres.Options{Schema: name})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Dispatch(t.Context(), dispatch("a")); err != nil {
		t.Fatal(err)
	}
}

// Behind PgBouncer in transaction mode there are no statements that outlive a
// transaction; pgx has modes for it, and all of them serve.
func TestWithoutPreparedStatements(t *testing.T) {
	s := postgrestest.Need(t)
	parts := []string{"dispatch"}
	if statetest.Long() {
		parts = append(parts, "model", "circuits", "runs", "queue", "budgets", "intents", "approvals")
	}
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			open := func(t *testing.T, o postgres.Options) state.Store {
				t.Helper()
				o.Schema = schema()
				st, err := postgres.Open(context.Background(), s.URL("postgres")+"&default_query_exec_mode="+mode, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { st.Close() })
				return st
			}
			statetest.Run(t,
				func(t *testing.T) state.Store { return open(t, postgres.Options{}) },
				statetest.WithClock(func(t *testing.T, now func() time.Time) state.Store { return open(t, postgres.Options{Now: now}) }),
				statetest.Only(parts...))
		})
	}
}

// A text that PostgreSQL cannot keep is the caller's mistake, not an outage.
func TestUnkeepableText(t *testing.T) {
	st := open(t, postgres.Options{})
	for _, bad := range []string{"a\x00b", "a\xffb"} {
		d := dispatch("id")
		d.Intent.Tenant = bad
		if _, err := st.Dispatch(t.Context(), d); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Two processes open new tables at the same time.
func TestOpenTogether(t *testing.T) {
	s := postgrestest.Need(t)
	name := schema()
	errs := make(chan error)
	for range 6 {
		go func() {
			st, err := postgres.Open(context.Background(), s.URL("postgres"), postgres.Options{Schema: name})
			if err == nil {
				err = st.Close()
			}
			errs <- err
		}()
	}
	for range 6 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Every method that promises durability waits for the server's sync.
func TestFsyncAudit(t *testing.T) {
	postgrestest.Need(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIP fsync audit: strace is not installed")
	}
	s, err := postgrestest.Stopped()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Remove)
	s.Strace, s.Trace = strace, filepath.Join(s.Dir, "trace")
	if err := s.Start(); err != nil {
		t.Skipf("SKIP fsync audit: strace may not trace here: %v", err)
	}
	st, err := postgres.Open(t.Context(), s.URL("postgres"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	statetest.AuditServer(t, st, s.Trace)
}

// Where no server is installed these tests are skipped and say so; with CI set
// that is a failure, so that nobody takes silence for a pass.
func TestAbsenceIsNeverSilent(t *testing.T) {
	for _, c := range []struct {
		ci, says string
		fails    bool
	}{{"", "SKIP postgres: " + postgrestest.ErrNoServer.Error(), false}, {"true", "CI runs without a PostgreSQL server", true}} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOpenTogether$", "-test.v")
		cmd.Env = append(os.Environ(), postgrestest.EnvBinaries+"="+t.TempDir(), "CI="+c.ci)
		out, err := cmd.CombinedOutput()
		if (err != nil) != c.fails || !strings.Contains(string(out), c.says) {
			t.Errorf("CI=%q: %v, %s", c.ci, err, out)
		}
	}
}
