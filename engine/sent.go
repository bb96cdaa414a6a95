package engine

import (
	"context"
	"slices"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// unresolved refuses a write that was sent before and whose outcome nobody
// knows, whatever road it comes by and whatever a policy observes or enforces
// (SPEC R-CALL-3). It is the same write when it has the same request id, or when
// its caller gave it the same idempotency key for the same action. Only
// reconciliation, an effect that may be repeated, or a person's approval of this
// very request lets it go again.
func (p *Permit) unresolved(ctx context.Context) *Rejection {
	if p.op.Effect.Repeatable() {
		return nil
	}
	return p.sentBefore(ctx)
}

// sentBefore looks for an earlier intent of the same write.
func (p *Permit) sentBefore(ctx context.Context) *Rejection {
	same := []state.IntentQuery{{RequestID: p.op.RequestID, Tenant: p.op.Tenant}}
	if p.op.IdempotencyKey != minted(&p.op) {
		same = append(same, state.IntentQuery{Key: p.op.IdempotencyKey, Tenant: p.op.Tenant})
	}
	ctx, cancel := context.WithTimeout(ctx, p.e.parts.ReadWait)
	defer cancel()
	for _, q := range same {
		for in, err := range p.e.parts.Store.Find(ctx, q) {
			if err != nil {
				p.e.meter.StoreError("intents", err)
				return p.unavailable("state_unavailable", err)
			}
			if q.Key != "" && in.Action != action(&p.op) {
				continue // keys of other actions are other keys
			}
			if rej := p.conflicts(ctx, in); rej != nil {
				return rej
			}
		}
	}
	return nil
}

// conflicts says whether an earlier intent of the same write forbids this one.
func (p *Permit) conflicts(ctx context.Context, in state.Intent) *Rejection {
	if in.ID == p.id || in.State == state.Settled && in.Result.Outcome != taxonomy.Succeeded {
		return nil
	}
	if in.State == state.Unsettled && (p.replays || p.replayApproved(ctx)) {
		return nil
	}
	return p.repeated(in)
}

// repeated is the rejection of a request that was sent already.
func (p *Permit) repeated(in state.Intent) *Rejection {
	rej := &Rejection{Layer: taxonomy.LayerTool, Breaker: "ambiguity", Scope: in.Action, Class: taxonomy.AmbiguousWrite,
		Reason: "outcome_unknown", Reasons: []string{"intent " + in.ID}, Next: "reconcile", Decision: taxonomy.DecideApproval}
	switch in.State {
	case state.InFlight:
		rej.Reason, rej.Next, rej.Decision = "in_flight", "wait", taxonomy.DecideReject
	case state.Settled:
		rej.Reason, rej.Next, rej.Decision = "already_applied", "stop", taxonomy.DecideReject
	}
	return rej
}

// replayApproved reports whether a person allowed this very request to be sent
// again although its outcome is unknown.
func (p *Permit) replayApproved(ctx context.Context) bool {
	found, err := p.e.parts.Store.Approved(ctx, p.op.Tenant, p.op.RequestID)
	if err != nil || len(found) == 0 || found[len(found)-1].Denies {
		return false
	}
	found = slices.DeleteFunc(found, func(a taxonomy.Approval) bool { return a.Denies })
	p.approval = pick(found)
	p.op.PriorUnknown, p.replays = true, true
	return true
}
