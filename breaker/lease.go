package breaker

import (
	"math/bits"
	"slices"
	"time"
)

// A LeaseNeed is one lease that a store must grant before dispatch: step its
// copy of the circuit with Event under Rule, and keep the result if the
// decision allows.
type LeaseNeed struct {
	Key   string
	Rule  *Rule
	Event Event
	place uint64 // its bit on the path
}

// Answer takes the store's decision into the ticket: the lease is held, or the
// circuit needed none after all, or it only observes and would have refused.
func (t *Ticket) Answer(n LeaseNeed, d Decision) {
	switch {
	case d.Lease.Token != 0 && d.Lease.Token == t.Token:
		t.Held |= n.place
	case !d.Would:
		t.Shadow |= n.place
		t.Need &^= n.place
	default:
		t.Need &^= n.place
	}
}

// Leases lists what the ticket needs, in the order of the layers, and gives the
// ticket its token. Give the store's decisions to [Ticket.Answer] once they are
// durable.
func (p *Path) Leases(t *Ticket, ask Ask) []LeaseNeed {
	p = t.by(p)
	var out []LeaseNeed
	for _, x := range p.needed(t) {
		x.n.lock()
		of := x.n.of.Load()
		ev := p.question(x.n, of, Admit, &ask)
		x.n.unlock()
		ev.Token = t.Token
		out = append(out, LeaseNeed{Key: x.n.key, Rule: &of.Rule, Event: ev, place: x.place})
	}
	return out
}

// Leased marks every need of the ticket as granted: Answer for all of them.
func (p *Path) Leased(t *Ticket) { t.Held |= t.Need }

// A placed is a circuit with its bit on the path.
type placed struct {
	n     *node
	place uint64
}

// needed are the circuits whose lease is missing; the ticket gets a token.
func (p *Path) needed(t *Ticket) []placed {
	var out []placed
	for m := p.places(t.Need &^ t.Held); m != 0; m &= m - 1 {
		if n := p.reg.alive(p.nodes[bits.TrailingZeros64(m)]); n != nil {
			out = append(out, placed{n, m & -m})
		}
	}
	if t.Token == 0 && len(out) > 0 {
		t.Token = p.reg.opts.Tokens()
	}
	return out
}

// Lease takes the needed leases in this process: all of them or none, and when
// none, every circuit is as it was. It is for use without a store.
func (p *Path) Lease(t *Ticket, ask Ask, now Instant) ([]Change, *Denial) {
	p = t.by(p)
	want := p.needed(t)
	changes, no := p.lease(want, t, &ask, now)
	for _, x := range want {
		if slices.ContainsFunc(changes, func(c Change) bool { return c.Key == x.n.key && c.To == Open && c.Moved() }) {
			changes = p.reg.rollUp(x.n, now, changes)
		}
	}
	return changes, no
}

// lease is Lease with every circuit locked.
func (p *Path) lease(want []placed, t *Ticket, ask *Ask, now Instant) ([]Change, *Denial) {
	locks := slices.Clone(want)
	slices.SortFunc(locks, func(a, b placed) int { return byKey(a.n, b.n) })
	for _, x := range locks {
		x.n.lock()
	}
	defer func() {
		for _, x := range locks {
			x.n.unlock()
		}
	}()
	type result struct {
		c Circuit
		d Decision
		t Transitions
	}
	after := make([]result, len(want))
	var no, would []Refusal
	for i, x := range want {
		of, a := x.n.of.Load(), &after[i]
		ev := p.question(x.n, of, Admit, ask)
		ev.Token = t.Token
		a.c, a.d, a.t = Step(&of.Rule, x.n.c, ev, now)
		if a.d.Would {
			continue
		}
		if r := x.n.refuse(of, a.d, now); r.binds {
			no = append(no, *r)
		} else {
			would = append(would, *r)
		}
	}
	if len(no) > 0 {
		return nil, &Denial{Refusal: no[0], All: no, Would: would}
	}
	var changes []Change
	for i, x := range want {
		a := &after[i]
		x.n.c = a.c
		if a.t.N > 0 {
			changes = x.n.publish(p.reg, x.n.of.Load(), &a.t, changes)
		}
		t.Answer(LeaseNeed{place: x.place}, a.d)
	}
	return changes, nil
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

func (p *Path) each(t Ticket, ev Event, now Instant) (out Recorded) {
	p = t.by(p)
	out.now, out.token = now, t.Token
	out.until = ev.Until
	for m := p.places(t.Held); m != 0; m &= m - 1 {
		n := p.reg.lock(p.nodes[bits.TrailingZeros64(m)], now)
		if n == nil {
			continue
		}
		do := out.next()
		*do = touch{node: n, version: n.c.Version, draw: p.reg.opts.Draw(), feed: -1, kind: ev.Kind, flags: touchHeld}
		var d Decision
		first := len(out.Changes)
		d, out.Changes = n.apply(p.reg, out.event(do), now, out.Changes)
		n.unlock()
		do.fate = d.Fate
		out.Changes = p.reg.settled(n, now, out.Changes, first)
	}
	return out
}

// ShortestLease is the shortest lease among the circuits that the ticket holds;
// 0 when it holds none.
func (p *Path) ShortestLease(t Ticket) time.Duration {
	p = t.by(p)
	var d time.Duration
	for m := p.places(t.Held); m != 0; m &= m - 1 {
		l := p.nodes[bits.TrailingZeros64(m)].of.Load().Rule.Probe.Lease
		if d == 0 || l < d {
			d = l
		}
	}
	return d
}
