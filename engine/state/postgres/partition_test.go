package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/engine/state/postgres/postgrestest"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

// behind opens a store through a proxy, and the same tables directly.
func behind(t *testing.T) (proxied, direct *postgres.Store, p *statetest.Proxy) {
	t.Helper()
	s := postgrestest.Need(t)
	p = statetest.NewProxy(t, fmt.Sprint("127.0.0.1:", s.Port))
	o := postgres.Options{Schema: schema()}
	direct = open(t, o)
	proxied, err := postgres.Open(t.Context(), fmt.Sprintf("postgres://fusebox@127.0.0.1:%d/postgres?sslmode=disable&pool_max_conns=4", p.Port()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Heal()
		proxied.Close()
	})
	return proxied, direct, p
}

func dispatch(id string) state.Dispatch {
	return state.Dispatch{
		Intent:      &state.Intent{ID: id, RequestID: id, Expires: time.Now().Add(time.Hour)},
		Reservation: &state.Reservation{ID: id, Lines: []state.Line{{Account: "acc", Want: state.Amounts{Tokens: 1}}}, Expires: time.Now().Add(time.Hour)},
		Leases: []state.LeaseUpdate{{Key: "brk", F: func(d state.Doc) ([]byte, bool) {
			return fmt.Appendf(nil, "%06d", leases(d)+1), true
		}}},
	}
}

// leases is how often the lease of dispatch was taken.
func leases(d state.Doc) int {
	n, _ := strconv.Atoi(string(d.Data))
	return n
}

// short is a caller that waits as long as a high-impact action does.
func short(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 50*time.Millisecond)
}

// A reply that is cut after any number of bytes: an error that says that
// nothing changed must be true, one that says that nobody knows is followed by
// the same dispatch again, and in the end everything is there exactly once.
func TestReplyCutAnywhere(t *testing.T) {
	st, direct, p := behind(t)
	// The first dispatch prepares its statements; the others are all alike.
	if _, err := st.Dispatch(t.Context(), dispatch("warm")); err != nil {
		t.Fatal(err)
	}
	done, unknown, unavailable := 1, 0, 0
	step := 31 // prime to the length of a message
	if statetest.Long() {
		step = 1
	}
	for n := 0; n < 900; n += step {
		id := fmt.Sprint("after-", n)
		p.ResetAfter(n)
		_, err := st.Dispatch(t.Context(), dispatch(id))
		p.Heal()
		_, there := direct.Intent(t.Context(), id)
		switch {
		case err == nil && there != nil, errors.Is(err, state.ErrUnavailable) && there == nil:
			t.Fatalf("cut after %d bytes: %v, but the intent: %v", n, err, there)
		case errors.Is(err, state.ErrUnknown):
			unknown++
		case errors.Is(err, state.ErrUnavailable):
			unavailable++
		case err != nil:
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
		// Again until it is answered; a pool may hold more broken connections.
		for range 10 {
			if err == nil {
				break
			}
			_, err = st.Dispatch(t.Context(), dispatch(id))
		}
		if err != nil {
			t.Fatalf("cut after %d bytes, and again: %v", n, err)
		}
		done++
	}
	if unknown == 0 || unavailable == 0 {
		t.Errorf("%d unknown, %d unavailable: the cuts missed the commit", unknown, unavailable)
	}
	t.Logf("%d dispatches: %d unknown, %d unavailable", done, unknown, unavailable)
	u, err := direct.Usage(t.Context(), "acc")
	if err != nil || u[0].Reserved.Tokens != int64(done) {
		t.Errorf("reserved %+v (%v), want %d", u, err, done)
	}
	d, err := direct.Load(t.Context(), "brk")
	if err != nil || leases(d[0]) != done {
		t.Errorf("%d leases taken (%v), want %d", leases(d[0]), err, done)
	}
}

// R-FLT-15, R-ADM-4: a frozen, cut or refused network ends every call by its
// deadline, changes nothing unseen, and is over when it is over.
func TestPartition(t *testing.T) {
	for name, play := range map[string]func(*statetest.Proxy){
		"freeze":            (*statetest.Proxy).Freeze,
		"requests cut":      func(p *statetest.Proxy) { p.Hold(true, false) },
		"replies cut":       func(p *statetest.Proxy) { p.Hold(false, true) },
		"refused":           (*statetest.Proxy).Refuse,
		"slower than calls": func(p *statetest.Proxy) { p.Delay(200 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			st, direct, p := behind(t)
			if _, err := st.Dispatch(t.Context(), dispatch("before")); err != nil {
				t.Fatal(err)
			}
			play(p)
			ctx, cancel := short(t)
			_, err := st.Load(ctx, "brk")
			cancel()
			if !errors.Is(err, state.ErrUnavailable) {
				t.Fatalf("load: %v", err)
			}
			ctx, cancel = short(t)
			_, err = st.Dispatch(ctx, dispatch("during"))
			cancel()
			unknown := errors.Is(err, state.ErrUnknown)
			if !unknown && !errors.Is(err, state.ErrUnavailable) {
				t.Fatalf("dispatch: %v", err)
			}
			p.Heal()
			// All back without a restart.
			for begin := time.Now(); ; {
				if _, err = st.Dispatch(t.Context(), dispatch("during")); err == nil || time.Since(begin) > time.Minute {
					break
				}
			}
			if err != nil {
				t.Fatalf("after it was healed: %v", err)
			}
			d, err := direct.Load(t.Context(), "brk")
			if err != nil || leases(d[0]) != 2 {
				t.Fatalf("%d leases taken (%v), want 2", leases(d[0]), err)
			}
		})
	}
}

// A watch that hears nothing says that it is lost, and a new one works.
func TestWatchIsLost(t *testing.T) {
	for name, play := range map[string]func(*statetest.Proxy){
		"freeze": (*statetest.Proxy).Freeze, "severed": (*statetest.Proxy).Sever, "refused": (*statetest.Proxy).Refuse,
	} {
		t.Run(name, func(t *testing.T) {
			st, direct, p := behind(t)
			events, err := st.Watch(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			for e := range events {
				if e.Beat {
					break
				}
			}
			play(p)
			lost := false
			for e := range events {
				lost = e.Lost
			}
			if !lost {
				t.Fatal("the channel closed without lost")
			}
			p.Heal()
			for begin := time.Now(); ; {
				if events, err = st.Watch(t.Context(), ""); err == nil || time.Since(begin) > time.Minute {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := direct.Update(t.Context(), "brk", func(state.Doc) ([]byte, bool) { return []byte("open"), true }); err != nil {
				t.Fatal(err)
			}
			for e := range events {
				if string(e.Doc.Data) == "open" {
					return
				}
			}
			t.Fatal("the change was never told")
		})
	}
}

// Nobody listens for notices: polling alone finds changes.
func TestWatchWithoutNotices(t *testing.T) {
	st := open(t, postgres.Options{Listen: "none"})
	events, err := st.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Update(t.Context(), "brk", func(state.Doc) ([]byte, bool) { return []byte("open"), true }); err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if string(e.Doc.Data) == "open" {
			return
		}
	}
	t.Fatal("the change was never told")
}
