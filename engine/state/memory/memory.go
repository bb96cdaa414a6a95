// Package memory is the store for tests: everything in maps behind one mutex,
// an injected clock, and faults on demand. It is also the reference model that
// other stores are compared with: where they differ, they are wrong or the
// contract is unclear. Nothing survives the process.
package memory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Options of a store. The zero value is ready to use.
type Options struct {
	Now   func() time.Time // the store's clock; nil is time.Now
	Fault func(Op) Fault   // asked before every operation; nil is none
}

// Store keeps everything in memory. It may be used by many goroutines.
type Store struct {
	now   func() time.Time
	fault atomic.Pointer[func(Op) Fault]
	ended chan struct{} // closed by Close

	mu        sync.Mutex
	closed    bool
	seq       uint64        // of document versions
	epoch     uint64        // rises when the store goes back in time
	back      chan struct{} // closed then
	docs      map[string]state.Doc
	watchers  map[*watcher]struct{}
	intents   map[string]state.Intent
	grants    map[string]*grant
	accounts  map[string]*account
	items     map[string]state.Item
	approvals []*approval
	runs      map[string]*run
}

type grant struct {
	state.Reservation
	settled bool
	used    state.Amounts
	at      time.Time // of the settlement
}

type account struct {
	state.Usage
	touched time.Time
}

type approval struct {
	taxonomy.Approval
	usedBy string
}

type run struct {
	calls   []taxonomy.Call
	stopped string
	touched time.Time
}

var _ state.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) *Store {
	s := &Store{
		now:      o.Now,
		ended:    make(chan struct{}),
		epoch:    1,
		back:     make(chan struct{}),
		docs:     map[string]state.Doc{},
		watchers: map[*watcher]struct{}{},
		intents:  map[string]state.Intent{},
		grants:   map[string]*grant{},
		accounts: map[string]*account{},
		items:    map[string]state.Item{},
		runs:     map[string]*run{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.Inject(o.Fault)
	return s
}

// Caps says that nothing is durable and nothing shared.
func (s *Store) Caps() state.Caps {
	return state.Caps{Name: "memory", PushBound: beat}
}

// Now is the injected clock.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.do(ctx, "Now", "", func(t time.Time) error { now = t; return nil })
	return now, err
}

// Close ends every watch. Later calls are ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.ended)
	}
	return nil
}

// do runs one operation under the lock, and under the fault that is injected
// for it. f must check before it changes anything: an error means no change.
func (s *Store) do(ctx context.Context, method, key string, f func(now time.Time) error) error {
	fault := s.faultOf(Op{Method: method, Key: key})
	if err := fault.before(ctx, s.ended); err != nil {
		return fmt.Errorf("%s %s: %w", strings.ToLower(method), key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s %s: %w", strings.ToLower(method), key, state.ErrClosed)
	}
	if fault.Lost {
		return fmt.Errorf("%s %s: %w", strings.ToLower(method), key, state.ErrUnknown)
	}
	if err := f(s.now().Round(0).UTC()); err != nil {
		return err
	}
	if fault.Unknown {
		return fmt.Errorf("%s %s: %w", strings.ToLower(method), key, state.ErrUnknown)
	}
	return nil
}

// Prune deletes what ended before then.
func (s *Store) Prune(ctx context.Context, before time.Time) (n int, err error) {
	err = s.do(ctx, "Prune", "", func(now time.Time) error {
		n = s.prune(before, now)
		return nil
	})
	return n, err
}

func (s *Store) prune(before, now time.Time) (n int) {
	for id, in := range s.intents {
		if in.State == state.Settled && in.Result.At.Before(before) {
			delete(s.intents, id)
			n++
		}
	}
	open := map[string]bool{}
	for id, g := range s.grants {
		if g.settled && g.at.Before(before) {
			delete(s.grants, id)
			n++
		} else if !g.settled {
			for _, l := range g.Lines {
				open[l.Account] = true
			}
		}
	}
	for name, a := range s.accounts {
		if !open[name] && a.touched.Before(before) {
			delete(s.accounts, name)
			n++
		}
	}
	for id, it := range s.items {
		ended := it.State == state.Done || it.State == state.Dropped || it.State == state.Expired
		if ended && it.Expires.Before(before) {
			delete(s.items, id)
			n++
		}
	}
	kept := s.approvals[:0]
	for _, a := range s.approvals {
		if a.Until.Before(before) && a.Until.Before(now) {
			n++
		} else {
			kept = append(kept, a)
		}
	}
	clear(s.approvals[len(kept):])
	s.approvals = kept
	return n
}

// refused tells an error of the caller's context from one of the store.
func refused(ctx context.Context) error {
	return errors.Join(state.ErrUnavailable, context.Cause(ctx))
}
