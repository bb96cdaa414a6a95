package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The steps of Drain, each for itself: for workers in other processes that send
// by themselves. Claim, Readmit, then Conclude or EndClaim.

// Claim leases the next waiting items to a worker, at most as many and at the
// pace that QueueRules names, however often and by whom it is called; most
// lowers their number, 0 does not. What expired is dropped with a receipt.
func (e *Engine) Claim(ctx context.Context, worker string, from state.From, most int) ([]state.Item, error) {
	policy := e.current()
	rules := policy.Queue
	_ = policy.release()
	n := max(rules.Drain, 1)
	if most > 0 {
		n = min(n, most)
	}
	now := e.clock.Mono()
	turn := !rules.Manual && e.pace.turn(now, rules.Every)
	if !turn {
		n = 0 // what expired is met all the same
	}
	claimed, expired, err := e.parts.Store.Claim(ctx, worker, from, n, rules.claim())
	for _, it := range expired {
		e.discarded(it, "expired")
	}
	if turn && len(claimed) == 0 {
		e.pace.back(now, rules.Every) // or a worker of one tenant, finding nothing, would hold up the others
	}
	return claimed, err
}

// fromQueue is an item's operation as it passes admission.
func (e *Engine) fromQueue(op taxonomy.Operation, it state.Item) taxonomy.Operation {
	op.Origin, op.RequestID, op.Deadline = taxonomy.OriginQueue, it.RequestID, e.fromStore(it.Expires).UnixMilli()
	return op
}

// Renew lengthens a claim from now; state.ErrFenced once it is lost.
func (e *Engine) Renew(ctx context.Context, it state.Item) (state.Item, error) {
	policy := e.current()
	lease := policy.Queue.claim()
	_ = policy.release()
	if err := e.parts.Store.Renew(ctx, it.ID, it.Claim, lease); err != nil {
		return it, err
	}
	it.ClaimUntil = e.StoreNow().Add(lease)
	return it, nil
}

// Readmit asks admission afresh for a claimed item. With a rejection the claim
// has ended, and the item is where the rejection puts it: it waits on, or is
// dead.
func (e *Engine) Readmit(ctx context.Context, it state.Item) (*Permit, state.Item, error) {
	op, err := taxonomy.ParseOperation(it.Operation)
	if err != nil {
		return nil, it, fmt.Errorf("queue %s: read its operation: %w", it.ID, err)
	}
	p, err := e.Admit(ctx, e.fromQueue(op, it))
	rej, refused := errors.AsType[*Rejection](err)
	if !refused {
		return p, it, err
	}
	it, err = e.PutBack(ctx, it, rej)
	return nil, it, errors.Join(rej, err)
}

// PutBack ends the claim of an item that was refused, at admission or at
// dispatch, as Drain does.
func (e *Engine) PutBack(ctx context.Context, it state.Item, rej *Rejection) (state.Item, error) {
	return e.settleItem(ctx, it, e.disposition(it, Result{Rejection: rej}, rej))
}

func (e *Engine) settleItem(ctx context.Context, it state.Item, d state.Disposition) (state.Item, error) {
	if err := e.end(ctx, it, d); err != nil {
		return it, err
	}
	it.State, it.Reason, it.NotBefore, it.Owner = d.State, d.Reason, d.At, ""
	if d.Attempt != nil {
		it.Attempts = append(slices.Clip(it.Attempts), *d.Attempt)
	}
	return it, nil
}

// Conclude ends a claim by what came of its one attempt, as Drain does: done,
// waiting for another attempt, or dead. It is not for the worker to say.
func (e *Engine) Conclude(ctx context.Context, it state.Item, res Result) (state.Item, error) {
	res.Attempts = 1
	var failed error
	if res.Verdict.Outcome != taxonomy.Succeeded {
		failed = errors.New(res.Verdict.Reason)
	}
	return e.settleItem(ctx, it, e.disposition(it, res, failed))
}

// ErrNotSucceeded says that nothing proves what a worker says of an item.
var ErrNotSucceeded = errors.New("no attempt of this write is known to have succeeded")

// EndClaim ends a claim in the worker's own words. A write is done only where
// its intent says so.
func (e *Engine) EndClaim(ctx context.Context, it state.Item, d state.Disposition) (state.Item, error) {
	if d.State == state.Done {
		if err := e.vouched(ctx, it); err != nil {
			return it, err
		}
	}
	if d.State == state.Waiting && d.At.IsZero() {
		d.At = e.StoreNow().Add(again)
	}
	return e.settleItem(ctx, it, d)
}

// vouched looks for a success of a queued write.
func (e *Engine) vouched(ctx context.Context, it state.Item) error {
	op, err := taxonomy.ParseOperation(it.Operation)
	if err != nil || !op.Effect.Writes() {
		return err
	}
	for in, err := range e.parts.Store.Find(ctx, state.IntentQuery{RequestID: it.RequestID, Tenant: it.Tenant}) {
		if err != nil {
			return err
		}
		if in.State == state.Settled && in.Result.Outcome == taxonomy.Succeeded {
			return nil
		}
	}
	return fmt.Errorf("finish %s: %w", it.ID, ErrNotSucceeded)
}

// end ends a claim, and leaves a receipt of work that will not be tried again.
func (e *Engine) end(ctx context.Context, it state.Item, d state.Disposition) error {
	if err := e.parts.Store.Finish(ctx, it.ID, it.Claim, d); err != nil {
		return err
	}
	switch d.State {
	case state.Dead:
		e.discarded(it, "dead")
	case state.Dropped:
		e.discarded(it, "withdrawn")
	}
	return nil
}
