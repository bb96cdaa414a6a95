package sqlite

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Settle gives an intent its outcome.
func (s *Store) Settle(ctx context.Context, id string, r state.Settlement) (state.Intent, error) {
	return s.changeIntent(ctx, "settle intent "+id, id, func(in state.Intent, now time.Time) (state.Intent, bool, error) {
		r := r
		if r.At.IsZero() {
			r.At = now
		}
		return in.Settled(r)
	})
}

// Postpone records a reconciliation that stayed UNKNOWN.
func (s *Store) Postpone(ctx context.Context, id string, next time.Time, humanCase string) (state.Intent, error) {
	return s.changeIntent(ctx, "postpone intent "+id, id, func(in state.Intent, _ time.Time) (state.Intent, bool, error) {
		in, err := in.Postponed(next, humanCase)
		return in, true, err
	})
}

// changeIntent replaces one intent by what f makes of it.
func (s *Store) changeIntent(ctx context.Context, name, id string, f func(state.Intent, time.Time) (state.Intent, bool, error)) (state.Intent, error) {
	var out state.Intent
	err := s.writer.do(ctx, name, true, func(t *tx) error {
		in, found, err := t.intent(id)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%s: %w", name, state.ErrNotFound)
		}
		next, changed, err := f(in, t.now)
		if err != nil {
			return err
		}
		if out = next; !changed {
			return nil
		}
		return t.endIntent(next)
	})
	if err != nil {
		return state.Intent{}, err
	}
	return out, nil
}

func (t *tx) intent(id string) (in state.Intent, found bool, err error) {
	in, err = state.ScanIntent(func(dest ...any) (err error) {
		found, err = t.row("SELECT "+state.IntentColumns+" FROM intent WHERE id = ?", []any{id}, dest...)
		return err
	})
	return in, found, err
}

func (t *tx) insertIntent(in state.Intent) error {
	return t.exec("INSERT INTO intent ("+state.IntentColumns+") VALUES (?"+strings.Repeat(",?", 24)+")", state.IntentArgs(in)...)
}

// endIntent writes the columns that may change after the dispatch.
func (t *tx) endIntent(in state.Intent) error {
	r := in.Result
	return t.exec(`UPDATE intent SET state = ?, outcome = ?, class = ?, reason = ?, settled_by = ?, settled_receipt = ?, settled_at = ?,
		tries = ?, next_try = ?, human_case = ? WHERE id = ?`,
		int64(in.State), r.Outcome.String(), r.Class.String(), r.Reason, r.By, r.Receipt, state.Nanos(r.At), in.Tries, state.Nanos(in.NextTry), in.Case, in.ID)
}

// Intent returns one intent.
func (s *Store) Intent(ctx context.Context, id string) (state.Intent, error) {
	found, err := query(ctx, s, "intent "+id, "SELECT "+state.IntentColumns+" FROM intent WHERE id = ?", []any{id}, collectIntent)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("intent %s: %w", id, state.ErrNotFound)
	}
	if err != nil {
		return state.Intent{}, err
	}
	return found[0], nil
}

func collectIntent(row scan, out *[]state.Intent) error {
	in, err := state.ScanIntent(row)
	*out = append(*out, in)
	return err
}

// Find reads page by page; an intent dispatched meanwhile may be seen or not.
func (s *Store) Find(ctx context.Context, q state.IntentQuery) iter.Seq2[state.Intent, error] {
	return func(yield func(state.Intent, error) bool) {
		where, args := intentWhere(q)
		created, id, given := int64(-1<<63), "", 0
		for {
			text := "SELECT " + state.IntentColumns + " FROM intent WHERE " + where + "(created, id) > (?, ?) ORDER BY created, id LIMIT ?"
			found, err := query(ctx, s, "find intents", text, append(args[:len(args):len(args)], created, id, page), collectIntent)
			if err != nil {
				yield(state.Intent{}, err)
				return
			}
			for _, in := range found {
				if !yield(in, nil) {
					return
				}
				if given++; given == q.Limit {
					return
				}
				created, id = state.Nanos(in.Created), in.ID
			}
			if len(found) < page {
				return
			}
		}
	}
}

// intentWhere is state.IntentQuery.Match in SQL, so that an index serves it.
func intentWhere(q state.IntentQuery) (where string, args []any) {
	open := len(q.States) > 0
	for _, st := range q.States {
		open = open && st < state.Settled
	}
	if open {
		where += "state < 2 AND " // literally, as the partial index has it
	}
	if len(q.States) > 0 {
		where += "state IN (?" + strings.Repeat(",?", len(q.States)-1) + ") AND "
		for _, st := range q.States {
			args = append(args, int64(st))
		}
	}
	add := func(cond string, arg any) {
		where += cond + " AND "
		args = append(args, arg)
	}
	if q.Tenant != "" {
		add("tenant = ?", q.Tenant)
	}
	if q.RequestID != "" {
		add("request_id = ?", q.RequestID)
	}
	if q.Key != "" {
		add("idempotency_key = ?", q.Key)
	}
	if !q.Before.IsZero() {
		add("created < ?", state.Nanos(q.Before))
	}
	if !q.Due.IsZero() {
		add("next_try <= ?", state.Nanos(q.Due))
	}
	return where, args
}

// Condemn moves to UNKNOWN what nobody will settle any more.
func (s *Store) Condemn(ctx context.Context, o state.Owner, by string) ([]state.Intent, error) {
	var out []state.Intent
	err := s.writer.do(ctx, "condemn for "+o.Incarnation, true, func(t *tx) error {
		var moved []state.Intent
		const q = "SELECT " + state.IntentColumns + " FROM intent WHERE state < 2 AND state = 0 ORDER BY created, id"
		err := t.each(q, nil, func(row scan) (bool, error) {
			in, err := state.ScanIntent(row)
			if err == nil && in.Condemnable(o, t.now) {
				moved = append(moved, in.Condemned(o, by, t.now))
			}
			return true, err
		})
		if err != nil {
			return err
		}
		for _, in := range moved {
			if err := t.endIntent(in); err != nil {
				return err
			}
		}
		out = moved
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
