package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// history is what this process knows of its store's past. A store that was
// acknowledged by a primary and is continued by a standby that lagged, or that
// came back from a backup, has another epoch: what it acknowledged last may be
// gone. Every worker then tells it what it knows, and until it has, nothing
// high-impact goes and no lease is taken.
type history struct {
	epoch atomic.Uint64 // 0 is not known yet
	back  atomic.Bool   // it went back, and was not told yet
}

// answered notes the epoch of a direct answer.
func (h *history) answered(epoch uint64) {
	if epoch == 0 {
		return
	}
	if known := h.epoch.Swap(epoch); known != 0 && known != epoch {
		h.back.Store(true)
	}
}

// follows reports whether a pushed change is of the history that is known, or of
// a later one. One of an earlier history was on its way when that ended.
func (h *history) follows(epoch uint64) bool {
	known := h.epoch.Load()
	if epoch > known && known != 0 {
		h.answered(epoch)
	}
	return epoch >= known
}

// catchTime tells a store that went back in time what this process knows: its
// circuits, its calls in flight and what it spent. What cannot be told now is
// told with the next beat.
func (e *Engine) catchTime(ctx context.Context) {
	if !e.past.back.Load() {
		return
	}
	epoch := e.past.epoch.Load()
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	e.blocks.Doubt()
	errs := e.blocks.Return(ctx, 0)
	for _, s := range e.partitions() {
		errs = errors.Join(errs, s.reassertAll(ctx))
	}
	errs = errors.Join(errs, e.redispatch(ctx))
	if errs != nil {
		e.meter.StoreError("went_back", errs)
		return
	}
	if e.past.epoch.Load() == epoch {
		e.past.back.Store(false)
	}
}

// reassertAll joins every circuit that the store has, or that is known here.
func (s *partition) reassertAll(ctx context.Context) error {
	keys := map[string]bool{}
	err := s.e.parts.Store.Each(ctx, s.prefix, func(d state.Doc) error {
		keys[strings.TrimPrefix(d.Key, s.prefix)] = true
		return nil
	})
	if err != nil {
		return err
	}
	for _, l := range s.registry.List(false, s.e.clock.Mono()) {
		keys[l.Key] = true
	}
	for key := range keys {
		err = errors.Join(err, s.reassert(ctx, key))
	}
	return err
}

// reassert joins what the store has of a circuit with what this process knows:
// the more restrictive state wins, and leases of the lost history are void.
func (s *partition) reassert(ctx context.Context, key string) error {
	set := s.setting(key)
	if set == nil {
		return nil
	}
	var bad error
	doc, err := s.e.parts.Store.Update(ctx, s.docKey(key), func(d state.Doc) (data []byte, mode bool) {
		var c breaker.Circuit
		var void bool
		if c, void, _, bad = s.read(key, d, set); bad != nil {
			return nil, false
		}
		known, _ := s.registry.Circuit(key)
		joined := breaker.Rewound(&set.Rule, c, known, void, s.e.clock.Mono())
		if joined == c {
			return nil, false
		}
		data, bad = s.combine.encode(d, 0, set, joined)
		return data, true
	})
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("tell the store of %s: %w", breaker.Scope(key), err)
	}
	return s.installDoc(ctx, doc)
}

// redispatch makes durable again what this process has in flight: an intent that
// is there already is left as it is.
func (e *Engine) redispatch(ctx context.Context) error {
	var errs error
	for _, p := range e.permits.all() {
		d := p.sent.Load()
		if d == nil || p.phase.Load() != dispatched {
			continue
		}
		_, err := e.parts.Store.Dispatch(ctx, *d)
		if err != nil && !errors.Is(err, state.ErrUnavailable) && !errors.Is(err, state.ErrUnknown) {
			// Its budget or its approval is gone with the past; the intent is what counts.
			_, err = e.parts.Store.Dispatch(ctx, state.Dispatch{Intent: d.Intent})
		}
		if err != nil && !errors.Is(err, state.ErrConflict) { // that one is settled meanwhile
			errs = errors.Join(errs, fmt.Errorf("tell the store of intent %s: %w", d.Intent.ID, err))
		}
	}
	return errs
}

// rerule takes over what other workers keep under a rule that is new here: until
// then this process's own versions of those circuits are not to be compared with
// theirs.
func (s *partition) rerule(ctx context.Context) {
	names := s.reruled.Swap(nil)
	if names == nil {
		return
	}
	for _, name := range *names {
		if err := s.takeOver(ctx, name); err != nil {
			s.e.meter.StoreError("rerule", err)
			s.reruled.CompareAndSwap(nil, names) // with the next beat
			return
		}
	}
}

func (s *partition) takeOver(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, s.e.parts.StoreWait)
	defer cancel()
	set := settingNamed(s.policy.Load(), name)
	if set == nil {
		return nil
	}
	return s.e.parts.Store.Each(ctx, s.docKey(name), func(d state.Doc) error {
		key := strings.TrimPrefix(d.Key, s.prefix)
		if s.setting(key) != set {
			return nil // another breaker whose name begins the same
		}
		doc, err := readDocument(d.Data)
		if _, own := doc.view(ruleOf(set)); err != nil || !own {
			return err // nobody keeps it under this rule yet: this process begins
		}
		c, err := s.stored(key, d, set)
		if err != nil {
			return err
		}
		changes, err := s.registry.Adopt(key, c, s.e.clock.Mono())
		if errors.Is(err, breaker.ErrUnknownCircuit) {
			return nil
		}
		s.noteChanges(changes, nil)
		return err
	})
}

// rerules notes which breakers go on under another rule.
func (s *partition) rerules(old, next *Policy) {
	if old == nil {
		return
	}
	var names []string
	if waiting := s.reruled.Load(); waiting != nil {
		names = append(names, *waiting...)
	}
	for i := range next.Breakers {
		b := &next.Breakers[i]
		if was := settingNamed(old, b.Name); was != nil && ruleOf(was) != ruleOf(b) {
			names = append(names, b.Name)
		}
	}
	if len(names) > 0 {
		s.reruled.Store(&names)
	}
}
