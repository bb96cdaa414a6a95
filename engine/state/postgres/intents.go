package postgres

import (
	"context"
	"fmt"
	"iter"
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

// changeIntent locks one intent and replaces it by what f makes of it.
func (s *Store) changeIntent(ctx context.Context, name, id string, f func(state.Intent, time.Time) (state.Intent, bool, error)) (state.Intent, error) {
	var out state.Intent
	err := s.do(ctx, name, func(t *tx) error {
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
			return errUnchanged
		}
		t.endIntent(next)
		return nil
	})
	if err != nil && err != errUnchanged {
		return state.Intent{}, err
	}
	return out, nil
}

func (t *tx) intent(id string) (in state.Intent, found bool, err error) {
	in, err = state.ScanIntent(func(dest ...any) (err error) {
		found, err = t.row("SELECT "+state.IntentColumns+" FROM @intent WHERE id = $1::text FOR UPDATE", []any{id}, dest...)
		return err
	})
	return in, found, err
}

const insertIntent = "INSERT INTO @intent (" + state.IntentColumns + ") VALUES ($1::text,$2::text,$3::bigint,$4::text,$5::bigint,$6::text,$7::text,$8::text,$9::text,$10::text," +
	"$11::bytea,$12::text,$13::text,$14::bigint,$15::bigint,$16::integer,$17::text,$18::text,$19::text,$20::text,$21::text,$22::bigint,$23::bigint,$24::bigint,$25::text)"

// endIntent writes the columns that may change after the dispatch.
func (t *tx) endIntent(in state.Intent) {
	r := in.Result
	t.queue(`UPDATE @intent SET state = $1::integer, outcome = $2::text, class = $3::text, reason = $4::text, settled_by = $5::text, settled_receipt = $6::text,
		settled_at = $7::bigint, tries = $8::bigint, next_try = $9::bigint, human_case = $10::text WHERE id = $11::text`,
		int64(in.State), r.Outcome.String(), r.Class.String(), r.Reason, r.By, r.Receipt, state.Nanos(r.At), in.Tries, state.Nanos(in.NextTry), in.Case, in.ID)
}

// Intent returns one intent.
func (s *Store) Intent(ctx context.Context, id string) (state.Intent, error) {
	found, _, err := query(ctx, s, "intent "+id, "SELECT "+state.IntentColumns+" FROM @intent WHERE id = $1::text", []any{id}, state.ScanIntent)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("intent %s: %w", id, state.ErrNotFound)
	}
	if err != nil {
		return state.Intent{}, err
	}
	return found[0], nil
}

// Find reads page by page; an intent dispatched meanwhile may be seen or not.
func (s *Store) Find(ctx context.Context, q state.IntentQuery) iter.Seq2[state.Intent, error] {
	return func(yield func(state.Intent, error) bool) {
		base := intentWhere(q)
		created, id, given := int64(-1<<63), "", 0
		for {
			w := base.clone()
			w.and("(created, id) > (?::bigint, ?::text)", created, id)
			text := "SELECT " + state.IntentColumns + " FROM @intent WHERE " + w.text + fmt.Sprintf(" ORDER BY created, id LIMIT %d", page)
			found, _, err := query(ctx, s, "find intents", text, w.args, state.ScanIntent)
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
func intentWhere(q state.IntentQuery) (w where) {
	if len(q.States) > 0 {
		open, states := true, make([]int32, 0, len(q.States))
		for _, st := range q.States {
			open = open && st < state.Settled
			states = append(states, int32(st))
		}
		if open {
			w.and("state < 2") // literally, as the partial index has it
		}
		w.and("state = ANY(?::integer[])", states)
	}
	if q.Tenant != "" {
		w.and("tenant = ?::text", q.Tenant)
	}
	if q.RequestID != "" {
		w.and("request_id = ?::text", q.RequestID)
	}
	if q.Key != "" {
		w.and("idempotency_key = ?::text", q.Key)
	}
	if !q.Before.IsZero() {
		w.and("created < ?::bigint", state.Nanos(q.Before))
	}
	if !q.Due.IsZero() {
		w.and("next_try <= ?::bigint", state.Nanos(q.Due))
	}
	return w
}

// Condemn moves to UNKNOWN what nobody will settle any more. It looks at the
// candidates only, locks them in order, and asks the rule again under the lock.
func (s *Store) Condemn(ctx context.Context, o state.Owner, by string) ([]state.Intent, error) {
	var out []state.Intent
	err := s.do(ctx, "condemn for "+o.Incarnation, func(t *tx) error {
		if err := t.begun(); err != nil {
			return err
		}
		var moved []state.Intent
		const q = "SELECT " + state.IntentColumns + ` FROM @intent WHERE state < 2 AND state = 0
			AND (expires < $1::bigint OR home = $2::text AND slot = $3::bigint AND incarnation <> $4::text) ORDER BY created, id FOR UPDATE`
		err := t.each(q, []any{state.Nanos(t.now), o.Home, o.Slot, o.Incarnation}, func(row scan) error {
			in, err := state.ScanIntent(row)
			if err == nil && in.Condemnable(o, t.now) {
				moved = append(moved, in.Condemned(o, by, t.now))
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, in := range moved {
			t.endIntent(in)
		}
		out = moved
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
