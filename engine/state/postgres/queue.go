package postgres

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

const insertItem = "INSERT INTO @item (" + state.ItemColumns + ") VALUES ($1::text,$2::text,$3::bigint,$4::bigint,$5::bigint,$6::text,$7::text,$8::text,$9::bytea,$10::bytea," +
	"$11::text,$12::integer,$13::bigint,$14::text,$15::bigint,$16::bigint,$17::text) ON CONFLICT (id) DO NOTHING"

// Put adds an item.
func (s *Store) Put(ctx context.Context, it state.Item) error {
	args, err := state.ItemArgs(it)
	if err != nil {
		return fmt.Errorf("put item %s: %w", it.ID, err)
	}
	err = s.do(ctx, "put item "+it.ID, func(t *tx) error {
		var there int
		found, err := t.row("SELECT 1 FROM @item WHERE id = $1::text", []any{it.ID}, &there)
		switch {
		case err != nil:
			return err
		case found:
			return errUnchanged
		}
		if err := it.Check(t.now); err != nil {
			return err
		}
		t.queue(insertItem, args...)
		return nil
	})
	if err == errUnchanged {
		return nil
	}
	return err
}

// Claim leases items and drops the expired ones that it meets. Rows that
// another worker is just taking are passed over, not waited for: a worker that
// was stopped in the middle of its claim must not stop the others. The price is
// that claims that overlap see the queue as it was when they began.
func (s *Store) Claim(ctx context.Context, worker string, from state.From, n int, lease time.Duration) (claimed, expired []state.Item, err error) {
	if n > 0 && lease <= 0 {
		return nil, nil, fmt.Errorf("claim from %q: %w: the lease must be positive, got %s", from.Dependency, state.ErrInvalid, lease)
	}
	var taken, late []state.Item
	err = s.do(ctx, "claim from "+from.Dependency, func(t *tx) (err error) {
		taken, late = nil, nil
		if err := t.begun(); err != nil {
			return err
		}
		var w where
		w.and("state < 2 AND expires <= ?::bigint AND (state = 0 OR claim_until <= ?::bigint)", state.Nanos(t.now), state.Nanos(t.now))
		if late, err = t.items(w, from, -1, state.Item.Stale); err != nil {
			return err
		}
		w = where{}
		w.and("state < 2 AND expires > ?::bigint AND not_before <= ?::bigint AND (state = 0 OR claim_until <= ?::bigint)", state.Nanos(t.now), state.Nanos(t.now), state.Nanos(t.now))
		if taken, err = t.items(w, from, max(n, 0), state.Item.Ready); err != nil {
			return err
		}
		for i, it := range late {
			late[i] = it.Lapsed()
		}
		for i, it := range taken {
			taken[i] = it.Taken(worker, lease, t.now)
		}
		changed := slices.Concat(taken, late)
		for _, it := range changed {
			if err := t.putItem(it); err != nil {
				return err
			}
		}
		if len(changed) == 0 {
			return errUnchanged
		}
		return nil
	})
	if err != nil && err != errUnchanged {
		return nil, nil, err
	}
	return taken, late, nil
}

// items locks candidates, in the order of the queue, and keeps those that the
// rule accepts too. A limit below 0 is none.
func (t *tx) items(w where, from state.From, limit int, rule func(state.Item, time.Time) bool) (out []state.Item, err error) {
	if limit == 0 {
		return nil, nil
	}
	if from.Dependency != "" {
		w.and("dependency = ?::text", from.Dependency)
	}
	if from.Tenant != "" {
		w.and("tenant = ?::text", from.Tenant)
	}
	q := "SELECT " + state.ItemColumns + " FROM @item WHERE " + w.text + " ORDER BY priority DESC, expires, id"
	if limit > 0 {
		w.args = append(w.args, limit)
		q += fmt.Sprintf(" LIMIT $%d::integer", len(w.args))
	}
	err = t.each(q+" FOR UPDATE SKIP LOCKED", w.args, func(row scan) error {
		it, err := state.ScanItem(row)
		if err == nil && it.Free(t.now) && rule(it, t.now) {
			out = append(out, it)
		}
		return err
	})
	return out, err
}

// putItem writes the columns that may change after Put.
func (t *tx) putItem(it state.Item) error {
	attempts, err := state.EncodeDocument(it.Attempts)
	if err != nil {
		return err
	}
	t.queue(`UPDATE @item SET attempts = $1::text, state = $2::integer, not_before = $3::bigint, reason = $4::text, claim = $5::bigint, claim_until = $6::bigint, owner = $7::text
		WHERE id = $8::text`, attempts, int64(it.State), state.Nanos(it.NotBefore), it.Reason, int64(it.Claim), state.Nanos(it.ClaimUntil), it.Owner, it.ID)
	return nil
}

// Renew lengthens a claim.
func (s *Store) Renew(ctx context.Context, id string, claim uint64, lease time.Duration) error {
	return s.changeItem(ctx, "renew item "+id, id, func(it state.Item, now time.Time) (state.Item, error) {
		err := it.Held(claim, now)
		it.ClaimUntil = now.Add(lease)
		return it, err
	})
}

// Finish ends a claim.
func (s *Store) Finish(ctx context.Context, id string, claim uint64, d state.Disposition) error {
	return s.changeItem(ctx, "finish item "+id, id, func(it state.Item, now time.Time) (state.Item, error) {
		return it.Finished(claim, d, now)
	})
}

// Move changes an item that nobody has claimed.
func (s *Store) Move(ctx context.Context, id string, d state.Disposition) error {
	return s.changeItem(ctx, "move item "+id, id, func(it state.Item, now time.Time) (state.Item, error) {
		return it.Moved(d, now)
	})
}

// changeItem locks one item and replaces it by what f makes of it.
func (s *Store) changeItem(ctx context.Context, name, id string, f func(state.Item, time.Time) (state.Item, error)) error {
	return s.do(ctx, name, func(t *tx) error {
		found := false
		it, err := state.ScanItem(func(dest ...any) (err error) {
			found, err = t.row("SELECT "+state.ItemColumns+" FROM @item WHERE id = $1::text FOR UPDATE", []any{id}, dest...)
			return err
		})
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%s: %w", name, state.ErrNotFound)
		}
		if it, err = f(it, t.now); err != nil {
			return err
		}
		return t.putItem(it)
	})
}

// Items reads page by page, in the order in which they would be claimed.
func (s *Store) Items(ctx context.Context, q state.ItemQuery) iter.Seq2[state.Item, error] {
	return func(yield func(state.Item, error) bool) {
		base := itemWhere(q)
		var last *state.Item
		given := 0
		for {
			w := base.clone()
			if last != nil {
				w.and("(priority < ?::bigint OR priority = ?::bigint AND (expires, id) > (?::bigint, ?::text))", last.Priority, last.Priority, state.Nanos(last.Expires), last.ID)
			}
			text := "SELECT " + state.ItemColumns + " FROM @item WHERE " + w.text + fmt.Sprintf(" ORDER BY priority DESC, expires, id LIMIT %d", page)
			found, _, err := query(ctx, s, "items", text, w.args, state.ScanItem)
			if err != nil {
				yield(state.Item{}, err)
				return
			}
			for i := range found {
				if !yield(found[i], nil) {
					return
				}
				if given++; given == q.Limit {
					return
				}
				last = &found[i]
			}
			if len(found) < page {
				return
			}
		}
	}
}

// itemWhere is state.ItemQuery.Match in SQL.
func itemWhere(q state.ItemQuery) (w where) {
	w.and("true")
	if q.ID != "" {
		w.and("id = ?::text", q.ID)
	}
	if len(q.States) > 0 {
		states := make([]int32, 0, len(q.States))
		for _, st := range q.States {
			states = append(states, int32(st))
		}
		w.and("state = ANY(?::integer[])", states)
	}
	if q.Dependency != "" {
		w.and("dependency = ?::text", q.Dependency)
	}
	if q.Tenant != "" {
		w.and("tenant = ?::text", q.Tenant)
	}
	return w
}
