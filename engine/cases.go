package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// reviewReason begins the reason of a dead letter that is a human case; the name
// of its contract follows.
const reviewReason = "human_review:"

// openCase keeps the work as a case for a person: a dead letter with what was to
// be done, what is known of it, and who decides. Cases of one contract are
// bounded; when they are as many as people can look at, the next candidate is
// tried (SPEC R-FBK-2).
func (e *Engine) openCase(ctx context.Context, f *Fallback, t *Taken, res *Result, payload []byte) (bool, error) {
	op := &res.Operation
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.parts.StoreWait)
	defer cancel()
	full, err := e.casesFull(ctx, f)
	if err != nil || full {
		return false, err
	}
	now := e.StoreNow()
	it := state.Item{ID: "case-" + op.RequestID, RequestID: op.RequestID, Created: now, Expires: now.Add(caseExpires), Priority: op.Priority,
		Replay: "never", Tenant: op.Tenant, Operation: taxonomy.AppendOperation(nil, op), Payload: payload, State: state.Dead, Reason: reviewReason + f.Name}
	if rej := res.Rejection; rej != nil {
		it.Dependency = rej.Scope
	}
	if res.Attempts > 0 {
		it.Attempts = []state.ItemAttempt{{At: now, Outcome: res.Verdict.Outcome, Reason: res.Verdict.Reason}}
	}
	if err := e.parts.Store.Put(ctx, it); err != nil {
		return false, fmt.Errorf("open a case for %s: %w", op.RequestID, err)
	}
	_, policy := e.armFor(op)
	e.note(e.queueReceipt(policy, it, it.Reason))
	_ = policy.release()
	t.Case, t.Reviewers = it.ID, f.Reviewers
	return true, nil
}

// caseExpires is after which a retry of a case needs a new expiry of its own.
const caseExpires = 7 * 24 * time.Hour

// casesFull reports whether a contract has as many open cases as it may.
func (e *Engine) casesFull(ctx context.Context, f *Fallback) (bool, error) {
	if f.MaxCases <= 0 {
		return false, nil
	}
	n := 0
	for it, err := range e.parts.Store.Items(ctx, state.ItemQuery{States: []state.ItemState{state.Dead}}) {
		if err != nil {
			return true, fmt.Errorf("count the cases of %s: %w", f.Name, err)
		}
		if it.Reason == reviewReason+f.Name {
			if n++; n >= f.MaxCases {
				return true, nil
			}
		}
	}
	return false, nil
}
