package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// An ExecutionBudget is the one owner of what a call may spend: attempts,
// fallbacks included, and time. It travels in the context, so that a nested
// loop finds it and does not make its own; three layers with three tries each
// reach the remote at most as often as this one budget says (SPEC R-CALL-1).
type ExecutionBudget struct {
	attempts atomic.Int64
	deadline time.Time
}

// NewExecutionBudget allows so many attempts until the deadline; a zero
// deadline is none.
func NewExecutionBudget(attempts int, deadline time.Time) *ExecutionBudget {
	b := &ExecutionBudget{deadline: deadline}
	b.attempts.Store(int64(attempts))
	return b
}

// Left is the number of attempts that remain.
func (b *ExecutionBudget) Left() int { return int(max(b.attempts.Load(), 0)) }

// Deadline is when the call must have ended; zero is never.
func (b *ExecutionBudget) Deadline() time.Time { return b.deadline }

// take spends one attempt; false when there is none left.
func (b *ExecutionBudget) take() bool { return b.attempts.Add(-1) >= 0 }

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

type tokens struct{ left, out int64 }

func (r *retryTokens) bucket(provider string, rule RetryTokens) *tokens {
	if r.buckets == nil {
		r.buckets = map[string]*tokens{}
	}
	b := r.buckets[provider]
	if b == nil {
		b = &tokens{left: rule.Capacity}
		r.buckets[provider] = b
	}
	return b
}

// take asks for one retry; done must be called when it ends.
func (r *retryTokens) take(provider string, rule RetryTokens) (done func(), ok bool) {
	if rule.Capacity <= 0 {
		return func() {}, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(provider, rule)
	if b.left < rule.Cost && b.out >= rule.Floor {
		return nil, false
	}
	b.left = max(b.left-rule.Cost, 0)
	b.out++
	return func() { r.mu.Lock(); b.out--; r.mu.Unlock() }, true
}

// succeeded refills the bucket after a first attempt that worked.
func (r *retryTokens) succeeded(provider string, rule RetryTokens) {
	if rule.Capacity <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(provider, rule)
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
