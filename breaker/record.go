package breaker

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Errors of a feed. The other feeds of the same call still count.
var (
	ErrUnknownBreaker = errors.New("no such breaker")
	ErrUnknownLevel   = errors.New("not a field of the breaker's scope")
	ErrContradiction  = errors.New("contradicts another feed of the same call")
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
	touched touches
}

// touches keeps the first few in place, so that an ordinary call allocates
// nothing.
type touches struct {
	n    int
	few  [8]Touch
	more []Touch
}

// A Touch is a Touched in short.
type Touch struct {
	node *node
	rule *Rule
	ev   shortEvent
	fate Fate
}

// shortEvent is what differs between the events of one call.
type shortEvent struct {
	kind     EventKind
	outcome  Kind
	class    taxonomy.Class
	shadow   bool
	draw     PPM
	version  uint64
	token    uint64
	until    Instant
	detail   string
	released bool
}

func (s *shortEvent) event() Event {
	return Event{Kind: s.kind, Outcome: s.outcome, Class: s.class, Shadow: s.shadow, Draw: s.draw, Version: s.version,
		Token: s.token, Until: s.until, Detail: s.detail}
}

func (t *touches) add(x Touch) {
	if t.n < len(t.few) {
		t.few[t.n] = x
	} else {
		t.more = append(t.more, x)
	}
	t.n++
}

func (t *touches) at(i int) *Touch {
	if i < len(t.few) {
		return &t.few[i]
	}
	return &t.more[i-len(t.few)]
}

// Touched lists the circuits that the call reached and what it did there.
func (r *Recorded) Touched() []Touched {
	out := make([]Touched, r.touched.n)
	for i := range out {
		x := r.touched.at(i)
		out[i] = Touched{Key: x.node.key, Rule: x.rule, Event: x.ev.event(), Fate: x.fate}
	}
	return out
}

// Err joins the feeds' errors.
func (r *Recorded) Err() error { return errors.Join(r.Errs...) }

// told is what the feeds say to one circuit of the path. The zero value:
// nothing.
type told struct {
	said   bool
	signal taxonomy.Signal
	feed   uint16
}

// maxFeeds is the most feeds of one call that are read: far more than the
// levels of any policy.
const maxFeeds = 1 << 10

// Record counts a call toward the circuits that its feeds name. A success
// counts at its level and every wider one; a failure, an open_now and an
// exclusion only at the level named. Leases that no feed spoke to come back as
// probes that proved nothing.
func (p *Path) Record(t Ticket, feeds []taxonomy.Feed, res Result, now Instant) Recorded {
	var out Recorded
	var say [maxPath]told
	var spoken uint64
	for i := range feeds[:min(len(feeds), maxFeeds)] {
		spoken |= p.assign(feeds, i, &say, &out)
	}
	for m := spoken | t.Held; m != 0; m &= m - 1 {
		at := bits.TrailingZeros64(m)
		p.tell(&t, at, say[at], feeds, &res, now, &out)
	}
	return out
}

// assign writes one feed down at the circuits it reaches and returns their bits.
func (p *Path) assign(feeds []taxonomy.Feed, i int, say *[maxPath]told, out *Recorded) (reached uint64) {
	f := &feeds[i]
	k, err := p.conf.breakerOf(f)
	if err != nil {
		out.Errs = append(out.Errs, err)
		return 0
	}
	level := slices.Index(k.Scope, f.Level)
	if level < 0 {
		out.Errs = append(out.Errs, fmt.Errorf("record %s: level %q: %w", k.Name, f.Level, ErrUnknownLevel))
		return 0
	}
	s := &p.spans[k.index]
	lowest := level
	if f.Signal == taxonomy.SignalSuccess {
		lowest = 0
	}
	for j := level; j >= lowest; j-- {
		at := s.at[j]
		x := &say[at]
		if x.said && x.signal != f.Signal {
			if !together(x.signal, f.Signal) {
				out.Errs = append(out.Errs, fmt.Errorf("record %s: %s at level %q: %w", k.Name, min(x.signal, f.Signal), k.Scope[j], ErrContradiction))
			}
			if f.Signal < x.signal { // the more careful one stands
				continue
			}
		}
		*x = told{said: true, signal: f.Signal, feed: uint16(i)}
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
func (p *Path) tell(t *Ticket, at int, x told, feeds []taxonomy.Feed, res *Result, now Instant, out *Recorded) {
	n := p.reg.lock(p.nodes[at], now)
	if n == nil {
		return // its breaker is no more
	}
	of := n.of.Load()
	s := shortEvent{kind: Outcome, class: res.Class, shadow: t.Shadow>>at&1 == 1, version: n.version(t.Sequence)}
	if t.Held>>at&1 == 1 {
		s.token = t.Token
	}
	if x.said {
		f := &feeds[x.feed]
		s.detail = f.Reason
		s.kind, s.outcome = of.judge(f, res)
		if s.kind == RetryAfter {
			s.until = now.Add(time.Duration(f.UntilMS) * time.Millisecond)
		}
	}
	if s.kind != Outcome || s.outcome >= Slow || n.c.State != Closed {
		s.draw = p.reg.opts.Draw() // only what may open needs one
	} else if n.c.Window.Sum.Failed+n.c.Window.Sum.Unknown+n.c.Window.Sum.Slow > 0 {
		s.draw = p.reg.opts.Draw()
	}
	ev := s.event()
	var d Decision
	before := len(out.Changes)
	d, out.Changes = n.apply(p.reg, &ev, now, out.Changes)
	n.mu.Unlock()
	out.touched.add(Touch{node: n, rule: &of.Rule, ev: s, fate: d.Fate})
	if opened(out.Changes[before:]) {
		out.Changes = p.reg.rollUp(n, now, out.Changes)
	}
}

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
		n.mu.Lock()
		if n.word.Load()&wordDead == 0 {
			return n
		}
		n.mu.Unlock()
		g.mu.Lock()
		k := g.conf.Load().byName[n.of.Load().Name]
		if k == nil || !slices.Equal(k.Scope, n.of.Load().Scope) {
			g.mu.Unlock()
			return nil
		}
		parent := n.parent
		if parent != nil && g.nodes[parent.key] != nil {
			parent = g.nodes[parent.key]
		}
		n, _ = g.node(k, n.key, parent, now)
		g.mu.Unlock()
	}
}

// version is the circuit's version as a call saw it that was admitted at seq:
// today's, unless the state changed since. n.mu is held.
func (n *node) version(seq uint64) uint64 {
	if seq < n.seq {
		return n.c.Version - 1
	}
	return n.c.Version
}

// Release gives back the leases of a call that was never sent.
func (p *Path) Release(t Ticket, now Instant) Recorded {
	return p.each(t, Event{Kind: Release}, now)
}

// Renew holds the leases of a call longer while it lives; call it after each
// third of the shortest lease. No lease outlives the deadline.
func (p *Path) Renew(t Ticket, deadline, now Instant) Recorded {
	return p.each(t, Event{Kind: Renew, Until: deadline}, now)
}

func (p *Path) each(t Ticket, ev Event, now Instant) Recorded {
	var out Recorded
	for m := t.Held; m != 0; m &= m - 1 {
		n := p.reg.lock(p.nodes[bits.TrailingZeros64(m)], now)
		if n == nil {
			continue
		}
		ev.Token, ev.Draw = t.Token, p.reg.opts.Draw()
		var d Decision
		d, out.Changes = n.apply(p.reg, &ev, now, out.Changes)
		of := n.of.Load()
		n.mu.Unlock()
		out.touched.add(Touch{node: n, rule: &of.Rule, fate: d.Fate,
			ev: shortEvent{kind: ev.Kind, token: ev.Token, until: ev.Until, draw: ev.Draw}})
	}
	return out
}

// ShortestLease is the shortest lease among the circuits that the ticket holds;
// 0 when it holds none.
func (p *Path) ShortestLease(t Ticket) time.Duration {
	var d time.Duration
	for m := t.Held; m != 0; m &= m - 1 {
		l := p.nodes[bits.TrailingZeros64(m)].of.Load().Rule.Probe.Lease
		if d == 0 || l < d {
			d = l
		}
	}
	return d
}

func opened(changes []Change) bool {
	return slices.ContainsFunc(changes, func(c Change) bool { return c.To == Open && c.Moved() })
}

// rollUp opens a parent when enough of its children are open. The parent's own
// parent may follow.
func (g *Registry) rollUp(n *node, now Instant, changes []Change) []Change {
	for p := n.parent; p != nil; p = p.parent {
		of := p.of.Load()
		if of.Rollup.Children == 0 || p.word.Load()&wordState == uint64(Open) {
			return changes
		}
		open, active := g.census(p, now)
		if open < of.Rollup.Children || !of.Rollup.Share.reached(uint64(open), uint64(active)) {
			return changes
		}
		before := len(changes)
		ev := Event{Kind: HardSignal, Reason: ByRollup, Unbound: true, Draw: g.opts.Draw(),
			Detail: fmt.Sprintf("%d of %d active circuits are open", open, active)}
		p.mu.Lock()
		_, changes = p.apply(g, &ev, now, changes)
		p.mu.Unlock()
		if len(changes) == before {
			return changes
		}
	}
	return changes
}

// census counts the children of a circuit that are open, and those that are in
// use: open, or with an outcome in their window.
func (g *Registry) census(p *node, now Instant) (open, active uint32) {
	g.mu.RLock()
	kids := slices.Clone(p.kids)
	g.mu.RUnlock()
	for _, n := range kids {
		n.mu.Lock()
		r := &n.of.Load().Rule
		switch {
		case n.c.State == Open:
			open++
			active++
		case n.c.State != Closed || n.c.Window.At(&r.Window, now).Sum != Tally{}:
			active++
		}
		n.mu.Unlock()
	}
	return open, active
}
