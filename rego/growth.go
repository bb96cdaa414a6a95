package rego

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
)

// maxGrowth is how much the heap may grow while one evaluation, or one test of a
// bundle, runs. What a decision needs is a thousandth of it.
const maxGrowth = 256 << 20

var errGrowth = fmt.Errorf("the memory of this process grew by more than %d MiB meanwhile", maxGrowth>>20)

// A growth watches the heap of the process from the first time it is asked. Go
// does not say which goroutine allocated what, so evaluations that last while
// another one takes all memory may end with it; each is asked again by its caller,
// and none that is over in a moment is ever looked at.
type growth struct {
	base  uint64
	known bool
}

// collecting: one collection tells all who ask at the same time.
var collecting sync.Mutex

// tooMuch reports whether the heap grew beyond the bound. Garbage does not count:
// before it says so, it has the garbage collected.
func (g *growth) tooMuch() bool {
	now := heapBytes()
	if !g.known || now < g.base {
		g.base, g.known = now, true
		return false
	}
	if now-g.base <= maxGrowth {
		return false
	}
	collecting.Lock()
	defer collecting.Unlock()
	if now = heapBytes(); now > g.base+maxGrowth {
		runtime.GC()
		now = heapBytes()
	}
	return now > g.base+maxGrowth
}

// heapBytes is what objects on the heap take, garbage included. Reading it does
// not stop the world.
func heapBytes() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
