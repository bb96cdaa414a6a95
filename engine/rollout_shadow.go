package engine

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A shadow asks a candidate about the calls that the version in force decides:
// the same input, afterwards, one call after the other, in circuits that live in
// this process alone. Nobody waits for it. Where it cannot keep up it leaves
// whole calls out and counts them, and what goes wrong in it stays there.
type shadow struct {
	e      *Engine
	trial  *trial
	arm    arm
	work   chan shadowed
	held   atomic.Int64 // bytes of bodies that wait
	done   chan struct{}
	ticked breaker.Instant
}

// Bounds of what waits for a shadow.
const (
	shadowQueue = 4096
	shadowBytes = 64 << 20
)

// A shadowed is one thing that happened to a call.
type shadowed struct {
	call *shadowCall
	kind uint8
	at   breaker.Instant
	when time.Time

	rej      *Rejection // asked
	approved bool
	origin   receipts.ID // the receipt in force

	obs     taxonomy.Observation // told
	verdict taxonomy.Verdict
	feeds   []receipts.Feed
	final   bool
	flushed chan struct{} // flush
}

const (
	shadowAsk uint8 = iota
	shadowTold
	shadowWithdrawn
	shadowFlush
)

// A shadowCall follows one call. What the path fills in before it is handed over
// the worker reads afterwards.
type shadowCall struct {
	of        *shadow
	op        taxonomy.Operation // as the caller gave it
	history   []taxonomy.Call
	approvals []taxonomy.ApprovalFact
	left      bool // it was not taken, so nothing that follows is
	done      bool // it ended, or was never sent

	// The worker's own.
	permit  *Permit // the candidate's; nil where it has none, because it failed
	refused *Rejection
	stopped []breaker.Refusal // circuits behind refused
	inForce *Rejection
}

// newShadow begins where the version in force stands, or where an earlier stage
// of the same trial does.
func newShadow(e *Engine, t, old *trial) (*shadow, error) {
	s := &partition{e: e, cohort: CohortShadow, epoch: t.Began.UnixMilli(), gone: make(chan struct{})}
	if old != nil && old.shadow != nil {
		s.registry = old.shadow.arm.registry
	} else {
		var err error
		s.registry, err = breaker.NewRegistry(breaker.Options{Settings: t.Candidate.Breakers, Draw: func() breaker.PPM {
			return breaker.PPM(e.parts.Draw() * float64(breaker.One))
		}})
		if err != nil {
			return nil, err
		}
		now, at := e.clock.Mono(), e.clock.Now()
		if _, err := s.registry.Restore(e.home.registry.Snapshot(now, at), now, at); err != nil {
			return nil, err
		}
	}
	s.policy.Store(t.Candidate)
	s.tally.Store(t.figures.candidate)
	t.Candidate.users.Add(1) // the worker's
	w := &shadow{e: e, trial: t, arm: arm{partition: s, trial: t, cohort: CohortShadow}, work: make(chan shadowed, shadowQueue), done: make(chan struct{})}
	go w.run()
	return w, nil
}

// ask begins to follow a call; nil where nobody asks.
func (a *arm) ask(op *taxonomy.Operation) *shadowCall {
	if a.trial == nil || a.trial.shadow == nil {
		return nil
	}
	c := &shadowCall{of: a.trial.shadow, op: *op}
	c.op.Attributes = maps.Clone(op.Attributes) // the caller's own; the worker reads it later
	return c
}

// admitted hands over what the version in force decided.
func (c *shadowCall) admitted(p *Permit, rej *Rejection) {
	c.op.RequestID, c.op.Attempt = p.op.RequestID, p.op.Attempt
	c.left = !c.of.take(shadowed{call: c, kind: shadowAsk, rej: rej, approved: p.approval != "", origin: p.admission})
	c.done = rej != nil
	if c.left {
		c.of.shed()
	}
}

// concluded hands over how the call ended.
func (c *shadowCall) concluded(p *Permit, obs *taxonomy.Observation, v taxonomy.Verdict, feeds []receipts.Feed, origin receipts.ID) {
	if c.left || c.done {
		return
	}
	c.done = true
	m := shadowed{call: c, kind: shadowTold, obs: *obs, verdict: v, feeds: feeds, origin: origin, final: !p.looped || next(v) != "retry"}
	if obs.Response != nil {
		r := *obs.Response // likewise
		m.obs.Response = &r
	}
	if p.uncounted {
		m.kind = shadowWithdrawn
	}
	if !c.of.take(m) {
		c.of.shed()
	}
}

// withdrawn says that the call was not sent after all.
func (c *shadowCall) withdrawn() {
	if c.left || c.done {
		return
	}
	c.done = true
	c.of.take(shadowed{call: c, kind: shadowWithdrawn})
}

// take hands one thing to the worker, or leaves it.
func (s *shadow) take(m shadowed) bool {
	m.at, m.when = s.e.clock.Mono(), s.e.clock.Now()
	size := m.size()
	if s.held.Add(size) > shadowBytes {
		s.held.Add(-size)
		return false
	}
	select {
	case <-s.arm.gone:
	case s.work <- m:
		return true
	default:
	}
	s.held.Add(-size)
	return false
}

func (m *shadowed) size() int64 {
	if m.obs.Response == nil {
		return 0
	}
	return int64(len(m.obs.Response.Body))
}

func (s *shadow) shed() {
	c := s.trial.figures
	c.mu.Lock()
	c.shed++
	c.mu.Unlock()
}

// run is the worker.
func (s *shadow) run() {
	defer close(s.done)
	defer s.trial.Candidate.release() //nolint:errcheck // a module that does not close cleanly is the sandbox's to report
	for {
		select {
		case <-s.arm.gone:
			return
		case m := <-s.work:
			s.handle(m)
		}
	}
}

// end stops the worker; what waits is left.
func (s *shadow) end() {
	close(s.arm.gone)
	<-s.done
}

// handle does one thing. A candidate that panics fails this call, and no other.
func (s *shadow) handle(m shadowed) {
	s.held.Add(-m.size())
	if m.kind == shadowFlush {
		close(m.flushed)
		return
	}
	defer func() {
		if r := recover(); r != nil {
			s.broken(m, fmt.Errorf("panic: %v", r))
		}
	}()
	if s.ticked < m.at {
		s.ticked = m.at
		s.arm.noteChanges(s.arm.registry.Tick(m.at), nil)
	}
	switch m.kind {
	case shadowAsk:
		s.decide(m)
	case shadowTold:
		s.learn(m)
	case shadowWithdrawn:
		s.withdraw(m)
	}
}

// broken notes that the candidate has no answer for this call.
func (s *shadow) broken(m shadowed, err error) {
	s.trial.figures.candidate.failed()
	s.differ(m, receipts.DiffError, false, "candidate_failed")
	s.e.meter.ModuleFault("candidate", err)
}

// differ counts a difference, and leaves a receipt of it beside the one in
// force.
func (s *shadow) differ(m shadowed, d receipts.Diff, authority bool, reason string) {
	s.trial.figures.differs(d, authority)
	if d == receipts.DiffUnchanged || d == receipts.DiffReasonOnly {
		return
	}
	r := s.e.newReceipt(receipts.KindRollout, receipts.Audit)
	s.arm.stamp(r)
	r.StateEpoch = 0
	op := &m.call.op
	r.RequestID, r.RunID, r.Tenant, r.Agent, r.Attempt, r.Operation = op.RequestID, op.RunID, op.Tenant, op.Agent, op.Attempt, op.Name
	r.Mode = receipts.Some(s.trial.Stage)
	r.Rollout, r.ShadowOf, r.Diff, r.Reason = s.trial.ID, m.origin, d, reason
	if m.kind == shadowAsk {
		r.Decision, r.WouldDecide = receipts.Some(decisionOf(m.rej)), receipts.Some(decisionOf(m.call.refused))
	}
	if no := m.call.refused; no != nil {
		r.Layer, r.Breaker, r.Scope = no.Layer, no.Breaker, no.Scope
	}
	s.e.note(r)
}

func decisionOf(rej *Rejection) taxonomy.Decision {
	if rej == nil {
		return taxonomy.DecideAllow
	}
	return rej.Decision
}

// FlushTrial waits until everything that happened before it was compared.
func (e *Engine) FlushTrial(ctx context.Context) error {
	t := e.trial.Load()
	if t == nil || t.shadow == nil {
		return nil
	}
	m := shadowed{kind: shadowFlush, flushed: make(chan struct{})}
	select {
	case t.shadow.work <- m:
	case <-t.shadow.arm.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-m.flushed:
	case <-t.shadow.arm.gone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
