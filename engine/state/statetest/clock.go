package statetest

import (
	"sync"
	"time"
)

// A Clock only moves when it is told to.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that stands at t.
func NewClock(t time.Time) *Clock { return &Clock{at: t} }

// Now reads the clock.
func (c *Clock) Now() time.Time { return c.Advance(0) }

// Advance moves the clock, backward too, and returns its new time.
func (c *Clock) Advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	return c.at
}
