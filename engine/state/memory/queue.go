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

// Put adds an item.
func (s *Store) Put(ctx context.Context, it state.Item) error {
	return s.do(ctx, "Put", it.ID, func(now time.Time) error {
		if _, there := s.items[it.ID]; there {
			return nil
		}
		if err := it.Check(now); err != nil {
			return err
		}
		s.items[it.ID] = owned(it)
		return nil
	})
}

// owned copies what an item points to.
func owned(it state.Item) state.Item {
	it.Operation, it.Payload = bytes.Clone(it.Operation), bytes.Clone(it.Payload)
	it.Attempts = slices.Clone(it.Attempts)
	return it
}

// Claim leases items and drops the expired ones that it meets.
func (s *Store) Claim(ctx context.Context, worker string, from state.From, n int, lease time.Duration) (claimed, expired []state.Item, err error) {
	err = s.do(ctx, "Claim", from.Dependency, func(now time.Time) error {
		if n > 0 && lease <= 0 {
			return fmt.Errorf("claim from %q: %w: the lease must be positive, got %s", from.Dependency, state.ErrInvalid, lease)
		}
		var ready []state.Item
		for id, it := range s.items {
			switch {
			case !from.Match(it) || !it.Free(now):
			case it.Stale(now):
				s.items[id] = it.Lapsed()
				expired = append(expired, owned(s.items[id]))
			case it.Ready(now):
				ready = append(ready, it)
			}
		}
		slices.SortFunc(expired, state.Item.Sooner)
		slices.SortFunc(ready, state.Item.Sooner)
		for _, it := range ready[:min(max(n, 0), len(ready))] {
			it = it.Taken(worker, lease, now)
			s.items[it.ID] = it
			claimed = append(claimed, owned(it))
		}
		return nil
	})
	return claimed, expired, err
}

// Renew lengthens a claim.
func (s *Store) Renew(ctx context.Context, id string, claim uint64, lease time.Duration) error {
	return s.item(ctx, "Renew", id, func(it state.Item, now time.Time) (state.Item, error) {
		err := it.Held(claim, now)
		it.ClaimUntil = now.Add(lease)
		return it, err
	})
}

// Finish ends a claim.
func (s *Store) Finish(ctx context.Context, id string, claim uint64, d state.Disposition) error {
	return s.item(ctx, "Finish", id, func(it state.Item, now time.Time) (state.Item, error) {
		return it.Finished(claim, d, now)
	})
}

// Move changes an item that nobody has claimed.
func (s *Store) Move(ctx context.Context, id string, d state.Disposition) error {
	return s.item(ctx, "Move", id, func(it state.Item, now time.Time) (state.Item, error) {
		return it.Moved(d, now)
	})
}

// item replaces one item by what f makes of it.
func (s *Store) item(ctx context.Context, method, id string, f func(state.Item, time.Time) (state.Item, error)) error {
	return s.do(ctx, method, id, func(now time.Time) error {
		it, ok := s.items[id]
		if !ok {
			return fmt.Errorf("%s item %s: %w", strings.ToLower(method), id, state.ErrNotFound)
		}
		next, err := f(it, now)
		if err != nil {
			return err
		}
		s.items[id] = owned(next)
		return nil
	})
}

// Items works on a snapshot, in the order in which they would be claimed.
func (s *Store) Items(ctx context.Context, q state.ItemQuery) iter.Seq2[state.Item, error] {
	return func(yield func(state.Item, error) bool) {
		var found []state.Item
		err := s.do(ctx, "Items", "", func(time.Time) error {
			for _, it := range s.items {
				if q.Match(it) {
					found = append(found, owned(it))
				}
			}
			return nil
		})
		if err != nil {
			yield(state.Item{}, err)
			return
		}
		slices.SortFunc(found, state.Item.Sooner)
		if q.Limit > 0 && len(found) > q.Limit {
			found = found[:q.Limit]
		}
		for _, it := range found {
			if !yield(it, nil) {
				return
			}
		}
	}
}
