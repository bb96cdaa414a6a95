package sqlite

import (
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
	args, err := state.ItemArgs(it)
	if err != nil {
		return fmt.Errorf("put item %s: %w", it.ID, err)
	}
	return s.writer.do(ctx, "put item "+it.ID, true, func(t *tx) error {
		var there int
		if found, err := t.row("SELECT 1 FROM item WHERE id = ?", []any{it.ID}, &there); err != nil || found {
			return err
		}
		if err := it.Check(t.now); err != nil {
			return err
		}
		return t.exec("INSERT INTO item ("+state.ItemColumns+") VALUES (?"+strings.Repeat(",?", 16)+")", args...)
	})
}

// Claim leases items and drops the expired ones that it meets.
func (s *Store) Claim(ctx context.Context, worker string, from state.From, n int, lease time.Duration) (claimed, expired []state.Item, err error) {
	if n > 0 && lease <= 0 {
		return nil, nil, fmt.Errorf("claim from %q: %w: the lease must be positive, got %s", from.Dependency, state.ErrInvalid, lease)
	}
	var taken, late []state.Item
	err = s.writer.do(ctx, "claim from "+from.Dependency, true, func(t *tx) (err error) {
		taken, late = nil, nil
		if late, err = t.stale(from); err != nil {
			return err
		}
		ready, err := t.ready(from, n)
		if err != nil {
			return err
		}
		for _, it := range ready {
			taken = append(taken, it.Taken(worker, lease, t.now))
		}
		for _, it := range slices.Concat(taken, late) {
			if err := t.putItem(it); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return taken, late, nil
}

// stale finds what has to be dropped, dropped already.
func (t *tx) stale(from state.From) (out []state.Item, err error) {
	q, args := of(from, "SELECT "+state.ItemColumns+" FROM item WHERE state < 2 AND expires <= ?", state.Nanos(t.now))
	err = t.each(q+" ORDER BY priority DESC, expires, id", args, func(row scan) (bool, error) {
		it, err := state.ScanItem(row)
		if err == nil && it.Free(t.now) && it.Stale(t.now) {
			out = append(out, it.Lapsed())
		}
		return true, err
	})
	return out, err
}

// ready finds up to n items that a worker may have now, in order.
func (t *tx) ready(from state.From, n int) (out []state.Item, err error) {
	if n <= 0 {
		return nil, nil
	}
	q, args := of(from, "SELECT "+state.ItemColumns+" FROM item WHERE state < 2 AND expires > ?", state.Nanos(t.now))
	err = t.each(q+" ORDER BY priority DESC, expires, id", args, func(row scan) (bool, error) {
		it, err := state.ScanItem(row)
		if err == nil && it.Ready(t.now) {
			out = append(out, it)
		}
		return len(out) < n, err
	})
	return out, err
}

// of is state.From.Match in SQL.
func of(from state.From, q string, args ...any) (string, []any) {
	if from.Dependency != "" {
		q, args = q+" AND dependency = ?", append(args, from.Dependency)
	}
	if from.Tenant != "" {
		q, args = q+" AND tenant = ?", append(args, from.Tenant)
	}
	return q, args
}

// putItem writes the columns that may change after Put.
func (t *tx) putItem(it state.Item) error {
	attempts, err := state.EncodeDocument(it.Attempts)
	if err != nil {
		return err
	}
	return t.exec("UPDATE item SET attempts = ?, state = ?, not_before = ?, reason = ?, claim = ?, claim_until = ?, owner = ? WHERE id = ?",
		attempts, int64(it.State), state.Nanos(it.NotBefore), it.Reason, int64(it.Claim), state.Nanos(it.ClaimUntil), it.Owner, it.ID)
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

// changeItem replaces one item by what f makes of it.
func (s *Store) changeItem(ctx context.Context, name, id string, f func(state.Item, time.Time) (state.Item, error)) error {
	return s.writer.do(ctx, name, true, func(t *tx) error {
		found := false
		it, err := state.ScanItem(func(dest ...any) (err error) {
			found, err = t.row("SELECT "+state.ItemColumns+" FROM item WHERE id = ?", []any{id}, dest...)
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
		where, args := itemWhere(q)
		var last *state.Item
		given := 0
		for {
			text, more := where, args[:len(args):len(args)]
			if last != nil {
				text += "(priority < ? OR priority = ? AND (expires, id) > (?, ?)) AND "
				more = append(more, last.Priority, last.Priority, state.Nanos(last.Expires), last.ID)
			}
			text = "SELECT " + state.ItemColumns + " FROM item WHERE " + text + "1 ORDER BY priority DESC, expires, id LIMIT ?"
			found, err := query(ctx, s, "items", text, append(more, page), func(row scan, out *[]state.Item) error {
				it, err := state.ScanItem(row)
				*out = append(*out, it)
				return err
			})
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
func itemWhere(q state.ItemQuery) (where string, args []any) {
	if q.ID != "" {
		where += "id = ? AND "
		args = append(args, q.ID)
	}
	if len(q.States) > 0 {
		where += "state IN (?" + strings.Repeat(",?", len(q.States)-1) + ") AND "
		for _, st := range q.States {
			args = append(args, int64(st))
		}
	}
	if q.Dependency != "" {
		where += "dependency = ? AND "
		args = append(args, q.Dependency)
	}
	if q.Tenant != "" {
		where += "tenant = ? AND "
		args = append(args, q.Tenant)
	}
	return where, args
}
