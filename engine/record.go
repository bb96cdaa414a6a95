package engine

import (
	"context"
	"errors"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// recorded is what one outcome did to the circuits.
type recorded struct {
	feeds   []receipts.Feed // with the readable scopes that they reached
	changes []breaker.Change
}

// record counts an outcome toward the circuits that its feeds name, here at
// once and in the store: changes of mode before it returns, counts of closed
// circuits with the next beat.
func (p *Permit) record(ctx context.Context, v taxonomy.Verdict, feeds []taxonomy.Feed, obs *taxonomy.Observation) (recorded, error) {
	e := p.e
	start := e.clock.Mono()
	var rec breaker.Recorded
	out := p.count(&rec, v, feeds, obs, start)
	p.probed(&rec)
	err := p.arm.carry(ctx, &rec)
	up, uerr := p.arm.rollUp(ctx, rec.Changes)
	out.changes, err = append(out.changes, up...), errors.Join(err, uerr)
	if p.arm.ended() {
		err = errors.Join(err, p.arm.handOver(ctx))
	}
	p.measure("record", start)
	return out, errors.Join(rec.Err(), err)
}

// count steps the circuits of this process.
func (p *Permit) count(rec *breaker.Recorded, v taxonomy.Verdict, feeds []taxonomy.Feed, obs *taxonomy.Observation, now breaker.Instant) recorded {
	p.path.RecordInto(rec, &p.ticket, feeds, breaker.Result{
		Outcome: v.Outcome, Class: v.Class, Elapsed: time.Duration(obs.ElapsedMS) * time.Millisecond,
	}, now)
	out := recorded{changes: rec.Changes, feeds: make([]receipts.Feed, 0, len(feeds))}
	for _, f := range feeds {
		out.feeds = append(out.feeds, receipts.Feed{Layer: f.Layer, Breaker: f.Breaker, Level: f.Level,
			Scope: p.path.ScopeOf(f), Signal: f.Signal, Reason: f.Reason})
	}
	return out
}

// leases are the probe leases that the store must grant in the dispatch's own
// transaction: only it can see what the rest of the fleet has out.
func (p *Permit) leases(ctx context.Context) (updates []state.LeaseUpdate, granted func()) {
	if !p.ticket.Needs() {
		return nil, func() {}
	}
	e := p.e
	type grant struct {
		c breaker.Circuit
		d breaker.Decision
		t breaker.Transitions
	}
	needs := p.path.Leases(&p.ticket, p.ask())
	grants := make([]grant, len(needs))
	for i, need := range needs {
		_ = p.arm.pushNow(ctx, []string{need.Key}) // what could not be carried shows in the lease's own update
		begin := e.clock.Mono()
		updates = append(updates, state.LeaseUpdate{Key: p.arm.docKey(need.Key), F: func(d state.Doc) ([]byte, bool) {
			set := p.arm.setting(need.Key)
			e.past.answered(d.Rev.Epoch)
			if set == nil || e.past.back.Load() || p.arm.probedElsewhere(d, set) {
				return nil, false
			}
			c, err := p.arm.stored(need.Key, d, set)
			if err != nil {
				return nil, false
			}
			after, decision, t := breaker.Step(&set.Rule, c, need.Event, e.clock.Mono())
			if !decision.Allow {
				return nil, false
			}
			grants[i] = grant{after, decision, t}
			data, err := p.arm.combine.encode(d, 0, set, c, after, begin)
			return data, err == nil
		}})
	}
	return updates, func() {
		for i, g := range grants {
			p.ticket.Answer(needs[i], g.d)
			// The store's word on its lease, whatever this process took the circuit for.
			if _, err := p.arm.registry.Adopt(needs[i].Key, g.c, e.clock.Mono()); err != nil {
				e.meter.StoreError("install", err)
			}
			p.arm.noteSteps(needs[i].Key, g.t, p)
			e.meter.Probe(breakerOf(needs[i].Key), probeGranted)
		}
		p.renewAt = e.clock.Mono().Add(p.path.ShortestLease(p.ticket) / 3)
	}
}

// probedElsewhere reports whether workers that keep the circuit under another rule
// have all the probes out that this one allows: there is one remote, and it knows
// nothing of policies.
func (s *partition) probedElsewhere(d state.Doc, set *ruled) bool {
	doc, err := readDocument(d.Data)
	if err != nil || len(doc.views) < 2 {
		return false
	}
	now, out := s.e.clock.Mono(), 0
	for _, v := range doc.views {
		if v.rule == set.rule {
			continue
		}
		c, err := v.under(set, now, d.Now)
		if err != nil {
			return true // nobody knows
		}
		for _, l := range c.Leases {
			if l.Token != 0 && now < l.Until {
				out++
			}
		}
	}
	return out >= int(set.Rule.Probe.Budget)
}

// leaseLocally takes the leases in this process alone: for a read whose rule
// says that it goes on while the store is lost.
func (p *Permit) leaseLocally() *Rejection {
	changes, denial := p.path.Lease(&p.ticket, p.ask(), p.e.clock.Mono())
	p.arm.noteChanges(changes, nil)
	if denial != nil {
		return p.denied(&denial.Refusal)
	}
	return nil
}

// renew holds the leases of calls that are still in flight: a lease lives as
// long as its attempt, and no longer than its deadline.
func (e *Engine) renew(ctx context.Context) {
	now := e.clock.Mono()
	for _, p := range e.permits.all() {
		if p.phase.Load() != dispatched || p.ticket.Held == 0 || now < p.renewAt {
			continue
		}
		p.renewAt = now.Add(p.path.ShortestLease(p.ticket) / 3)
		rec := p.path.Renew(p.ticket, p.lifetime(), now)
		p.arm.leased(ctx, "renew", rec)
	}
}

// evidenceFor tells the circuits of an operation that read the given kind of
// evidence what was proved, and by whom: the world is the same in every arm.
func (e *Engine) evidenceFor(ctx context.Context, op *taxonomy.Operation, kind breaker.Evidence, by string) error {
	var errs error
	for _, s := range e.partitions() {
		errs = errors.Join(errs, s.evidenceFor(ctx, op, kind, by))
	}
	return errs
}

// Evidence tells one circuit what was proved and by whom. It moves nothing
// unless the circuit's rule names that kind of evidence.
func (e *Engine) Evidence(ctx context.Context, key string, kind breaker.Evidence, by string) error {
	return e.home.evidence(ctx, key, kind, by)
}

// Override lays a human decision over a circuit: who, why and until when. It
// binds in every arm of a trial: an emergency stop that a canary ignored would
// be none.
func (e *Engine) Override(ctx context.Context, scope string, o breaker.Override) error {
	return e.decide(ctx, scope, o, func(s *partition, key string) (breaker.Event, []breaker.Change, error) {
		changes, err := s.registry.Override(key, o, e.clock.Mono())
		return breaker.Event{Kind: breaker.SetOverride, Override: &o}, changes, err
	})
}

// Release takes a human decision back.
func (e *Engine) Release(ctx context.Context, scope, by, why string) error {
	return e.decide(ctx, scope, breaker.Override{By: by, Why: why}, func(s *partition, key string) (breaker.Event, []breaker.Change, error) {
		changes, err := s.registry.ClearOverride(key, by, why, e.clock.Mono())
		return breaker.Event{Kind: breaker.ClearOverride, By: by, Detail: why}, changes, err
	})
}

// decide carries a human decision out in every partition that knows the scope,
// and fails where none does.
func (e *Engine) decide(ctx context.Context, scope string, o breaker.Override, do func(*partition, string) (breaker.Event, []breaker.Change, error)) error {
	var unknown error
	known := false
	for _, s := range e.partitions() {
		key, err := s.registry.Find(scope)
		if err != nil {
			unknown = errors.Join(unknown, err)
			continue
		}
		known = true
		was, _ := s.registry.Circuit(key)
		ev, changes, err := do(s, key)
		if err != nil {
			return err
		}
		s.tally.Load().overridden(&was, o.Kind)
		e.note(e.overrideReceipt(s, key, o))
		if err := s.operated(ctx, key, ev, changes); err != nil {
			return err
		}
	}
	if known {
		return nil
	}
	return unknown
}
