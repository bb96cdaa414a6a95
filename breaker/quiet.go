package breaker

// Most calls succeed in a circuit that has nothing against it. All that such a
// success does is to add one to the current bucket, so it is counted in one
// word beside the circuit and the lock is left alone. Whoever takes the lock
// next first shuts that road and moves the count into the window, so the
// circuit under the lock is always what Step alone would have made of it; only
// Window.Last may be late by a part of a bucket.
//
// The word (node.beside) holds, from the lowest bit: whether the road is shut
// (1), the successes counted (31), and how often the road was opened (32). A
// success is one compare-and-swap of the whole word, so it cannot slip into a
// later bucket, state or rule than the one it was checked against.
const (
	shut      = 1
	oneBeside = 1 << 1
	maxBeside = 1<<31 - 1
	oneOpened = 1 << 32
)

// lock takes the circuit's lock and moves in what was counted beside it.
func (n *node) lock() {
	n.mu.Lock()
	n.takeIn()
}

func (n *node) tryLock() bool {
	ok := n.mu.TryLock()
	if ok {
		n.takeIn()
	}
	return ok
}

func (n *node) takeIn() {
	if n.beside.Load()&shut != 0 {
		return
	}
	if k := n.beside.Or(shut) >> 1 & maxBeside; k > 0 {
		w := &n.c.Window
		w.Last = max(w.Last, Instant(n.bucketEnd.Load()-1))
		w.add(OK, uint32(k))
	}
}

// unlock opens the road again if the circuit is quiet, and gives up the lock.
func (n *node) unlock() {
	r := &n.of.Load().Rule
	w := &n.c.Window
	if n.c.quiet() && n.c.Override == nil && w.Used && r.Window.Kind == TimeWindow && n.word.Load()&busy == 0 &&
		w.Sum.Total() < full/2 {
		n.bucketEnd.Store(int64(w.bucketEnd(&r.Window)))
		n.beside.Store((n.beside.Load()/oneOpened + 1) * oneOpened)
	}
	n.mu.Unlock()
}

// countBeside counts one success of a call admitted at seq, if that is all it
// can do; otherwise the lock must be taken. It returns the circuit's version.
func (n *node) countBeside(seq uint64, now Instant) (version uint64, ok bool) {
	for range 4 { // lost to another success; under real contention the lock is better
		w := n.beside.Load()
		if w&shut != 0 || int64(now) >= n.bucketEnd.Load() || seq < n.seq.Load() || w>>1&maxBeside >= full/4 {
			return 0, false
		}
		version = n.word.Load() >> wordVersion
		if n.beside.CompareAndSwap(w, w+oneBeside) {
			return version, true
		}
	}
	return 0, false
}
