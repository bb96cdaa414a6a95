package enginetest

import "sync"

// Dice say what every draw comes to until they are set again; 0.5 at first. Then
// jitter is its middle, and a case that is about jitter says so.
type Dice struct {
	mu  sync.Mutex
	set bool
	at  float64
}

// Draw is the engine's source of luck.
func (d *Dice) Draw() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.set {
		return 0.5
	}
	return d.at
}

// Set makes every draw from now on come to v, in [0, 1).
func (d *Dice) Set(v float64) { d.mu.Lock(); d.at, d.set = v, true; d.mu.Unlock() }
