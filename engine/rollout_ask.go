package engine

import (
	"context"
	"slices"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// decide puts an admission to the candidate.
func (s *shadow) decide(m shadowed) {
	ctx, c := context.Background(), m.call
	c.inForce = m.rej
	op := c.op
	figures := s.trial.figures
	figures.control.decided(m.rej, false, true)
	if err := s.e.prepare(s.trial.Candidate, &op); err != nil {
		s.broken(m, err)
		return
	}
	p := &Permit{e: s.e, op: op, policy: s.trial.Candidate, arm: &s.arm, path: s.arm.registry.Path(&op, m.at), place: -1}
	p.ticket.Sequence = s.arm.registry.Sequence()
	c.refused = m.rej
	if !byEngine(m.rej) {
		c.refused = s.ask(ctx, p, m)
	}
	c.permit = p
	figures.candidate.decided(c.refused, false, false)
	if p.judged.Error != "" {
		figures.candidate.failed()
	}
	d := compareDecisions(m.rej, c.refused)
	s.differ(m, d, authorityOf(m.rej, c.refused), "decision")
	switch {
	case m.rej != nil && c.refused != nil: // both say no, and the user sees one
		figures.candidate.count(func(f *Figures) { f.UserFailures++ })
		if len(c.stopped) > 0 {
			figures.candidate.notSent()
		}
	case m.rej != nil:
		figures.candidate.count(func(f *Figures) { f.Unseen++ })
		s.withdraw(m) // nobody will say how it ends
	}
}

// byEngine reports a no that no policy has a say in: a write that was sent
// before, a run that was stopped, a store that is gone, an engine that closes.
func byEngine(rej *Rejection) bool {
	if rej == nil {
		return false
	}
	switch rej.Reason {
	case "outcome_unknown", "in_flight", "already_applied", "run_stopped", "state_unavailable", "evidence_unavailable", "shutting_down":
		return true
	}
	return false
}

// ask goes through the gates of admission in their order, as [Permit.admit]
// does, with the facts of the moment when the version in force was asked.
func (s *shadow) ask(ctx context.Context, p *Permit, m shadowed) *Rejection {
	if rej := s.authorize(ctx, p, m); rej != nil {
		return rej
	}
	if p.op.RunID != "" {
		if rej := p.loops(ctx, m.call.history); rej != nil {
			return rej
		}
	}
	ask := p.ask()
	ticket, denial := p.path.Admit(ask, m.at)
	if denial == nil && ticket.Needs() {
		changes, no := p.path.Lease(&ticket, ask, m.at)
		s.arm.noteChanges(changes, nil)
		denial = no
	}
	if denial != nil {
		if rej := p.blocked(ctx, denial); rej != nil {
			m.call.stopped = denial.All
			return rej
		}
		ticket.Sequence = s.arm.registry.Sequence()
	}
	p.ticket = ticket
	return p.affordable(ctx)
}

// authorize asks the candidate's authority rules. An approval that the version
// in force found counts for both, also when it is used up by now.
func (s *shadow) authorize(ctx context.Context, p *Permit, m shadowed) *Rejection {
	if claimed, _ := p.op.Attributes[claimedClass].(string); claimed != "" && claimed != p.op.ActionClass {
		op := p.op
		op.ActionClass = claimed
		if rej := s.authorizeAs(ctx, p, &op, m); rej != nil {
			return rej
		}
	}
	if rej := s.authorizeAs(ctx, p, &p.op, m); rej != nil || m.approved {
		return rej
	}
	return p.approveEach(ctx)
}

func (s *shadow) authorizeAs(ctx context.Context, p *Permit, op *taxonomy.Operation, m shadowed) *Rejection {
	in := &taxonomy.AuthorityInput{Operation: op, AgentID: op.Agent, Roles: p.policy.Roles[op.Agent], Clock: taxonomy.ClockAt(m.when)}
	answer := p.policy.Rules.Authorize(ctx, in)
	if answer.Decision == taxonomy.RequireApproval {
		in.Approvals = m.call.approvals
		if len(in.Approvals) == 0 {
			found, err := s.e.approvals(ctx, op)
			if err != nil || len(found) > 0 && found[0].Denies {
				found = nil
			}
			in.Approvals = facts(found)
		}
		if len(in.Approvals) > 0 {
			answer = p.policy.Rules.Authorize(ctx, in)
		}
	}
	p.judged = answer.Evaluation
	return p.authorized(ctx, op, answer)
}

// compareDecisions says how the candidate's word stands to the one in force.
func compareDecisions(inForce, candidate *Rejection) receipts.Diff {
	was, would := looseness(inForce), looseness(candidate)
	switch {
	case would < was:
		return receipts.DiffStricter
	case would > was:
		return receipts.DiffLooser
	case inForce != nil && (inForce.Reason != candidate.Reason || inForce.Breaker != candidate.Breaker):
		return receipts.DiffReasonOnly
	}
	return receipts.DiffUnchanged
}

func looseness(rej *Rejection) int {
	if rej == nil {
		return 3
	}
	return slices.Index([]taxonomy.Decision{taxonomy.DecideReject, taxonomy.DecideApproval, taxonomy.DecideQueue}, rej.Decision)
}

func authorityOf(inForce, candidate *Rejection) bool {
	return inForce != nil && inForce.Layer == taxonomy.LayerAuthority && (candidate == nil || candidate.Layer != taxonomy.LayerAuthority || looseness(candidate) > looseness(inForce))
}

// learn puts the end of a call to the candidate: what it would have called it,
// where it would have counted, and, if it would have stopped the call, what
// that would have come to.
func (s *shadow) learn(m shadowed) {
	ctx, c := context.Background(), m.call
	if c.permit == nil {
		return
	}
	p := c.permit
	obs := m.obs
	obs.Operation = p.op
	failed := m.verdict.Outcome != taxonomy.Succeeded
	figures := s.trial.figures
	figures.control.concluded(&p.op, m.verdict, m.final)
	j := p.policy.judge(ctx, &obs)
	for _, q := range j.asked {
		if q.err != nil {
			figures.candidate.failed()
		}
	}
	if c.refused != nil {
		s.refusedCall(ctx, m, failed)
		return
	}
	figures.candidate.concluded(&p.op, m.verdict, m.final)
	feeds, ev := p.route(ctx, j.verdict, &obs)
	if ev.Error != "" {
		figures.candidate.failed()
	}
	var counted breaker.Recorded
	rec := p.count(&counted, j.verdict, feeds, &obs, m.at)
	if counted.Err() != nil {
		figures.candidate.failed()
	}
	s.differ(m, compareVerdicts(m, j, rec.feeds), false, "outcome")
	s.arm.noteChanges(rec.changes, nil)
	figures.candidate.passed(&p.op, rec.feeds)
}

// refusedCall is a call that the candidate would not have sent. It teaches the
// candidate's circuits nothing: enforced, it would never have been made.
func (s *shadow) refusedCall(ctx context.Context, m shadowed, failed bool) {
	c := m.call
	helps := false
	if !c.permit.op.Effect.Writes() && c.refused.Layer != taxonomy.LayerAuthority {
		helps = s.standsIn(ctx, c)
	}
	s.trial.figures.candidate.spared(c, failed, helps, m.final)
}

// standsIn asks the candidate's rules what would have stood in, and whether its
// circuits would have let that go.
func (s *shadow) standsIn(ctx context.Context, c *shadowCall) bool {
	p := c.permit.policy
	for i := range p.Fallbacks {
		if p.Fallbacks[i].Name != c.refused.Fallback {
			continue
		}
		in := &taxonomy.FallbackInput{Operation: &c.permit.op, Rejection: c.refused, Candidates: possible(p.Fallbacks[i].Candidates, &c.permit.op, anyMeans)}
		answer := p.Rules.Fallback(ctx, in)
		if answer.Evaluation.Error != "" {
			return false
		}
		for _, choice := range answer.Order {
			at := slices.IndexFunc(in.Candidates, func(k taxonomy.Candidate) bool { return k.ID == choice.ID })
			if at >= 0 && answers(in.Candidates[at].Kind) {
				return in.Candidates[at].Kind != "alternate" || s.reaches(c, in.Candidates[at])
			}
		}
	}
	return false
}

// reaches reports whether the candidate's circuits would let an alternate go.
func (s *shadow) reaches(c *shadowCall, k taxonomy.Candidate) bool {
	op := c.permit.op
	op.Origin, op.Model = taxonomy.OriginFallback, k.Model
	if k.Provider != "" {
		op.Provider = k.Provider
	}
	_, denial := s.arm.registry.Path(&op, s.ticked).Admit(c.permit.ask(), s.ticked)
	return denial == nil
}

// withdraw gives back what the candidate's circuits lent to a call that was not
// sent.
func (s *shadow) withdraw(m shadowed) {
	if p := m.call.permit; p != nil && m.call.refused == nil {
		rec := p.path.Release(p.ticket, m.at)
		s.arm.noteChanges(rec.Changes, nil)
	}
}

// compareVerdicts says how the candidate's reading of an outcome stands to the
// one in force: another outcome or class is reclassified, and so is another set
// of circuits that it counts against, unless one set holds the other.
func compareVerdicts(m shadowed, j judged, feeds []receipts.Feed) receipts.Diff {
	if j.verdict.Outcome != m.verdict.Outcome || j.verdict.Class != m.verdict.Class {
		return receipts.DiffReclassified
	}
	was, would := against(m.feeds), against(feeds)
	more, less := missing(would, was), missing(was, would)
	switch {
	case more && less:
		return receipts.DiffReclassified
	case more:
		return receipts.DiffStricter
	case less:
		return receipts.DiffLooser
	case j.verdict.Reason != m.verdict.Reason:
		return receipts.DiffReasonOnly
	}
	return receipts.DiffUnchanged
}

// against are the feeds that can open something, without their reasons.
func against(feeds []receipts.Feed) []receipts.Feed {
	var out []receipts.Feed
	for _, f := range feeds {
		if f.Signal == taxonomy.SignalFailure || f.Signal == taxonomy.SignalOpenNow {
			f.Reason = ""
			out = append(out, f)
		}
	}
	return out
}

func missing(of, in []receipts.Feed) bool {
	return slices.ContainsFunc(of, func(f receipts.Feed) bool { return !slices.Contains(in, f) })
}

// notSent counts a call that circuits of the candidate would have stopped and
// that was not sent anyway.
func (t *tally) notSent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.review.Stopped++
	t.review.NotSent++
}

func (t *tally) passed(op *taxonomy.Operation, feeds []receipts.Feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.review.passed(op, feeds)
}

// spared counts a call that the candidate would have stopped and that was sent:
// the user would have seen a failure, or something that stands in.
func (t *tally) spared(c *shadowCall, failed, helps, final bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if helps {
		t.f.Fallbacks++
		if !failed {
			t.f.Losses++ // a good answer would have been replaced
		}
	} else if final {
		t.f.UserFailures++
	}
	if len(c.stopped) > 0 {
		t.review.stopped(c.stopped, &c.permit.op, failed)
		t.review.stoodIn(helps, failed)
	}
}
