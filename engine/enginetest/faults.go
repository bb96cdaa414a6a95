package enginetest

import "sync"

// Faults arms named points of the path. The zero value lets everything pass.
type Faults struct {
	mu    sync.Mutex
	armed map[string]func() error
	hits  map[string]int
}

// At runs f each time the point is reached; f may block, panic or return the
// error with which the step fails.
func (f *Faults) At(point string, do func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed == nil {
		f.armed = map[string]func() error{}
	}
	f.armed[point] = do
}

// Clear disarms a point.
func (f *Faults) Clear(point string) { f.mu.Lock(); defer f.mu.Unlock(); delete(f.armed, point) }

// Hit is called by the engine.
func (f *Faults) Hit(point string) error {
	f.mu.Lock()
	if f.hits == nil {
		f.hits = map[string]int{}
	}
	f.hits[point]++
	do := f.armed[point]
	f.mu.Unlock()
	if do == nil {
		return nil
	}
	return do()
}

// Hits is how often a point was reached.
func (f *Faults) Hits(point string) int { f.mu.Lock(); defer f.mu.Unlock(); return f.hits[point] }
