package engine

import (
	"context"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// What the path does differently while there is a trial. Everything here costs
// one comparison with nil where there is none.

// guarded is admit for an arm. A candidate that panics has decided nothing: the
// call goes under the version in force instead, and the figures say so.
func (p *Permit) guarded(ctx context.Context) (rej *Rejection, stale, crashed bool) {
	if p.arm.gone != nil {
		defer func() {
			if recover() != nil {
				p.arm.tally.Load().failed()
				crashed = true
			}
		}()
	}
	rej, stale = p.admit(ctx)
	return rej, stale, false
}

// widened reports whether a candidate's authority rules let a call go that those
// in force would not. Unless somebody said that it may, such a call is decided by
// the version in force, whole: a denial holds in every arm.
func (p *Permit) widened(ctx context.Context) bool {
	if p.given == nil || p.arm.trial.AllowLooser {
		return false
	}
	home := p.e.current()
	defer func() { _ = home.release() }()
	op := *p.given
	if err := p.e.prepare(home, &op); err != nil {
		return false // it says the same of the operation
	}
	p.widens = !p.e.grants(ctx, home, &op)
	if claimed, _ := op.Attributes[claimedClass].(string); claimed != "" && !p.widens {
		op.ActionClass = claimed
		p.widens = !p.e.grants(ctx, home, &op)
	}
	if p.widens {
		p.arm.trial.figures.differs(receipts.DiffLooser, true)
	}
	return p.widens
}

// grants asks authority rules without any effect.
func (e *Engine) grants(ctx context.Context, p *Policy, op *taxonomy.Operation) bool {
	in := &taxonomy.AuthorityInput{Operation: op, AgentID: op.Agent, Roles: p.Roles[op.Agent], Clock: taxonomy.ClockAt(e.clock.Now())}
	answer := p.Rules.Authorize(ctx, in)
	if answer.Decision == taxonomy.RequireApproval {
		found, err := e.approvals(ctx, op)
		if err != nil || len(found) == 0 || found[0].Denies {
			return false
		}
		in.Approvals = facts(found)
		answer = p.Rules.Authorize(ctx, in)
	}
	return answer.Decision == taxonomy.Allow
}

// judge classifies for a permit. Where a candidate panics, the version in force
// judges in its place: something was sent, and what came back must be recorded.
func (p *Permit) judge(ctx context.Context, obs *taxonomy.Observation) (j judged) {
	if p.arm.gone != nil {
		defer func() {
			if recover() != nil {
				p.crashed()
				home := p.e.current()
				j = p.e.classify(ctx, home, obs)
				_ = home.release()
			}
		}()
	}
	j = p.e.classify(ctx, p.policy, obs)
	if t := p.arm.tally.Load(); t != nil && !t.paired {
		for _, q := range j.asked {
			if q.err != nil {
				t.failed()
			}
		}
	}
	return j
}

// routed asks the rules where an outcome counts. Where a candidate panics, only
// what no policy may lose is fed.
func (p *Permit) routed(ctx context.Context, v taxonomy.Verdict, obs *taxonomy.Observation) (feeds []taxonomy.Feed, answer taxonomy.RouteAnswer) {
	if p.arm.gone != nil {
		defer func() {
			if recover() != nil {
				p.crashed()
				feeds, answer = routeByDefault(&p.op, v), taxonomy.RouteAnswer{}
			}
		}()
	}
	feeds, answer = p.policy.route(ctx, v, obs, p.repeats)
	if answer.Evaluation.Error != "" && p.arm.gone != nil {
		p.arm.tally.Load().failed()
	}
	return feeds, answer
}

func (p *Permit) crashed() {
	p.flags = append(p.flags, "candidate_failed")
	p.arm.tally.Load().failed()
}

// failed counts an error of the rules or modules of an arm.
func (t *tally) failed() { t.count(func(f *Figures) { f.Errors++ }) }

// comeBack gives a permit that lapsed a policy again: its arm's, or that of the
// version in force where its trial is over.
func (p *Permit) comeBack() {
	if policy, ok := p.arm.acquire(); ok {
		p.policy = policy
		return
	}
	p.arm, p.policy = p.e.armFor(&p.op)
	p.path = p.arm.registry.Path(&p.op, p.e.clock.Mono())
	p.ticket = breaker.Ticket{Sequence: p.arm.registry.Sequence()}
}

// corrected counts what was reported to a caller and found to be wrong, for the
// arm whose version reported it. What only would have happened cannot be looked
// up: in a shadow both arms reported it.
func (e *Engine) corrected(in state.Intent, f Finding) {
	wrong := in.State == state.Settled && (f == Applied && in.Result.Outcome != taxonomy.Succeeded ||
		f == NotApplied && in.Result.Outcome == taxonomy.Succeeded)
	t := e.trial.Load()
	if !wrong || t == nil {
		return
	}
	one := func(f *Figures) { f.Corrections++ }
	theirs := in.Policy == t.Candidate.Version
	if !theirs {
		t.figures.control.count(one)
	}
	if theirs || t.shadow != nil {
		t.figures.candidate.count(one)
	}
}

// measure tells how long a step of a call took that was really made.
func (p *Permit) measure(step string, start breaker.Instant) {
	if p.arm.combine != nil {
		p.e.meter.Stage(step, time.Duration(p.e.clock.Mono()-start))
	}
}

// admitted counts an admission for its arm, and hands it to the shadow. A call
// that was let go and is refused at dispatch after all comes here twice.
func (p *Permit) admitted(rej *Rejection) {
	again := p.counted
	p.counted = true
	if t := p.arm.tally.Load(); t != nil && !t.paired {
		t.decided(rej, again, !p.looped && p.op.Origin != taxonomy.OriginFallback)
		if p.judged.Error != "" && !again {
			t.failed()
		}
	}
	switch {
	case p.shadow == nil:
	case again:
		p.shadow.withdrawn()
	default:
		p.shadow.admitted(p, rej)
	}
}

// concluded counts how an attempt ended for its arm, and hands it to the shadow.
func (p *Permit) concluded(obs *taxonomy.Observation, v taxonomy.Verdict, feeds []receipts.Feed, r *receipts.Receipt) {
	if t := p.arm.tally.Load(); t != nil {
		if !t.paired {
			t.concluded(&p.op, v, !p.looped && p.op.Origin != taxonomy.OriginFallback && next(v) != "retry")
		}
		t.watched(p, v, feeds)
	}
	if p.shadow != nil {
		p.shadow.concluded(p, obs, v, feeds, r.ID)
	}
}

// watched feeds the report of a version that is in force and only observes.
func (t *tally) watched(p *Permit, v taxonomy.Verdict, feeds []receipts.Feed) {
	if t.review == nil || p.uncounted {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := v.Outcome != taxonomy.Succeeded
	if p.ticket.Would == nil {
		t.review.passed(&p.op, feeds)
		return
	}
	t.review.stopped(p.ticket.Would.Would, &p.op, failed)
	t.review.stoodIn(p.policy.standsIn(p.ticket.Would.Fallback, &p.op), failed)
}
