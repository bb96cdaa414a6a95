package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// rollUp opens what is wider than circuits that opened, here or elsewhere, where
// the declared roll-up is reached over the whole fleet: the siblings that other
// processes use are read from the store first. It returns what it opened, which
// the store has been told. While the store is lost, what this process knows
// decides.
func (s *partition) rollUp(ctx context.Context, opened []breaker.Change) (up []breaker.Change, err error) {
	if s.combine == nil {
		return nil, nil // a registry of its own rolls up by itself
	}
	for queue := opened; len(queue) > 0; queue = queue[1:] {
		c := &queue[0]
		if c.To != breaker.Open || !c.Moved() {
			continue
		}
		parent := s.registry.RolledUp(c.Key)
		if parent == "" {
			continue
		}
		if err := s.installFamily(ctx, parent); err != nil {
			s.e.meter.StoreError("rollup", err)
		}
		next := s.registry.RollUp(c.Key, s.e.clock.Mono())
		var events []event
		for i := range next {
			if ev, ok := next[i].Assert(); ok {
				events = append(events, event{key: next[i].Key, Event: ev, at: s.e.clock.Mono(), urgent: true})
			}
		}
		err = errors.Join(err, s.pushNow(ctx, s.combine.add(events)))
		up, queue = append(up, next...), append(queue[:len(queue):len(queue)], next...)
	}
	return up, err
}

// wider opens what is wider than circuits that opened, with a receipt for each.
func (s *partition) wider(ctx context.Context, changes []breaker.Change) ([]breaker.Change, error) {
	up, err := s.rollUp(ctx, changes)
	s.noteChanges(up, nil)
	return up, err
}

// moved carries through what time alone changed: a receipt for each change, and
// the store is told of what opened, and of what is wider.
func (s *partition) moved(ctx context.Context, changes []breaker.Change) {
	if len(changes) == 0 {
		return
	}
	s.noteChanges(changes, nil)
	var events []event
	for i := range changes {
		if ev, ok := changes[i].Assert(); ok {
			events = append(events, event{key: changes[i].Key, Event: ev, at: s.e.clock.Mono(), urgent: true})
		}
	}
	err := s.pushNow(ctx, s.combine.add(events))
	if _, uerr := s.wider(ctx, changes); err != nil || uerr != nil {
		s.e.meter.StoreError("rollup", errors.Join(err, uerr))
	}
}

// leased carries what became of leases to the store, with a receipt for each
// change. Where the store cannot be told, the lease runs out by itself.
func (s *partition) leased(ctx context.Context, what string, rec breaker.Recorded) {
	if err := s.carry(ctx, rec); err != nil {
		s.e.meter.StoreError(what, err)
	}
	if len(rec.Changes) == 0 {
		return
	}
	s.noteChanges(rec.Changes, nil)
	if _, err := s.wider(ctx, rec.Changes); err != nil {
		s.e.meter.StoreError(what, err)
	}
}

// installFamily puts a circuit and all that are narrower in force as the store
// has them.
func (s *partition) installFamily(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.e.parts.StoreWait)
	defer cancel()
	_, err := s.installEach(ctx, s.docKey(key), nil)
	return err
}

// installEach puts every stored circuit in force whose key begins so, and names
// each to met, where that is given.
func (s *partition) installEach(ctx context.Context, prefix string, met func(key string)) (changes []breaker.Change, err error) {
	err = s.e.parts.Store.Each(ctx, prefix, func(d state.Doc) error {
		s.e.past.answered(d.Rev.Epoch)
		if met != nil {
			met(strings.TrimPrefix(d.Key, s.prefix))
		}
		c, err := s.install(d)
		changes = append(changes, c...)
		return err
	})
	return changes, err
}
