package breaker

import "sync"

// A mailbox hands changes to one listener, in order and outside every lock. It
// has a goroutine only while there is something to hand over, so a listener
// that blocks holds up itself alone, one that panics or ends its goroutine
// misses nothing that comes later, and one that calls back finds no lock held.
type mailbox struct {
	mu      sync.Mutex
	hear    func(Change)
	waiting []Change // a ring, so that what waits is never moved; nil while nothing does
	first   int      // the oldest one's place in it
	count   int
	running bool
	lost    uint64 // dropped because the listener fell behind
	failed  uint64 // times the listener panicked or ended its goroutine
}

// maxWaiting bounds what a listener that blocks can pile up.
const maxWaiting = 1 << 16

// post adds changes behind those that wait. It is called under the lock that
// numbers changes, so its cost must not depend on how many wait.
func (b *mailbox) post(changes []Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range changes {
		b.push(&changes[i])
	}
	if !b.running {
		b.running = true
		go b.drain()
	}
}

// push adds one change, and drops the oldest when too many wait. b.mu is held.
func (b *mailbox) push(c *Change) {
	switch {
	case b.count == maxWaiting:
		b.pop()
		b.lost++
	case b.count == len(b.waiting):
		b.grow()
	}
	b.waiting[(b.first+b.count)%len(b.waiting)] = *c
	b.count++
}

// grow doubles the ring. b.mu is held.
func (b *mailbox) grow() {
	larger := make([]Change, min(max(2*len(b.waiting), 4), maxWaiting))
	n := copy(larger, b.waiting[b.first:])
	copy(larger[n:], b.waiting[:b.first])
	b.waiting, b.first = larger, 0
}

// pop takes the oldest change out. b.mu is held.
func (b *mailbox) pop() Change {
	c := b.waiting[b.first]
	b.waiting[b.first] = Change{}
	b.first = (b.first + 1) % len(b.waiting)
	b.count--
	return c
}

func (b *mailbox) drain() {
	done := false
	defer func() {
		if done {
			return
		}
		_ = recover() // a listener's panic must not end the process
		b.mu.Lock()
		b.failed++
		b.mu.Unlock()
		go b.drain()
	}()
	for {
		b.mu.Lock()
		if b.count == 0 {
			b.running, done = false, true
			b.waiting, b.first = nil, 0
			b.mu.Unlock()
			return
		}
		next := b.pop()
		b.mu.Unlock()
		b.hear(next)
	}
}

// deliver numbers changes and posts them to every listener. Numbering and
// posting are one step, so listeners see the order of the numbers. n.mu is held.
func (g *Registry) deliver(n *node, changes []Change) uint64 {
	g.emit.Lock()
	defer g.emit.Unlock()
	seq := g.seq.Load()
	for i := range changes {
		seq++
		changes[i].Sequence = seq
	}
	if n.word.Load()&busy != 0 {
		g.awake[n] = struct{}{}
	} else {
		delete(g.awake, n)
	}
	g.seq.Store(seq)
	for _, b := range g.mail {
		b.post(changes)
	}
	return seq
}
