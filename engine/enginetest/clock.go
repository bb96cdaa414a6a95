// Package enginetest lets anyone show how the engine behaves when things go
// wrong: a scripted remote that counts what really reached it, a clock that
// only moves when told, fault points by name, a policy in Go, and a runner for
// cases written as data.
package enginetest

import (
	"context"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
)

// A Clock stands still until it is moved. Sleeping moves it, so a test of a
// ninety-second deadline takes no time. The wall clock can be stepped without
// the monotonic one, as on a machine whose time is corrected.
type Clock struct {
	mu   sync.Mutex
	now  time.Time
	mono breaker.Instant
}

// NewClock starts at a fixed instant, so that cases read the same every time.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC), mono: breaker.Instant(time.Hour)}
}

// Now is the wall clock.
func (c *Clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

// Mono is the monotonic clock.
func (c *Clock) Mono() breaker.Instant { c.mu.Lock(); defer c.mu.Unlock(); return c.mono }

// Advance moves both clocks.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.mono = c.now.Add(d), c.mono.Add(d)
}

// Step moves only the wall clock.
func (c *Clock) Step(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

// Sleep moves the clock by d at once. A call that was cancelled sleeps no time.
func (c *Clock) Sleep(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
	}
	c.Advance(max(d, 0))
	return true
}

// Until ends with its parent only: what a deadline does to a call in flight is
// for the scripted remote to say. The engine looks at the clock before it
// starts anything.
func (c *Clock) Until(ctx context.Context, _ time.Time) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
