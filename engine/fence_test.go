package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// probe admits and marks a call of one model.
func probe(t *testing.T, h *enginetest.House) (*engine.Permit, error) {
	t.Helper()
	p, err := h.Admit(t.Context(), enginetest.Model(""))
	if err == nil {
		err = p.Mark(t.Context())
	}
	return p, err
}

func settle(t *testing.T, p *engine.Permit, status int) engine.Result {
	t.Helper()
	res, err := p.Settle(t.Context(), enginetest.HTTP(status, ok).Observation)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// R-BRK-5, R-BRK-7: a probe whose lease ran out has lost its say: its late result
// closes nothing and opens nothing, also where another worker probes meanwhile.
func TestLateProbeIsFenced(t *testing.T) {
	for _, status := range []int{200, 503} {
		a := fleet(t, false, nil)
		call(t, a, "large", 503, 5)
		a.Clock.Advance(time.Minute)
		first, err := probe(t, a)
		if err != nil {
			t.Fatal(err)
		}
		a.Clock.Advance(40 * time.Second) // stopped past its lease of 30 s
		b := join(t, a, "two", nil)
		second, err := probe(t, b)
		if err != nil {
			t.Fatalf("the lease of a worker that is gone was not freed: %v", err)
		}
		settle(t, first, status)
		for _, h := range []*enginetest.House{a, b} {
			h.Tick(t.Context())
			if got := h.CircuitState(t, large); got != "HALF_OPEN" {
				t.Errorf("a late %d made it %s", status, got)
			}
		}
		settle(t, second, 200)
		if got := b.CircuitState(t, large); got != "CLOSED" {
			t.Errorf("the probe that holds the lease made it %s", got)
		}
	}
}

// R-CALL-2, R-QUE-1: the late owner of an intent that was settled by somebody else,
// or of a queued item that somebody else claimed, changes nothing.
func TestLateOwnersChangeNothing(t *testing.T) {
	a := fleet(t, false, func(p *engine.Policy) { p.Queue.MaxExpiry = time.Hour })
	p, err := a.Admit(t.Context(), enginetest.Write("w1"))
	if err == nil {
		err = p.Mark(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	a.Clock.Advance(5 * time.Minute) // the worker is stopped; its intent expires
	b := join(t, a, "two", nil)
	b.Tick(t.Context())
	if in := b.Intents(t, state.Unsettled); len(in) != 1 {
		t.Fatalf("%d intents are UNKNOWN", len(in))
	}
	if _, err := b.Reconcile(t.Context(), p.ID(), engine.Applied, "operator:ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Settle(t.Context(), enginetest.HTTP(422, `{}`).Observation); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a late owner says that it failed: %v", err)
	}
	if in := b.Intents(t, state.Settled); len(in) != 1 || in[0].Result.Outcome != taxonomy.Succeeded || in[0].Result.By != "operator:ann" {
		t.Errorf("what was looked up is overwritten: %+v", in)
	}

	if _, err := a.Enqueue(t.Context(), enginetest.Model("q1"), nil, queued(time.Hour)); err != nil {
		t.Fatal(err)
	}
	sent := 0
	replay := func(h *enginetest.House, meanwhile func()) error {
		_, err := h.Drain(t.Context(), "w", func(_ context.Context, it state.Item) (taxonomy.Operation, engine.Send, error) {
			op, err := taxonomy.ParseOperation(it.Operation)
			return op, func(ctx context.Context, c engine.Call) taxonomy.Observation {
				sent++
				meanwhile()
				return enginetest.HTTP(200, ok).Observation
			}, err
		})
		return err
	}
	err = replay(a, func() {
		a.Clock.Advance(3 * time.Minute) // past the claim
		if err := replay(b, func() {}); err != nil {
			t.Errorf("who took over: %v", err)
		}
	})
	if !errors.Is(err, state.ErrFenced) {
		t.Errorf("the late owner of a claim ended it: %v", err)
	}
	if its := itemsOf(t, b, state.Done); len(its) != 1 || sent != 2 {
		t.Errorf("%d items are done, %d sent", len(its), sent)
	}
}

// notice lets a worker that does not follow the store meet its other history.
func notice(t *testing.T, h *enginetest.House) {
	t.Helper()
	if _, err := h.Admit(t.Context(), enginetest.Write("")); rejection(t, err).Reason != "state_unavailable" {
		t.Fatal(err)
	}
	h.Tick(t.Context())
	if h.StoreView().WentBack {
		t.Fatal("the store could not be told")
	}
}

// A store that went back in time: workers tell it what they know, and the more
// restrictive state wins; until then nothing high-impact goes, and no lease.
func TestStoreGoesBack(t *testing.T) {
	a := fleet(t, false, nil)
	call(t, a, "other", 200, 1)
	a.Tick(t.Context())
	past := a.Store.Remember()
	call(t, a, "large", 503, 5)
	remote := enginetest.NewRemote(enginetest.HTTP(201, `{}`))
	if _, err := a.Do(t.Context(), enginetest.Write("w0"), remote.Send); err != nil {
		t.Fatal(err)
	}
	p, err := a.Admit(t.Context(), enginetest.Write("w1"))
	if err == nil {
		err = p.Mark(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	b := join(t, a, "two", nil)
	a.Store.GoBack(past)
	if n := len(a.Intents(t)); n != 0 {
		t.Fatalf("the intents of a lost history are there: %d", n)
	}

	untold := func(op memory.Op) memory.Fault {
		if op.Method == "Each" {
			return memory.Fault{Err: state.ErrUnavailable} // it answers, and cannot be told yet
		}
		return memory.Fault{}
	}
	b.Store.Inject(untold)
	for range 2 {
		_, err := b.Do(t.Context(), enginetest.Write(""), remote.Send)
		if rej := rejection(t, err); rej.Reason != "state_unavailable" || !b.StoreView().WentBack {
			t.Errorf("a write before the store was told: %s, %+v", rej.Reason, b.StoreView())
		}
		b.Tick(t.Context())
	}
	b.Store.Inject(nil)
	b.Tick(t.Context())
	if b.StoreView().WentBack {
		t.Error("the store was told, and the worker waits on")
	}
	if got := join(t, a, "three", nil).CircuitState(t, large); got != "OPEN" {
		t.Errorf("a circuit that workers know to be open is %s for a new one", got)
	}
	if _, err := b.Do(t.Context(), enginetest.Write("w3"), remote.Send); err != nil {
		t.Errorf("after it was told, a write: %v", err)
	}

	notice(t, a)
	if in := a.Intents(t, state.InFlight); len(in) != 1 || in[0].RequestID != "w1" {
		t.Errorf("the intent of a call in flight was not told again: %+v", in)
	}
	if _, err := b.Do(t.Context(), enginetest.Write("w0"), remote.Send); rejection(t, err).Reason != "already_applied" {
		t.Errorf("a write of the lost history was sent again: %v", err)
	}
	if res := settle(t, p, 201); res.Verdict.Outcome != taxonomy.Succeeded {
		t.Errorf("and its end: %+v", res.Verdict)
	}
}

// Leases of a lost history are void: who holds one may be probing still, so nobody
// probes before a lease's length has passed, and the old result is not heard.
func TestLeasesOfALostHistoryAreVoid(t *testing.T) {
	a := fleet(t, false, nil)
	call(t, a, "large", 503, 5)
	past := a.Store.Remember() // OPEN
	a.Clock.Advance(time.Minute)
	old, err := probe(t, a)
	if err != nil {
		t.Fatal(err)
	}
	a.Store.GoBack(past) // nobody knows any more that a probe is out
	b := join(t, a, "two", nil)
	if _, err := probe(t, b); err == nil {
		t.Fatal("the same probe was given a second time")
	}
	notice(t, a)
	if got := a.CircuitState(t, large); got != "OPEN" {
		t.Errorf("who held the lease has it %s", got)
	}
	settle(t, old, 200)
	for _, h := range []*enginetest.House{a, b} {
		h.Tick(t.Context())
		if got := h.CircuitState(t, large); got != "OPEN" {
			t.Errorf("the result of a void lease made it %s", got)
		}
	}
	a.Clock.Advance(31 * time.Second)
	next, err := probe(t, b)
	if err != nil {
		t.Fatalf("after a lease's length: %v", err)
	}
	settle(t, next, 200)
	if got := b.CircuitState(t, large); got != "CLOSED" {
		t.Errorf("a probe of the new history made it %s", got)
	}
}

// R-BRK-9: an operator's decision that a failover forgot is told again.
func TestOverrideOfALostHistoryHolds(t *testing.T) {
	a := fleet(t, false, nil)
	call(t, a, "large", 200, 1)
	a.Tick(t.Context())
	past := a.Store.Remember()
	err := a.Override(t.Context(), large, breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "drill", Until: a.Clock.Mono().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	a.Store.GoBack(past)
	notice(t, a)
	b := join(t, a, "two", nil)
	if _, err := b.Admit(t.Context(), enginetest.Model("")); rejection(t, err).Scope != large {
		t.Errorf("a new worker does not know that it is forced open: %v", err)
	}
}

// R-AGT-3: what was spent from blocks that a failover forgot is written down
// again, so that nobody spends it a second time.
func TestSpentBlocksOfALostHistoryCount(t *testing.T) {
	budget := func(p *engine.Policy) {
		p.Budgets = []engine.Budget{{Name: "day", Scope: []string{"tenant"}, Window: 24 * time.Hour, Limit: state.Amounts{Attempts: 40}}}
	}
	a := fleet(t, false, budget)
	past := a.Store.Remember()
	call(t, a, "large", 200, 25)
	a.Store.GoBack(past)
	notice(t, a)
	b := join(t, a, "two", budget)
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	for range 100 {
		for _, h := range []*enginetest.House{a, b} {
			_, _ = h.Do(t.Context(), enginetest.Model(""), remote.Send)
		}
		a.Clock.Advance(2 * time.Second)
	}
	if n := remote.Reached(); n > 15 {
		t.Errorf("25 calls were made before the failover and %d after it, on a limit of 40", n)
	}
}

// R-AGT-3: workers that share a budget never overspend it, near the limit too; what
// lay in the block of one that died counts as used.
func TestFleetNeverOverspends(t *testing.T) {
	const limit = 300
	budget := func(p *engine.Policy) {
		p.Budgets = []engine.Budget{{Name: "day", Scope: []string{"tenant"}, Window: 24 * time.Hour, Limit: state.Amounts{Attempts: limit}}}
	}
	a := fleet(t, false, budget)
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	do := func(h *enginetest.House) { _, _ = h.Do(t.Context(), enginetest.Model(""), remote.Send) }
	account := "day/4:acme@" + a.Clock.Now().Truncate(24*time.Hour).Format(time.RFC3339)
	stands := func() (used, held int64) {
		t.Helper()
		u, err := a.Store.Usage(t.Context(), account)
		if err != nil {
			t.Fatal(err)
		}
		return u[0].Used.Attempts, u[0].Reserved.Attempts
	}
	do(a)
	_, lost := stands()
	lost-- // what its block holds beside the one call
	dead := remote.Reached()
	b, c := join(t, a, "two", budget), join(t, a, "three", budget)
	if lost < 1 {
		t.Fatalf("the first block holds nothing to lose: %d", lost)
	}
	for range limit {
		for _, h := range []*enginetest.House{b, c} {
			do(h)
			if used, held := stands(); used+held > limit {
				t.Fatalf("%d used and %d held of %d", used, held, limit)
			}
		}
		a.Clock.Advance(5 * time.Second) // far past the end of the dead worker's block
	}
	if n := remote.Reached(); n != limit-int(lost) {
		t.Errorf("%d calls were made (%d by the worker that died), its block took %d more with it: all but those of %d were to be had", n, dead, lost, limit)
	}
}

// While the store is gone one circuit's count is tried, not every circuit's: or a
// beat would take as many waits as there are circuits.
func TestALostStoreIsAskedOnceABeat(t *testing.T) {
	h := fleet(t, false, nil)
	for _, model := range []string{"m1", "m2", "m3", "m4"} {
		call(t, h, model, 200, 1)
	}
	asked := 0
	h.Store.Inject(func(op memory.Op) memory.Fault {
		if op.Method == "Update" {
			asked++
		}
		return memory.Fault{Err: state.ErrUnavailable}
	})
	h.Tick(t.Context())
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
	h.Store.Inject(nil)
	h.Tick(t.Context())
	docs := 0
	if err := h.Store.Each(t.Context(), "brk/provider", func(state.Doc) error { docs++; return nil }); err != nil || docs < 4 {
		t.Errorf("once it is back it knows of %d circuits, %v", docs, err)
	}
}
