package engine_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A worker is an engine whose wall clock is not its store's, which is h.Clock.
type worker struct {
	*enginetest.House
	wall *enginetest.Clock
}

func workerOff(t *testing.T, off time.Duration, change func(*engine.Policy)) worker {
	t.Helper()
	wall := enginetest.NewClock()
	wall.Step(off)
	h := enginetest.New(t, func(p *engine.Parts) {
		p.Clock = wall
		change(p.Policy)
	})
	return worker{h, wall}
}

func (w worker) pass(d time.Duration) {
	w.wall.Advance(d)
	w.Clock.Advance(d)
}

func anHourOff(t *testing.T, test func(*testing.T, time.Duration)) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(off.String(), func(t *testing.T) { test(t, off) })
	}
}

// R-BRK-8, R-FLT-10: an intent, its reservation and the window of its budget are
// the store's time, whatever a worker's wall clock says.
func TestStoredEndsOfACall(t *testing.T) {
	anHourOff(t, func(t *testing.T, off time.Duration) {
		w := workerOff(t, off, func(p *engine.Policy) {
			p.Budgets = []engine.Budget{{Name: "hour", Scope: []string{"tenant"}, Window: time.Hour, Limit: state.Amounts{Attempts: 9}}}
		})
		op := enginetest.Write("w1")
		op.Deadline = w.wall.Now().Add(20 * time.Second).UnixMilli()
		p, err := w.Admit(t.Context(), op)
		if err == nil {
			err = p.Mark(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		in, err := w.Store.Intent(t.Context(), p.ID())
		if now := w.Clock.Now(); err != nil || !in.Created.Equal(now) || !in.Expires.Equal(now.Add(25*time.Second)) {
			t.Errorf("at %s an intent of 20 s was made at %s and ends at %s, %v", now, in.Created, in.Expires, err)
		}
		account := "hour/4:acme@" + w.Clock.Now().Truncate(time.Hour).Format(time.RFC3339)
		if us, err := w.Store.Usage(t.Context(), account); err != nil || us[0].Reserved.Attempts != 1 {
			t.Errorf("%s: %+v, %v", account, us, err)
		}
		w.pass(26 * time.Second)
		if _, err := w.Store.Condemn(t.Context(), state.Owner{Slot: -1}, "expired"); err != nil {
			t.Fatal(err)
		}
		if in, _ = w.Store.Intent(t.Context(), p.ID()); in.State != state.Unsettled {
			t.Fatalf("after its end it is %s", in.State)
		}
		in, err = w.Reconcile(t.Context(), in.ID, engine.StillUnknown, "operator:ann")
		if wait := in.NextTry.Sub(w.Clock.Now()); err != nil || wait <= 0 || wait > 5*time.Minute {
			t.Errorf("the next lookup is in %s, %v", wait, err)
		}
	})
}

// R-QUE-1, R-BRK-8: queued work ends when it was said to, and is let go before.
func TestStoredEndsOfQueuedWork(t *testing.T) {
	anHourOff(t, func(t *testing.T, off time.Duration) {
		w := workerOff(t, off, func(p *engine.Policy) { p.Queue = engine.QueueRules{MaxExpiry: time.Hour, Claim: time.Minute} })
		op := enginetest.Model("m1")
		op.Deadline = w.wall.Now().Add(10 * time.Minute).UnixMilli()
		it, err := w.Enqueue(t.Context(), op, nil, queued(time.Hour))
		if left := it.Expires.Sub(w.Clock.Now()); err != nil || left != 10*time.Minute {
			t.Fatalf("work with a deadline in 10 minutes waits for %s, %v", left, err)
		}
		take := func() state.Item {
			t.Helper()
			its, err := w.Engine.Claim(t.Context(), "w", state.From{}, 1)
			if err != nil || len(its) != 1 {
				t.Fatalf("%v, %v", its, err)
			}
			return its[0]
		}
		got := take()
		if renewed, err := w.Renew(t.Context(), got); err != nil || !renewed.ClaimUntil.Equal(w.Clock.Now().Add(time.Minute)) {
			t.Errorf("a claim of a minute ends at %s, %v", renewed.ClaimUntil, err)
		}
		back, err := w.PutBack(t.Context(), got, &engine.Rejection{Next: "wait", RetryAt: w.wall.Now().Add(time.Minute)})
		if wait := back.NotBefore.Sub(w.Clock.Now()); err != nil || wait != time.Minute {
			t.Errorf("refused for a minute it waits for %s, %v", wait, err)
		}
		w.pass(time.Minute)
		if p, _, err := w.Readmit(t.Context(), take()); err != nil {
			t.Errorf("nine minutes before its end it is refused: %v", err)
		} else if _, err := p.Settle(t.Context(), enginetest.HTTP(200, ok).Observation); err != nil {
			t.Error(err)
		}
	})
}

// R-AGT-5, R-BRK-8: an approval lasts as long as whoever gave it meant.
func TestStoredEndOfAnApproval(t *testing.T) {
	anHourOff(t, func(t *testing.T, off time.Duration) {
		w := workerOff(t, off, func(*engine.Policy) {})
		a := taxonomy.Approval{ID: "yes", By: "ann", Reason: "seen", Scope: "mail.send", Tenant: "acme", Until: w.wall.Now().Add(10 * time.Minute)}
		for range 2 { // the same again is no other one
			if err := w.Approve(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			w.pass(time.Minute)
		}
		stands := func() int {
			found, err := w.Store.Approved(t.Context(), "acme", "mail.send")
			if err != nil {
				t.Fatal(err)
			}
			return len(found)
		}
		w.pass(7 * time.Minute)
		if stands() != 1 {
			t.Error("a minute before its end it is gone")
		}
		if w.pass(time.Minute); stands() != 0 {
			t.Error("it outlives its end")
		}
	})
}

// R-BRK-8, R-FLT-10: a clock that is stepped while a worker runs: the worker's
// changes nothing, the store's is followed, and a store that does not answer is
// reckoned on.
func TestStoreTimeOverSteps(t *testing.T) {
	w := workerOff(t, 0, func(*engine.Policy) {})
	agree := func(when string) {
		t.Helper()
		if got, want := w.StoreNow(), w.Clock.Now(); !got.Equal(want) {
			t.Fatalf("%s: the store's time is taken for %s, and is %s", when, got, want)
		}
	}
	agree("at first")
	w.wall.Step(time.Hour)
	agree("the worker an hour fast")
	w.wall.Step(-2 * time.Hour)
	agree("the worker an hour slow")
	w.wall.Step(time.Hour)
	w.Clock.Step(time.Hour)
	w.wall.Step(time.Hour)
	agree("both stepped, as on one machine")

	w.Clock.Step(-5 * time.Second)
	w.pass(5 * time.Second)
	w.Tick(t.Context())
	agree("the store stepped, after five seconds")

	w.Lose(true)
	w.wall.Step(-time.Hour)
	w.pass(3 * time.Second)
	agree("the worker stepped while the store is away")
	w.pass(5 * time.Second)
	w.Tick(t.Context())
	agree("the store is away for long")
	w.Lose(false)
}

// A store whose clock cannot be read opens no engine.
func TestStoreTimeIsNeeded(t *testing.T) {
	h := enginetest.New(t, nil)
	h.Lose(true)
	defer h.Lose(false)
	if _, err := engine.New(t.Context(), h.Parts()); !errors.Is(err, state.ErrUnavailable) {
		t.Error(err)
	}
}

// TestHammerStoreTime: steps, answers and readers at once; the store's time goes
// its even way for all of them.
func TestHammerStoreTime(t *testing.T) {
	w := workerOff(t, time.Hour, func(*engine.Policy) {})
	want := w.Clock.Now()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 500 {
				if i%50 == 0 {
					w.wall.Step(time.Minute)
				}
				if got := w.StoreNow(); !got.Equal(want) {
					t.Errorf("%s, and it is %s", got, want)
					return
				}
			}
		})
	}
	group.Wait()
}
