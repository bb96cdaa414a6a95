package memory

import (
	"context"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Op is one operation that is about to run.
type Op struct {
	Method string // "Update", "Dispatch", …; "Beat" is a watch's heartbeat
	Key    string // the document, intent, reservation, item or run; "" where there is none
}

// A Fault is what happens to one operation instead of success. The zero value
// is no fault. They combine: a Delay, then Unknown.
type Fault struct {
	Freeze  bool          // no answer until the caller's context ends; nothing is done
	Delay   time.Duration // answer late; ErrUnavailable when the context ends first
	Err     error         // answer this; nothing is done
	Unknown bool          // do it, and answer ErrUnknown: the commit's reply was lost
	Lost    bool          // do not do it, and answer ErrUnknown: the commit itself was lost
}

// Inject asks f before every operation from now on; nil ends all faults.
func (s *Store) Inject(f func(Op) Fault) {
	if f == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&f)
}

func (s *Store) faultOf(op Op) Fault {
	if f := s.fault.Load(); f != nil {
		return (*f)(op)
	}
	return Fault{}
}

// before plays the part of the fault that comes before the operation.
func (f Fault) before(ctx context.Context, ended <-chan struct{}) error {
	if ctx.Err() != nil {
		return refused(ctx)
	}
	if f.Freeze {
		select {
		case <-ctx.Done():
			return refused(ctx)
		case <-ended:
			return state.ErrClosed
		}
	}
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return refused(ctx)
		case <-ended:
			return state.ErrClosed
		}
	}
	return f.Err
}

// A Clock is a clock that only moves when told to.
type Clock struct{ at chan time.Time }

// NewClock returns a clock that stands at t.
func NewClock(t time.Time) *Clock {
	c := &Clock{at: make(chan time.Time, 1)}
	c.at <- t
	return c
}

// Now reads the clock; pass it as Options.Now.
func (c *Clock) Now() time.Time { return c.Advance(0) }

// Advance moves the clock, backward too, and returns its new time.
func (c *Clock) Advance(d time.Duration) time.Time {
	t := (<-c.at).Add(d)
	c.at <- t
	return t
}
