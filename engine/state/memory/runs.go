package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Append adds a call and keeps the newest.
func (s *Store) Append(ctx context.Context, id string, c taxonomy.Call) error {
	return s.do(ctx, "Append", id, func(now time.Time) error {
		if id == "" {
			return fmt.Errorf("append call: %w: the run has no id", state.ErrInvalid)
		}
		r := s.run(id, now)
		r.calls = append(r.calls, c)
		if n := len(r.calls) - state.RunLength; n > 0 {
			r.calls = slices.Delete(r.calls, 0, n)
		}
		return nil
	})
}

// run finds or begins a run, and touches it.
func (s *Store) run(id string, now time.Time) *run {
	r := s.runs[id]
	if r == nil {
		r = &run{}
		s.runs[id] = r
	}
	r.touched = now
	return r
}

// Run returns the calls kept, oldest first.
func (s *Store) Run(ctx context.Context, id string) (out []taxonomy.Call, err error) {
	err = s.do(ctx, "Run", id, func(time.Time) error {
		if r := s.runs[id]; r != nil {
			out = slices.Clone(r.calls)
		}
		return nil
	})
	return out, err
}

// Stop marks a run as stopped.
func (s *Store) Stop(ctx context.Context, id, reason string) error {
	return s.do(ctx, "Stop", id, func(now time.Time) error {
		if id == "" || reason == "" {
			return fmt.Errorf("stop run %q: %w: a stop needs the run's id and a reason", id, state.ErrInvalid)
		}
		if r := s.run(id, now); r.stopped == "" {
			r.stopped = reason
		}
		return nil
	})
}

// Stopped returns why a run was stopped.
func (s *Store) Stopped(ctx context.Context, id string) (reason string, err error) {
	err = s.do(ctx, "Stopped", id, func(time.Time) error {
		if r := s.runs[id]; r != nil {
			reason = r.stopped
		}
		return nil
	})
	return reason, err
}

// Forget drops runs that nothing happened to since then.
func (s *Store) Forget(ctx context.Context, before time.Time) (n int, err error) {
	err = s.do(ctx, "Forget", "", func(time.Time) error {
		for id, r := range s.runs {
			if r.touched.Before(before) {
				delete(s.runs, id)
				n++
			}
		}
		return nil
	})
	return n, err
}
