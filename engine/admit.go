package engine

import (
	"context"
	"sync"
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
	let       breaker.Instant // when its circuits were last asked for
	place     int             // in the heap of expiries
	phase     atomic.Uint32
	ending    sync.Mutex // held while its expiry is carried through
	heads     []head
	admission receipts.ID
	intent    receipts.ID
	approval  string                         // id of the approval to consume
	granted   bool                           // a write's reservation is open in the store
	spend     state.Spend                    // a read's part of this process's blocks
	stale     time.Duration                  // how long the store was not heard when it was admitted; 0 is fresh
	storeRule string                         // by which it was decided all the same
	failMode  receipts.FailMode              // of the same
	sent      atomic.Pointer[state.Dispatch] // what was made durable for a call in flight
	flags     []string
	repeats   int64
	questions []byte       // asked since the last receipt, as they will be sealed
	lines     []state.Line // that it reserves, while the windows of linesFor last
	linesFor  timeSpan
	circuits  []receipts.Circuit  // that refused
	judged    taxonomy.Evaluation // of the authority rules
	approver  *inquiry            // that was asked and did not rule; the receipt of a refusal names it
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
	span      Span                // of the step under way; nil where nobody follows traces
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
		p, err := e.newPermit(&op, looped, home)
		if err != nil {
			return nil, err
		}
		in, span := e.start(ctx, StepAdmit, &p.op)
		p.span = span
		rej, stale, crashed := p.guarded(in)
		if stale || crashed {
			p.free()
			p.endAdmit(nil)
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
			err := p.refuse(rej)
			p.endAdmit(rej)
			return nil, err
		}
		e.meter.Stage("admit", time.Duration(e.clock.Mono()-start))
		e.meter.Decision(p.mode(), p.layer(), "", taxonomy.DecideAllow, "admitted")
		p.endAdmit(nil)
		return p, nil
	}
}

// newPermit completes the operation under the policy in force and resolves its
// circuits, both of one version.
func (e *Engine) newPermit(op *taxonomy.Operation, looped bool, home string) (*Permit, error) {
	e.swap.RLock()
	defer e.swap.RUnlock()
	p := &Permit{e: e, op: *op, place: -1, looped: looped} // the caller's own stays where it is
	arm, policy := e.armFor(&p.op)
	if home != "" && arm.trial != nil && arm != &arm.trial.control {
		_ = policy.release()
		arm, policy = &arm.trial.control, e.current()
	}
	p.shadow = arm.ask(&p.op)
	if arm.gone != nil {
		given := p.op
		p.given = &given
	}
	if err := e.prepare(policy, &p.op); err != nil {
		_ = policy.release()
		return nil, err
	}
	p.id, p.policy, p.arm, p.path = newID(), policy, arm, arm.registry.Path(&p.op, e.clock.Mono())
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
	if ctx.Err() != nil { // the caller is gone: nothing else is wrong
		return &Rejection{Layer: p.layer(), Scope: target(&p.op), Reason: "cancelled", Class: taxonomy.Cancellation, Next: "stop", Cause: context.Cause(ctx)}, false
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
	if rej := p.informed(ctx); rej != nil {
		return rej, false
	}
	if rej := p.progress(ctx); rej != nil {
		return rej, false
	}
	if rej := p.unresolved(ctx); rej != nil {
		return rej, false
	}
	open, rej, stale := p.askCircuits(ctx)
	if rej != nil || stale {
		return rej, stale
	}
	if p.ticket.Would != nil {
		p.flags = append(p.flags, "would_reject")
		p.seen(p.ticket.Would.Would)
	}
	if rej := p.affordable(ctx); rej != nil {
		return rej, false
	}
	p.let = e.clock.Mono()
	p.end = p.let + breaker.Instant(e.parts.PermitTTL)
	if p.op.Deadline > 0 {
		if left := time.UnixMilli(p.op.Deadline).Sub(e.clock.Now()); left < e.parts.PermitTTL {
			p.end = e.clock.Mono() + breaker.Instant(max(left, 0))
		}
	}
	if rej, stale := p.putOut(ctx, open); rej != nil || stale {
		return rej, stale
	}
	r := p.admissionReceipt(answer)
	p.admission = e.note(r)
	spent(r)
	e.permits.arm(p)
	p.admitted(nil)
	return nil, false
}

// putOut gives the permit its places in the bulkheads. Such a place may be free
// because a call failed, and that failure may have opened a circuit since it was
// asked: so it is asked again now that the place is ours, and no more than a
// bulkhead's calls are out when a circuit trips.
func (p *Permit) putOut(ctx context.Context, open bool) (rej *Rejection, stale bool) {
	p.heads = p.policy.bulkheads(&p.op)
	if full := p.e.permits.add(p); full != "" {
		return &Rejection{Layer: p.layer(), Breaker: full, Scope: full, Reason: "bulkhead_full",
			Class: taxonomy.RateLimit, Next: "wait"}, false
	}
	if len(p.heads) == 0 || open {
		return nil, false
	}
	_, rej, stale = p.askCircuits(ctx)
	return rej, stale
}

// askCircuits asks every circuit on the path, and policy where some refuse; open
// says that the call goes on although they do. stale says that the settings
// changed meanwhile.
func (p *Permit) askCircuits(ctx context.Context) (open bool, rej *Rejection, stale bool) {
	ticket, denial := p.path.Admit(p.ask(), p.e.clock.Mono())
	if !p.path.InForce() {
		return false, nil, true
	}
	if denial != nil {
		if !p.unheard(denial) {
			if rej := p.blocked(ctx, denial); rej != nil {
				return false, rej, false
			}
		}
		ticket.Sequence = p.arm.registry.Sequence()
	}
	p.ticket = ticket
	return denial != nil, nil, false
}

// layer is the layer that stands for the operation as a whole.
func (p *Permit) layer() taxonomy.Layer { return layerOf(&p.op) }

func layerOf(op *taxonomy.Operation) taxonomy.Layer {
	if op.Kind == "model" {
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
	p.informs(r)
	evaluated(r, a.Evaluation)
	p.remember(r)
	return r
}
