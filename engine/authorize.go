package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// authorize asks the authority rules. Approvals are fetched only when the
// rules want one; denials bind in every mode.
func (p *Permit) authorize(ctx context.Context) (taxonomy.AuthorityAnswer, *Rejection) {
	if claimed, _ := p.op.Attributes[claimedClass].(string); claimed != "" && claimed != p.op.ActionClass {
		op := p.op
		op.ActionClass = claimed
		if answer, rej := p.authorizeAs(ctx, &op); rej != nil {
			return answer, rej
		}
	}
	answer, rej := p.authorizeAs(ctx, &p.op)
	if rej == nil {
		rej = p.approveEach(ctx)
	}
	return answer, rej
}

// authorizeAs asks the authority rules about an operation.
func (p *Permit) authorizeAs(ctx context.Context, op *taxonomy.Operation) (taxonomy.AuthorityAnswer, *Rejection) {
	e := p.e
	in := &taxonomy.AuthorityInput{
		Operation: op, AgentID: op.Agent, Roles: p.policy.Roles[op.Agent], Clock: taxonomy.ClockAt(e.clock.Now()),
	}
	answer := p.policy.Rules.Authorize(ctx, in)
	p.asked(answer.Evaluation, &answer)
	if answer.Decision == taxonomy.RequireApproval {
		found, err := e.approvals(ctx, op)
		if err != nil {
			return answer, p.unavailable("state_unavailable", err)
		}
		if rej := p.saidNo(op, found); rej != nil {
			return answer, rej
		}
		if len(found) > 0 {
			in.Approvals = facts(found)
			if p.shadow != nil {
				p.shadow.approvals = in.Approvals
			}
			again := p.policy.Rules.Authorize(ctx, in)
			p.asked(again.Evaluation, &again)
			if again.Decision != taxonomy.RequireApproval {
				answer = again
				p.approval = pick(found)
			}
		}
	}
	p.judged = answer.Evaluation
	return answer, p.authorized(ctx, op, answer)
}

// authorized is the rejection that an answer of the authority rules comes to; a
// denial counts toward its circuit.
func (p *Permit) authorized(ctx context.Context, op *taxonomy.Operation, answer taxonomy.AuthorityAnswer) *Rejection {
	e := p.e
	switch answer.Decision {
	case taxonomy.Allow:
		return nil
	case taxonomy.RequireApproval:
		v := e.refusal(p.policy, &p.op, `{"event":"approval","state":"pending"}`)
		return &Rejection{Decision: taxonomy.DecideApproval, Layer: taxonomy.LayerAuthority, Breaker: "authority",
			Scope: authorityScope(op), Reason: "approval_required", Class: v.Class, Reasons: answer.Reasons, Next: "ask"}
	default:
		v := e.refusal(p.policy, &p.op, `{"event":"policy_decision","decision":"deny"}`)
		p.feedRefusal(ctx, v)
		return &Rejection{Layer: taxonomy.LayerAuthority, Breaker: "authority", Scope: authorityScope(op),
			Reason: denialReason(answer), Class: v.Class, Reasons: answer.Reasons, Next: "stop"}
	}
}

func denialReason(a taxonomy.AuthorityAnswer) string {
	if a.Evaluation.Error != "" {
		return a.Evaluation.Error
	}
	return "denied_by_policy"
}

func authorityScope(op *taxonomy.Operation) string {
	return "authority:" + op.Agent + "/" + op.Tool + "/" + op.ActionClass
}

// approvals are the live ones for this request, its action and its class. The
// latest word counts: a denial stands alone, and what was given after one stands
// without it.
func (e *Engine) approvals(ctx context.Context, op *taxonomy.Operation) ([]taxonomy.Approval, error) {
	ctx, cancel := context.WithTimeout(ctx, e.parts.ReadWait)
	defer cancel()
	found, err := e.parts.Store.Approved(ctx, op.Tenant, op.RequestID, op.ActionClass, op.Tool+"."+op.Action)
	if err != nil {
		e.meter.StoreError("approvals", err)
	}
	for i, a := range slices.Backward(found) {
		if a.Denies {
			return found[min(i+1, len(found)-1):], err
		}
	}
	return found, err
}

// takenBack looks once more for a person's no before a call goes that a person
// allowed: what was said between admission and dispatch counts.
func (p *Permit) takenBack(ctx context.Context) *Rejection {
	if p.approval == "" {
		return nil
	}
	found, err := p.e.approvals(ctx, &p.op)
	if err != nil {
		return p.unavailable("state_unavailable", err)
	}
	if rej := p.saidNo(&p.op, found); rej != nil {
		return rej
	}
	if claimed, _ := p.op.Attributes[claimedClass].(string); claimed != "" {
		op := p.op
		op.ActionClass = claimed
		if found, err = p.e.approvals(ctx, &op); err != nil {
			return p.unavailable("state_unavailable", err)
		}
		return p.saidNo(&op, found)
	}
	return nil
}

// saidNo is the rejection of a call that a person was asked about and refused.
func (p *Permit) saidNo(op *taxonomy.Operation, found []taxonomy.Approval) *Rejection {
	if len(found) == 0 || !found[0].Denies {
		return nil
	}
	v := p.e.refusal(p.policy, &p.op, `{"event":"policy_decision","decision":"deny"}`)
	return &Rejection{Layer: taxonomy.LayerAuthority, Breaker: "authority", Scope: authorityScope(op), Reason: "approval_denied",
		Class: v.Class, Reasons: []string{found[0].By + ": " + found[0].Reason}, Next: "stop"}
}

// facts are what rules see of approvals: sorted, without ids and times, so
// that equal situations give equal questions.
func facts(as []taxonomy.Approval) []taxonomy.ApprovalFact {
	out := make([]taxonomy.ApprovalFact, 0, len(as))
	for _, a := range as {
		out = append(out, taxonomy.ApprovalFact{By: a.By, Scope: a.Scope})
	}
	slices.SortFunc(out, func(a, b taxonomy.ApprovalFact) int {
		return cmp.Or(cmp.Compare(a.By, b.By), cmp.Compare(a.Scope, b.Scope))
	})
	return slices.Compact(out)
}

// pick takes the approval to spend: the narrowest scope is the one for this
// request alone; a lasting one is kept for others.
func pick(as []taxonomy.Approval) string {
	for _, a := range as {
		if a.SingleUse {
			return a.ID
		}
	}
	return as[0].ID
}
