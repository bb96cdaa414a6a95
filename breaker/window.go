package breaker

import (
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Tally counts outcomes by kind.
type Tally struct {
	OK, Slow, Failed, Unknown uint32
}

func (t *Tally) add(k Kind, n uint32) {
	switch k {
	case OK:
		t.OK += n
	case Slow:
		t.Slow += n
	case Failed:
		t.Failed += n
	case Unknown:
		t.Unknown += n
	}
}

func (t *Tally) sub(o Tally) {
	t.OK -= o.OK
	t.Slow -= o.Slow
	t.Failed -= o.Failed
	t.Unknown -= o.Unknown
}

func (t Tally) half() Tally { return Tally{t.OK / 2, t.Slow / 2, t.Failed / 2, t.Unknown / 2} }

// Total counts all kinds.
func (t Tally) Total() uint64 {
	return uint64(t.OK) + uint64(t.Slow) + uint64(t.Failed) + uint64(t.Unknown)
}

// full is where counters are halved, all kinds together, so that they never
// wrap and keep their ratio.
const full = 1 << 30

// A Window counts the latest outcomes in a ring of buckets. It moves only when
// an outcome is noted, so admission never touches it; whoever reads it later
// uses [Window.At].
//
// Bucket borders are counted from the first outcome and not from the clock's
// origin, so two clocks that differ by a constant see the same window.
type Window struct {
	Start Instant           // of the current bucket
	Last  Instant           // the latest outcome, counted or not; 0 is never
	Pos   uint8             // the current bucket
	Used  bool              // Start means something
	Shape uint32            // of the rule that it was counted under, see WindowRule.shape
	Sum   Tally             // over the ring
	Ring  [MaxBuckets]Tally //
	// Excluded counts by class what was recorded apart, since the window was
	// last empty. Entry 0 holds those without a class.
	Excluded [taxonomy.Classes]uint32
	Late     uint32 // results that came after the state had moved on
	// Shadow counts the outcomes of calls that went ahead although the circuit
	// would have refused them: under observe mode or a forced close.
	ShadowOK, ShadowFailed uint32
}

// count adds n outcomes of one kind.
func (w *Window) count(r *WindowRule, k Kind, n uint32, now Instant) {
	w.roll(r, now)
	if r.Kind == CountWindow {
		w.countBySize(r, k, n)
		return
	}
	w.add(k, n)
}

// add counts into the current bucket.
func (w *Window) add(k Kind, n uint32) {
	n = min(n, full/2)
	for w.Sum.Total()+uint64(n) > full {
		w.halve()
	}
	w.Ring[w.Pos].add(k, n)
	w.Sum.add(k, n)
}

// bucketEnd is when the current bucket of a time window ends.
func (w *Window) bucketEnd(r *WindowRule) Instant {
	n := time.Duration(r.Buckets)
	return w.Start.Add((r.Length + n - 1) / n) // the first instant at which age*n >= Length
}

// countBySize fills the current bucket and goes on to the next when it is full.
func (w *Window) countBySize(r *WindowRule, k Kind, n uint32) {
	room := max(r.Size/uint32(r.Buckets), 1)
	n = min(n, room*uint32(r.Buckets)) // older ones would roll out again
	for n > 0 {
		have := uint32(w.Ring[w.Pos].Total())
		if have >= room {
			w.next(r)
			continue
		}
		part := min(n, room-have)
		w.add(k, part)
		n -= part
	}
}

// exclude records n outcomes apart from the counts.
func (w *Window) exclude(r *WindowRule, c taxonomy.Class, n uint32, now Instant) {
	w.roll(r, now)
	if int(c) >= taxonomy.Classes {
		c = taxonomy.NoClass
	}
	add(&w.Excluded[c], n)
}

// roll brings the ring to now; what is older than the window leaves the sum.
func (w *Window) roll(r *WindowRule, now Instant) {
	w.Last = now
	if !w.Used {
		w.Start, w.Used, w.Shape = now, true, r.shape()
		return
	}
	if r.Kind == CountWindow {
		return
	}
	age := now.Sub(w.Start)
	if age >= r.Length {
		*w = Window{Start: now, Last: now, Used: true, Shape: w.Shape}
		return
	}
	n := time.Duration(r.Buckets)
	if age*n < r.Length { // the usual case costs no division
		return
	}
	steps := age * n / r.Length
	for range steps {
		w.next(r)
	}
	w.Start += Instant(steps * r.Length / n)
}

// next empties the oldest bucket and makes it the current one.
func (w *Window) next(r *WindowRule) {
	w.Pos++
	if w.Pos >= r.Buckets {
		w.Pos = 0
	}
	w.Sum.sub(w.Ring[w.Pos])
	w.Ring[w.Pos] = Tally{}
}

func (w *Window) halve() {
	w.Sum = Tally{}
	for i := range w.Ring {
		b := w.Ring[i].half()
		w.Ring[i] = b
		w.Sum.OK += b.OK
		w.Sum.Slow += b.Slow
		w.Sum.Failed += b.Failed
		w.Sum.Unknown += b.Unknown
	}
}

// At is the window as it stands at now, without changing it.
func (w Window) At(r *WindowRule, now Instant) Window {
	if w.Used {
		last := w.Last
		w.roll(r, now)
		w.Last = last
	}
	return w
}

// add saturates.
func add(c *uint32, n uint32) {
	if *c+n < *c {
		*c = 1<<32 - 1
		return
	}
	*c += n
}
