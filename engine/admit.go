package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The life of a permit. It is left in one direction only.
const (
	admitting uint32 = iota
	issued
	dispatching
	dispatched
	settling
	settled
	released // given back, or refused at dispatch
	unused   // expired before it was dispatched; a result is heard, and was not declared
	lapsed   // expired after it was dispatched; a late result is still heard
)

// A Permit is the right to send one operation once. It pins the policy that
// admitted it, and ends by itself when nobody settles it.
type Permit struct {
	e         *Engine
	id        string
	op        taxonomy.Operation
	policy    *Policy
	arm       *arm // whose circuits it passed; its policy is the one above
	path      *breaker.Path
	ticket    breaker.Ticket
	end       breaker.Instant
	place     int // in the heap of expiries
	phase     atomic.Uint32
	heads     []head
	admission receipts.ID
	intent    receipts.ID
	approval  string      // id of the approval to consume
	granted   bool        // a write's reservation is open in the store
	spend     state.Spend // a read's part of this process's blocks
	degraded  bool
	flags     []string
	repeats   int64
	questions []Question          // asked since the last receipt
	circuits  []receipts.Circuit  // that refused
	judged    taxonomy.Evaluation // of the authority rules
	replays   bool                // a person allowed this request again although its outcome is UNKNOWN
	repairs   bool                // an answer that fails its checks is asked for once more before it counts
	uncounted bool                // its outcome feeds nothing
	resumed   bool                // found by its intent; it holds no place among those that are out
	renewAt   breaker.Instant     // only Tick touches it once the permit is dispatched
	orphaned  bool                // nobody waits for its answer any more, and the remote works on it still
	usage     atomic.Pointer[Usage]
	looped    bool                // Do counts how its whole call ends
	counted   bool                // for its arm
	widens    bool                // a candidate's authority grants more than the version in force
	given     *taxonomy.Operation // as the caller gave it, in a candidate's arm
	shadow    *shadowCall         // what a candidate beside makes of the same call; nil without one
}

// ID names the permit; its intent has the same id.
func (p *Permit) ID() string { return p.id }

// Operation is the operation as admitted, completed.
func (p *Permit) Operation() taxonomy.Operation { return p.op }

// Policy is the version that admitted it.
func (p *Permit) Policy() taxonomy.PolicyVersion { return p.policy.Version }

// Expires is when the permit ends if nothing happens.
func (p *Permit) Expires() time.Time { return p.e.at(p.end) }

// Receipt is the id of the admission's receipt.
func (p *Permit) Receipt() string { return p.admission.String() }

// Probe reports whether the call is a probe of a circuit that is not closed.
func (p *Permit) Probe() bool { return p.ticket.Need|p.ticket.Held != 0 }

// Admit decides whether an operation may go: authority, loops, circuits on
// every scope and ancestor, budgets asked and not yet taken. It is the one door
// for every road to a dependency. The error is a *Rejection, or an *InputError
// for an operation that cannot be judged; nothing was sent and nothing durable
// was taken.
func (e *Engine) Admit(ctx context.Context, op taxonomy.Operation) (*Permit, error) {
	return e.admit(ctx, op, false)
}

// admit is Admit; looped says that Do counts how the whole call ends.
func (e *Engine) admit(ctx context.Context, op taxonomy.Operation, looped bool) (*Permit, error) {
	start := e.clock.Mono()
	home := "" // why the version in force decides in a candidate's place
	for {
		p, err := e.newPermit(op, looped, home)
		if err != nil {
			return nil, err
		}
		rej, stale, crashed := p.guarded(ctx)
		if stale || crashed {
			p.free()
			switch {
			case crashed:
				home = "candidate_failed"
			case p.widens:
				home = "candidate_looser"
			}
			continue
		}
		if rej != nil {
			p.free()
			return nil, p.refuse(rej)
		}
		e.meter.Stage("admit", time.Duration(e.clock.Mono()-start))
		e.meter.Decision(taxonomy.LayerProvider, "", taxonomy.DecideAllow, "admitted")
		return p, nil
	}
}

// newPermit completes the operation under the policy in force and resolves its
// circuits, both of one version.
func (e *Engine) newPermit(op taxonomy.Operation, looped bool, home string) (*Permit, error) {
	e.swap.RLock()
	defer e.swap.RUnlock()
	arm, policy := e.armFor(&op)
	if home != "" && arm.trial != nil && arm != &arm.trial.control {
		_ = policy.release()
		arm, policy = &arm.trial.control, e.current()
	}
	asked := arm.ask(&op)
	var given *taxonomy.Operation
	if arm.gone != nil {
		raw := op
		given = &raw
	}
	if err := e.prepare(policy, &op); err != nil {
		_ = policy.release()
		return nil, err
	}
	p := &Permit{e: e, id: newID(), op: op, policy: policy, arm: arm, path: arm.registry.Path(&op, e.clock.Mono()), place: -1,
		looped: looped, shadow: asked, given: given}
	if home != "" {
		p.flags = append(p.flags, home)
	}
	p.ticket.Sequence = arm.registry.Sequence()
	return p, nil
}

// admit asks every gate in the fixed order authority, loop, circuits, budget,
// bulkhead, and puts the permit out. stale says that the settings changed
// meanwhile: the answer would join two versions, so it is asked again.
func (p *Permit) admit(ctx context.Context) (rej *Rejection, stale bool) {
	e := p.e
	if e.closed.Load() {
		return p.unavailable("shutting_down", ErrClosed), false
	}
	if err := e.hit("admit-before-authority"); err != nil {
		return p.unavailable("state_unavailable", err), false
	}
	answer, rej := p.authorize(ctx)
	if rej != nil {
		return rej, false
	}
	if p.widened(ctx) {
		return nil, true
	}
	if rej := p.progress(ctx); rej != nil {
		return rej, false
	}
	if rej := p.unresolved(ctx); rej != nil {
		return rej, false
	}
	ticket, denial := p.path.Admit(p.ask(), e.clock.Mono())
	if !p.path.InForce() {
		return nil, true
	}
	if denial != nil {
		if rej := p.blocked(ctx, denial); rej != nil {
			return rej, false
		}
		ticket.Sequence = p.arm.registry.Sequence()
	}
	p.ticket = ticket
	if ticket.Would != nil {
		p.flags = append(p.flags, "would_reject")
		p.seen(ticket.Would.Would)
	}
	if rej := p.affordable(ctx); rej != nil {
		return rej, false
	}
	p.end = e.clock.Mono() + breaker.Instant(e.parts.PermitTTL)
	if p.op.Deadline > 0 {
		if left := time.UnixMilli(p.op.Deadline).Sub(e.clock.Now()); left < e.parts.PermitTTL {
			p.end = e.clock.Mono() + breaker.Instant(max(left, 0))
		}
	}
	if rej, stale := p.putOut(ctx, denial == nil); rej != nil || stale {
		return rej, stale
	}
	p.admission = e.note(p.admissionReceipt(answer))
	e.permits.arm(p)
	p.admitted(nil)
	return nil, false
}

// putOut gives the permit its places in the bulkheads. Such a place may be free
// because a call failed, and that failure may have opened a circuit since it was
// asked: so it is asked again now that the place is ours, and no more than a
// bulkhead's calls are out when a circuit trips.
func (p *Permit) putOut(ctx context.Context, closed bool) (rej *Rejection, stale bool) {
	e := p.e
	p.heads = p.policy.bulkheads(&p.op)
	if full := e.permits.add(p); full != "" {
		return &Rejection{Layer: p.layer(), Breaker: full, Scope: full, Reason: "bulkhead_full",
			Class: taxonomy.RateLimit, Next: "wait"}, false
	}
	if len(p.heads) == 0 || !closed {
		return nil, false
	}
	ticket, denial := p.path.Admit(p.ask(), e.clock.Mono())
	if !p.path.Current() {
		return nil, true
	}
	if denial != nil {
		if rej := p.blocked(ctx, denial); rej != nil {
			return rej, false
		}
		ticket.Sequence = p.arm.registry.Sequence()
	}
	p.ticket = ticket
	return nil, false
}

// layer is the layer that stands for the operation as a whole.
func (p *Permit) layer() taxonomy.Layer {
	if p.op.Kind == "model" {
		return taxonomy.LayerProvider
	}
	return taxonomy.LayerTool
}

// ask is what circuits need to know of the call.
func (p *Permit) ask() breaker.Ask {
	a := breaker.Ask{Operation: &p.op, Observe: p.policy.WritesFree && p.op.Effect.Writes()}
	if p.op.Deadline > 0 {
		a.Deadline = p.e.clock.Mono().Add(time.UnixMilli(p.op.Deadline).Sub(p.e.clock.Now()))
	}
	return a
}

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
	ctx, cancel := context.WithTimeout(ctx, p.e.parts.StoreWait)
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

// approvals are the live ones for this request, its action and its class. The
// latest word counts: a denial stands alone, and what was given after one stands
// without it.
func (e *Engine) approvals(ctx context.Context, op *taxonomy.Operation) ([]taxonomy.Approval, error) {
	ctx, cancel := context.WithTimeout(ctx, e.parts.StoreWait)
	defer cancel()
	found, err := e.parts.Store.Approved(ctx, op.Tenant, op.RequestID, op.ActionClass, op.Tool+"."+op.Action)
	if err != nil {
		e.meter.StoreError("approvals", err)
	}
	for i, a := range slices.Backward(found) {
		if a.Denies && i < len(found)-1 {
			return found[i+1:], err
		} else if a.Denies {
			return found[i:], err
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
		if found, err = p.e.approvals(ctx, &op); err == nil {
			return p.saidNo(&op, found)
		}
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
		if a.By != b.By {
			return compare(a.By, b.By)
		}
		return compare(a.Scope, b.Scope)
	})
	return slices.Compact(out)
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
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
	evaluated(r, p.judged)
	p.remember(r)
	rej.Receipt = e.note(r).String()
	p.admission = r.ID
	p.admitted(rej)
	e.meter.Decision(rej.Layer, rej.Breaker, rej.Decision, rej.Reason)
	return rej
}

// free gives back what a permit holds in memory: its bulkheads and its policy.
func (p *Permit) free() {
	p.e.permits.remove(p)
	_ = p.policy.release() // a module that does not close cleanly is the sandbox's to report
}

func (p *Permit) admissionReceipt(a taxonomy.AuthorityAnswer) *receipts.Receipt {
	class := receipts.Sample
	if p.policy.highImpact(&p.op) || p.ticket.Would != nil {
		class = receipts.Audit
	}
	r := p.receipt(receipts.KindAdmission, class)
	r.Decision = receipts.Some(taxonomy.DecideAllow)
	r.Reason = "admitted"
	r.Layer = p.layer()
	r.Flags = append(r.Flags, p.flags...)
	r.Circuits = p.circuits
	evaluated(r, a.Evaluation)
	p.remember(r)
	return r
}
