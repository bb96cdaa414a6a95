package memory

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Settle gives an intent its outcome.
func (s *Store) Settle(ctx context.Context, id string, r state.Settlement) (state.Intent, error) {
	return s.change(ctx, "Settle", id, func(in state.Intent, now time.Time) (state.Intent, error) {
		if r.At.IsZero() {
			r.At = now
		}
		next, _, err := in.Settled(r)
		return next, err
	})
}

// Postpone records a reconciliation that stayed UNKNOWN.
func (s *Store) Postpone(ctx context.Context, id string, next time.Time, humanCase string) (state.Intent, error) {
	return s.change(ctx, "Postpone", id, func(in state.Intent, _ time.Time) (state.Intent, error) {
		return in.Postponed(next, humanCase)
	})
}

// Intent returns one intent.
func (s *Store) Intent(ctx context.Context, id string) (state.Intent, error) {
	return s.change(ctx, "Intent", id, func(in state.Intent, _ time.Time) (state.Intent, error) { return in, nil })
}

// change replaces one intent by what f makes of it.
func (s *Store) change(ctx context.Context, method, id string, f func(state.Intent, time.Time) (state.Intent, error)) (out state.Intent, err error) {
	err = s.do(ctx, method, id, func(now time.Time) error {
		in, ok := s.intents[id]
		if !ok {
			return fmt.Errorf("%s intent %s: %w", strings.ToLower(method), id, state.ErrNotFound)
		}
		if in, err = f(in, now); err != nil {
			return err
		}
		s.intents[id] = in
		out = copied(in)
		return nil
	})
	return out, err
}

func copied(in state.Intent) state.Intent {
	in.Operation = bytes.Clone(in.Operation)
	return in
}

// Find works on a snapshot, oldest first.
func (s *Store) Find(ctx context.Context, q state.IntentQuery) iter.Seq2[state.Intent, error] {
	return func(yield func(state.Intent, error) bool) {
		var found []state.Intent
		err := s.do(ctx, "Find", "", func(time.Time) error {
			for _, in := range s.intents {
				if q.Match(in) {
					found = append(found, copied(in))
				}
			}
			return nil
		})
		if err != nil {
			yield(state.Intent{}, err)
			return
		}
		slices.SortFunc(found, state.Intent.Older)
		if q.Limit > 0 && len(found) > q.Limit {
			found = found[:q.Limit]
		}
		for _, in := range found {
			if !yield(in, nil) {
				return
			}
		}
	}
}

// Condemn moves to UNKNOWN what nobody will settle any more.
func (s *Store) Condemn(ctx context.Context, o state.Owner, by string) (moved []state.Intent, err error) {
	err = s.do(ctx, "Condemn", o.Incarnation, func(now time.Time) error {
		for id, in := range s.intents {
			if in.Condemnable(o, now) {
				in = in.Condemned(o, by, now)
				s.intents[id] = in
				moved = append(moved, copied(in))
			}
		}
		slices.SortFunc(moved, state.Intent.Older)
		return nil
	})
	return moved, err
}
