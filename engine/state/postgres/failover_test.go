package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/engine/state/postgres/postgrestest"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

// The server is killed with kill -9 while workers write; what it acknowledged
// is there when it is back (R-CALL-2).
func TestServerKilled(t *testing.T) {
	s := postgrestest.Own(t)
	address := s.URL("postgres") + " fusebox"
	acks := 150
	if statetest.Long() {
		acks = 20_000
	}
	statetest.KillServer(t, address, address, acks, openAddress, func() {
		s.Kill()
		if err := s.Start(); err != nil {
			t.Error(err)
		}
	})
}

// With a synchronous standby nothing acknowledged is missing after the primary
// was killed and the standby promoted.
func TestFailoverSynchronous(t *testing.T) {
	primary := postgrestest.Own(t, "wal_level=replica", "max_wal_senders=4")
	second := postgrestest.Copy(t, primary.Port)
	primary.Follow(t)

	_, err := postgres.Open(t.Context(), second.URL("postgres"), postgres.Options{})
	if !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), "give the address of the primary") {
		t.Errorf("opened on a standby: %v", err)
	}
	statetest.KillServer(t, primary.URL("postgres")+" fusebox", second.URL("postgres")+" fusebox", 150, openAddress, func() {
		primary.Kill()
		second.Promote(t)
	})
}

// Without one the last writes may be gone. That cannot be prevented here; it
// must be seen: every version that anybody remembers is of another epoch.
func TestFailoverRewinds(t *testing.T) {
	primary := postgrestest.Own(t, "wal_level=replica", "max_wal_senders=4")
	p := statetest.NewProxy(t, fmt.Sprint("127.0.0.1:", primary.Port))
	second := postgrestest.Copy(t, p.Port())
	st, err := postgres.Open(t.Context(), primary.URL("postgres"), postgres.Options{})
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
	primary.CaughtUp(t)
	p.Freeze()
	lost := count(st)
	primary.Kill()
	p.Refuse()
	second.Promote(t)

	again, err := postgres.Open(t.Context(), second.URL("postgres"), postgres.Options{})
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
