package breaker

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Errors of a feed. The other feeds of the same call still count.
var (
	ErrUnknownBreaker = errors.New("no such breaker")
	ErrUnknownLevel   = errors.New("not a field of the breaker's scope")
	ErrUnknownSignal  = errors.New("not a signal")
	ErrContradiction  = errors.New("contradicts another feed of the same call")
	ErrTooManyFeeds   = errors.New("too many feeds of one call")
)

// A Result is how a call ended, as the circuits need to know it.
type Result struct {
	Outcome taxonomy.Outcome
	Class   taxonomy.Class
	Elapsed time.Duration
}

// A Touched is one circuit that an outcome reached, with the event that was
// applied to it, so that it can be applied to the store's copy too.
type Touched struct {
	Key   string
	Rule  *Rule
	Event Event
	Fate  Fate
}

// Recorded says what a call did to the circuits.
type Recorded struct {
	Changes []Change // nil when nothing changed
	Errs    []error  // one for each feed that could not count

	feeds []taxonomy.Feed // as given; Touched reads them
	base  Event           // the event under way; what it shares with the others stays
	token uint64          // of the leases held
	until Instant         // Renew: the call's deadline
	now   Instant
	n     int
	few   [12]touch // kept in place, so that an ordinary call allocates nothing
	more  []touch
}

// touch is a Touched in short: what differs from Recorded.base.
type touch struct {
	node    *node
	version uint64
	draw    PPM
	feed    int16 // -1: no feed spoke
	kind    EventKind
	outcome Kind
	fate    Fate
	flags   uint8
}

const (
	touchHeld   = 1 << iota // the call held a lease here
	touchShadow             // the circuit would have refused the call
)

// event is the whole event behind a touch. It is written over base, so that
// the common case copies nothing.
func (r *Recorded) event(x *touch) *Event {
	ev := &r.base
	ev.Kind, ev.Outcome, ev.Version, ev.Draw = x.kind, x.outcome, x.version, x.draw
	ev.Shadow = x.flags&touchShadow != 0
	ev.Token = 0
	if x.flags&touchHeld != 0 {
		ev.Token = r.token
	}
	ev.Detail, ev.Until = "", r.until
	if x.feed >= 0 {
		f := &r.feeds[x.feed]
		ev.Detail = f.Reason
		if x.kind == RetryAfter {
			ev.Until = r.now.Add(waiting(f.UntilMS))
		}
	}
	return ev
}

// waiting is a feed's until_ms as a duration that cannot wrap.
func waiting(ms int64) time.Duration {
	return time.Duration(min(ms, int64(longest/time.Millisecond))) * time.Millisecond
}

// next is the place of the next touch, to be written in full.
func (r *Recorded) next() *touch {
	r.n++
	if r.n <= len(r.few) {
		return &r.few[r.n-1]
	}
	r.more = append(r.more, touch{})
	return &r.more[len(r.more)-1]
}

// drop takes the latest touch back.
func (r *Recorded) drop() {
	r.n--
	if k := len(r.more); k > 0 {
		r.more = r.more[:k-1]
	}
}

// Touched lists the circuits that the call reached and what it did there. Read
// it before the feeds that were recorded are changed.
func (r *Recorded) Touched() []Touched {
	out := make([]Touched, 0, r.n)
	for t := range r.All() {
		out = append(out, t)
	}
	return out
}

// All is what Touched lists, one by one.
func (r *Recorded) All() iter.Seq[Touched] {
	return func(yield func(Touched) bool) {
		for i := range r.n {
			x, at := r.few[:], i
			if i >= len(r.few) {
				x, at = r.more, i-len(r.few)
			}
			t := &x[at]
			if !yield(Touched{Key: t.node.key, Rule: &t.node.of.Load().Rule, Event: *r.event(t), Fate: t.fate}) {
				return
			}
		}
	}
}

// Err joins the feeds' errors.
func (r *Recorded) Err() error { return errors.Join(r.Errs...) }

// told is what the feeds say to one circuit of the path: the place of the feed
// that stands, plus one. Zero is nothing.
type told uint16

// maxFeeds is the most feeds of one call that are read: far more than the
// levels of any policy.
const maxFeeds = 1 << 10

// Record counts a call toward the circuits that its feeds name. A success
// counts at its level and every wider one; a failure, an open_now, an exclusion
// and the slowness of a success only at the level named. Leases that no feed
// spoke to come back as probes that proved nothing.
func (p *Path) Record(t Ticket, feeds []taxonomy.Feed, res Result, now Instant) (out Recorded) {
	p.RecordInto(&out, &t, feeds, res, now)
	return out
}

// RecordInto is Record with the answer written over an earlier one, so that it
// costs no memory.
func (p *Path) RecordInto(out *Recorded, t *Ticket, feeds []taxonomy.Feed, res Result, now Instant) {
	p = t.by(p)
	out.reset(now)
	if len(feeds) > maxFeeds {
		out.Errs = append(out.Errs, fmt.Errorf("record: %w: %d, and only the first %d count", ErrTooManyFeeds, len(feeds), maxFeeds))
		feeds = feeds[:maxFeeds]
	}
	out.feeds, out.token = feeds, t.Token
	out.base.Class = res.Class
	var say [maxPath]told
	reached := p.places(t.Held)
	for i := range feeds {
		reached |= p.assign(feeds, i, &say, out)
	}
	for m := reached; m != 0; m &= m - 1 {
		at := bits.TrailingZeros64(m)
		p.tell(t, at, say[at], &res, out)
	}
}

// reset forgets an earlier answer.
func (r *Recorded) reset(now Instant) {
	r.Changes, r.Errs, r.more = nil, nil, nil
	r.n, r.now, r.until = 0, now, 0
}

// assign writes one feed down at the circuits it reaches and returns their bits.
func (p *Path) assign(feeds []taxonomy.Feed, i int, say *[maxPath]told, out *Recorded) (reached uint64) {
	f := &feeds[i]
	k, err := p.conf.breakerOf(f)
	if err != nil {
		out.Errs = append(out.Errs, err)
		return 0
	}
	if f.Signal > taxonomy.SignalOpenNow {
		out.Errs = append(out.Errs, fmt.Errorf("record %s: signal %d: %w", k.Name, f.Signal, ErrUnknownSignal))
		return 0
	}
	level := slices.Index(k.Scope, f.Level)
	if level < 0 {
		out.Errs = append(out.Errs, fmt.Errorf("record %s: level %q: %w", k.Name, f.Level, ErrUnknownLevel))
		return 0
	}
	s := &p.spans[k.index]
	if s.n == 0 {
		return 0 // the operation has no part of this breaker's scope
	}
	lowest := level
	if f.Signal == taxonomy.SignalSuccess {
		lowest = 0
	}
	for j := level; j >= lowest; j-- {
		at := s.at[j]
		if x := say[at]; x != 0 && feeds[x-1].Signal != f.Signal {
			other := feeds[x-1].Signal
			if !together(other, f.Signal) {
				out.Errs = append(out.Errs, fmt.Errorf("record %s: %s at level %q: %w", k.Name, min(other, f.Signal), k.Scope[j], ErrContradiction))
			}
			if f.Signal < other { // the more careful one stands
				continue
			}
		}
		say[at] = told(i + 1)
		reached |= 1 << at
	}
	return reached
}

// together reports whether both signals may be said of one call: whoever says
// open_now may say failure as well.
func together(a, b taxonomy.Signal) bool {
	return a != b && min(a, b) == taxonomy.SignalFailure && max(a, b) == taxonomy.SignalOpenNow
}

// breakerOf finds the breaker that a feed speaks to.
func (c *config) breakerOf(f *taxonomy.Feed) (*kept, error) {
	if f.Breaker == "" {
		if int(f.Layer) < len(c.only) && c.only[f.Layer] != nil {
			return c.only[f.Layer], nil
		}
		return nil, fmt.Errorf("record: the %s layer has no breaker, or several and the feed names none: %w", f.Layer, ErrUnknownBreaker)
	}
	k := c.byName[f.Breaker]
	if k == nil {
		return nil, fmt.Errorf("record: breaker %q: %w", f.Breaker, ErrUnknownBreaker)
	}
	if k.Layer != f.Layer {
		return nil, fmt.Errorf("record: breaker %q is of the %s layer, the feed says %s: %w", f.Breaker, k.Layer, f.Layer, ErrUnknownBreaker)
	}
	return k, nil
}

// tell applies what was said to one circuit.
func (p *Path) tell(t *Ticket, at int, x told, res *Result, out *Recorded) {
	n := p.nodes[at]
	do := out.next()
	do.node, do.feed, do.draw, do.flags = n, int16(x)-1, 0, 0
	do.kind, do.outcome = Outcome, Excluded
	if x != 0 {
		do.kind, do.outcome = n.of.Load().judge(&out.feeds[x-1], res)
		if do.outcome == Slow && p.wider(at, &out.feeds[x-1]) {
			do.outcome = OK // slowness is held against its own level only, as a failure is
		}
	}
	if do.kind == Outcome && do.outcome == OK && (t.Held|t.Shadow)>>at&1 == 0 {
		if version, ok := n.countBeside(t.Sequence, out.now); ok {
			do.version, do.fate = version, Counted
			return
		}
	}
	n.lock()
	if n.word.Load()&wordDead != 0 {
		n.unlock()
		if n = p.reg.lock(n, out.now); n == nil {
			out.drop() // its breaker is no more
			return
		}
		do.node = n
	}
	of := n.of.Load()
	do.version = n.version(t.Sequence)
	if t.Held>>at&1 == 1 {
		do.flags |= touchHeld
	}
	if t.Shadow>>at&1 == 1 {
		do.flags |= touchShadow
	}
	if do.kind != Outcome || do.outcome != OK || !n.c.quiet() {
		do.draw = p.reg.opts.Draw() // only what may open a circuit needs one
	}
	var d Decision
	moved := step(&of.Rule, &n.c, out.event(do), out.now, &d)
	do.fate = d.Fate
	if moved == nil {
		n.unlock()
		return
	}
	before := len(out.Changes)
	out.Changes = n.publish(p.reg, of, moved, out.Changes)
	n.unlock()
	out.Changes = p.reg.settled(n, out.now, out.Changes, before)
}

// wider reports whether a circuit lies above the level that a feed names.
func (p *Path) wider(at int, f *taxonomy.Feed) bool {
	k, err := p.conf.breakerOf(f)
	return err == nil && p.spans[k.index].at[slices.Index(k.Scope, f.Level)] != uint8(at)
}

// quiet reports that one more success cannot open the circuit: it is closed and
// nothing speaks against it.
func (c *Circuit) quiet() bool { return c.State == Closed && c.clean() }

// judge turns a feed into what the circuit is told.
func (k *kept) judge(f *taxonomy.Feed, res *Result) (EventKind, Kind) {
	failure := Failed
	if res.Outcome == taxonomy.Unknown {
		failure = Unknown
	}
	switch f.Signal {
	case taxonomy.SignalSuccess:
		if over := k.Rule.Trip.SlowOver; over > 0 && res.Elapsed > over {
			return Outcome, Slow
		}
		return Outcome, OK
	case taxonomy.SignalFailure:
		if k.excludes.has(res.Class) || k.counts != 0 && !k.counts.has(res.Class) {
			return Outcome, Excluded
		}
		return Outcome, failure
	case taxonomy.SignalOpenNow:
		if k.excludes.has(res.Class) {
			return Outcome, Excluded
		}
		if f.UntilMS > 0 {
			return RetryAfter, failure
		}
		return HardSignal, failure
	}
	return Outcome, Excluded
}

// lock locks the circuit that stands for n now; an evicted one is made again.
// nil means that its breaker is no more.
func (g *Registry) lock(n *node, now Instant) *node {
	for {
		n.lock()
		if n.word.Load()&wordDead == 0 {
			return n
		}
		n.unlock()
		g.mu.Lock()
		k := g.conf.Load().byName[n.of.Load().Name]
		if k == nil || !slices.Equal(k.Scope, n.of.Load().Scope) {
			g.mu.Unlock()
			return nil
		}
		n = g.revive(k, n, now)
		g.mu.Unlock()
	}
}

// revive makes an evicted circuit again, with all that are wider. g.mu is held.
func (g *Registry) revive(k *kept, n *node, now Instant) *node {
	if m := g.nodes[n.key]; m != nil {
		return m
	}
	if n.key == k.Name {
		return g.overflow(k)
	}
	var parent *node
	if n.parent == nil {
		if full := k.crowded(); full != nil {
			return full
		}
	} else {
		if parent = g.revive(k, n.parent, now); parent.key != n.parent.key {
			return parent // there was no room for it: what is narrower shares it too
		}
	}
	n, _ = g.node(k, n.key, parent, now)
	return n
}

// version is the circuit's version as a call saw it that was admitted at seq:
// today's, unless the state changed since. n.mu is held.
func (n *node) version(seq uint64) uint64 {
	if seq < n.seq.Load() {
		return n.c.Version - 1
	}
	return n.c.Version
}
