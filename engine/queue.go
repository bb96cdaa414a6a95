package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// ErrWithdrawn says that nobody wants a queued item any more: the user took it
// back, or something newer took its place.
var ErrWithdrawn = errors.New("the work was withdrawn or superseded")

// Replay prepares a queued item afresh when its turn has come: it reads the
// data again, checks that the user still wants it (ErrWithdrawn), and returns
// the operation and how to send it. Permissions, approvals, budgets and
// circuits are checked by the path itself.
type Replay func(ctx context.Context, it state.Item) (taxonomy.Operation, Send, error)

// Enqueue keeps work that was answered "queue" until its circuit lets it go.
// Without an expiry there is no entry. The same request is kept once.
func (e *Engine) Enqueue(ctx context.Context, op taxonomy.Operation, payload []byte, rej *Rejection) (state.Item, error) {
	if rej == nil || rej.Decision != taxonomy.DecideQueue {
		return state.Item{}, errors.New("queue: only work that admission answered with queue may wait")
	}
	if len(payload) > maxPayload {
		return state.Item{}, fmt.Errorf("queue %s: the payload has %d bytes, and %d is the most; keep it elsewhere and queue where it lies", rej.Scope, len(payload), maxPayload)
	}
	_, policy := e.armFor(&op)
	defer func() { _ = policy.release() }()
	now := e.StoreNow()
	wait := rej.ExpiresIn
	if wait <= 0 {
		wait = policy.Queue.Expires
	}
	if most := policy.Queue.MaxExpiry; most > 0 {
		wait = min(wait, most)
	}
	expires := now.Add(wait)
	if op.Deadline > 0 {
		if d := e.toStore(time.UnixMilli(op.Deadline)); d.Before(expires) {
			expires = d
		}
	}
	it := state.Item{ID: op.RequestID, RequestID: op.RequestID, Created: now, Expires: expires, Priority: op.Priority,
		Dependency: rej.Scope, Replay: policy.Queue.replay(), Tenant: op.Tenant, Operation: taxonomy.AppendOperation(nil, &op), Payload: payload}
	if err := e.roomFor(ctx, &policy.Queue, it); err != nil {
		return state.Item{}, fmt.Errorf("queue %s: %w; the work was not kept", rej.Scope, err)
	}
	if err := e.parts.Store.Put(ctx, it); err != nil {
		return state.Item{}, fmt.Errorf("queue %s: %w", rej.Scope, err)
	}
	e.note(e.queueReceipt(policy, it, "queued"))
	e.meter.Queue(policy.waitsFor(it.Dependency), "queued")
	return it, nil
}

// maxPayload bounds what an item carries, in bytes.
const maxPayload = 1 << 20

// ErrQueueFull says that no more work may wait.
var ErrQueueFull = errors.New("the queue is full")

// replay is what becomes of an item when its circuit closes.
func (q *QueueRules) replay() string {
	if q.Manual {
		return "never"
	}
	return "revalidate"
}

// roomFor refuses an item that the queue, or its tenant's share, has no room for.
func (e *Engine) roomFor(ctx context.Context, q *QueueRules, it state.Item) error {
	waiting := []state.ItemState{state.Waiting, state.Claimed}
	n, err := e.items(ctx, state.ItemQuery{States: waiting, Limit: q.MaxItems})
	if err != nil {
		return err
	}
	if q.MaxItems > 0 && n >= q.MaxItems {
		return fmt.Errorf("%w: it holds %d items, which is its most", ErrQueueFull, n)
	}
	if q.PerTenant <= 0 || it.Tenant == "" {
		return nil
	}
	if n, err = e.items(ctx, state.ItemQuery{States: waiting, Tenant: it.Tenant, Limit: q.PerTenant}); err == nil && n >= q.PerTenant {
		err = fmt.Errorf("%w for tenant %s: %d of its items wait, which is its most", ErrQueueFull, it.Tenant, n)
	}
	return err
}

// items counts what a query selects, up to its limit; without one nothing.
func (e *Engine) items(ctx context.Context, q state.ItemQuery) (n int, err error) {
	if q.Limit <= 0 {
		return 0, nil
	}
	for _, err := range e.parts.Store.Items(ctx, q) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// Drain lets a few waiting items go, the most urgent first, each through the
// whole path. Expired ones are dropped with a receipt. It returns how many were
// let go. It keeps the pace that QueueRules names, however often it is called:
// before its time it lets nothing go, and nothing is ever released all at once.
func (e *Engine) Drain(ctx context.Context, worker string, replay Replay) (int, error) {
	claimed, err := e.Claim(ctx, worker, state.From{}, 0)
	if err != nil {
		return 0, fmt.Errorf("drain: %w", err)
	}
	var errs error
	for _, it := range claimed {
		errs = errors.Join(errs, e.replay(ctx, it, replay))
	}
	return len(claimed), errs
}

// tries is how often and how fast queued work is tried again.
type tries struct {
	most  int // dispatched; 0 is once
	pause RetryProfile
}

func (e *Engine) tries() tries {
	policy := e.current()
	defer func() { _ = policy.release() }()
	return tries{policy.Queue.Attempts, policy.retry(&taxonomy.Operation{Origin: taxonomy.OriginBackground})}
}

// claim is how long a claimed item is one worker's.
func (q *QueueRules) claim() time.Duration {
	if q.Claim > 0 {
		return q.Claim
	}
	return 2 * time.Minute
}

// A pace lets one step go in a while.
type pace struct{ next atomic.Int64 }

// turn reports whether the next step's time has come, and takes it.
func (p *pace) turn(now breaker.Instant, every time.Duration) bool {
	for {
		next := p.next.Load()
		if int64(now) < next {
			return false
		}
		if p.next.CompareAndSwap(next, int64(now.Add(every))) {
			return true
		}
	}
}

// back gives a turn back that nothing was made of, unless somebody took the next.
func (p *pace) back(now breaker.Instant, every time.Duration) {
	p.next.CompareAndSwap(int64(now.Add(every)), int64(now))
}

// replay carries one claimed item through the path and ends the claim.
func (e *Engine) replay(ctx context.Context, it state.Item, replay Replay) error {
	op, send, err := replay(ctx, it)
	if errors.Is(err, ErrWithdrawn) {
		return e.end(ctx, it, state.Disposition{State: state.Dropped, Reason: "withdrawn"})
	}
	if err != nil {
		err = fmt.Errorf("replay %s: prepare it: %w", it.ID, err)
		return errors.Join(err, e.end(ctx, it, state.Disposition{State: state.Waiting, Reason: "not_prepared", At: e.StoreNow().Add(again)}))
	}
	res, err := e.Do(ctx, e.fromQueue(op, it), send)
	return e.end(ctx, it, e.disposition(it, res, err))
}

// again is the pause before an item that could not go is looked at once more.
const again = 5 * time.Second

// disposition says what becomes of an item after its attempt. Work that was
// refused for a while, or failed in a way that may pass, waits on while policy
// allows another attempt; work that failed for good is a dead letter that a
// person looks at; an UNKNOWN write is never tried again from a queue.
func (e *Engine) disposition(it state.Item, res Result, err error) state.Disposition {
	t := e.tries()
	d := state.Disposition{Reason: res.Verdict.Reason}
	if res.Attempts > 0 {
		d.Attempt = &state.ItemAttempt{At: e.StoreNow(), Outcome: res.Verdict.Outcome, Reason: res.Verdict.Reason}
	}
	rej := res.Rejection
	switch {
	case err == nil:
		d.State = state.Done
	case rej != nil && rej.Reason == "already_applied": // by a worker that did not live to say so
		d.State, d.Reason = state.Done, rej.Reason
	case t.most > 0 && res.Attempts > 0 && len(it.Attempts)+1 >= t.most:
		d.State, d.Reason = state.Dead, "attempts_exhausted"
	case t.most > 0 && res.passing():
		d.State = state.Waiting
		d.At = e.StoreNow().Add(t.pause.wait(len(it.Attempts)+1, res.Verdict.RetryAfter, e.draw()))
	case rej != nil && (rej.Next == "wait" || rej.Next == "fallback" || rej.Next == "queue"):
		d.State, d.Reason = state.Waiting, rej.Reason
		if rej.RetryAt.IsZero() {
			d.At = e.StoreNow().Add(again)
		} else {
			d.At = e.toStore(rej.RetryAt)
		}
	default:
		d.State = state.Dead
		if rej != nil {
			d.Reason = rej.Reason
		}
	}
	return d
}

// sweep drops dead letters that were kept as long as policy says, a few at a
// time, each with a receipt.
func (e *Engine) sweep(ctx context.Context) {
	policy := e.current()
	keep := policy.Queue.KeepDead
	_ = policy.release()
	if keep <= 0 {
		return
	}
	now := e.StoreNow()
	for it, err := range e.parts.Store.Items(ctx, state.ItemQuery{States: []state.ItemState{state.Dead}}) {
		if err != nil {
			e.meter.StoreError("queue", err)
			return
		}
		since := it.Created
		if n := len(it.Attempts); n > 0 {
			since = it.Attempts[n-1].At
		}
		if now.Sub(since) < keep {
			continue
		}
		if err := e.parts.Store.Move(ctx, it.ID, state.Disposition{State: state.Dropped, Reason: "dead_letter_expired"}); err == nil {
			e.discarded(it, "dead_letter_expired")
		}
	}
}

// passing reports a failure that another attempt, later, may not meet again.
func (r *Result) passing() bool {
	v := r.Verdict
	if r.Exhausted != "" {
		v = r.Last
	}
	return r.Attempts > 0 && v.Retry.Automatic()
}

// discarded reports an item that will not be tried again.
func (e *Engine) discarded(it state.Item, reason string) {
	policy := e.current()
	defer func() { _ = policy.release() }()
	e.note(e.queueReceipt(policy, it, reason))
	e.meter.Queue(policy.waitsFor(it.Dependency), reason)
}

func (e *Engine) queueReceipt(p *Policy, it state.Item, reason string) *receipts.Receipt {
	r := e.newReceipt(receipts.KindQueue, receipts.Audit)
	r.PolicyVersion = p.Version
	r.RequestID, r.Tenant, r.QueueID, r.Scope, r.Reason = it.RequestID, it.Tenant, it.ID, it.Dependency, reason
	r.QueueExpiresUS = it.Expires.UnixMicro()
	r.Decision = receipts.Some(taxonomy.DecideQueue)
	if it.State == state.Claimed {
		r.By = it.Owner
	}
	return r
}
