package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// crew is the processes of a scene over one house: the first, which may be
// killed and started again, and whoever was hired. All have the same policy.
type crew struct {
	first *House
	hired []*House
	tuned []func(*engine.Policy)
	born  int
}

func (c *crew) restart(t testing.TB) *engine.Engine {
	c.born++
	*c.first = *c.first.Restart(t, fmt.Sprint("next-", c.born))
	c.use(t, c.first)
	return c.first.Engine
}

// hire starts a process with a slot of its own: nobody takes it for the heir of
// another one.
func (c *crew) hire(t testing.TB, name string) *engine.Engine {
	next := *c.first
	next.parts.Owner.Slot = len(c.hired) + 1
	h := next.Restart(t, name)
	c.hired = append(c.hired, h)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Close(ctx) // a case may end with what cannot be settled
	})
	c.use(t, h)
	return h.Engine
}

// use puts the tuned policy in force; each engine has one of its own.
func (c *crew) use(t testing.TB, h *House) {
	if len(c.tuned) == 0 {
		return
	}
	p := Policy(h.Rules)
	for _, f := range c.tuned {
		f(p)
	}
	if err := h.Use(p); err != nil {
		t.Fatal(err)
	}
}

func (c *crew) tune(t testing.TB, w []string) error {
	f, err := tuning(w)
	if err != nil {
		return err
	}
	c.tuned = append(c.tuned, f)
	for _, h := range append([]*House{c.first}, c.hired...) {
		c.use(t, h)
	}
	return nil
}

// tuning is the change that words name; package sdk makes the same ones in
// policy.toml.
func tuning(w []string) (func(*engine.Policy), error) {
	number := func() (int, error) {
		if len(w) != 2 {
			return 0, fmt.Errorf("usage: tune %s N", w[0])
		}
		return strconv.Atoi(w[1])
	}
	switch {
	case w[0] == "ramp":
		return func(p *engine.Policy) {
			p.Breakers[0].Rule.Ramp = breaker.Ramp{Steps: [breaker.MaxSteps]breaker.PPM{100_000, 500_000}, Every: 10 * time.Second,
				MinSuccesses: 3, Consecutive: 2, MinSamples: 5}
		}, nil
	case w[0] == "bulkhead":
		n, err := number()
		return func(p *engine.Policy) {
			p.Bulkheads = append(p.Bulkheads, engine.Bulkhead{Name: "cap", Scope: []string{"provider"}, Most: n})
		}, err
	case w[0] == "budget":
		n, err := number()
		return func(p *engine.Policy) {
			p.Budgets = append(p.Budgets, engine.Budget{Name: "drill", Scope: []string{"tenant"}, Window: time.Hour, Limit: state.Amounts{Attempts: int64(n)}})
		}, err
	case w[0] == "alternate" && len(w) == 3:
		return func(p *engine.Policy) {
			p.Fallbacks = append(p.Fallbacks, engine.Fallback{Name: "provider-open", Then: "wait", Candidates: []taxonomy.Candidate{
				{ID: "other", Kind: "alternate", Provider: w[1], Model: w[2]}, {ID: "refuse", Kind: "refuse"}}})
		}, nil
	}
	return nil, errors.New("usage: tune ramp | bulkhead N | budget N | alternate PROVIDER MODEL")
}
