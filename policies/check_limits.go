package policies

import (
	"fmt"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

const (
	maxFloor      = 1000
	leastDeadline = 100 * time.Millisecond
	maxExpiry     = 30 * 24 * time.Hour // of queued work: what waits longer does what nobody wants any more
)

func (c *checker) budget() {
	b := &c.s.Budget
	c.oneOf("budget.on_exhausted", b.OnExhausted, "finalize", "defer", "approval")
	c.within("budget.retry.ratio", b.Retry.Ratio, 0, 1)
	c.within("budget.retry.capacity", b.Retry.Capacity, 0, 1e6)
	if b.Retry.Floor < 0 || b.Retry.Floor > maxFloor {
		c.fail("budget.retry.floor", "must be between 0 and %d, got %d; these retries are always possible, whatever the others used up", maxFloor, b.Retry.Floor)
	}
	if b.Reservation < time.Second {
		c.fail("budget.reservation", "must be at least 1s, got %s", b.Reservation)
	}
	c.names("budget.limit", len(b.Limits), func(i int) string { return b.Limits[i].Name })
	for i, l := range b.Limits {
		p := at("budget.limit", i)
		c.oneOf(p+".window", l.Window, "run", "hour", "day", "month")
		c.scope(p, l.Scope)
		if l.CostUSD < 0 || l.Tokens < 0 || l.Attempts < 0 || l.CostUSD > 1e9 {
			c.fail(p, "amounts must not be negative, and cost_usd at most 1e9")
		}
		if l.CostUSD == 0 && l.Tokens == 0 && l.Attempts == 0 && l.Time == 0 {
			c.fail(p, "limits nothing: set cost_usd, tokens, attempts or time")
		}
		if l.Window == "run" && !slices.Contains(l.Scope, "run_id") {
			c.fail(p+".scope", "must contain run_id where the window is a run")
		}
	}
}

// scope must name fields of the operation.
func (c *checker) scope(p string, scope []string) {
	if len(scope) == 0 {
		c.fail(p+".scope", "must name at least one field of the operation")
	}
	for j, part := range scope {
		if _, ok := taxonomy.PartNamed(part); !ok {
			c.oneOf(fmt.Sprintf("%s.scope[%d]", p, j), part, taxonomy.PartNames()...)
		}
	}
}

func (c *checker) bulkheads() {
	c.names("bulkhead", len(c.s.Bulkheads), func(i int) string { return c.s.Bulkheads[i].Name })
	for i, b := range c.s.Bulkheads {
		p := at("bulkhead", i)
		c.scope(p, b.Scope)
		if b.Most < 1 {
			c.fail(p+".most", "must be at least 1, got %d; leave the bulkhead out where nothing is bounded", b.Most)
		}
	}
}

func (c *checker) prices() {
	for i, r := range c.s.Prices {
		p := at("price", i)
		if r.Provider == "" || r.Model == "" {
			c.fail(p, "needs provider and model")
		}
		for _, n := range []float64{r.Input, r.Output, r.CachedInput, r.PerCall} {
			c.within(p, n, 0, 1e6)
		}
	}
}

func (c *checker) queue() {
	q := &c.s.Queue
	c.oneOf("queue.replay", q.Replay, "revalidate", "never")
	if q.Expires <= 0 {
		c.fail("queue.expires", "must be positive: no expiry, no entry")
	}
	if q.Expires > maxExpiry {
		c.fail("queue.expires", "must be at most %s, got %s; work that waits longer does what nobody wants any more", maxExpiry, q.Expires)
	}
	c.within("queue.max_items", float64(q.MaxItems), 1, 1e7)
	c.within("queue.per_tenant", float64(q.PerTenant), 1, 1e7)
	c.within("queue.pace", q.Pace, 0.001, 1e4)
	c.within("queue.attempts", float64(q.Attempts), 1, 1000)
	if q.Claim < time.Second {
		c.fail("queue.claim", "must be at least 1s, got %s", q.Claim)
	}
}

func (c *checker) retry() {
	r := &c.s.Retry
	if r.Deadline < leastDeadline || r.Deadline > 7*longest {
		c.fail("retry.deadline", "must be between %s and %s, got %s; it is for a call with all its attempts and waits", leastDeadline, 7*longest, r.Deadline)
	}
	if r.RetryAfterMax > taxonomy.MaxRetryAfter {
		c.fail("retry.retry_after_max", "must be at most %s, got %s", taxonomy.MaxRetryAfter, r.RetryAfterMax)
	}
	for name, f := range map[string]*Profile{"model": &r.Model, "tool": &r.Tool, "workflow": &r.Workflow, "background": &r.Background} {
		p := "retry." + name
		c.within(p+".attempts", float64(f.Attempts), 1, 100)
		c.within(p+".jitter", f.Jitter, 0, 1)
		c.timeout(p+".timeout", f.Timeout)
		if f.Attempts > 1 && len(f.Waits) == 0 && (f.Base <= 0 || f.Cap < f.Base) {
			c.fail(p, "needs base above 0 and cap not below it, or waits")
		}
	}
	l := &c.s.Loop
	for name, n := range map[string]int{"same_call": l.SameCall, "same_error": l.SameError, "ping_pong": l.PingPong, "steps": l.Steps} {
		if n < 0 || n == 1 || n > 64 {
			c.fail("loop."+name, "must be 0 (not watched) or between 2 and 64, got %d", n)
		}
	}
}

func (c *checker) rollout() {
	r := &c.s.Rollout
	c.within("rollout.canary_percent", r.CanaryPercent, 0, 100)
	if r.Unit != "tenant" && r.Unit != "run_id" && r.Unit != "agent" && r.Unit != "workflow" && r.Unit != "user" {
		c.oneOf("rollout.unit", r.Unit, "tenant", "run_id", "agent", "workflow", "user")
	}
	if r.Stage == taxonomy.ModeCanary && r.CanaryPercent == 0 {
		c.fail("rollout.canary_percent", "must be above 0 in stage canary")
	}
	if r.EnforceWrites {
		for _, x := range c.s.writesNotReady() {
			line := x.Line
			if line == 0 {
				line = lineOf(c.d.lines, "rollout.enforce_writes")
			}
			c.d.found.add(c.d.file, line, "rollout.enforce_writes is on, and %s; until then leave it off", x.Text)
		}
	}
	for i, g := range r.Gates {
		p := at("rollout.gate", i)
		c.oneOf(p+".measure", g.Measure, "opens", "user_failures", "fallback_quality", "interventions", "corrections", "risk")
		if g.MaxRatio < 0 || g.MaxRise < 0 || g.MaxRatio == 0 && g.MaxRise == 0 {
			c.fail(p, "needs max_ratio or max_rise above 0")
		}
	}
}
