package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
	"github.com/jackc/pgx/v5"
)

// own starts a server that this test may kill.
func ownServer(t *testing.T, settings ...string) *server {
	t.Helper()
	need(t)
	s, err := emptyServer()
	if err == nil {
		t.Cleanup(s.remove)
		err = s.init()
	}
	if err == nil {
		err = s.start(settings...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The server is killed with kill -9 while workers write; what it acknowledged
// is there when it is back (R-CALL-2).
func TestServerKilled(t *testing.T) {
	s := ownServer(t)
	address := s.url("postgres") + " fusebox"
	acks := 150
	if statetest.Long() {
		acks = 20_000
	}
	statetest.KillServer(t, address, address, acks, openAddress, func() {
		s.kill()
		if err := s.start(); err != nil {
			t.Error(err)
		}
	})
}

// standby makes a streaming copy of a primary that is reached at port.
func standby(t *testing.T, port int) *server {
	t.Helper()
	s, err := emptyServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	out, err := unprivileged(exec.Command(filepath.Join(s.bin, "pg_basebackup"), "-h", "127.0.0.1", "-p", fmt.Sprint(port), "-U", "fusebox",
		"-D", s.data(), "-R", "-X", "stream", "-c", "fast")).CombinedOutput()
	if err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	if err := s.start("hot_standby=on"); err != nil {
		t.Fatal(err)
	}
	return s
}

// promote makes the standby the primary and waits until it is.
func (s *server) promote(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://fusebox@127.0.0.1:%d/postgres?sslmode=disable", s.port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_promote(true, 60)"); err != nil {
		t.Fatal(err)
	}
}

func run1(t *testing.T, url, q string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), strings.Split(url, "&pool")[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), q, args...); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits until a query answers true.
func waitFor(t *testing.T, url, q string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), strings.Split(url, "&pool")[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(20 * time.Millisecond) {
		var yes bool
		if err := conn.QueryRow(t.Context(), q).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		if yes {
			return
		}
	}
	t.Fatalf("never true: %s", q)
}

// With a synchronous standby nothing acknowledged is missing after the primary
// was killed and the standby promoted.
func TestFailoverSynchronous(t *testing.T) {
	primary := ownServer(t, "wal_level=replica", "max_wal_senders=4")
	second := standby(t, primary.port)
	run1(t, primary.url("postgres"), "ALTER SYSTEM SET synchronous_standby_names = '*'")
	run1(t, primary.url("postgres"), "SELECT pg_reload_conf()")
	waitFor(t, primary.url("postgres"), "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))")

	_, err := postgres.Open(t.Context(), second.url("postgres"), postgres.Options{})
	if !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), "give the address of the primary") {
		t.Errorf("opened on a standby: %v", err)
	}
	statetest.KillServer(t, primary.url("postgres")+" fusebox", second.url("postgres")+" fusebox", 150, openAddress, func() {
		primary.kill()
		second.promote(t)
	})
}

// Without one the last writes may be gone. That cannot be prevented here; it
// must be seen: every version that anybody remembers is of another epoch.
func TestFailoverRewinds(t *testing.T) {
	primary := ownServer(t, "wal_level=replica", "max_wal_senders=4")
	p := statetest.NewProxy(t, fmt.Sprint("127.0.0.1:", primary.port))
	second := standby(t, p.Port())
	st, err := postgres.Open(t.Context(), primary.url("postgres"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	count := func(st state.Store) state.Doc {
		t.Helper()
		d, err := st.Update(t.Context(), "brk", func(d state.Doc) ([]byte, bool) { return append(d.Data, 'x'), true })
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	kept := count(st)
	waitFor(t, primary.url("postgres"), "SELECT coalesce(bool_and(replay_lsn >= pg_current_wal_lsn()), false) FROM pg_stat_replication")
	p.Freeze()
	lost := count(st)
	primary.kill()
	p.Refuse()
	second.promote(t)

	again, err := postgres.Open(t.Context(), second.url("postgres"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	docs, err := again.Load(t.Context(), "brk")
	if err != nil {
		t.Fatal(err)
	}
	d := docs[0]
	if len(d.Data) != len(kept.Data) {
		t.Fatalf("holds %q; this test needs a lost write", d.Data)
	}
	if d.Rev.Epoch == lost.Rev.Epoch || !d.Rev.Newer(lost.Rev) {
		t.Errorf("version %+v after the failover, %+v was acknowledged before it: nobody would notice", d.Rev, lost.Rev)
	}
	if next := count(again); next.Rev.Epoch != d.Rev.Epoch || !next.Rev.Newer(d.Rev) {
		t.Errorf("version %+v after %+v", next.Rev, d.Rev)
	}
}
