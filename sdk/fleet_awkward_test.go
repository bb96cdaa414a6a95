package sdk

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// awkward is a store whose answers come at awkward moments.
type awkward struct {
	state.Store
	answer func()                 // between the store's time and the decision
	lost   bool                   // updates are done, and nobody hears of it; nothing can be read
	settle func(state.Settlement) // before a settlement
}

func (s *awkward) Close() error { return nil } // several clients have it

func (s *awkward) Update(ctx context.Context, key string, f func(state.Doc) ([]byte, bool)) (state.Doc, error) {
	d, err := s.Store.Update(ctx, key, func(d state.Doc) ([]byte, bool) {
		if s.answer != nil {
			s.answer()
		}
		return f(d)
	})
	if s.lost {
		return state.Doc{}, state.ErrUnknown
	}
	return d, err
}

func (s *awkward) Load(ctx context.Context, keys ...string) ([]state.Doc, error) {
	if s.lost {
		return nil, state.ErrUnavailable
	}
	return s.Store.Load(ctx, keys...)
}

func (s *awkward) Settle(ctx context.Context, id string, v state.Settlement) (state.Intent, error) {
	if s.settle != nil {
		s.settle(v)
	}
	return s.Store.Settle(ctx, id, v)
}

// on opens a client over such a store, on a clock that stands still.
func (s *awkward) on(t *testing.T, policy string, clock engine.Clock) *Client {
	t.Helper()
	no := false
	return open(t, Config{Store: StoreConfig{Driver: "awkward", Wait: Duration(time.Minute), ReadWait: Duration(time.Minute)}, Policies: PolicySource{Path: policy, Watch: &no}}, Parts{Clock: clock, Still: true,
		Draw:   func() float64 { return 0.5 },
		Stores: map[string]func(context.Context, StoreConfig) (state.Store, error){"awkward": func(context.Context, StoreConfig) (state.Store, error) { return s, nil }}})
}

// R-BRK-8: an answer of the store that is two seconds on its way shortens no
// cooldown for those who read it later.
func TestSlowAnswerShortensNoCooldown(t *testing.T) {
	clock := enginetest.NewClock()
	s := &awkward{Store: memory.New(memory.Options{Now: clock.Now})}
	policy := casePolicy(t)
	first := s.on(t, policy, clock)
	s.answer = func() { clock.Advance(2 * time.Second) }
	var opened breaker.Instant
	for i := range 5 {
		opened = clock.Mono()
		p, err := first.Engine().Admit(t.Context(), model(fmt.Sprint("r", i)))
		if err != nil {
			t.Fatal(err)
		}
		obs, err := p.Dispatch(t.Context(), func(context.Context, engine.Call) taxonomy.Observation { return answered(503, "{}") })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Settle(t.Context(), obs); err != nil {
			t.Fatal(err)
		}
	}
	s.answer = nil
	second := s.on(t, policy, clock)
	for _, l := range second.Registry().List(true, clock.Mono()) {
		if l.Breaker != "provider" || l.Circuit.State != breaker.Open {
			continue
		}
		if cooldown := l.RetryAt.Sub(opened); cooldown < 30*time.Second {
			t.Errorf("%s: a cooldown of 30s is %s for a process that reads it", l.Scope, cooldown)
		}
		return
	}
	t.Error("the circuit is not open for a process that reads it")
}

// R-FLT-15: counts were written, the answer was lost, and so was the store: what
// became of them can only be asked later. They count once.
func TestCountsAnsweredByNobody(t *testing.T) {
	clock := enginetest.NewClock()
	s := &awkward{Store: memory.New(memory.Options{Now: clock.Now})}
	policy := casePolicy(t)
	c := s.on(t, policy, clock)
	calls := uint64(0)
	call := func() {
		t.Helper()
		calls++
		if _, err := c.Do(t.Context(), model(fmt.Sprint("r", calls)), func(context.Context, engine.Call) taxonomy.Observation { return answered(200, fine) }); err != nil {
			t.Fatal(err)
		}
	}
	beat := func() {
		clock.Advance(100 * time.Millisecond)
		c.Engine().Tick(t.Context())
	}
	call()
	beat()
	call()
	s.lost = true
	beat()
	call()
	beat()
	s.lost = false
	call()
	beat()
	second := s.on(t, policy, clock)
	seen := 0
	for _, l := range second.Registry().List(true, clock.Mono()) {
		if l.Breaker == "provider" {
			seen++
			if n := l.Circuit.Window.Sum.Total(); n != calls {
				t.Errorf("%s counts %d, %d calls were made", l.Scope, n, calls)
			}
		}
	}
	if seen == 0 {
		t.Error("nothing is stored")
	}
}

// R-CALL-2: a result that arrives while the expiry of its permit is being
// settled is heard like any other late one.
func TestResultDuringExpiry(t *testing.T) {
	clock := enginetest.NewClock()
	s := &awkward{Store: memory.New(memory.Options{Now: clock.Now})}
	c := s.on(t, casePolicy(t), clock)
	p, err := c.Engine().Admit(t.Context(), mail("m1"))
	if err != nil {
		t.Fatal(err)
	}
	obs, err := p.Dispatch(t.Context(), func(context.Context, engine.Call) taxonomy.Observation { return answered(200, "{}") })
	if err != nil {
		t.Fatal(err)
	}
	expiring, goOn := make(chan struct{}), make(chan struct{})
	s.settle = func(v state.Settlement) {
		if v.Outcome == taxonomy.Unknown {
			close(expiring)
			<-goOn
		}
	}
	clock.Advance(10 * time.Minute)
	ticked, settled := make(chan struct{}), make(chan error, 1)
	go func() {
		c.Engine().Tick(t.Context())
		close(ticked)
	}()
	<-expiring
	go func() {
		_, err := p.Settle(t.Context(), obs)
		settled <- err
	}()
	time.Sleep(20 * time.Millisecond) // so that it usually arrives before the other goes on
	close(goOn)
	<-ticked
	if err := <-settled; err != nil {
		t.Errorf("the result was not heard: %v", err)
	}
	if in, err := s.Intent(t.Context(), p.ID()); err != nil || in.State != state.Settled || in.Result.Outcome != taxonomy.Succeeded {
		t.Errorf("the intent is %s %s, %v", in.State, in.Result.Outcome, err)
	}
}

// A client that is closed refuses, and what time drives in it comes to an end: it
// must not wait for a policy that nobody gives back.
func TestClosedAnswers(t *testing.T) {
	clock := enginetest.NewClock()
	s := &awkward{Store: memory.New(memory.Options{Now: clock.Now})}
	c := s.on(t, casePolicy(t), clock)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), model("r1"), func(context.Context, engine.Call) taxonomy.Observation { panic("sent") })
		clock.Advance(2 * time.Minute)
		c.Engine().Tick(t.Context()) // dead letters are looked at every minute
		answered <- err
	}()
	select {
	case err := <-answered:
		if rej, ok := errors.AsType[*engine.Rejection](err); !ok || rej.Reason != "shutting_down" {
			t.Errorf("a closed client answers %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a closed client does not answer")
	}
}

// R-BRK-8, R-FLT-10: a process whose wall clock is an hour slow, or fast, may do
// what others may, and what it has in flight is neither condemned at once nor kept
// an hour longer. Every store is as good as another here.
func TestWallClockAnHourOff(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		for name, open := range clockedStores {
			t.Run(name+" "+off.String(), func(t *testing.T) {
				clock, true0 := enginetest.NewClock(), enginetest.NewClock()
				clock.Step(off)
				hourOff(t, &awkward{Store: open(t, true0.Now)}, clock, true0)
			})
		}
	}
}

func hourOff(t *testing.T, s *awkward, clock, true0 *enginetest.Clock) {
	policy := casePolicy(t)
	wrong, right := s.on(t, policy, clock), s.on(t, policy, true0)
	pass := func(d time.Duration) {
		clock.Advance(d)
		true0.Advance(d)
	}
	send := func(context.Context, engine.Call) taxonomy.Observation { return answered(200, fine) }
	if _, err := wrong.Do(t.Context(), model("r1"), send); err != nil {
		t.Errorf("a read: %v", err)
	}
	p, err := wrong.Engine().Admit(t.Context(), mail("m1"))
	if err == nil {
		err = p.Mark(t.Context())
	}
	if err != nil {
		t.Fatalf("a write: %v", err)
	}
	stands := func() state.IntentState {
		pass(6 * time.Second) // expired intents are looked for every five seconds
		right.Engine().Tick(t.Context())
		in, err := s.Intent(t.Context(), p.ID())
		if err != nil {
			t.Fatal(err)
		}
		return in.State
	}
	if is := stands(); is != state.InFlight {
		t.Errorf("another process made of a write that is in flight: %s", is)
	}
	pass(5 * time.Minute)
	if is := stands(); is != state.Unsettled {
		t.Errorf("five minutes after its end a write is %s", is)
	}
}

// clockedStores open every store that there is on a clock of the test's.
var clockedStores = map[string]func(*testing.T, func() time.Time) state.Store{
	"memory": func(_ *testing.T, now func() time.Time) state.Store { return memory.New(memory.Options{Now: now}) },
	"sqlite": func(t *testing.T, now func() time.Time) state.Store {
		return closing(t)(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"), sqlite.Options{Now: now, AnyFilesystem: true}))
	},
	"postgres": func(t *testing.T, now func() time.Time) state.Store {
		return closing(t)(postgres.Open(t.Context(), fleetServer(t).URL("postgres"), postgres.Options{Now: now, Schema: fmt.Sprint("hour_", hourSchemas.Add(1))}))
	},
}

var hourSchemas atomic.Int64

// closing takes what an Open returned, and closes it at the end.
func closing(t *testing.T) func(state.Store, error) state.Store {
	return func(s state.Store, err error) state.Store {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
}
