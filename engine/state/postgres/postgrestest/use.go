package postgrestest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"
)

// The server that most tests of a program share: its start takes longer than
// they do.
var shared struct {
	once sync.Once
	s    *Server
	err  error
}

// Need is the server that a program's tests share, started when the first one
// needs it. Where none is installed the test is skipped, and says so; where CI
// is set that is a failure. TestMain calls Done at the end.
func Need(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() { shared.s, shared.err = New() })
	demand(t, shared.err)
	return shared.s
}

// Done ends the shared server.
func Done() {
	if shared.s != nil {
		shared.s.Remove()
	}
}

// Own is a server that a test has for itself and may kill.
func Own(t testing.TB, settings ...string) *Server {
	t.Helper()
	return kept(t)(New(settings...))
}

// OnDisk is a server of its own whose folder is where temporary files usually
// are, and not in memory: for figures that a sync is part of.
func OnDisk(t testing.TB, settings ...string) *Server {
	t.Helper()
	return kept(t)(newIn("", settings))
}

// Copy is a streaming standby of the primary that is reached at a port.
func Copy(t testing.TB, port int) *Server {
	t.Helper()
	return kept(t)(Standby(port))
}

// kept removes a server at the end of the test.
func kept(t testing.TB) func(*Server, error) *Server {
	return func(s *Server, err error) *Server {
		t.Helper()
		demand(t, err)
		t.Cleanup(s.Remove)
		return s
	}
}

func demand(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case !errors.Is(err, ErrNoServer):
		t.Fatal(err)
	case os.Getenv("CI") != "":
		t.Fatal("CI runs without a PostgreSQL server")
	default:
		t.Skipf("SKIP postgres: %v", err)
	}
}

// Exec runs one statement.
func (s *Server) Exec(t testing.TB, q string) {
	t.Helper()
	ctx := context.Background()
	conn, err := s.connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, q); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

// WaitFor waits until a query answers true.
func (s *Server) WaitFor(t testing.TB, q string) {
	t.Helper()
	ctx := context.Background()
	conn, err := s.connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(20 * time.Millisecond) {
		var yes bool
		if err := conn.QueryRow(ctx, q).Scan(&yes); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if yes {
			return
		}
	}
	t.Fatalf("never true: %s", q)
}

// Promote makes a standby the primary, and returns when it is.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.Exec(t, "SELECT pg_promote(true, 60)")
}

// Follow makes a primary wait for its standby before it acknowledges anything,
// and returns when it does.
func (s *Server) Follow(t testing.TB) {
	t.Helper()
	s.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	s.Exec(t, "SELECT pg_reload_conf()")
	s.WaitFor(t, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))")
}

// CaughtUp waits until the standbys have everything.
func (s *Server) CaughtUp(t testing.TB) {
	t.Helper()
	s.WaitFor(t, "SELECT coalesce(bool_and(replay_lsn >= pg_current_wal_lsn()), false) FROM pg_stat_replication")
}
