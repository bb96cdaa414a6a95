package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-QUE-2, R-OPS-9: a worker of one tenant that finds nothing does not hold up
// another's, and one that found something keeps the pace for all.
func TestClaimOfNothingTakesNoTurn(t *testing.T) {
	h := with(t, func(p *engine.Policy) { p.Queue = engine.QueueRules{Drain: 1, Every: time.Second} })
	for _, c := range [][2]string{{"m1", "acme"}, {"m2", "acme"}, {"m3", "globex"}} {
		op := enginetest.Model(c[0])
		op.Tenant = c[1]
		if _, err := h.Enqueue(t.Context(), op, nil, queued(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(tenant string, want int) {
		t.Helper()
		if its, err := h.Engine.Claim(t.Context(), "w", state.From{Tenant: tenant}, 5); err != nil || len(its) != want {
			t.Fatalf("%s got %d items, want %d: %v", tenant, len(its), want, err)
		}
	}
	for range 3 {
		claim("initech", 0)
	}
	claim("acme", 1)
	claim("acme", 0)
	claim("globex", 0)
	h.Clock.Advance(time.Second)
	claim("globex", 1)
}

// A claim that a worker lost moves nothing: not by its renewal, not by a refusal,
// not by what came back, and not by its own words.
func TestLostClaimsMoveNothing(t *testing.T) {
	h := with(t, func(p *engine.Policy) { p.Queue = engine.QueueRules{Claim: time.Minute} })
	if _, err := h.Enqueue(t.Context(), enginetest.Model("m1"), nil, queued(time.Hour)); err != nil {
		t.Fatal(err)
	}
	take := func() state.Item {
		t.Helper()
		its, err := h.Engine.Claim(t.Context(), "w", state.From{}, 1)
		if err != nil || len(its) != 1 {
			t.Fatalf("%v, %v", its, err)
		}
		return its[0]
	}
	old := take()
	if it, err := h.Engine.Renew(t.Context(), old); err != nil || !it.ClaimUntil.After(old.ClaimUntil.Add(-time.Second)) {
		t.Fatalf("%+v, %v", it, err)
	}
	h.Clock.Advance(2 * time.Minute)
	now := take()
	refusal := &engine.Rejection{Decision: taxonomy.DecideReject, Next: "stop", Reason: "denied"}
	for name, end := range map[string]func() error{
		"renew":    func() error { _, err := h.Engine.Renew(t.Context(), old); return err },
		"put back": func() error { _, err := h.Engine.PutBack(t.Context(), old, refusal); return err },
		"conclude": func() error {
			_, err := h.Engine.Conclude(t.Context(), old, engine.Result{Verdict: taxonomy.Verdict{Outcome: taxonomy.Succeeded}})
			return err
		},
		"end": func() error {
			_, err := h.Engine.EndClaim(t.Context(), old, state.Disposition{State: state.Dead, Reason: "x"})
			return err
		},
	} {
		if err := end(); !errors.Is(err, state.ErrFenced) {
			t.Errorf("%s under a lost claim: %v", name, err)
		}
	}
	if its := itemsOf(t, h, state.Claimed); len(its) != 1 || its[0].Claim != now.Claim {
		t.Fatalf("the item is %+v", its)
	}
	if it, err := h.Engine.Conclude(t.Context(), now, engine.Result{Verdict: taxonomy.Verdict{Outcome: taxonomy.Succeeded}}); err != nil || it.State != state.Done || len(it.Attempts) != 1 {
		t.Errorf("under its own: %+v, %v", it, err)
	}
	if its := itemsOf(t, h, state.Done); len(its) != 1 || len(its[0].Attempts) != 1 {
		t.Errorf("stored: %+v", its)
	}
}
