package breaker

import "sync"

// A mailbox hands changes to one listener, in order and outside every lock. It
// has a goroutine only while there is something to hand over, so a listener
// that blocks holds up itself alone, one that panics or ends its goroutine
// misses nothing that comes later, and one that calls back finds no lock held.
type mailbox struct {
	mu      sync.Mutex
	hear    func(Change)
	waiting []Change
	running bool
	lost    uint64 // dropped because the listener fell behind
	failed  uint64 // times the listener panicked or ended its goroutine
}

// maxWaiting bounds what a listener that blocks can pile up.
const maxWaiting = 1 << 16

func (b *mailbox) post(changes []Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if over := len(b.waiting) + len(changes) - maxWaiting; over > 0 {
		drop := min(over, len(b.waiting))
		b.waiting = append(b.waiting[:0], b.waiting[drop:]...)
		b.lost += uint64(drop)
	}
	b.waiting = append(b.waiting, changes...)
	if !b.running {
		b.running = true
		go b.drain()
	}
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
		if len(b.waiting) == 0 {
			b.running, done = false, true
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		next := b.waiting[0]
		b.waiting = b.waiting[1:]
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
