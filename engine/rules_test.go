package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// row is a policy whose provider opens after so many failures in a row.
func row(version string, n uint32) func(*engine.Policy) {
	return func(p *engine.Policy) {
		p.Version = taxonomy.PolicyVersion(version + "@sha256:0001")
		p.Breakers[0].Rule.Trip.Consecutive, p.Breakers[0].Rule.Window.MinSamples = n, 1000
	}
}

func policy(h *enginetest.House, change func(*engine.Policy)) *engine.Policy {
	p := enginetest.Policy(h.Rules)
	p.Retries = once
	change(p)
	return p
}

// Workers of two policy versions on one store: where a breaker's rule differs,
// neither steps what the other counted, and an update over the fleet, worker by
// worker, stops nobody.
func TestRulesAreNeverMixed(t *testing.T) {
	old := fleet(t, false, row("v1", 5))
	call(t, old, "large", 503, 3)
	old.Tick(t.Context())
	next := join(t, old, "two", row("v2", 4)) // begins where the old one stands
	call(t, next, "large", 503, 1)
	if got := next.CircuitState(t, large); got != "OPEN" {
		t.Errorf("four in a row under the new rule: %s", got)
	}
	old.Tick(t.Context())
	call(t, old, "large", 503, 1)
	old.Tick(t.Context())
	if got := old.CircuitState(t, large); got != "CLOSED" {
		t.Errorf("four in a row under the old rule: %s", got)
	}
	call(t, old, "large", 503, 1)
	if got := old.CircuitState(t, large); got != "OPEN" {
		t.Errorf("five in a row under the old rule: %s", got)
	}

	// Restarted workers find what their own rule says; so does one that takes the
	// new policy by a reload, whatever it counted before.
	if got := join(t, old, "three", row("v1", 5)).CircuitState(t, large); got != "OPEN" {
		t.Errorf("a restarted old worker: %s", got)
	}
	next.Clock.Advance(time.Minute)
	p, err := probe(t, next)
	if err != nil {
		t.Fatal(err)
	}
	settle(t, p, 200)
	if err := old.Use(policy(old, row("v2", 4))); err != nil {
		t.Fatal(err)
	}
	old.Tick(t.Context())
	if got := old.CircuitState(t, large); got != "CLOSED" {
		t.Errorf("after its reload the old worker has it %s, and its rule closed it", got)
	}
	call(t, old, "large", 503, 4)
	if got := join(t, old, "four", row("v2", 4)).CircuitState(t, large); got != "OPEN" {
		t.Errorf("what it counted after its reload: %s", got)
	}
}

// R-BRK-5: two rules have one remote: no probe goes beside one that workers of
// another policy have out.
func TestProbesOfTwoRulesAreCountedTogether(t *testing.T) {
	old := fleet(t, false, row("v1", 5))
	next := join(t, old, "two", row("v2", 4))
	call(t, old, "large", 503, 5)
	call(t, next, "large", 503, 5)
	old.Clock.Advance(time.Minute)
	p, err := probe(t, old)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := probe(t, next); rejection(t, err).Reason != "probe_busy" {
		t.Errorf("a probe beside one of another policy: %v", err)
	}
	settle(t, p, 503)
	if _, err := probe(t, next); err != nil {
		t.Errorf("after the other one ended: %v", err)
	}
}

// R-BRK-10: where only what a rule is not changed (its mode, its owner, its
// contract, other rules), circuits go on as one.
func TestEqualRulesShareTheirCircuits(t *testing.T) {
	old := fleet(t, false, row("v1", 5))
	next := join(t, old, "two", func(p *engine.Policy) {
		row("v2", 5)(p)
		p.Breakers[0].Owner.Alerts, p.Breakers[0].OnStoreLoss = "somebody-else", breaker.LossAllow
		p.Breakers[2].Rule.Trip.Consecutive = 7
	})
	call(t, old, "large", 503, 3)
	old.Tick(t.Context())
	call(t, next, "large", 503, 2)
	next.Tick(t.Context())
	if got := next.CircuitState(t, large); got != "OPEN" {
		t.Errorf("three failures here and two there: %s", got)
	}
}

// R-BRK-9: an override binds under every rule: an emergency stop that half of the
// fleet ignored would be none. So does its end.
func TestOverrideBindsUnderEveryRule(t *testing.T) {
	old := fleet(t, false, row("v1", 5))
	next := join(t, old, "two", row("v2", 4))
	for _, h := range []*enginetest.House{old, next} {
		call(t, h, "large", 503, 1)
		h.Tick(t.Context())
	}
	forced := func(h *enginetest.House, version string, n uint32) bool {
		_, err := join(t, h, "look", row(version, n)).Admit(t.Context(), enginetest.Model(""))
		return err != nil
	}
	err := old.Override(t.Context(), large, breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "drill", Until: old.Clock.Mono().Add(time.Hour)})
	if err != nil || !forced(old, "v1", 5) || !forced(old, "v2", 4) {
		t.Errorf("forced open under the old rule %t, under the new one %t, %v", forced(old, "v1", 5), forced(old, "v2", 4), err)
	}
	late := join(t, old, "three", row("v2", 4))
	if err := late.Release(t.Context(), large, "bob", "all well"); err != nil || forced(old, "v1", 5) || forced(old, "v2", 4) {
		t.Errorf("after the release: under the old rule %t, under the new one %t, %v", forced(old, "v1", 5), forced(old, "v2", 4), err)
	}
}

// A worker whose rule is one too many is told so, and decides nothing high-impact
// by the state of others.
func TestTooManyRules(t *testing.T) {
	a := fleet(t, false, row("v1", 5))
	meter := &faults{}
	for i := range 6 {
		p := a.Parts()
		p.Policy = policy(a, row(fmt.Sprint("v", i+2), uint32(i+6)))
		p.Owner.Slot, p.Meter = i+10, meter
		e, err := engine.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		h := *a
		h.Engine = e
		call(t, &h, "large", 503, 1)
		h.Tick(t.Context())
		if refused := meter.last != nil && errors.Is(meter.last, engine.ErrOtherPolicies); refused != (i >= 4) {
			t.Errorf("worker %d: %v", i, meter.last)
		}
	}
	tools := func(n uint32) func(*engine.Policy) {
		return func(p *engine.Policy) { p.Breakers[2].Rule.Trip.Consecutive = n }
	}
	for i := range 5 {
		h := join(t, a, fmt.Sprint("tools", i), tools(uint32(i+7)))
		_, err := h.Do(t.Context(), enginetest.Write(""), enginetest.NewRemote(enginetest.HTTP(201, `{}`)).Send)
		h.Tick(t.Context())
		if rej, _ := errors.AsType[*engine.Rejection](err); (rej != nil) != (i == 4) || rej != nil && !errors.Is(rej.Cause, engine.ErrOtherPolicies) {
			t.Errorf("a write under rule %d: %v", i, err)
		}
	}
	a.Clock.Advance(11 * time.Minute) // nobody keeps the old ones any more
	meter.last = nil
	b := join(t, a, "late", row("v9", 20))
	call(t, b, "large", 503, 1)
	b.Tick(t.Context())
	if meter.last != nil {
		t.Error(meter.last)
	}
}

// faults keeps the latest error of the store.
type faults struct {
	enginetest.Meter
	last error
}

func (f *faults) StoreError(_ string, err error) { f.last = err }
