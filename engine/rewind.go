package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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

// historyKey is a document that is always there, so that every look at the store
// shows its epoch, also where nothing else that was looked for exists.
const historyKey = "store/history"

// beginHistory learns the epoch, and makes that document where it is missing.
func (e *Engine) beginHistory(ctx context.Context) error {
	d, err := e.parts.Store.Update(ctx, historyKey, func(d state.Doc) (data []byte, mode bool) {
		if len(d.Data) > 0 {
			return nil, false
		}
		return []byte{1}, true
	})
	if err != nil {
		return fmt.Errorf("read the store's history: %w", err)
	}
	e.past.answered(d.Rev.Epoch)
	return nil
}

// lookBack notices a store that went back in time.
func (e *Engine) lookBack(ctx context.Context) error {
	docs, err := e.parts.Store.Load(ctx, historyKey)
	if err == nil {
		e.past.shown(docs[0])
	}
	return err
}

// shown notes the epoch by the document that is always there. Where it is gone,
// so is everything that was written after it.
func (h *history) shown(d state.Doc) {
	if d.Rev.Epoch == 0 && h.epoch.Load() != 0 {
		h.back.Store(true)
	}
	h.answered(d.Rev.Epoch)
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

// tellWait bounds one try: a store that is frozen must not hold up expiry for long.
const tellWait = 5 * time.Second

// catchTime tells a store that went back in time what this process knows: its
// circuits, its calls in flight and what it spent. What cannot be told now is
// told with the next beat.
func (e *Engine) catchTime(ctx context.Context) {
	if !e.past.back.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellWait)
	defer cancel()
	errs := e.beginHistory(ctx)
	epoch := e.past.epoch.Load()
	e.blocks.Doubt()
	errs = errors.Join(errs, e.blocks.Return(ctx, 0))
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

// reassertAll joins every circuit that the store has, or that is known here. Most
// need nothing, and are only read.
func (s *partition) reassertAll(ctx context.Context) error {
	var differ []string
	there := map[string]bool{}
	err := s.e.parts.Store.Each(ctx, s.prefix, func(d state.Doc) error {
		key := strings.TrimPrefix(d.Key, s.prefix)
		there[key] = true
		if set := s.setting(key); set != nil {
			c, joined, err := s.joined(key, d, set)
			if err != nil || joined == c {
				return err
			}
			differ = append(differ, key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, l := range s.registry.List(false, s.e.clock.Mono()) {
		if !there[l.Key] {
			differ = append(differ, l.Key)
		}
	}
	for _, key := range differ {
		err = errors.Join(err, s.reassert(ctx, key))
	}
	return err
}

// joined is what the store has of a circuit, and that joined with what this
// process knows: the more restrictive state wins, and leases of a lost history are
// void.
func (s *partition) joined(key string, d state.Doc, set *ruled) (c, joined breaker.Circuit, err error) {
	c, void, _, err := s.read(key, d, set)
	if err != nil {
		return c, c, err
	}
	known, _ := s.registry.Circuit(key)
	return c, breaker.Rewound(&set.Rule, c, known, void, s.e.clock.Mono()), nil
}

// reassert writes a circuit joined.
func (s *partition) reassert(ctx context.Context, key string) error {
	set := s.setting(key)
	if set == nil {
		return nil
	}
	var bad error
	begin := s.e.clock.Mono()
	doc, err := s.e.parts.Store.Update(ctx, s.docKey(key), func(d state.Doc) (data []byte, mode bool) {
		c, joined, err := s.joined(key, d, set)
		if bad = err; err != nil || joined == c {
			return nil, false
		}
		data, bad = s.combine.encode(d, 0, set, c, joined, begin)
		return data, true
	})
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("tell the store of %s: %w", breaker.Scope(key), err)
	}
	return s.installDoc(ctx, doc)
}

// A past call was settled lately. A store that goes back in time forgets such
// calls first, and then the same request would not be known as sent.
type pastCall struct {
	sent  *state.Dispatch
	ended state.Settlement
	used  state.Amounts
}

// pastMost is how many of them are kept in mind.
const pastMost = 1024

// pastCalls are the latest calls that were settled, the newest last.
type pastCalls struct {
	mu   sync.Mutex
	list []pastCall
}

func (c *pastCalls) add(p pastCall) {
	if p.sent == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= pastMost {
		c.list = append(c.list[:0], c.list[len(c.list)-pastMost+1:]...)
	}
	c.list = append(c.list, p)
}

func (c *pastCalls) all() []pastCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// redispatch makes durable again what this process has in flight, and what it
// settled lately. What is there already is left as it is.
func (e *Engine) redispatch(ctx context.Context) error {
	var errs error
	for _, p := range e.permits.all() {
		if d := p.sent.Load(); d != nil && p.phase.Load() == dispatched {
			_, err := e.tellAgain(ctx, d)
			errs = errors.Join(errs, err)
		}
	}
	for _, c := range e.pastCalls.all() {
		forgotten, err := e.tellAgain(ctx, c.sent)
		if err == nil && forgotten {
			_, err = e.parts.Store.Settle(ctx, c.sent.Intent.ID, c.ended)
			if c.sent.Reservation != nil {
				if gerr := e.parts.Store.SettleGrant(ctx, c.sent.Reservation.ID, c.used); !errors.Is(gerr, state.ErrNotFound) {
					err = errors.Join(err, gerr)
				}
			}
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

// tellAgain writes an intent once more; forgotten says that it is in flight there
// now, and was perhaps not known before.
func (e *Engine) tellAgain(ctx context.Context, d *state.Dispatch) (forgotten bool, err error) {
	_, err = e.parts.Store.Dispatch(ctx, *d)
	if err != nil && !errors.Is(err, state.ErrUnavailable) && !errors.Is(err, state.ErrUnknown) {
		// Its budget or its approval is gone with the past, or is used up; the intent
		// is what counts.
		_, err = e.parts.Store.Dispatch(ctx, state.Dispatch{Intent: d.Intent})
	}
	switch {
	case errors.Is(err, state.ErrConflict):
		return false, nil // it is known, and has ended
	case err != nil:
		return false, fmt.Errorf("tell the store of intent %s: %w", d.Intent.ID, err)
	}
	return true, nil
}
