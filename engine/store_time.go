package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// storeTime is the store's clock, reckoned here: what it said last, and what the
// monotonic clock ran since. Whatever is kept in the store and judged by its
// clock later, such as the end of an intent, a reservation, an item or an
// approval, is written in this time, so that a worker whose wall clock is wrong
// harms nobody (SPEC R-BRK-8). Budget windows are cut by it too, or two workers
// would spend from two days.
type storeTime struct {
	store state.Store
	clock Clock
	wait  time.Duration // for an answer, where a call waits for it

	asking sync.Mutex
	last   atomic.Pointer[storeReading]
}

// A storeReading is what three clocks said at one moment.
type storeReading struct {
	at    breaker.Instant
	local time.Time
	store time.Time
}

// jumpOf is how much a wall clock moves against the monotonic one before it
// jumped. Clocks that are slewed stay far below it.
const jumpOf = 100 * time.Millisecond

// learn asks the store. The answer was true at some moment while it was asked:
// the middle is taken.
func (c *storeTime) learn(ctx context.Context) error {
	begin := c.clock.Mono()
	said, err := c.store.Now(ctx)
	if err != nil {
		return err
	}
	end, local := c.clock.Mono(), c.clock.Now()
	c.last.Store(&storeReading{at: end, local: local, store: said.Add(end.Sub(begin) / 2)})
	return nil
}

// now is the store's time. Where this machine's wall clock jumped since the last
// answer, or the machine slept, the store is asked: a store on this machine
// jumped too. One that does not answer is reckoned on by the monotonic clock.
func (c *storeTime) now() time.Time {
	at, local := c.clock.Mono(), c.clock.Now()
	r := c.last.Load()
	if r.jumped(at, local) {
		r = c.again()
	}
	return r.store.Add(max(at.Sub(r.at), 0))
}

func (r *storeReading) jumped(at breaker.Instant, local time.Time) bool {
	off := local.Sub(r.local) - at.Sub(r.at)
	return off > jumpOf || off < -jumpOf
}

// again asks after a jump, once for all who wait.
func (c *storeTime) again() *storeReading {
	c.asking.Lock()
	defer c.asking.Unlock()
	at, local := c.clock.Mono(), c.clock.Now()
	r := c.last.Load()
	if !r.jumped(at, local) {
		return r
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.wait)
	defer cancel()
	if c.learn(ctx) != nil {
		c.last.Store(&storeReading{at: at, local: local, store: r.store.Add(at.Sub(r.at))})
	}
	return c.last.Load()
}

// skew is how far the store's clock is ahead of this machine's, in whole seconds:
// on machines whose clocks are right it is nothing.
func (c *storeTime) skew() time.Duration {
	now := c.now()
	return now.Sub(c.clock.Now()).Round(time.Second)
}

// StoreNow is the time by the store's clock, which stored ends are judged by.
func (e *Engine) StoreNow() time.Time { return e.storeTime.now() }

// storeAt turns an instant of the monotonic clock into the store's time.
func (e *Engine) storeAt(i breaker.Instant) time.Time {
	now := e.storeTime.now()
	return now.Add(time.Duration(i - e.clock.Mono()))
}

// toStore turns a time that somebody here named by this machine's clock, such as
// a deadline, into the store's time, and fromStore turns it back.
func (e *Engine) toStore(t time.Time) time.Time   { return t.Add(e.storeTime.skew()) }
func (e *Engine) fromStore(t time.Time) time.Time { return t.Add(-e.storeTime.skew()) }
