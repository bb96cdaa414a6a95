package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// combiner carries what happened to circuits into the store: for each circuit
// one update in flight, everything that waits folded into the next one. Changes
// of mode go at once; counts of closed circuits wait for the next beat.
type combiner struct {
	of     *partition
	writer uint64 // this process, in the blobs that it writes

	mu   sync.Mutex
	keys map[string]*backlog
}

// event is one thing that happened to a circuit here.
type event struct {
	key string
	breaker.Event
	at     breaker.Instant
	urgent bool // a change of mode or a lease: the store must know at once
}

// backlog is what one circuit's document does not yet know.
type backlog struct {
	update sync.Mutex // held by the one update in flight
	events []event
	batch  uint64
	doubts []doubt // the oldest first
}

// A doubt is a batch whose answer was lost: where the document turns out to have
// it, so many of the oldest events are in it already. Only whoever holds the
// document locked can tell, so it is settled by the next update.
type doubt struct {
	batch  uint64
	events int
}

// doubtful is how many of the oldest events may be in the document already.
func (b *backlog) doubtful() int {
	if n := len(b.doubts); n > 0 {
		return b.doubts[n-1].events
	}
	return 0
}

// applied is how many of the oldest events are in a document that has this
// process's batch.
func (b *backlog) applied(batch uint64) (events int) {
	for _, d := range b.doubts {
		if d.batch <= batch {
			events = d.events
		}
	}
	return events
}

// add appends an event; counts that differ in nothing are one event with a
// number, so that a busy closed circuit leaves a short backlog. Those that may be
// in the document already stay as they are.
func (b *backlog) add(a event) {
	if n := len(b.events); n > b.doubtful() && !a.urgent {
		last := &b.events[n-1]
		same := last.Event
		same.N = a.N
		if !last.urgent && same == a.Event && last.N < 1<<20 {
			last.N, last.at = max(last.N, 1)+max(a.N, 1), a.at
			return
		}
	}
	b.events = append(b.events, a)
}

func newCombiner(of *partition) *combiner {
	h := fnv.New64a()
	h.Write([]byte(of.e.parts.Owner.Incarnation)) // never fails
	return &combiner{of: of, writer: h.Sum64(), keys: map[string]*backlog{}}
}

// add queues events; it returns the keys that must not wait.
func (c *combiner) add(as []event) (urgent []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range as {
		b := c.keys[a.key]
		if b == nil {
			b = &backlog{}
			c.keys[a.key] = b
		}
		b.add(a)
		if a.urgent {
			urgent = append(urgent, a.key)
		}
	}
	return urgent
}

// take empties one backlog.
func (c *combiner) take(b *backlog) []event {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := b.events
	b.events = nil
	return events
}

// putBack returns events that did not reach the store, oldest first.
func (c *combiner) putBack(b *backlog, events []event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.events = append(events, b.events...)
}

// push brings one circuit's document up to date. Whoever waits behind an update
// in flight usually finds that the next one took its events along.
func (c *combiner) push(ctx context.Context, key string) error {
	c.mu.Lock()
	b := c.keys[key]
	c.mu.Unlock()
	if b == nil {
		return nil
	}
	b.update.Lock()
	defer b.update.Unlock()
	events := c.take(b)
	if len(events) == 0 {
		return nil
	}
	b.batch++
	err := c.write(ctx, key, b, events)
	c.mu.Lock()
	switch {
	case err == nil:
		b.doubts = nil
	case errors.Is(err, state.ErrUnknown):
		b.doubts = append(b.doubts, doubt{b.batch, len(events)})
	}
	c.mu.Unlock()
	if err != nil {
		c.putBack(b, events)
		c.of.e.meter.StoreError("circuit", err)
		return fmt.Errorf("record %s: %w", key, err)
	}
	return nil
}

// write runs one update and installs what the store decided.
func (c *combiner) write(ctx context.Context, key string, b *backlog, events []event) error {
	set := c.of.setting(key)
	if set == nil {
		return nil // the settings changed, and there is nothing to keep
	}
	var bad error
	begin := c.of.e.clock.Mono()
	doc, err := c.of.e.parts.Store.Update(ctx, c.of.docKey(key), func(d state.Doc) ([]byte, bool) {
		left, err := c.missing(d, b, events)
		if bad = err; bad != nil || len(left) == 0 {
			return nil, false
		}
		was, after, mode, err := c.fold(key, set, d, left)
		if bad = err; bad != nil {
			return nil, false
		}
		data, err := c.encode(d, b.batch, set, was, after, begin)
		bad = err
		return data, mode
	})
	if errors.Is(err, state.ErrUnknown) {
		if applied, lerr := c.applied(ctx, key, b.batch); lerr != nil || !applied {
			return errors.Join(err, lerr)
		}
		return nil // the watcher brings the document
	}
	if err != nil || bad != nil {
		return errors.Join(err, bad)
	}
	return c.of.installDoc(ctx, doc)
}

// missing are the events that a document does not have yet.
func (c *combiner) missing(d state.Doc, b *backlog, events []event) ([]event, error) {
	if len(b.doubts) == 0 {
		return events, nil
	}
	doc, err := readDocument(d.Data)
	if err != nil {
		return nil, err
	}
	return events[b.applied(doc.batch(c.writer)):], nil
}

// fold steps the stored circuit through the events. A document that was never
// written starts new, and everything that happened is among the events; one
// that vanished takes over what this process knows.
func (c *combiner) fold(key string, set *ruled, d state.Doc, events []event) (was, after breaker.Circuit, mode bool, err error) {
	c.of.e.past.answered(d.Rev.Epoch)
	if len(d.Data) > 0 {
		if was, err = c.of.stored(key, d, set); err != nil {
			return was, was, false, err
		}
	}
	after = was
	for _, a := range events {
		var t breaker.Transitions
		after, _, t = breaker.Step(&set.Rule, after, a.Event, a.at)
		mode = mode || t.N > 0 || a.urgent
	}
	if local, _ := c.of.registry.Circuit(key); len(d.Data) == 0 && local.Version > after.Version {
		after = local
	}
	return was, after, mode, nil
}

// flush brings every circuit's document up to date.
func (c *combiner) flush(ctx context.Context) {
	c.mu.Lock()
	var keys []string
	for k, b := range c.keys {
		if len(b.events) > 0 {
			keys = append(keys, k)
		}
	}
	c.mu.Unlock()
	for _, k := range keys {
		ctx, cancel := context.WithTimeout(ctx, c.of.e.parts.StoreWait)
		err := c.push(ctx, k) // metered; the events wait for the next beat
		cancel()
		if errors.Is(err, state.ErrUnavailable) || errors.Is(err, state.ErrUnknown) {
			return // a store that is gone is not asked for each circuit, or nothing else would be done meanwhile
		}
	}
}

// encode writes a circuit over the document that it replaces. The store's time of
// that document is between begin, when it was asked for, and now, and nobody knows
// where: so what is new in the circuit ends later by all of it, and never sooner.
func (c *combiner) encode(old state.Doc, batch uint64, set *ruled, was, circuit breaker.Circuit, begin breaker.Instant) ([]byte, error) {
	lengthen(&was, &circuit, c.of.e.clock.Mono().Sub(begin))
	d, err := readDocument(old.Data)
	if err != nil {
		return nil, err
	}
	e := c.of.e
	v := docView{rule: set.rule, epoch: cmp.Or(old.Rev.Epoch, e.past.epoch.Load()), written: old.Now,
		version: c.of.policy.Load().Version, circuit: breaker.Encode(&circuit, e.clock.Mono(), old.Now)}
	if err := d.put(v); err != nil {
		return nil, err
	}
	d.sign(c.writer, batch)
	return d.append(nil), nil
}

// lengthen makes later by so much what a circuit did not have before.
func lengthen(was, c *breaker.Circuit, by time.Duration) {
	if c.Until != was.Until && c.Until != 0 {
		c.Until = c.Until.Add(by)
	}
	for i := range c.Leases {
		l := &c.Leases[i]
		if l.Token != 0 && !slices.Contains(was.Leases[:], *l) {
			l.Until = l.Until.Add(by)
		}
	}
}

// applied reports whether this process's batch is in the document already.
func (c *combiner) applied(ctx context.Context, key string, batch uint64) (bool, error) {
	docs, err := c.of.e.parts.Store.Load(ctx, c.of.docKey(key))
	if err != nil || len(docs) == 0 {
		return false, err
	}
	d, err := readDocument(docs[0].Data)
	return err == nil && d.batch(c.writer) >= batch, err
}
