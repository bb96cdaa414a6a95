package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	policy := e.current()
	defer func() { _ = policy.release() }()
	now := e.clock.Now()
	wait := rej.ExpiresIn
	if most := policy.Queue.MaxExpiry; most > 0 {
		wait = min(wait, most)
	}
	expires := now.Add(wait)
	if op.Deadline > 0 && time.UnixMilli(op.Deadline).Before(expires) {
		expires = time.UnixMilli(op.Deadline)
	}
	it := state.Item{ID: op.RequestID, RequestID: op.RequestID, Created: now, Expires: expires, Priority: op.Priority,
		Dependency: rej.Scope, Replay: "revalidate", Tenant: op.Tenant, Operation: taxonomy.AppendOperation(nil, &op), Payload: payload}
	if full, err := e.queueFull(ctx, policy.Queue.MaxItems); err != nil || full {
		return state.Item{}, errors.Join(err, fmt.Errorf("queue %s: the queue holds %d items, which is its most; the work was not kept", rej.Scope, policy.Queue.MaxItems))
	}
	if err := e.parts.Store.Put(ctx, it); err != nil {
		return state.Item{}, fmt.Errorf("queue %s: %w", rej.Scope, err)
	}
	e.note(e.queueReceipt(policy, it, "queued"))
	return it, nil
}

func (e *Engine) queueFull(ctx context.Context, most int) (bool, error) {
	if most <= 0 {
		return false, nil
	}
	n := 0
	for _, err := range e.parts.Store.Items(ctx, state.ItemQuery{States: []state.ItemState{state.Waiting, state.Claimed}, Limit: most}) {
		if err != nil {
			return false, err
		}
		n++
	}
	return n >= most, nil
}

// Drain lets a few waiting items go: those whose dependency is not refusing,
// the most urgent first, each through the whole path. Expired ones are dropped
// with a receipt. It returns how many were let go. Call it at the pace that
// QueueRules names; nothing is ever released all at once.
func (e *Engine) Drain(ctx context.Context, worker string, replay Replay) (int, error) {
	policy := e.current()
	rules := policy.Queue
	_ = policy.release()
	n := max(rules.Drain, 1)
	claimed, expired, err := e.parts.Store.Claim(ctx, worker, "", n, claimFor)
	for _, it := range expired {
		e.discarded(it, "expired")
	}
	if err != nil {
		return 0, fmt.Errorf("drain: %w", err)
	}
	var errs error
	for _, it := range claimed {
		errs = errors.Join(errs, e.replay(ctx, it, replay))
	}
	return len(claimed), errs
}

// claimFor is how long a claimed item is this worker's; an attempt renews it.
const claimFor = 2 * time.Minute

// replay carries one claimed item through the path and ends the claim.
func (e *Engine) replay(ctx context.Context, it state.Item, replay Replay) error {
	op, send, err := replay(ctx, it)
	if errors.Is(err, ErrWithdrawn) {
		e.discarded(it, "withdrawn")
		return e.parts.Store.Finish(ctx, it.ID, it.Claim, state.Disposition{State: state.Dropped, Reason: "withdrawn"})
	}
	if err != nil {
		return e.parts.Store.Finish(ctx, it.ID, it.Claim, state.Disposition{State: state.Waiting, Reason: "not_prepared", At: e.clock.Now().Add(again)})
	}
	op.Origin, op.RequestID, op.Deadline = taxonomy.OriginQueue, it.RequestID, it.Expires.UnixMilli()
	res, err := e.Do(ctx, op, send)
	d := e.disposition(it, res, err)
	if d.State == state.Dead {
		e.discarded(it, "dead")
	}
	return e.parts.Store.Finish(ctx, it.ID, it.Claim, d)
}

// again is the pause before an item that could not go is looked at once more.
const again = 5 * time.Second

// disposition says what becomes of an item after its attempt. Work that was
// refused for a while waits on; work that failed for good is a dead letter that
// a person looks at; an UNKNOWN write is never tried again from a queue.
func (e *Engine) disposition(it state.Item, res Result, err error) state.Disposition {
	d := state.Disposition{Reason: res.Verdict.Reason}
	if res.Attempts > 0 {
		d.Attempt = &state.ItemAttempt{At: e.clock.Now(), Outcome: res.Verdict.Outcome, Reason: res.Verdict.Reason}
	}
	rej := res.Rejection
	switch {
	case err == nil:
		d.State = state.Done
	case rej != nil && (rej.Next == "wait" || rej.Next == "fallback" || rej.Next == "queue"):
		d.State, d.Reason = state.Waiting, rej.Reason
		d.At = rej.RetryAt
		if d.At.IsZero() {
			d.At = e.clock.Now().Add(again)
		}
	default:
		d.State = state.Dead
		if rej != nil {
			d.Reason = rej.Reason
		}
	}
	return d
}

// discarded reports an item that will not be tried again.
func (e *Engine) discarded(it state.Item, reason string) {
	policy := e.current()
	defer func() { _ = policy.release() }()
	e.note(e.queueReceipt(policy, it, reason))
}

func (e *Engine) queueReceipt(p *Policy, it state.Item, reason string) *receipts.Receipt {
	r := e.newReceipt(receipts.KindQueue, receipts.Audit)
	r.PolicyVersion = p.Version
	r.RequestID, r.Tenant, r.QueueID, r.Scope, r.Reason = it.RequestID, it.Tenant, it.ID, it.Dependency, reason
	r.QueueExpiresUS = it.Expires.UnixMicro()
	r.Decision = receipts.Some(taxonomy.DecideQueue)
	return r
}
