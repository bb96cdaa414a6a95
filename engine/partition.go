package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A partition is a policy with circuits of its own: in this process, in the
// store and in the evidence. The engine has one for the version in force, and
// while a canary runs one more for the candidate. What opens in one never
// refuses a call of the other, or the comparison would compare nothing.
type partition struct {
	e        *Engine
	policy   atomic.Pointer[Policy]
	registry *breaker.Registry
	combine  *combiner
	prefix   string        // of its documents in the store
	cohort   string        // of its receipts; "" is the version in force
	epoch    int64         // tells the circuits of one trial from those of the next, in receipts
	gone     chan struct{} // closed at its end; nil never ends
	tally    atomic.Pointer[tally]
	copy     freshness                // of what this process knows of the store
	reruled  atomic.Pointer[[]string] // breakers whose rule changed: the store may keep others' circuits under it
}

func newPartition(e *Engine, prefix string) (*partition, error) {
	s := &partition{e: e, prefix: prefix}
	s.combine = newCombiner(s)
	var err error
	s.registry, err = breaker.NewRegistry(breaker.Options{Shared: true, Draw: func() breaker.PPM {
		return breaker.PPM(e.parts.Draw() * float64(breaker.One))
	}})
	return s, err
}

func (s *partition) docKey(key string) string { return s.prefix + key }

// acquire pins the partition's policy for one user; false when the partition
// has ended.
func (s *partition) acquire() (*Policy, bool) {
	for {
		p := s.policy.Load()
		if p.acquire() {
			return p, true
		}
		if s.gone != nil {
			return nil, false
		}
		if s.e.closed.Load() {
			return p, true // nobody decides by it any more; what it declares may still be read
		}
	}
}

// ended reports whether its trial is over: what happens to its circuits now
// concerns nobody else.
func (s *partition) ended() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false // also where gone is nil
	}
}

// tick drives what time drives in these circuits, and carries counts along.
func (s *partition) tick(ctx context.Context) {
	s.rerule(ctx)
	s.moved(ctx, s.registry.Tick(s.e.clock.Mono()))
	s.combine.flush(ctx)
}

// carry hands what happened locally to the store.
func (s *partition) carry(ctx context.Context, rec *breaker.Recorded) error {
	if s.combine == nil {
		return nil // a shadow lives in this process alone
	}
	now := s.e.clock.Mono()
	var few [24]event // what an ordinary call touches, without allocating
	events := few[:0]
	for t := range rec.All() {
		moved := slices.ContainsFunc(rec.Changes, func(c breaker.Change) bool { return c.Key == t.Key })
		events = append(events, event{key: t.Key, Event: t.Event, at: now, urgent: moved || t.Event.Token != 0})
	}
	for i := range rec.Changes {
		if ev, ok := rec.Changes[i].Assert(); ok {
			events = append(events, event{key: rec.Changes[i].Key, Event: ev, at: now, urgent: true})
		}
	}
	return s.pushNow(ctx, s.combine.add(events))
}

// pushNow brings documents up to date whose change must not wait.
func (s *partition) pushNow(ctx context.Context, keys []string) error {
	if len(keys) == 0 || s.ended() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.e.parts.StoreWait)
	defer cancel()
	var errs error
	for _, k := range keys {
		errs = errors.Join(errs, s.combine.push(ctx, k))
	}
	return errs
}

// evidenceFor tells the circuits of an operation that read the given kind of
// evidence what was proved, and by whom.
func (s *partition) evidenceFor(ctx context.Context, op *taxonomy.Operation, kind breaker.Evidence, by string) error {
	p, ok := s.acquire()
	if !ok {
		return nil
	}
	defer func() { _ = p.release() }()
	var errs error
	for i := range p.Breakers {
		b := &p.Breakers[i]
		if b.Rule.Probe.Evidence&kind == 0 {
			continue
		}
		if key, ok := b.Key(op, b.Scope[len(b.Scope)-1]); ok {
			errs = errors.Join(errs, s.evidence(ctx, key, kind, by))
		}
	}
	return errs
}

func (s *partition) evidence(ctx context.Context, key string, kind breaker.Evidence, by string) error {
	_, changes, err := s.registry.Evidence(key, kind, by, s.e.clock.Mono())
	if err != nil {
		return err
	}
	return s.operated(ctx, key, breaker.Event{Kind: breaker.EvidenceSeen, Gives: kind, By: by}, changes)
}

// operated notes what an event outside any call changed, and carries it to the
// store.
func (s *partition) operated(ctx context.Context, key string, ev breaker.Event, changes []breaker.Change) error {
	s.noteChanges(changes, nil)
	err := s.pushNow(ctx, s.combine.add([]event{{key: key, Event: ev, at: s.e.clock.Mono(), urgent: true}}))
	up, uerr := s.rollUp(ctx, changes)
	s.noteChanges(up, nil)
	return errors.Join(err, uerr)
}

// stamp says in a receipt about these circuits whose they are.
func (s *partition) stamp(r *receipts.Receipt) {
	if p := s.policy.Load(); p != nil {
		r.PolicyVersion = p.Version
	}
	r.Cohort, r.StateEpoch = s.cohort, s.epoch
	switch s.cohort {
	case CohortCandidate:
		r.Mode = receipts.Some(taxonomy.ModeCanary)
	case CohortShadow:
		r.Mode = receipts.Some(taxonomy.ModeShadow)
	}
}

// observe keeps the report of a version that does not bind.
func (s *partition) observe(p *Policy) {
	if p.Observe {
		s.tally.Store(&tally{review: newReview(p)})
		return
	}
	s.tally.Store(nil)
}

// handOver tells the version in force of the UNKNOWN writes that these circuits
// stopped on: they are closed by reconciliation, and by no end of a trial.
func (s *partition) handOver(ctx context.Context) error {
	now := s.e.clock.Mono()
	home := s.e.home
	var errs error
	for _, l := range s.registry.List(false, now) {
		set := settingNamed(s.policy.Load(), l.Breaker)
		if set == nil || !set.Ambiguity() || l.Circuit.State == breaker.Closed {
			continue
		}
		if c, _ := home.registry.Circuit(l.Key); c.State != breaker.Closed {
			continue
		}
		changes, err := home.registry.Signal(l.Key, "unknown_write_of_a_trial", "", 0, now)
		if errors.Is(err, breaker.ErrUnknownCircuit) {
			continue // the version in force has no such circuit; the intent itself still binds
		}
		ev := breaker.Event{Kind: breaker.HardSignal, Unbound: true, Detail: "unknown_write_of_a_trial"}
		errs = errors.Join(errs, err, home.operated(ctx, l.Key, ev, changes))
	}
	return errs
}

// forget deletes what the store holds of these circuits.
func (s *partition) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.e.parts.StoreWait)
	defer cancel()
	var keys []string
	err := s.e.parts.Store.Each(ctx, s.prefix, func(d state.Doc) error {
		keys = append(keys, d.Key)
		return nil
	})
	if err != nil || len(keys) == 0 {
		return err
	}
	return s.e.parts.Store.Delete(ctx, keys...)
}

// settingNamed is a policy's breaker of this name; nil when it has none.
func settingNamed(p *Policy, name string) *breaker.Setting {
	for i := range p.Breakers {
		if p.Breakers[i].Name == name {
			return &p.Breakers[i]
		}
	}
	return nil
}

// noteChanges leaves a receipt for every change, under the one that caused it.
func (s *partition) noteChanges(cs []breaker.Change, cause *receipts.Receipt) {
	for i := range cs {
		if s.combine != nil {
			s.e.meter.Transition(s.modeOf(&cs[i]), cs[i])
		}
		s.tally.Load().change(&cs[i], s.e.clock.Now())
		r := s.e.transitionReceipt(&cs[i])
		s.stamp(r)
		if cause != nil {
			r.Parent, r.RequestID, r.RunID, r.Tenant, r.Attempt = cause.ID, cause.RequestID, cause.RunID, cause.Tenant, cause.Attempt
		}
		s.e.note(r)
	}
}

// noteSteps leaves receipts for what a lease from the store changed.
func (s *partition) noteSteps(key string, ts breaker.Transitions, p *Permit) {
	name, _, _ := strings.Cut(key, "|")
	var cs []breaker.Change
	for _, t := range ts.All() {
		c := breaker.Change{Key: key, Scope: breaker.Scope(key), Breaker: name, Transition: t}
		for i := range p.policy.Breakers {
			if b := &p.policy.Breakers[i]; b.Name == name {
				c.Layer, c.Rule = b.Layer, &b.Rule
			}
		}
		cs = append(cs, c)
		if p.span != nil {
			p.span.Transition(&c)
		}
	}
	cause := &receipts.Receipt{ID: p.admission, RequestID: p.op.RequestID, RunID: p.op.RunID, Tenant: p.op.Tenant, Attempt: p.op.Attempt}
	s.noteChanges(cs, cause)
}
