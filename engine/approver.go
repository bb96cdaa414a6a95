package engine

import (
	"context"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// An Approver is asked for the leave that the rules want for one request, when
// no person gave it. It cannot widen authority: it is asked only where a person
// would be, its yes is an approval like a person's, for this request and one
// call, and the rules judge once more with it. One that fails has said nothing.
type Approver interface {
	Identified
	Selects(op *taxonomy.Operation) bool
	Approve(ctx context.Context, q *taxonomy.ApproveQuestion) (taxonomy.ApproveAnswer, error)
}

// rulingLasts is how long an approver's ruling stands.
const rulingLasts = 10 * time.Minute

// leave finds the approvals for an operation, and asks the approvers of the
// policy where they are not enough. The first that rules decides.
func (p *Permit) leave(ctx context.Context, op *taxonomy.Operation, reasons []string, enough func([]taxonomy.Approval) bool) ([]taxonomy.Approval, error) {
	found, err := p.e.approvals(ctx, op)
	if err != nil || len(p.policy.Approvers) == 0 || enough(found) || len(found) > 0 && found[0].Denies || op.RequestID == "" {
		return found, err
	}
	q := &taxonomy.ApproveQuestion{Operation: *op, Reasons: reasons}
	for _, a := range p.policy.Approvers {
		if !a.Selects(op) {
			continue
		}
		asked := inquiry{module: a.Identity()}
		var ruling taxonomy.ApproveAnswer
		ruling, asked.err = a.Approve(ctx, q)
		asked.ok = asked.err == nil && ruling.Ruling != taxonomy.RulePending
		p.e.countFaults([]inquiry{asked})
		if asked.err != nil {
			p.flags = append(p.flags, "approver_failed")
		}
		if !asked.ok {
			if p.approver == nil || asked.err != nil {
				p.approver = &asked
			}
			continue
		}
		if err := p.e.approve(ctx, p.ruled(op, &asked, &ruling), &asked); err != nil {
			return found, err
		}
		return p.e.approvals(ctx, op)
	}
	return found, nil
}

// ruled is an approver's ruling as an approval: its own name stands in it, so
// that none can speak for a person.
func (p *Permit) ruled(op *taxonomy.Operation, asked *inquiry, a *taxonomy.ApproveAnswer) taxonomy.Approval {
	by := asked.module.Name
	if asked.module.Plugin {
		by = "plugin:" + by
	}
	out := taxonomy.Approval{By: by, Scope: op.RequestID, Tenant: op.Tenant, Until: p.e.clock.Now().Add(rulingLasts),
		SingleUse: true, Denies: a.Ruling == taxonomy.RuleDeny, Reason: a.Reason}
	if out.Reason == "" {
		out.Reason = a.Ruling.String()
	}
	return out
}

// An Evaluator says whether a result that arrived is good enough. It can only
// find fault: its facts are what a check of our own would find, and the table
// says what they mean. One that fails has found nothing.
type Evaluator interface {
	Identified
	Selects(op *taxonomy.Operation) bool
	Evaluate(ctx context.Context, obs *taxonomy.Observation) (a taxonomy.EvaluateAnswer, ok bool, err error)
}

// evaluate asks the evaluators about a result that looks well, and adds what they
// find to the facts known here.
func (p *Permit) evaluate(ctx context.Context, obs *taxonomy.Observation) (asked []inquiry) {
	if len(p.policy.Evaluators) == 0 || obs.Response == nil || p.policy.Table.Classify(obs).Outcome != taxonomy.Succeeded {
		return nil
	}
	for _, ev := range p.policy.Evaluators {
		if !ev.Selects(&p.op) {
			continue
		}
		q := inquiry{module: ev.Identity()}
		var a taxonomy.EvaluateAnswer
		var ok bool
		a, ok, q.err = ev.Evaluate(ctx, obs)
		q.ok = q.err == nil && ok && !a.Accepted
		asked = append(asked, q)
		if q.ok {
			p.flags = append(p.flags, "evaluator_rejected")
			obs.Local = taxonomy.AppendRejected(slices.Clone(obs.Local), &a)
			break // one that finds fault is enough
		}
	}
	p.e.countFaults(asked)
	return asked
}
