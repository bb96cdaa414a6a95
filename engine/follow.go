package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// What a partition hears of the other processes on the same store.

// stored is the circuit of a document on this process's clock, under a breaker's
// present rule. A record that was never written is a new circuit; one that
// vanished never closes a circuit that is open here.
func (s *partition) stored(key string, d state.Doc, set *ruled) (breaker.Circuit, error) {
	local, _ := s.registry.Circuit(key)
	c, void, found, err := s.read(key, d, set)
	switch {
	case err != nil:
		return breaker.Circuit{}, err
	case !found && local.Version > 0:
		return local, nil
	case void:
		c = breaker.Rewound(&set.Rule, c, breaker.Circuit{}, true, s.e.clock.Mono())
	}
	return anchored(c, local, &set.Rule), nil
}

// read is the circuit as the document has it; void says that it was written
// before the store went back in time.
func (s *partition) read(key string, d state.Doc, set *ruled) (c breaker.Circuit, void, found bool, err error) {
	doc, err := readDocument(d.Data)
	if err == nil {
		v, _ := doc.view(set.rule)
		if v == nil {
			return c, false, false, nil
		}
		void = v.epoch != 0 && d.Rev.Epoch != 0 && v.epoch != d.Rev.Epoch
		c, err = v.under(set, s.e.clock.Mono(), d.Now)
		for i := range doc.views {
			if &doc.views[i] == v {
				continue
			}
			// A person decides over the circuit, whatever rule it is kept under.
			if o, oerr := doc.views[i].under(set, s.e.clock.Mono(), d.Now); oerr == nil && o.Decided > c.Decided {
				c.Override, c.Decided = o.Override, o.Decided
			}
		}
	}
	if err != nil {
		return breaker.Circuit{}, false, false, fmt.Errorf("circuit %s: %w", breaker.Scope(key), err)
	}
	return c, void, true, nil
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
func (s *partition) restore(ctx context.Context) error {
	_, err := s.installEach(ctx, s.prefix, nil)
	return err
}

// installDoc puts a document's circuit in force here, and what is wider where
// that opens it.
func (s *partition) installDoc(ctx context.Context, d state.Doc) error {
	changes, err := s.install(d)
	if err != nil {
		return err
	}
	_, err = s.wider(ctx, changes)
	return err
}

// install puts a document's circuit in force here. One whose breaker is no
// more, or whose scope changed, is left where it is.
func (s *partition) install(d state.Doc) ([]breaker.Change, error) {
	key := strings.TrimPrefix(d.Key, s.prefix)
	set := s.setting(key)
	if set == nil || len(d.Data) == 0 {
		return nil, nil
	}
	c, err := s.stored(key, d, set)
	if err != nil {
		return nil, err
	}
	_, changes, err := s.registry.Install(key, c, s.e.clock.Mono())
	if errors.Is(err, breaker.ErrUnknownCircuit) {
		return nil, nil
	}
	return changes, err
}

// setting is the breaker in force for a key; nil when there is none.
func (s *partition) setting(key string) *ruled {
	name, _, _ := strings.Cut(key, "|")
	return s.policy.Load().ruled(name)
}

// watch installs what other processes on the same store change, until that is no
// longer to be heard.
func (s *partition) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := s.e.parts.Store.Watch(ctx, s.prefix)
	if err != nil {
		return err
	}
	// What was committed before the watch began is read now: between the two
	// nothing falls through.
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	s.copy.hear(s.e.clock.Mono())
	for ev := range events {
		if ev.Lost {
			return state.ErrUnavailable
		}
		s.copy.hear(s.e.clock.Mono())
		if ev.Beat || !s.e.past.follows(ev.Doc.Rev.Epoch) {
			continue
		}
		if err := s.installDoc(ctx, ev.Doc); err != nil {
			s.e.meter.StoreError("watch", err)
		}
	}
	return ctx.Err()
}

// follow keeps watching, and after a loss waits a beat and begins again.
func (s *partition) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		s.copy.lose(s.e.clock.Mono())
		if err != nil {
			s.e.meter.StoreError("watch", err)
		}
		if !s.e.clock.Sleep(beat, ctx.Done()) {
			return
		}
	}
}

// catchUp installs what other processes did while nobody listened, and tells the
// store of what is not closed here and is not there at all.
func (s *partition) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	if err := s.e.lookBack(ctx); err != nil {
		return err
	}
	there := map[string]bool{}
	changes, err := s.installEach(ctx, s.prefix, func(key string) { there[key] = true })
	up, uerr := s.rollUp(ctx, changes)
	s.noteChanges(up, nil)
	if err = errors.Join(err, uerr); err != nil {
		return err
	}
	for _, l := range s.registry.List(false, s.e.clock.Mono()) {
		if !there[l.Key] && (l.Circuit.State != breaker.Closed || l.Circuit.Override != nil) {
			err = errors.Join(err, s.reassert(ctx, l.Key))
		}
	}
	return err
}

// catchUpWait bounds the reading of all circuits.
const catchUpWait = 15 * time.Second

// hasRoom refuses a document that is kept under so many rules that this worker's
// is one too many: by whose state should it decide?
func (s *partition) hasRoom(d state.Doc) error {
	set := s.setting(strings.TrimPrefix(d.Key, s.prefix))
	doc, err := readDocument(d.Data)
	if err == nil && set != nil && doc.full(set.rule, d.Now) {
		err = doc.refuse(s.policy.Load().Version)
	}
	return err
}
