package engine

import (
	"context"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// maxCircuits is how many refusing circuits a receipt names.
const maxCircuits = 12

// blocked asks policy what to do while circuits refuse. "proceed" is honoured
// only for a read-only step that does not dispatch to what is blocked: a step of
// the workflow itself, or one where nothing but its workflow or its semantic
// circuit says no. A loop, a budget and an authority circuit stop local steps too.
func (p *Permit) blocked(ctx context.Context, d *breaker.Denial) *Rejection {
	in := &taxonomy.AdmissionInput{Operation: &p.op}
	local := p.op.Effect == taxonomy.ReadOnly
	now := p.e.clock.Mono()
	p.seen(d.All)
	for i := range d.All {
		c := &d.All[i]
		in.Blocked = append(in.Blocked, taxonomy.BlockedCircuit{Layer: c.Layer, Breaker: c.Breaker, Scope: c.Scope,
			State: c.State.String(), Reason: c.Reason.String(), RetryInMS: max(c.RetryAt.Sub(now).Milliseconds(), 0)})
		local = local && p.staysLocal(c)
	}
	answer := p.policy.Rules.Admission(ctx, in)
	p.asked(answer.Evaluation, &answer)
	if failed := answer.Evaluation.Error; failed != "" {
		p.flags = append(p.flags, "admission_error")
		answer = taxonomy.AdmissionAnswer{Action: taxonomy.ActionReject, Reason: failed}
		if p.policy.OnError.ReadsProceed && !p.op.Effect.Writes() {
			answer.Action = taxonomy.ActionProceed
		}
	}
	if answer.Action == taxonomy.ActionQueue && answer.ExpiresIn <= 0 {
		answer.ExpiresIn = p.policy.Queue.Expires
	}
	if answer.Action == taxonomy.ActionProceed && local {
		p.flags = append(p.flags, "proceeds_while_open")
		return nil
	}
	rej := p.denied(&d.Refusal)
	if answer.Reason != "" {
		rej.Reasons = append(rej.Reasons, answer.Reason)
	}
	switch {
	case answer.Action == taxonomy.ActionRequireApproval:
		rej.Decision = taxonomy.DecideApproval
		if rej.Next != "reconcile" { // looking it up comes before asking for leave
			rej.Next = "ask"
		}
	case answer.Action == taxonomy.ActionQueue && answer.ExpiresIn > 0:
		rej.Decision, rej.Next, rej.ExpiresIn = taxonomy.DecideQueue, "queue", answer.ExpiresIn
	}
	return rej
}

// seen notes for the receipt which circuits refuse, or would.
func (p *Permit) seen(refusals []breaker.Refusal) {
	for _, c := range refusals[:min(len(refusals), maxCircuits)] {
		p.circuits = append(p.circuits, receipts.Circuit{Layer: c.Layer, Breaker: c.Breaker, Scope: c.Scope, State: stateOf(c.State), Version: int64(c.Version)})
	}
}

func (p *Permit) staysLocal(c *breaker.Refusal) bool {
	switch c.Layer {
	case taxonomy.LayerAuthority, taxonomy.LayerBudget:
		return false
	case taxonomy.LayerWorkflow:
		return c.Breaker != "loop"
	case taxonomy.LayerSemantic:
		return true
	}
	return p.op.Kind == "workflow"
}

// denied is the rejection by one circuit.
func (p *Permit) denied(c *breaker.Refusal) *Rejection {
	v := p.e.refusal(p.policy, &p.op, `{"event":"breaker_reject"}`)
	rej := &Rejection{Layer: c.Layer, Breaker: c.Breaker, Scope: c.Scope, Reason: c.Reason.String(), Class: v.Class,
		State: c.State.String(), StateVersion: c.Version, RetryAt: p.e.at(c.RetryAt), Next: "wait", Fallback: c.Fallback}
	if cause := c.Cause.String(); cause != "" {
		rej.Reasons = []string{cause}
	}
	switch {
	case c.Reason == breaker.AwaitsEvidence && c.Rule.Probe.Evidence&breaker.Reconciled != 0:
		rej.Next = "reconcile"
	case c.Reason == breaker.AwaitsEvidence:
		rej.Next = "ask"
	case c.Fallback != "":
		rej.Next = "fallback"
	}
	return rej
}

// refuse stamps a rejection, leaves its receipt and hands it to the caller.
func (p *Permit) refuse(rej *Rejection) error {
	e := p.e
	rej.Policy = p.policy.Version
	rej.Index = -1
	r := e.rejectionReceipt(p.policy, &p.op, rej)
	p.arm.label(r)
	r.Flags = append(r.Flags, p.flags...)
	r.Parent = p.admission // of a refusal after all, at dispatch: its questions lie with the admission
	r.Circuits = p.circuits
	p.informs(r)
	p.trace(r)
	if p.approver != nil {
		p.approver.note(r)
	}
	evaluated(r, p.judged)
	p.remember(r)
	rej.Receipt = e.note(r).String()
	p.admission = r.ID
	p.admitted(rej)
	e.meter.Decision(p.mode(), rej.Layer, rej.Breaker, rej.Decision, rej.Reason)
	return rej
}
