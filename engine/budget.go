package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// lines are the reservations that an operation needs under this policy: one
// for every budget whose scope the operation has.
func (p *Policy) lines(op *taxonomy.Operation, now time.Time) []state.Line {
	if len(p.Budgets) == 0 {
		return nil
	}
	out := make([]state.Line, 0, len(p.Budgets))
	for i := range p.Budgets {
		b := &p.Budgets[i]
		account, ok := b.account(op, now)
		if !ok {
			continue
		}
		out = append(out, state.Line{Account: account, Limit: b.Limit, Want: p.wants(op)})
	}
	return out
}

// A timeSpan is a stretch of wall time.
type timeSpan struct{ from, until time.Time }

func (s timeSpan) has(t time.Time) bool { return !t.Before(s.from) && t.Before(s.until) }

// sameWindows is a stretch from now on in which no budget's window ends.
func (p *Policy) sameWindows(now time.Time) timeSpan {
	const day = 24 * time.Hour
	until := now.Truncate(day).Add(day) // a month ends with a day
	for i := range p.Budgets {
		if w := p.Budgets[i].Window; w > 0 {
			if end := now.Truncate(w).Add(w); end.Before(until) {
				until = end
			}
		}
	}
	return timeSpan{now, until}
}

// reserves are the permit's lines. Admission and dispatch ask for them, mostly
// in one window, and the second then finds what the first has made.
func (p *Permit) reserves(now time.Time) []state.Line {
	if !p.linesFor.has(now) {
		p.lines, p.linesFor = p.policy.lines(&p.op, now), p.policy.sameWindows(now)
	}
	return p.lines
}

// wants is what a call reserves: its estimate, and one attempt.
func (p *Policy) wants(op *taxonomy.Operation) state.Amounts {
	e := op.Estimate
	cost := e.CostNanoUSD
	if cost == 0 {
		cost = p.cost(op, Usage{InputTokens: e.InputTokens, OutputTokens: e.OutputTokens})
	}
	return state.Amounts{CostNanoUSD: cost, Tokens: e.InputTokens + e.OutputTokens, Attempts: 1}
}

// Usage is what an answer says that its call used.
type Usage struct {
	InputTokens  int64
	CachedTokens int64 // of the input tokens, those that the remote had cached
	OutputTokens int64
	CostNanoUSD  int64 // 0 is computed from the declared price
}

// cost is the price of one call that used so much, 0 where policy declares no
// price.
func (p *Policy) cost(op *taxonomy.Operation, u Usage) int64 {
	for i := range p.Prices {
		if pr := &p.Prices[i]; pr.covers(op.Provider, op.Model) {
			return pr.of(u)
		}
	}
	return 0
}

func (p *Price) of(u Usage) int64 {
	cached := min(max(u.CachedTokens, 0), u.InputTokens)
	cheap := p.CachedPerMillion
	if cheap == 0 {
		cheap = p.InputPerMillion
	}
	return millionth(u.InputTokens-cached, p.InputPerMillion) + millionth(cached, cheap) + millionth(u.OutputTokens, p.OutputPerMillion) + p.PerCall
}

// millionth is tokens times the price of a million of them, rounded up and never
// more than an int64 holds: a cost that wraps would be a cost that nobody sees.
func millionth(tokens, price int64) int64 {
	if tokens <= 0 || price <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(tokens), uint64(price))
	if hi >= 1_000_000 {
		return math.MaxInt64 / 4
	}
	q, rest := bits.Div64(hi, lo, 1_000_000)
	if rest > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64/4))
}

// covers matches provider and model by name; in either a trailing * is every
// ending, and "" is every model. The first price that covers a call counts.
func (p *Price) covers(provider, model string) bool {
	return fits(p.Provider, provider) && (p.Model == "" || fits(p.Model, model))
}

func fits(pattern, name string) bool {
	if stem, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, stem)
	}
	return pattern == name
}

// account renders the key of one scope and window. Parts are length-prefixed,
// so that no tenant's name can spell another tenant's account; an absent part
// is a value like any other, so that calls without a tenant have a limit too.
// ok is false for a budget without a window, such as a run's, when the
// operation lacks the narrowest part: it has no run that could have one.
func (b *Budget) account(op *taxonomy.Operation, now time.Time) (key string, ok bool) {
	text, narrowest := appendScope(make([]byte, 0, 128), b.Name, b.Scope, op)
	switch {
	case b.Month:
		text = now.UTC().AppendFormat(append(text, '@'), "2006-01")
	case b.Window > 0:
		text = now.UTC().Truncate(b.Window).AppendFormat(append(text, '@'), time.RFC3339)
	}
	return string(text), b.Month || b.Window > 0 || narrowest != ""
}

// appendScope writes a name and the parts of a scope, length-prefixed, and
// returns the narrowest part.
func appendScope(dst []byte, name string, scope []string, op *taxonomy.Operation) (key []byte, narrowest string) {
	dst = append(dst, name...)
	for _, field := range scope {
		narrowest = ""
		if part, ok := taxonomy.PartNamed(field); ok {
			narrowest = part(op)
		}
		dst = strconv.AppendInt(append(dst, '/'), int64(len(narrowest)), 10)
		dst = append(append(dst, ':'), narrowest...)
	}
	return dst, narrowest
}

// affordable looks at the budgets without taking anything: a call that cannot
// fit is refused before anything is written. The reservation at dispatch
// decides; what is seen here may be a moment old.
func (p *Permit) affordable(ctx context.Context) *Rejection {
	e := p.e
	if p.stale > 0 {
		return nil // nothing to look at; dispatch must reserve, or spend what was granted before
	}
	now := e.StoreNow()
	for _, l := range p.reserves(now) {
		u, err := e.usage.of(ctx, e, l.Account, now)
		if err != nil {
			e.meter.StoreError("usage", err)
			return nil // dispatch must reserve, and says what follows from a lost store
		}
		if x := over(l, u); x != nil {
			return p.spent(ctx, x)
		}
	}
	return nil
}

// spent is the rejection of a call that its budget has no room for; it feeds
// the budget's circuit.
func (p *Permit) spent(ctx context.Context, x *state.Exhausted) *Rejection {
	v := p.e.refusal(p.policy, &p.op, `{"event":"budget_check","decision":"deny"}`)
	rej := p.exhausted(x)
	if p.policy.endless(x.Account) {
		// A run used up what it had: that stops no other, so it must not look
		// like the shared window that is used up.
		v.Reason, rej.Reason = "run_budget_exhausted", "run_budget_exhausted"
	}
	p.feedRefusal(ctx, v)
	return rej
}

// endless reports whether an account belongs to a budget without a window, such
// as a run's.
func (p *Policy) endless(account string) bool {
	for i := range p.Budgets {
		if b := &p.Budgets[i]; strings.HasPrefix(account, b.Name+"/") && b.Window <= 0 && !b.Month {
			return true
		}
	}
	return false
}

// over names the first unit of an account that has no room for a line. Only
// what is settled is looked at: what others, or this process's own blocks, hold
// at the moment may come back.
func over(l state.Line, u state.Usage) *state.Exhausted {
	for _, c := range [...]struct {
		unit              string
		limit, used, want int64
	}{
		{"cost_nano_usd", l.Limit.CostNanoUSD, u.Used.CostNanoUSD, l.Want.CostNanoUSD},
		{"tokens", l.Limit.Tokens, u.Used.Tokens, l.Want.Tokens},
		{"attempts", l.Limit.Attempts, u.Used.Attempts, l.Want.Attempts},
		{"time_ms", l.Limit.TimeMS, u.Used.TimeMS, l.Want.TimeMS},
	} {
		if c.limit > 0 && c.used+c.want > c.limit {
			return &state.Exhausted{Account: l.Account, Unit: c.unit, Left: max(c.limit-c.used, 0), Wanted: c.want}
		}
	}
	return nil
}

// usages remembers for a second where accounts stand.
type usages struct {
	mu   sync.Mutex
	seen map[string]seenUsage
}

type seenUsage struct {
	usage state.Usage
	at    time.Time
}

const (
	usageFresh = time.Second
	usageMost  = 10_000 // accounts remembered
)

func (c *usages) of(ctx context.Context, e *Engine, account string, now time.Time) (state.Usage, error) {
	c.mu.Lock()
	s, ok := c.seen[account]
	c.mu.Unlock()
	if age := now.Sub(s.at); ok && age >= 0 && age < usageFresh {
		return s.usage, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.parts.StoreWait)
	defer cancel()
	us, err := e.parts.Store.Usage(ctx, account)
	if err != nil || len(us) == 0 {
		return state.Usage{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil || len(c.seen) >= usageMost {
		c.seen = map[string]seenUsage{}
	}
	c.seen[account] = seenUsage{us[0], now}
	return us[0], nil
}

// takeBlock spends a read's budget from this process's blocks: no write to the
// store for most calls, and never over the limit.
func (p *Permit) takeBlock(ctx context.Context, lines []state.Line) *Rejection {
	e := p.e
	ctx, cancel := p.patience(ctx)
	defer cancel()
	spend, err := e.blocks.Take(ctx, lines)
	if err == nil {
		p.spend = spend
		return nil
	}
	if x, ok := errors.AsType[*state.Exhausted](err); ok {
		return p.spent(ctx, x)
	}
	e.meter.StoreError("budget", err)
	// Budgets never depend on what is cached: without the store, what cannot be
	// reserved cannot be spent.
	return p.unavailable("state_unavailable", fmt.Errorf("reserve: %w", err))
}
