package engine

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// An ExecutionBudget is the one owner of what a call may spend: attempts,
// fallbacks included, time, tokens and money. It travels in the context, so
// that a nested loop finds it and does not make its own; three layers with
// three tries each reach the remote at most as often as this one budget says
// (SPEC R-CALL-1).
type ExecutionBudget struct {
	attempts atomic.Int64
	tokens   atomic.Int64 // left; math.MaxInt64 is no limit
	cost     atomic.Int64 // nano dollars left; math.MaxInt64 is no limit
	deadline time.Time
}

// Spending is what a call may spend, or has left. Zero tokens or cost are no
// limit.
type Spending struct {
	Attempts    int
	Tokens      int64
	CostNanoUSD int64
	Deadline    time.Time // zero is none
}

// NewExecutionBudget makes a budget of its own.
func NewExecutionBudget(s Spending) *ExecutionBudget {
	b := &ExecutionBudget{deadline: s.Deadline}
	b.attempts.Store(int64(s.Attempts))
	limit := func(v *atomic.Int64, n int64) {
		if n <= 0 {
			n = math.MaxInt64
		}
		v.Store(n)
	}
	limit(&b.tokens, s.Tokens)
	limit(&b.cost, s.CostNanoUSD)
	return b
}

// Left is the number of attempts that remain.
func (b *ExecutionBudget) Left() int { return int(max(b.attempts.Load(), 0)) }

// Deadline is when the call must have ended; zero is never.
func (b *ExecutionBudget) Deadline() time.Time { return b.deadline }

// take spends one attempt that may use so much; false when there is no room.
func (b *ExecutionBudget) take(e taxonomy.Estimate) bool {
	if b.tokens.Load() < e.InputTokens+e.OutputTokens || b.cost.Load() < e.CostNanoUSD || b.tokens.Load() <= 0 || b.cost.Load() <= 0 {
		return false
	}
	return b.attempts.Add(-1) >= 0
}

// Spend notes what an attempt used, here or in a process further down.
func (b *ExecutionBudget) Spend(s Spending) {
	b.attempts.Add(-int64(s.Attempts))
	for v, n := range map[*atomic.Int64]int64{&b.tokens: s.Tokens, &b.cost: s.CostNanoUSD} {
		if v.Load() != math.MaxInt64 {
			v.Add(-n)
		}
	}
}

// BudgetHeader carries a budget to another process, which must not have a
// budget of its own then. SpentHeader brings back how many attempts it made.
const (
	BudgetHeader = "fusebox-retry-budget"
	SpentHeader  = "fusebox-retry-spent"
)

// Header writes what is left: "attempts=2; tokens=900; cost_nano_usd=4000000;
// deadline=2026-11-30T02:31:07Z", without what has no limit.
func (b *ExecutionBudget) Header() string {
	out := "attempts=" + strconv.Itoa(b.Left())
	if n := b.tokens.Load(); n != math.MaxInt64 {
		out += "; tokens=" + strconv.FormatInt(max(n, 0), 10)
	}
	if n := b.cost.Load(); n != math.MaxInt64 {
		out += "; cost_nano_usd=" + strconv.FormatInt(max(n, 0), 10)
	}
	if !b.deadline.IsZero() {
		out += "; deadline=" + b.deadline.UTC().Format(time.RFC3339Nano)
	}
	return out
}

// ParseExecutionBudget reads a header. Whoever sends one that cannot be read
// gets no attempts by guesswork: the error says what is wrong.
func ParseExecutionBudget(header string) (*ExecutionBudget, error) {
	s := Spending{Attempts: -1, Tokens: math.MaxInt64, CostNanoUSD: math.MaxInt64}
	for _, field := range strings.Split(header, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		var err error
		switch name {
		case "attempts":
			s.Attempts, err = strconv.Atoi(value)
		case "tokens":
			s.Tokens, err = strconv.ParseInt(value, 10, 64)
		case "cost_nano_usd":
			s.CostNanoUSD, err = strconv.ParseInt(value, 10, 64)
		case "deadline":
			s.Deadline, err = time.Parse(time.RFC3339Nano, value)
		default:
			continue // a newer sender may say more
		}
		if err != nil {
			return nil, fmt.Errorf("header %s: %s=%q cannot be read", BudgetHeader, name, value)
		}
	}
	if s.Attempts < 0 {
		return nil, fmt.Errorf("header %s: attempts is missing or negative", BudgetHeader)
	}
	b := NewExecutionBudget(s)
	// An exhausted token or money budget travels as 0, which is not "no limit".
	b.tokens.Store(max(s.Tokens, 0))
	b.cost.Store(max(s.CostNanoUSD, 0))
	return b, nil
}

type budgetKey struct{}

// WithExecutionBudget returns a context whose calls share b.
func WithExecutionBudget(ctx context.Context, b *ExecutionBudget) context.Context {
	return context.WithValue(ctx, budgetKey{}, b)
}

// ExecutionBudgetOf finds the budget that a caller further up made, or nil.
func ExecutionBudgetOf(ctx context.Context) *ExecutionBudget {
	b, _ := ctx.Value(budgetKey{}).(*ExecutionBudget)
	return b
}

// retryTokens is the bucket that bounds the retries of all runs together, one
// per provider. First attempts that succeed refill it; it is separate from any
// circuit, and an empty bucket ends retries without ending backoff.
type retryTokens struct {
	mu      sync.Mutex
	buckets map[string]*tokens
}

type tokens struct {
	left, out int64
	at        breaker.Instant // up to which time has filled it
}

// bucket is the provider's, filled up to now.
func (r *retryTokens) bucket(provider string, rule RetryTokens, now breaker.Instant) *tokens {
	if r.buckets == nil {
		r.buckets = map[string]*tokens{}
	}
	b := r.buckets[provider]
	if b == nil {
		b = &tokens{left: rule.Capacity, at: now}
		r.buckets[provider] = b
	}
	if rule.Every > 0 && now > b.at {
		n := int64(now.Sub(b.at) / rule.Every)
		b.at = b.at.Add(time.Duration(n) * rule.Every)
		b.left = min(b.left+min(n, rule.Capacity)*rule.Cost, rule.Capacity)
	}
	return b
}

// take asks for one retry; done must be called when it ends.
func (r *retryTokens) take(provider string, rule RetryTokens, now breaker.Instant) (done func(), ok bool) {
	if rule.Capacity <= 0 {
		return func() {}, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(provider, rule, now)
	if b.left < rule.Cost && b.out >= rule.Floor {
		return nil, false
	}
	b.left = max(b.left-rule.Cost, 0)
	b.out++
	return func() { r.mu.Lock(); b.out--; r.mu.Unlock() }, true
}

// succeeded refills the bucket after a first attempt that worked.
func (r *retryTokens) succeeded(provider string, rule RetryTokens, now breaker.Instant) {
	if rule.Capacity <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(provider, rule, now)
	b.left = min(b.left+rule.Refill, rule.Capacity)
}

// wait is the pause before attempt n+1, n counted from 1: exponential, capped,
// jittered by a draw in [0, 1), and never shorter than the remote's hint. The
// hint is a floor, so jitter only lengthens it.
func (p RetryProfile) wait(n int, hint time.Duration, draw float64) time.Duration {
	d := float64(p.Base)
	for i := 1; i < n && d < float64(p.Cap); i++ {
		d *= max(p.Growth, 1)
	}
	d = min(d, float64(p.Cap))
	d *= 1 + p.Jitter*(2*draw-1)
	w := time.Duration(d)
	if hint > 0 {
		w = max(w, hint+time.Duration(draw*p.Jitter*float64(min(hint, p.Cap))))
	}
	return w
}
