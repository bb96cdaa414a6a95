package sdk

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The machine misbehaves while calls run: its disk, its store, its clock. What
// must hold each time: declared behaviour, a message that says what happened, and
// nothing lost.

// A ledger is what the world outside the engine knows of its writes.
type ledger struct {
	mu   sync.Mutex
	sent map[string]int
	told map[string]error // how each call ended, as its caller was told
}

func newLedger() *ledger { return &ledger{sent: map[string]int{}, told: map[string]error{}} }

// write sends one mail of a tenant of its own: circuits are not what is tried.
func (l *ledger) write(ctx context.Context, c *Client, id string, while func()) error {
	op := mail(id)
	op.Tenant = id
	_, err := c.Do(ctx, op, func(context.Context, engine.Call) taxonomy.Observation {
		l.mu.Lock()
		l.sent[id]++
		l.mu.Unlock()
		if while != nil {
			while()
		}
		return answered(201, "{}")
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[id] = err
	return err
}

// audit opens the data directory as the next process would, and compares.
func (l *ledger) audit(t *testing.T, config Config) {
	t.Helper()
	c, err := Open(t.Context(), config, Parts{Still: true})
	if err != nil {
		t.Fatalf("the next start: %v", err)
	}
	kept := map[string]state.Intent{}
	for in, err := range c.Store().Find(t.Context(), state.IntentQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		kept[in.RequestID] = in
	}
	settled, unknown, refused, lost, twice := 0, 0, 0, 0, 0
	for id, told := range l.told {
		in, known := kept[id]
		switch n := l.sent[id]; {
		case n > 1:
			twice++
			t.Errorf("%s was sent %d times", id, n)
		case n == 1 && !known:
			lost++
			t.Errorf("%s was sent, and its intent is lost", id)
		case n == 1 && in.State == state.InFlight:
			t.Errorf("%s was sent by a process that is gone, and is in flight", id)
		case n == 1 && told == nil && in.State != state.Settled:
			t.Errorf("%s succeeded for its caller, and is %s", id, in.State)
		case n == 0 && told == nil:
			t.Errorf("%s was never sent, and its caller was told of success", id)
		case n == 0:
			refused++
		case in.State == state.Settled:
			settled++
		default:
			unknown++
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	v, err := receipts.Verify(t.Context(), filepath.Join(config.Data, "receipts"), receipts.VerifyOptions{})
	if err != nil || v.ExitCode() != 0 {
		t.Errorf("the receipts do not verify: %+v, %v", v, err)
	}
	t.Logf("WEATHER calls %d: sent and settled %d, sent and UNKNOWN %d, refused %d; lost %d, sent twice %d, receipts verify %t",
		len(l.told), settled, unknown, refused, lost, twice, err == nil && v.ExitCode() == 0)
}

// refusedWith checks that a call was refused before it was sent, and told why.
func refusedWith(t *testing.T, err error, reasons ...string) {
	t.Helper()
	rej, refused := errors.AsType[*engine.Rejection](err)
	if !refused || !strings.Contains(" "+strings.Join(reasons, " ")+" ", " "+rej.Reason+" ") {
		t.Errorf("got %v, want a rejection: %v", err, reasons)
	}
}

// icy is SQLite that answers nothing while it is frozen, until the caller gives
// up.
type icy struct {
	state.Store
	frozen atomic.Bool
}

func (s *icy) wait(ctx context.Context) error {
	if !s.frozen.Load() {
		return nil
	}
	<-ctx.Done()
	return fmt.Errorf("%w: it did not answer in time: %w", state.ErrUnavailable, context.Cause(ctx))
}

// icily passes a call on to the store, or waits.
func icily[T any](ctx context.Context, s *icy, f func() (T, error)) (none T, err error) {
	if err := s.wait(ctx); err != nil {
		return none, err
	}
	return f()
}

func (s *icy) Load(ctx context.Context, keys ...string) ([]state.Doc, error) {
	return icily(ctx, s, func() ([]state.Doc, error) { return s.Store.Load(ctx, keys...) })
}

func (s *icy) Update(ctx context.Context, key string, f func(state.Doc) ([]byte, bool)) (state.Doc, error) {
	return icily(ctx, s, func() (state.Doc, error) { return s.Store.Update(ctx, key, f) })
}

func (s *icy) Settle(ctx context.Context, id string, x state.Settlement) (state.Intent, error) {
	return icily(ctx, s, func() (state.Intent, error) { return s.Store.Settle(ctx, id, x) })
}

func (s *icy) Find(ctx context.Context, q state.IntentQuery) iter.Seq2[state.Intent, error] {
	if err := s.wait(ctx); err != nil {
		return func(yield func(state.Intent, error) bool) { yield(state.Intent{}, err) }
	}
	return s.Store.Find(ctx, q)
}

func (s *icy) Condemn(ctx context.Context, o state.Owner, by string) ([]state.Intent, error) {
	return icily(ctx, s, func() ([]state.Intent, error) { return s.Store.Condemn(ctx, o, by) })
}

func (s *icy) Reserve(ctx context.Context, r state.Reservation) (state.Grant, error) {
	return icily(ctx, s, func() (state.Grant, error) { return s.Store.Reserve(ctx, r) })
}

func (s *icy) SettleGrant(ctx context.Context, id string, used state.Amounts) error {
	_, err := icily(ctx, s, func() (struct{}, error) { return struct{}{}, s.Store.SettleGrant(ctx, id, used) })
	return err
}

func (s *icy) Usage(ctx context.Context, accounts ...string) ([]state.Usage, error) {
	return icily(ctx, s, func() ([]state.Usage, error) { return s.Store.Usage(ctx, accounts...) })
}

func (s *icy) Approved(ctx context.Context, tenant string, scopes ...string) ([]taxonomy.Approval, error) {
	return icily(ctx, s, func() ([]taxonomy.Approval, error) { return s.Store.Approved(ctx, tenant, scopes...) })
}

func (s *icy) Append(ctx context.Context, run string, c taxonomy.Call) error {
	_, err := icily(ctx, s, func() (struct{}, error) { return struct{}{}, s.Store.Append(ctx, run, c) })
	return err
}

func (s *icy) Run(ctx context.Context, run string) ([]taxonomy.Call, error) {
	return icily(ctx, s, func() ([]taxonomy.Call, error) { return s.Store.Run(ctx, run) })
}

func (s *icy) Stopped(ctx context.Context, run string) (string, error) {
	return icily(ctx, s, func() (string, error) { return s.Store.Stopped(ctx, run) })
}

func (s *icy) Dispatch(ctx context.Context, d state.Dispatch) (state.Dispatched, error) {
	return icily(ctx, s, func() (state.Dispatched, error) { return s.Store.Dispatch(ctx, d) })
}

// R-FLT-15, R-ADM-4: the store freezes while calls are at the remote. New writes
// are refused once store.wait is over, calls that were out end for their callers
// and say that they could not be written down, the engine's own beat goes on, and
// after the thaw everything is where it belongs.
func TestStoreFreezes(t *testing.T) {
	var store *icy
	config := Config{Data: t.TempDir(), Store: StoreConfig{Driver: "icy", Wait: Duration(200 * time.Millisecond)}}
	c, err := Open(t.Context(), config, Parts{Still: true, Stores: map[string]func(context.Context, StoreConfig) (state.Store, error){
		"icy": func(ctx context.Context, sc StoreConfig) (state.Store, error) {
			db, err := sqlite.Open(ctx, sc.Path, sqlite.Options{})
			store = &icy{Store: db}
			return store, err
		}}})
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	thawed := func(name string) { // a busy machine may be late too, and says so
		for i := range 50 {
			if err = l.write(t.Context(), c, fmt.Sprint(name, i), nil); err == nil {
				return
			}
		}
		t.Errorf("no write works %s: %v", name, err)
	}
	thawed("before")
	if err := l.write(t.Context(), c, "out", func() { store.frozen.Store(true) }); err == nil || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("a call that was out when the store froze: %v", err)
	}
	err = l.write(t.Context(), c, "during", nil)
	refusedWith(t, err, "state_unavailable")
	if !strings.Contains(err.Error(), "the request was not sent") {
		t.Errorf("the message is %q", err)
	}
	op := model("read")
	op.RunID = "run-1" // the run's own history is asked of the store too
	_, _ = c.Do(t.Context(), op, func(context.Context, engine.Call) taxonomy.Observation { return answered(200, fine) })
	c.Engine().Tick(t.Context())
	store.frozen.Store(false)
	thawed("after")
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	config.Store = StoreConfig{}
	l.audit(t, config)
}

// R-BRK-8, R-FLT-10: the wall clock jumps an hour ahead and two back while calls
// are at the remote and the engine's beat goes on. No circuit moves, every call
// ends as it did, nothing is sent twice, and what waits is found.
func TestClockJumpsWhileCallsRun(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			clock, l := enginetest.NewClock(), newLedger()
			config := Config{Data: t.TempDir()}
			c, err := Open(t.Context(), config, Parts{Clock: clock, Still: true})
			if err != nil {
				t.Fatal(err)
			}
			broken := model("broken")
			for range 2 {
				_, _ = c.Do(t.Context(), broken, func(context.Context, engine.Call) taxonomy.Observation { return answered(503, "{}") })
			}
			state := func() string {
				key, err := c.Registry().Find("provider:openai/-/gpt-x")
				if err != nil {
					t.Fatal(err)
				}
				circuit, _ := c.Registry().Circuit(key)
				return fmt.Sprint(circuit.State, " ", circuit.Until)
			}
			before := state()
			if !strings.HasPrefix(before, "OPEN") {
				t.Fatalf("the provider's circuit is %s", before)
			}
			beat := func() {
				for range 3 { // long enough for a look at what is in flight
					clock.Advance(2 * time.Second)
					c.Engine().Tick(t.Context())
				}
			}
			var group sync.WaitGroup
			var out sync.WaitGroup
			out.Add(8)
			landed := make(chan struct{})
			for i := range 8 {
				group.Go(func() {
					if err := l.write(t.Context(), c, fmt.Sprint("out-", i), func() { out.Done(); <-landed }); err != nil {
						t.Errorf("a call that was out while the clock jumped: %v", err)
					}
				})
			}
			out.Wait()
			clock.Step(jump)
			beat()
			clock.Step(-2 * jump)
			beat()
			close(landed)
			group.Wait()
			if got := state(); got != before {
				t.Errorf("the clock moved the circuit from %s to %s", before, got)
			}
			if err := l.write(t.Context(), c, "after", nil); err != nil {
				t.Errorf("a call after the jump: %v", err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			l.audit(t, config)
		})
	}
}
