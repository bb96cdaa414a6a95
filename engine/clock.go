package engine

import (
	"context"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
)

// A Clock gives both times that the engine needs. Circuits, permits and leases
// use Mono only, so a wall clock that jumps opens, closes and expires nothing;
// Now stamps receipts and deadlines that people read.
type Clock interface {
	Now() time.Time
	Mono() breaker.Instant
	// Sleep waits for d or until done is closed; it reports whether d passed.
	Sleep(d time.Duration, done <-chan struct{}) bool
	// Until returns a context that ends at t by this clock.
	Until(ctx context.Context, t time.Time) (context.Context, context.CancelFunc)
}

// realClock reads the machine. Mono starts at one second, so that instant zero
// is never a time that something happened.
type realClock struct{ base time.Time }

// RealClock returns the machine's clock.
func RealClock() Clock { return realClock{time.Now()} }

func (c realClock) Now() time.Time { return time.Now() }

func (c realClock) Mono() breaker.Instant {
	return breaker.Instant(time.Since(c.base) + time.Second)
}

func (c realClock) Sleep(d time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

func (c realClock) Until(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, t)
}
