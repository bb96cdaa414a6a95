package engine

import (
	"container/heap"
	"sync"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// permits holds every permit that is out, by id and by expiry, and counts them
// per bulkhead. A permit that nobody settles ends by itself.
type permits struct {
	mu    sync.Mutex
	byID  map[string]*Permit
	byEnd expiries
	heads map[string]int // permits out per bulkhead scope

	// Permits that expired before they were used. Who sent all the same and
	// reports late is still heard.
	unused    map[string]*Permit
	unusedOld []string // by age
}

const unusedMost = 10_000 // expired, unused permits remembered

func newPermits() *permits {
	return &permits{byID: map[string]*Permit{}, heads: map[string]int{}, unused: map[string]*Permit{}}
}

// add puts a permit out. It refuses with the name of a full bulkhead, and then
// nothing is kept.
func (ps *permits) add(p *Permit) (full string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i, h := range p.heads {
		if ps.heads[h.key] >= h.most {
			for _, taken := range p.heads[:i] {
				ps.drop(taken.key)
			}
			p.heads = nil
			return h.name
		}
		ps.heads[h.key]++
	}
	ps.byID[p.id] = p
	return ""
}

// arm lets a permit expire from now on: it is complete, and whoever ends it reads
// nothing that its admission still writes.
func (ps *permits) arm(p *Permit) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.phase.Store(issued)
	heap.Push(&ps.byEnd, p)
}

// get finds a permit that is out, or one that expired unused.
func (ps *permits) get(id string) (*Permit, bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p, ok := ps.byID[id]
	if !ok {
		p, ok = ps.unused[id]
	}
	return p, ok
}

// remember keeps a permit that expired unused.
func (ps *permits) remember(p *Permit) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.unusedOld) >= unusedMost {
		delete(ps.unused, ps.unusedOld[0])
		ps.unusedOld = ps.unusedOld[1:]
	}
	ps.unused[p.id] = p
	ps.unusedOld = append(ps.unusedOld, p.id)
}

// remove takes a permit in.
func (ps *permits) remove(p *Permit) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if _, ok := ps.byID[p.id]; !ok {
		return
	}
	delete(ps.byID, p.id)
	if p.place >= 0 && p.orphaned && len(p.heads) > 0 {
		return // it stays in its bulkheads until its end; expired takes it out
	}
	if p.place >= 0 {
		heap.Remove(&ps.byEnd, p.place)
	}
	for _, h := range p.heads {
		ps.drop(h.key)
	}
}

func (ps *permits) drop(key string) {
	if ps.heads[key]--; ps.heads[key] <= 0 {
		delete(ps.heads, key)
	}
}

// extend moves a permit's end.
func (ps *permits) extend(p *Permit, end breaker.Instant) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.end = end
	if p.place >= 0 {
		heap.Fix(&ps.byEnd, p.place)
	}
}

// expired returns the permits whose end has come. They stay out until their
// expiry has been carried through.
func (ps *permits) expired(now breaker.Instant) []*Permit {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var out []*Permit
	for len(ps.byEnd) > 0 && ps.byEnd[0].end <= now {
		p := heap.Pop(&ps.byEnd).(*Permit)
		if _, ok := ps.byID[p.id]; ok {
			out = append(out, p)
			continue
		}
		for _, h := range p.heads { // settled long ago, and orphaned
			ps.drop(h.key)
		}
	}
	return out
}

// all returns every permit that is out.
func (ps *permits) all() []*Permit {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make([]*Permit, 0, len(ps.byID))
	for _, p := range ps.byID {
		out = append(out, p)
	}
	return out
}

// head is one bulkhead that a permit occupies.
type head struct {
	name string
	key  string
	most int
}

// bulkheads are the caps that an operation falls under.
func (p *Policy) bulkheads(op *taxonomy.Operation) []head {
	var out []head
	for i := range p.Bulkheads {
		b := &p.Bulkheads[i]
		if b.Tool != "" && b.Tool != op.Tool || b.Action != "" && b.Action != op.Action {
			continue
		}
		key, _ := appendScope(make([]byte, 0, 64), b.Name, b.Scope, op)
		out = append(out, head{name: b.Name, key: string(key), most: b.Most})
	}
	return out
}

// orphan reports a request whose caller stopped waiting: it gave no answer in
// time. The remote works on it all the same, so it keeps its place in the
// bulkheads until its deadline and grace; or callers that time out and send again
// would have more in flight than the bulkhead allows.
func orphan(obs *taxonomy.Observation) bool {
	t := &obs.Transport
	return t.Dispatched != taxonomy.DispatchedNo && obs.Response == nil && (t.ErrorKind == "read_timeout" || t.ErrorKind == "deadline")
}

// expiries is a heap of permits, the next to end first.
type expiries []*Permit

func (x expiries) Len() int           { return len(x) }
func (x expiries) Less(i, j int) bool { return x[i].end < x[j].end }
func (x expiries) Swap(i, j int) {
	x[i], x[j] = x[j], x[i]
	x[i].place, x[j].place = i, j
}
func (x *expiries) Push(v any) {
	p := v.(*Permit)
	p.place = len(*x)
	*x = append(*x, p)
}
func (x *expiries) Pop() any {
	old := *x
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*x = old[:len(old)-1]
	p.place = -1
	return p
}
