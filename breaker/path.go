package breaker

import (
	"math/bits"
	"strings"
	"sync/atomic"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Path is every circuit that one operation touches: for each breaker, one
// for each prefix of its scope. A breaker of whose scope the operation has no
// part at all is left out, and feeds to it count nowhere. Get it with [Registry.Path] for one operation;
// whoever holds it longer asks [Path.Current] first.
type Path struct {
	reg   *Registry
	conf  *config
	nodes []*node // in the order of admission; a breaker's widest scope first
	spans []span  // by the breaker's place in the settings
	calm  atomic.Uint64
	deny  atomic.Pointer[Denial]
	stale atomic.Bool
	names atomic.Pointer[[]atomic.Pointer[string]] // readable scopes of nodes, those that were asked for
	// Shared reports that some scope had no room for a circuit of its own and
	// shares a wider one; receipts say so.
	Shared bool
}

// span places a breaker's circuits on the path: at[i] is the node of the scope
// prefix of i+1 parts.
type span struct {
	n  uint8
	at [MaxScope]uint8
}

// Path resolves every breaker and scope prefix for an operation. The operation
// may change afterwards. now is only used to find idle circuits when there is
// no room.
func (g *Registry) Path(op *taxonomy.Operation, now Instant) *Path {
	conf := g.conf.Load()
	var space [256]byte
	id := space[:0]
	for _, read := range conf.fields {
		v := read(op)
		for n := len(v); ; n >>= 7 { // the length first, so that no value can imitate two
			if n < 0x80 {
				id = append(id, byte(n))
				break
			}
			id = append(id, byte(n)|0x80)
		}
		id = append(id, v...)
	}
	g.mu.RLock()
	p := g.paths[string(id)]
	g.mu.RUnlock()
	if p != nil && p.Current() {
		return p
	}
	return g.resolve(op, string(id), now)
}

// maxPaths bounds the cache of resolved paths.
const maxPaths = 1 << 14

func (g *Registry) resolve(op *taxonomy.Operation, id string, now Instant) *Path {
	g.mu.Lock()
	defer g.mu.Unlock()
	conf := g.conf.Load()
	p := &Path{reg: g, conf: conf, nodes: make([]*node, 0, conf.depth), spans: make([]span, len(conf.list))}
	var space [512]byte
	for _, k := range conf.order {
		if !k.applies(op) {
			continue
		}
		key := append(space[:0], k.Name...)
		var parent *node
		shared := false
		s := &p.spans[k.index]
		for i, read := range k.parts {
			key = appendPart(key, k.Scope[i], read(op))
			n := g.nodes[string(key)]
			switch {
			case n != nil:
			case shared:
				n = parent // a circuit whose parent is not its own would escape that one's roll-up
			case parent == nil && k.crowded() != nil:
				n, shared = k.full, true
			default:
				n, shared = g.node(k, strings.Clone(string(key)), parent, now)
			}
			if n != parent {
				p.nodes = append(p.nodes, n)
			}
			s.at[i], s.n = uint8(len(p.nodes)-1), uint8(i+1)
			parent = n
		}
		p.Shared = p.Shared || shared
	}
	if len(g.paths) >= maxPaths {
		for old := range g.paths { // any: a path is cheap to make again
			delete(g.paths, old)
			if len(g.paths) < maxPaths*7/8 {
				break
			}
		}
	}
	if !p.Shared { // a path that shares asks again next time
		g.paths[id] = p
	}
	return p
}

// applies reports whether the operation has any part of the breaker's scope. A
// call without a run is no part of any run: it must not share one circuit with
// all the other calls without one.
func (k *kept) applies(op *taxonomy.Operation) bool {
	for _, read := range k.parts {
		if read(op) != "" {
			return true
		}
	}
	return false
}

// Current reports whether the path still names the right circuits: the
// settings are the same and none of its circuits was evicted.
func (p *Path) Current() bool { return p.InForce() && !p.stale.Load() }

// InForce reports whether the path was resolved under the settings in force. An
// answer of a path that is, but whose circuits others have evicted meanwhile,
// stands: what was evicted was as good as new.
func (p *Path) InForce() bool { return p.conf == p.reg.conf.Load() }

// Keys are those of every circuit on the path, as a store names them.
func (p *Path) Keys() []string {
	out := make([]string, len(p.nodes))
	for i, n := range p.nodes {
		out[i] = n.key
	}
	return out
}

// Breakers are the names of those that the operation falls under.
func (p *Path) Breakers() []string {
	out := make([]string, 0, len(p.conf.list))
	for i, k := range p.conf.list {
		if p.spans[i].n > 0 {
			out = append(out, k.Name)
		}
	}
	return out
}

// An Ask is what admission needs to know about a call.
type Ask struct {
	Operation *taxonomy.Operation
	Deadline  Instant // no lease outlives it; 0 is none
	Observe   bool    // for this call every circuit only observes, but one that was forced open
}

// A Ticket is the answer of a path that lets a call go. It is a small value;
// nothing was taken for it. Whatever path it is handed to later, it is that
// path's own circuits that it speaks of.
type Ticket struct {
	Sequence uint64  // of the registry, before any circuit was read
	Token    uint64  // of the leases in Held; 0 without
	Need     uint64  // circuits that need a lease before dispatch, by place on the path
	Held     uint64  // circuits whose lease was taken
	Shadow   uint64  // circuits that only observe and would have refused
	Would    *Denial // what those said; nil when none
	path     *Path   // that gave it; nil when it asks nothing of any circuit
}

// by is the path that gave a ticket: its bits are places on that one.
func (t *Ticket) by(p *Path) *Path {
	if t.path != nil {
		return t.path
	}
	return p
}

// places are those of a ticket's bits that are places on the path.
func (p *Path) places(bits uint64) uint64 { return bits & (1<<len(p.nodes) - 1) }

// Needs reports whether leases must be taken before the call is sent.
func (t *Ticket) Needs() bool { return t.Need&^t.Held != 0 }

// Admit asks every circuit of the path. It takes no lease and writes nothing
// but its own cache. While no circuit changed since the path was last seen all
// closed, it reads one word.
func (p *Path) Admit(ask Ask, now Instant) (Ticket, *Denial) {
	seq := p.reg.seq.Load()
	if p.calm.Load() == seq {
		return Ticket{Sequence: seq}, nil
	}
	if d := p.deny.Load(); d != nil && !ask.Observe && d.seq == seq && now < d.until {
		return Ticket{}, d
	}
	return p.admit(seq, &ask, now)
}

// admit goes through the circuits one by one.
func (p *Path) admit(seq uint64, ask *Ask, now Instant) (Ticket, *Denial) {
	t := Ticket{Sequence: seq, path: p}
	var no, would []Refusal
	calm, steady := true, true
	until := Instant(1<<63 - 1)
	for i, n := range p.nodes {
		word := n.word.Load()
		if word&busy == 0 {
			continue
		}
		if word&wordDead != 0 {
			p.stale.Store(true)
			if n = p.reg.alive(n); n == nil || n.word.Load()&busy == 0 {
				calm = false
				continue
			}
		}
		calm = false
		r := n.refusal.Load()
		if r != nil && now < r.holds {
			until = min(until, r.holds)
		} else {
			steady = false
			d, fresh := p.peek(n, ask, now)
			switch {
			case d.Leases && ask.Observe: // it goes as it would without a lease
				t.Shadow |= 1 << i
			case d.Leases:
				t.Need |= 1 << i
			}
			if d.Would {
				continue
			}
			r = fresh
		}
		if r.binds && (!ask.Observe || r.Reason == ForceOpened) {
			no = append(no, *r)
		} else {
			would = append(would, *r)
			t.Shadow |= 1 << i
		}
	}
	if calm {
		p.calm.Store(seq)
		return t, nil
	}
	if len(no) == 0 {
		if len(would) > 0 {
			t.Would = &Denial{Refusal: would[0], Would: would}
		}
		return t, nil
	}
	d := &Denial{Refusal: no[0], All: no, Would: would, seq: seq, until: until}
	if steady && !ask.Observe {
		p.deny.Store(d)
	}
	return Ticket{}, d
}

// peek asks one circuit without changing it.
func (p *Path) peek(n *node, ask *Ask, now Instant) (Decision, *Refusal) {
	n.lock()
	defer n.unlock()
	of := n.of.Load()
	ev := p.question(n, of, Peek, ask)
	_, d, _ := Step(&of.Rule, n.c, ev, now)
	if d.Would {
		return d, nil
	}
	return d, n.refuse(of, d, now)
}

// question is the Peek or Admit of this call for one circuit. n.mu is held.
func (p *Path) question(n *node, of *kept, kind EventKind, ask *Ask) Event {
	ev := Event{Kind: kind, Until: ask.Deadline}
	if op := ask.Operation; op != nil && of.Probes.may(op) {
		ev.Gives = Gives(op)
	}
	ev.Draw = p.reg.draw(ask.Operation, n.c.Version)
	return ev
}

// draw is the lot of one call in a ramp. One without a request id draws one of
// its own: a share of all of them goes, and not all or none.
func (g *Registry) draw(op *taxonomy.Operation, version uint64) PPM {
	if op == nil || op.RequestID == "" {
		return g.opts.Draw()
	}
	return drawFor(op, version)
}

// drawFor is the same for the same request, attempt and generation, so that a
// replay admits the same calls through a ramp, and a caller cannot improve its
// luck by asking again.
func drawFor(op *taxonomy.Operation, version uint64) PPM {
	const prime = 1099511628211 // FNV-1a
	h := uint64(14695981039346656037)
	for i := 0; i < len(op.RequestID); i++ {
		h = (h ^ uint64(op.RequestID[i])) * prime
	}
	h = mix(h ^ mix(uint64(op.Attempt)) ^ mix(version+0x9e3779b97f4a7c15))
	hi, _ := bits.Mul64(h, uint64(One))
	return PPM(hi)
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func byKey(a, b *node) int { return strings.Compare(a.key, b.key) }
