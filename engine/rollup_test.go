package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
)

// rolling is two processes over one store, whose regions open when three of
// their models are, and at least half of the active ones.
func rolling(t *testing.T) (a, b *enginetest.House) {
	settings := func() []breaker.Setting {
		s := enginetest.Breakers()
		s[0].Rollup = breaker.Rollup{Children: 3, Share: breaker.One / 2}
		return s
	}
	a = enginetest.New(t, func(p *engine.Parts) {
		p.Policy.Breakers = settings()
		p.Policy.Retries = []engine.RetryProfile{{Name: "model", Attempts: 1, Deadline: time.Minute}}
	})
	b = a.Restart(t, "second")
	policy := enginetest.Policy(a.Rules)
	policy.Breakers, policy.Retries = settings(), []engine.RetryProfile{{Name: "model", Attempts: 1, Deadline: time.Minute}}
	if err := b.Use(policy); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func call(t *testing.T, h *enginetest.House, model string, status, times int) {
	t.Helper()
	remote := enginetest.NewRemote(enginetest.HTTP(status, ok))
	for range times {
		op := enginetest.Model("")
		op.Model = model
		_, _ = h.Do(t.Context(), op, remote.Send)
	}
}

const region = "provider:acme-ai/-"

// R-BRK-2: a parent rolls up over the whole fleet. Two models were opened by
// another process; the third one, here, opens the region, and the store knows.
func TestRollupCountsWhatOtherProcessesOpened(t *testing.T) {
	a, b := rolling(t)
	call(t, a, "m1", 503, 5)
	call(t, a, "m2", 503, 5)
	if got := a.CircuitState(t, region); got != "CLOSED" {
		t.Fatalf("two of two open, and the region is %s", got)
	}
	call(t, b, "m3", 503, 5)
	if got := b.CircuitState(t, region); got != "OPEN" {
		t.Fatalf("three of three are open in the fleet, and the region is %s", got)
	}
	if got := a.Restart(t, "third").CircuitState(t, region); got != "OPEN" {
		t.Errorf("the store was not told: a new process finds the region %s", got)
	}
	found := 0
	for _, r := range b.Receipts(t) {
		if r.Scope == region && r.Reason == "rollup" {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d receipts of one roll-up", found)
	}
}

// R-BRK-2: the share is one of all that are active in the fleet, not of those
// that this process happens to call.
func TestRollupShareIsOfTheFleet(t *testing.T) {
	a, b := rolling(t)
	for i := range 7 {
		call(t, a, fmt.Sprintf("well%d", i), 200, 1)
	}
	a.Tick(t.Context()) // the beat that carries counts to the store
	for i := range 6 {
		call(t, b, fmt.Sprintf("ill%d", i), 503, 5)
		if got := b.CircuitState(t, region); got != "CLOSED" {
			t.Fatalf("%d of %d active models are open, and the region is %s", i+1, 7+i+1, got)
		}
	}
	call(t, b, "ill6", 503, 5)
	if got := b.CircuitState(t, region); got != "OPEN" {
		t.Errorf("7 of 14 active models are open, and the region is %s", got)
	}
}

// R-BRK-2: a circuit that only the store's sum of everybody's failures opens
// rolls up as well, also in a process that hears of it by watching.
func TestRollupOfWhatTheWatchBrings(t *testing.T) {
	a, b := rolling(t)
	call(t, a, "m1", 503, 5)
	call(t, a, "m2", 503, 5)
	call(t, a, "m3", 503, 3)
	a.Tick(t.Context())
	call(t, b, "m3", 503, 2) // five in a row, in the store alone
	b.Tick(t.Context())
	if got := b.CircuitState(t, "provider:acme-ai/-/m3"); got != "OPEN" {
		t.Fatalf("five failures in a row over two processes, and the model is %s", got)
	}
	if got := b.CircuitState(t, region); got != "OPEN" {
		t.Errorf("three of three are open, and the region is %s", got)
	}
}

// A child that opens again because its probe was lost counts as any other: time
// alone noticed it, and the region opens, here and in the store.
func TestRollupCountsLostProbes(t *testing.T) {
	a, _ := rolling(t)
	settings := enginetest.Breakers()
	settings[0].Rollup = breaker.Rollup{Children: 3, Share: breaker.One / 2}
	settings[0].Rule.Probe.LostMax = 1
	policy := enginetest.Policy(a.Rules)
	policy.Breakers, policy.Retries = settings, []engine.RetryProfile{{Name: "model", Attempts: 1, Deadline: time.Minute}}
	if err := a.Use(policy); err != nil {
		t.Fatal(err)
	}
	call(t, a, "m1", 503, 5)
	a.Clock.Advance(settings[0].Rule.Cooldown.Base)
	a.Tick(t.Context())
	op := enginetest.Model("probe")
	op.Model = "m1"
	p, err := a.Admit(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Mark(t.Context()); err != nil || !p.Probe() {
		t.Fatalf("no probe: %v", err)
	}
	call(t, a, "m2", 503, 5)
	call(t, a, "m3", 503, 5)
	if got := a.CircuitState(t, region); got != "CLOSED" {
		t.Fatalf("two of three are open, and the region is %s", got)
	}
	// The process was stopped for so long: the lease was not renewed in time.
	a.Clock.Advance(settings[0].Rule.Probe.Lease)
	a.Tick(t.Context())
	if got := a.CircuitState(t, "provider:acme-ai/-/m1"); got != "OPEN" {
		t.Fatalf("the child whose probe was lost is %s", got)
	}
	if got := a.CircuitState(t, region); got != "OPEN" {
		t.Fatalf("three of three are open, and the region is %s", got)
	}
	if got := a.Restart(t, "third").CircuitState(t, region); got != "OPEN" {
		t.Errorf("the store was not told: a new process finds the region %s", got)
	}
}
