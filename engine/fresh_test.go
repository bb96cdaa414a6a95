package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A fleetStore is a store in memory that says what the store of a fleet says: it
// is shared, and lies behind a network.
type fleetStore struct{ *memory.Store }

func (fleetStore) Caps() state.Caps {
	return state.Caps{Name: "fleet", Shared: true, Remote: true, FailoverMayRewind: true}
}

// fleet is one worker over a fleet's store. Its clock is the bubble's where it
// runs in one, else it stands still.
func fleet(t *testing.T, bubble bool, change func(*engine.Policy)) *enginetest.House {
	t.Helper()
	var store *memory.Store
	h := enginetest.New(t, func(p *engine.Parts) {
		store = p.Store.(*memory.Store)
		if bubble {
			p.Clock = engine.RealClock()
			store = memory.New(memory.Options{})
		}
		p.Store = fleetStore{store}
		p.Policy.Retries = once
		if change != nil {
			change(p.Policy)
		}
	})
	h.Store = store
	return h
}

var once = []engine.RetryProfile{{Name: "model", Attempts: 1, Deadline: time.Minute}, {Name: "tool", Attempts: 1, Deadline: time.Minute}}

// join is another worker on the same store, with a slot of its own.
func join(t *testing.T, h *enginetest.House, name string, change func(*engine.Policy)) *enginetest.House {
	t.Helper()
	next := *h
	parts := h.Parts()
	parts.Owner = state.Owner{Slot: int(slots.Add(1)), Incarnation: name}
	parts.Policy = enginetest.Policy(h.Rules)
	parts.Policy.Retries, parts.Policy.Budgets = once, h.Parts().Policy.Budgets
	if change != nil {
		change(parts.Policy)
	}
	var err error
	if next.Engine, err = engine.New(t.Context(), parts); err != nil {
		t.Fatal(err)
	}
	return &next
}

var slots atomic.Int64

// running follows the store until the test ends.
func running(t *testing.T, h *enginetest.House) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	time.Sleep(300 * time.Millisecond) // of the bubble: the first beats are heard
}

// freeze makes the store answer nothing, in the middle of everything.
func freeze(h *enginetest.House) {
	h.Store.Inject(func(memory.Op) memory.Fault { return memory.Fault{Freeze: true} })
}

func last(t *testing.T, h *enginetest.House, kind receipts.Kind) receipts.Receipt {
	t.Helper()
	var out receipts.Receipt
	for _, r := range h.Receipts(t) {
		if r.Kind == kind {
			out = r
		}
	}
	return out
}

// The copy of the store's circuits is stale one second after the latest beat,
// and not before; at once where the watch breaks; and fresh again with the first
// beat that is heard.
func TestCopyGoesStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := fleet(t, true, nil)
		if v := h.StoreView(); v.Followed || v.Stale {
			t.Errorf("before it runs: %+v", v)
		}
		running(t, h)
		if v := h.StoreView(); !v.Followed || v.Stale || v.Age > 250*time.Millisecond {
			t.Errorf("while beats are heard: %+v", v)
		}
		freeze(h)
		time.Sleep(850 * time.Millisecond)
		if v := h.StoreView(); v.Stale {
			t.Errorf("%s after the latest beat it is stale already", v.Age)
		}
		time.Sleep(200 * time.Millisecond)
		if v := h.StoreView(); !v.Stale {
			t.Errorf("%s after the latest beat it is not stale", v.Age)
		}
		h.Store.Inject(func(memory.Op) memory.Fault { return memory.Fault{Err: state.ErrUnavailable} })
	})
	synctest.Test(t, func(t *testing.T) {
		h := fleet(t, true, nil)
		running(t, h)
		h.Lose(true)
		time.Sleep(101 * time.Millisecond) // the next beat is an error
		if v := h.StoreView(); !v.Stale {
			t.Errorf("the watch is lost, and the copy is not stale: %+v", v)
		}
		h.Lose(false)
		time.Sleep(201 * time.Millisecond)
		if v := h.StoreView(); v.Stale {
			t.Errorf("the watch stands again, and the copy is stale: %+v", v)
		}
	})
}

// What others changed between two watches is not missed.
func TestNothingFallsBetweenTwoWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := fleet(t, true, nil)
		b := join(t, a, "two", nil)
		call(t, a, "large", 503, 5) // after the other one read all circuits, before it watches
		running(t, b)
		if got := b.CircuitState(t, large); got != "OPEN" {
			t.Errorf("it is %s for who began to watch a moment later", got)
		}
	})
}

// R-ADM-4: a high-impact operation on a shared store asks the store itself, also
// where the copy is fresh: what another worker learned a moment ago counts.
func TestHighImpactReadsThrough(t *testing.T) {
	a := fleet(t, false, nil)
	b := join(t, a, "two", nil)
	timeout := enginetest.NewRemote(enginetest.Broken("read_timeout").Committed())
	if _, err := a.Do(t.Context(), enginetest.Write("w1"), timeout.Send); err == nil {
		t.Fatal("a write that timed out succeeded")
	}
	const scope = "ambiguity:mail/mail.send/acme"
	if got := b.CircuitState(t, scope); got != "CLOSED" {
		t.Fatalf("the other worker heard already: %s", got)
	}
	remote := enginetest.NewRemote(enginetest.HTTP(201, `{}`))
	_, err := b.Do(t.Context(), enginetest.Write("w2"), remote.Send)
	if rej := rejection(t, err); rej.Scope != scope || remote.Reached() != 0 {
		t.Errorf("%s %s, %d calls reached the remote", rej.Reason, rej.Scope, remote.Reached())
	}
	if r := last(t, b, receipts.KindAdmission); r.StoreRule != "read_through" || r.FailMode != receipts.NoFailMode {
		t.Errorf("the receipt says %q, %s", r.StoreRule, r.FailMode)
	}
}

// R-ADM-4, R-FLT-15: without an answer of the store a high-impact operation fails
// closed within 50 ms, whether the copy is fresh or stale, and says why. So does a
// read of a class that policy marks.
func TestHighImpactFailsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := fleet(t, true, func(p *engine.Policy) { p.HighImpact = []string{"balance"} })
		running(t, h)
		remote := enginetest.NewRemote(enginetest.HTTP(201, `{}`))
		marked := enginetest.Write("r1")
		marked.Effect, marked.ActionClass = taxonomy.ReadOnly, "balance"
		freeze(h)
		for _, age := range []time.Duration{0, 2 * time.Second} {
			time.Sleep(age)
			for _, op := range []taxonomy.Operation{enginetest.Write(""), marked} {
				begin := time.Now()
				_, err := h.Do(t.Context(), op, remote.Send)
				if took := time.Since(begin); took > 50*time.Millisecond {
					t.Errorf("%s: it took %s to say no", op.Effect, took)
				}
				if rej := rejection(t, err); rej.Reason != "state_unavailable" || remote.Reached() != 0 {
					t.Errorf("%s: %s, %d reached the remote", op.Effect, rej.Reason, remote.Reached())
				}
				if r := last(t, h, receipts.KindAdmission); r.StoreRule != "read_through" || r.FailMode != receipts.StoreUnavailableClosed || (r.StaleMS > 0) != (age > 0) {
					t.Errorf("%s: the receipt says %q, %s, stale for %d ms", op.Effect, r.StoreRule, r.FailMode, r.StaleMS)
				}
			}
		}
		h.Store.Inject(func(memory.Op) memory.Fault { return memory.Fault{Err: state.ErrUnavailable} })
	})
}

// R-ADM-4, R-FLT-15: low-impact reads go by the rule that their action class or
// their circuits declare, wait for nothing, and say so.
func TestReadsWithAStaleCopy(t *testing.T) {
	loss := func(l breaker.StoreLoss) func(*engine.Policy) {
		return func(p *engine.Policy) { p.Breakers[0].OnStoreLoss = l }
	}
	class := func(l breaker.StoreLoss, open bool) func(*engine.Policy) {
		return func(p *engine.Policy) {
			p.Breakers[0].OnStoreLoss = l
			p.StoreLoss = []engine.StoreLossRule{{ReadsOpen: !open}, {ActionClass: "search", ReadsOpen: open}}
		}
	}
	for name, c := range map[string]struct {
		policy func(*engine.Policy)
		open   bool // the circuit, by the copy
		reason string
		rule   string
		mode   receipts.FailMode
	}{
		"local, closed":          {loss(breaker.LossLocal), false, "", "local", receipts.StoreUnavailableOpen},
		"local, open":            {loss(breaker.LossLocal), true, "circuit_open", "local", receipts.StoreUnavailableOpen},
		"allow, open":            {loss(breaker.LossAllow), true, "", "allow", receipts.StoreUnavailableOpen},
		"deny, closed":           {loss(breaker.LossDeny), false, "state_unavailable", "deny", receipts.StoreUnavailableClosed},
		"deny, and its class no": {class(breaker.LossLocal, false), false, "state_unavailable", "deny", receipts.StoreUnavailableClosed},
		"deny, but its class":    {class(breaker.LossDeny, true), false, "", "local", receipts.StoreUnavailableOpen},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := fleet(t, true, c.policy)
				running(t, h)
				if c.open {
					call(t, h, "large", 503, 5)
				}
				freeze(h)
				time.Sleep(2 * time.Second)
				op := enginetest.Model("")
				op.ActionClass, op.RunID = "search", "run-1"
				begin := time.Now()
				p, err := h.Admit(t.Context(), op)
				if took := time.Since(begin); took > 100*time.Millisecond { // its run's history is asked for once
					t.Errorf("admission took %s", took)
				}
				reason := ""
				if rej, ok := errors.AsType[*engine.Rejection](err); ok {
					reason = rej.Reason
				}
				r := last(t, h, receipts.KindAdmission)
				if reason != c.reason || r.StoreRule != c.rule || r.FailMode != c.mode || r.StaleMS < 1000 {
					t.Errorf("refused as %q; the receipt says %q, %s, stale for %d ms", reason, r.StoreRule, r.FailMode, r.StaleMS)
				}
				h.Lose(true)
				if p != nil {
					if err := p.Abandon(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// What a person forced open stays so, whatever a circuit is worth without the
// store.
func TestForcedOpenHoldsWithAStaleCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := fleet(t, true, func(p *engine.Policy) { p.Breakers[0].OnStoreLoss = breaker.LossAllow })
		running(t, h)
		err := h.Override(t.Context(), large, breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "drill", Until: h.Parts().Clock.Mono().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		h.Lose(true)
		time.Sleep(2 * time.Second)
		_, err = h.Admit(t.Context(), enginetest.Model(""))
		if rej := rejection(t, err); rej.Scope != large {
			t.Errorf("%s %s", rej.Reason, rej.Scope)
		}
	})
}

// R-BRK-5, R-BRK-8: a cooldown is a deadline on this process's own clock; when it
// is over, only the store turns the circuit HALF_OPEN, with a lease. Without the
// store nobody probes, whatever policy says of reads.
func TestLeasesComeFromTheStoreAlone(t *testing.T) {
	open := func(p *engine.Policy) { p.StoreLoss = []engine.StoreLossRule{{ReadsOpen: true}} }
	a := fleet(t, false, open)
	call(t, a, "large", 503, 5)
	a.Clock.Step(time.Hour) // the wall clock ends no cooldown
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	if _, err := a.Do(t.Context(), enginetest.Model(""), remote.Send); rejection(t, err).Reason != "circuit_open" {
		t.Fatal(err)
	}
	a.Clock.Advance(time.Minute)
	a.Tick(t.Context())
	if got := a.CircuitState(t, large); got != "OPEN" {
		t.Errorf("time alone made it %s", got)
	}
	a.Lose(true)
	for range 3 {
		_, err := a.Do(t.Context(), enginetest.Model(""), remote.Send)
		if rej := rejection(t, err); rej.Reason != "state_unavailable" {
			t.Errorf("a probe without the store: %s", rej.Reason)
		}
	}
	if got := a.CircuitState(t, large); got != "OPEN" || remote.Reached() != 0 {
		t.Errorf("without the store it is %s, and %d calls were sent", got, remote.Reached())
	}
	a.Lose(false)
	p, err := a.Admit(t.Context(), enginetest.Model(""))
	if err == nil {
		err = p.Mark(t.Context())
	}
	if got := a.CircuitState(t, large); err != nil || got != "HALF_OPEN" {
		t.Fatalf("with a lease it is %s, %v", got, err)
	}
	c := join(t, a, "three", open)
	if _, err := c.Do(t.Context(), enginetest.Model(""), remote.Send); err == nil || remote.Reached() != 0 {
		t.Errorf("a second probe went beside the first: %v", err)
	}
}
