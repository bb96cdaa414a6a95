package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	rec := p.path.Record(p.ticket, feeds, breaker.Result{
		Outcome: v.Outcome, Class: v.Class, Elapsed: time.Duration(obs.ElapsedMS) * time.Millisecond,
	}, start)
	out := recorded{changes: rec.Changes, feeds: make([]receipts.Feed, 0, len(feeds))}
	for _, f := range feeds {
		out.feeds = append(out.feeds, receipts.Feed{Layer: f.Layer, Breaker: f.Breaker, Level: f.Level,
			Scope: p.path.ScopeOf(f), Signal: f.Signal, Reason: f.Reason})
	}
	err := e.carry(ctx, rec)
	up, uerr := e.rollUp(ctx, rec.Changes)
	out.changes, err = append(out.changes, up...), errors.Join(err, uerr)
	e.meter.Stage("record", time.Duration(e.clock.Mono()-start))
	return out, errors.Join(rec.Err(), err)
}

// carry hands what happened locally to the store.
func (e *Engine) carry(ctx context.Context, rec breaker.Recorded) error {
	now := e.clock.Mono()
	touched := rec.Touched()
	events := make([]event, 0, len(touched)+len(rec.Changes))
	for i := range touched {
		t := &touched[i]
		moved := slices.ContainsFunc(rec.Changes, func(c breaker.Change) bool { return c.Key == t.Key })
		events = append(events, event{key: t.Key, Event: t.Event, at: now, urgent: moved || t.Event.Token != 0})
	}
	for i := range rec.Changes {
		if ev, ok := rec.Changes[i].Assert(); ok {
			events = append(events, event{key: rec.Changes[i].Key, Event: ev, at: now, urgent: true})
		}
	}
	return e.pushNow(ctx, e.combine.add(events))
}

// pushNow brings documents up to date whose change must not wait.
func (e *Engine) pushNow(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.parts.StoreWait)
	defer cancel()
	var errs error
	for _, k := range keys {
		errs = errors.Join(errs, e.combine.push(ctx, k))
	}
	return errs
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
		_ = e.pushNow(ctx, []string{need.Key}) // what could not be carried shows in the lease's own update
		updates = append(updates, state.LeaseUpdate{Key: docKey(need.Key), F: func(d state.Doc) ([]byte, bool) {
			c, err := e.stored(need.Key, d, need.Rule)
			if err != nil {
				return nil, false
			}
			after, decision, t := breaker.Step(need.Rule, c, need.Event, e.clock.Mono())
			if !decision.Allow {
				return nil, false
			}
			grants[i] = grant{after, decision, t}
			return e.combine.encode(d, 0, after), true
		}})
	}
	return updates, func() {
		for i, g := range grants {
			p.ticket.Answer(needs[i], g.d)
			if _, _, err := e.registry.Install(needs[i].Key, g.c, e.clock.Mono()); err != nil {
				e.meter.StoreError("install", err)
			}
			e.noteSteps(needs[i].Key, g.t, p)
		}
		p.renewAt = e.clock.Mono().Add(p.path.ShortestLease(p.ticket) / 3)
	}
}

// leaseLocally takes the leases in this process alone: for a read whose rule
// says that it goes on while the store is lost.
func (p *Permit) leaseLocally() *Rejection {
	changes, denial := p.path.Lease(&p.ticket, p.ask(), p.e.clock.Mono())
	p.e.noteChanges(changes, nil)
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
		if err := e.carry(ctx, rec); err != nil {
			e.meter.StoreError("renew", err)
		}
	}
}

// stored is the circuit of a document on this process's clock. A record that
// was never written is a new circuit; one that vanished never closes a circuit
// that is open here.
func (e *Engine) stored(key string, d state.Doc, rule *breaker.Rule) (breaker.Circuit, error) {
	local, _ := e.registry.Circuit(key)
	if len(d.Data) == 0 {
		if local.Version > 0 {
			return local, nil
		}
		return breaker.Circuit{}, nil
	}
	_, body, err := cutDocument(d.Data)
	if err != nil {
		return breaker.Circuit{}, fmt.Errorf("circuit %s: %w", breaker.Scope(key), err)
	}
	c, err := breaker.Decode(body, rule, e.clock.Mono(), d.Now)
	if err != nil {
		return breaker.Circuit{}, fmt.Errorf("circuit %s: %w", breaker.Scope(key), err)
	}
	return anchored(c, local, rule), nil
}

// anchored keeps the instants that this process knows by its own monotonic
// clock: what came by way of the store's wall clock is only believed where
// nothing better is known, or a wall clock that jumps would end a cooldown, or
// never let it end.
func anchored(c, local breaker.Circuit, rule *breaker.Rule) breaker.Circuit {
	if local.Override != nil && c.Decided == local.Decided {
		c.Override = local.Override // the same decision
	}
	if c.Version != local.Version || c.State != local.State {
		return c
	}
	c.Since = local.Since
	switch {
	case c.Step == local.Step:
		c.Until = local.Until
	case c.Step < local.Step:
		// The store has not heard yet that a step of the ramp was taken here, and
		// when. With our own step's end it would never take it, and hand us back the
		// step before.
		c.Until = local.Until.Add(-rule.Ramp.Every)
	}
	for i := range c.Leases {
		for _, l := range local.Leases {
			if l.Token == c.Leases[i].Token && l.Token != 0 {
				c.Leases[i].Until = l.Until
			}
		}
	}
	return c
}

// restore reads every circuit back. One that cannot be read is refused rather
// than taken for closed.
func (e *Engine) restore(ctx context.Context) error {
	_, err := e.installEach(ctx, docPrefix)
	return err
}

// installDoc puts a document's circuit in force here, and what is wider where
// that opens it.
func (e *Engine) installDoc(ctx context.Context, d state.Doc) error {
	changes, err := e.install(d)
	if err != nil {
		return err
	}
	up, err := e.rollUp(ctx, changes)
	e.noteChanges(up, nil)
	return err
}

// install puts a document's circuit in force here. One whose breaker is no
// more, or whose scope changed, is left where it is.
func (e *Engine) install(d state.Doc) ([]breaker.Change, error) {
	key := strings.TrimPrefix(d.Key, docPrefix)
	rule, ok := e.rule(key)
	if !ok || len(d.Data) == 0 {
		return nil, nil
	}
	c, err := e.stored(key, d, rule)
	if err != nil {
		return nil, err
	}
	_, changes, err := e.registry.Install(key, c, e.clock.Mono())
	if errors.Is(err, breaker.ErrUnknownCircuit) {
		return nil, nil
	}
	return changes, err
}

// rule is the rule in force for a key.
func (e *Engine) rule(key string) (*breaker.Rule, bool) {
	name, _, _ := strings.Cut(key, "|")
	p := e.policy.Load()
	for i := range p.Breakers {
		if p.Breakers[i].Name == name {
			return &p.Breakers[i].Rule, true
		}
	}
	return nil, false
}

// watch installs what other processes on the same store changed.
func (e *Engine) watch(ctx context.Context) error {
	events, err := e.parts.Store.Watch(ctx, docPrefix)
	if err != nil {
		return err
	}
	for ev := range events {
		if ev.Lost {
			return state.ErrUnavailable
		}
		if !ev.Beat {
			if err := e.installDoc(ctx, ev.Doc); err != nil {
				e.meter.StoreError("watch", err)
			}
		}
	}
	return ctx.Err()
}

// follow keeps watching, and after a loss waits a beat and begins again: a
// local copy that nobody corrects grows stale without saying so.
func (e *Engine) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := e.watch(ctx); err != nil && ctx.Err() == nil {
			e.meter.StoreError("watch", err)
		}
		if !e.clock.Sleep(beat, ctx.Done()) {
			return
		}
		if err := e.catchUp(ctx); err != nil && ctx.Err() == nil {
			e.meter.StoreError("watch", err)
		}
	}
}

// evidenceFor tells the circuits of an operation that read the given kind of
// evidence what was proved, and by whom.
func (e *Engine) evidenceFor(ctx context.Context, op *taxonomy.Operation, kind breaker.Evidence, by string) error {
	p := e.current()
	defer func() { _ = p.release() }()
	var errs error
	for i := range p.Breakers {
		b := &p.Breakers[i]
		if b.Rule.Probe.Evidence&kind == 0 {
			continue
		}
		if key, ok := b.Key(op, b.Scope[len(b.Scope)-1]); ok {
			errs = errors.Join(errs, e.Evidence(ctx, key, kind, by))
		}
	}
	return errs
}

// Evidence tells one circuit what was proved and by whom. It moves nothing
// unless the circuit's rule names that kind of evidence.
func (e *Engine) Evidence(ctx context.Context, key string, kind breaker.Evidence, by string) error {
	now := e.clock.Mono()
	_, changes, err := e.registry.Evidence(key, kind, by, now)
	if err != nil {
		return err
	}
	return e.operated(ctx, key, breaker.Event{Kind: breaker.EvidenceSeen, Gives: kind, By: by}, changes)
}

// Override lays a human decision over a circuit: who, why and until when.
func (e *Engine) Override(ctx context.Context, scope string, o breaker.Override) error {
	key, err := e.registry.Find(scope)
	if err != nil {
		return err
	}
	changes, err := e.registry.Override(key, o, e.clock.Mono())
	if err != nil {
		return err
	}
	e.note(e.overrideReceipt(key, o))
	return e.operated(ctx, key, breaker.Event{Kind: breaker.SetOverride, Override: &o}, changes)
}

// Release takes a human decision back.
func (e *Engine) Release(ctx context.Context, scope, by, why string) error {
	key, err := e.registry.Find(scope)
	if err != nil {
		return err
	}
	changes, err := e.registry.ClearOverride(key, by, why, e.clock.Mono())
	if err != nil {
		return err
	}
	e.note(e.overrideReceipt(key, breaker.Override{By: by, Why: why}))
	return e.operated(ctx, key, breaker.Event{Kind: breaker.ClearOverride, By: by, Detail: why}, changes)
}

// operated notes what an event outside any call changed, and carries it to the
// store.
func (e *Engine) operated(ctx context.Context, key string, ev breaker.Event, changes []breaker.Change) error {
	e.noteChanges(changes, nil)
	err := e.pushNow(ctx, e.combine.add([]event{{key: key, Event: ev, at: e.clock.Mono(), urgent: true}}))
	up, uerr := e.rollUp(ctx, changes)
	e.noteChanges(up, nil)
	return errors.Join(err, uerr)
}
