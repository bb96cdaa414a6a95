package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Append adds a call and keeps the newest. It is a count, not a promise: the
// last calls may be lost when the server crashes.
func (s *Store) Append(ctx context.Context, id string, c taxonomy.Call) error {
	if id == "" {
		return fmt.Errorf("append call: %w: the run has no id", state.ErrInvalid)
	}
	call, err := state.EncodeDocument(c)
	if err != nil {
		return fmt.Errorf("append call to run %s: %w", id, err)
	}
	return s.do(ctx, "append call to run "+id, func(t *tx) error {
		t.relaxed = true
		if err := t.begun(); err != nil {
			return err
		}
		var n int64
		_, err := t.row(`INSERT INTO @run AS r (id, last, stopped, touched) VALUES ($1::text, 1, '', $2::bigint)
			ON CONFLICT (id) DO UPDATE SET last = r.last + 1, touched = excluded.touched RETURNING last`, []any{id, state.Nanos(t.now)}, &n)
		if err != nil {
			return err
		}
		t.queue("INSERT INTO @run_call (run, n, call) VALUES ($1::text, $2::bigint, $3::text)", id, n, call)
		t.queue("DELETE FROM @run_call WHERE run = $1::text AND n <= $2::bigint", id, n-state.RunLength)
		return nil
	})
}

// Run returns the calls kept, oldest first.
func (s *Store) Run(ctx context.Context, id string) ([]taxonomy.Call, error) {
	calls, _, err := query(ctx, s, "run "+id, "SELECT call FROM @run_call WHERE run = $1::text ORDER BY n", []any{id}, func(row scan) (c taxonomy.Call, err error) {
		err = row(state.Document(&c))
		return c, err
	})
	return calls, err
}

// Stop marks a run as stopped.
func (s *Store) Stop(ctx context.Context, id, reason string) error {
	if id == "" || reason == "" {
		return fmt.Errorf("stop run %q: %w: a stop needs the run's id and a reason", id, state.ErrInvalid)
	}
	return s.do(ctx, "stop run "+id, func(t *tx) error {
		if err := t.begun(); err != nil {
			return err
		}
		t.queue(`INSERT INTO @run AS r (id, last, stopped, touched) VALUES ($1::text, 0, $2::text, $3::bigint)
			ON CONFLICT (id) DO UPDATE SET stopped = CASE WHEN r.stopped = '' THEN excluded.stopped ELSE r.stopped END, touched = excluded.touched`, id, reason, state.Nanos(t.now))
		return nil
	})
}

// Stopped returns why a run was stopped.
func (s *Store) Stopped(ctx context.Context, id string) (string, error) {
	found, _, err := query(ctx, s, "stopped run "+id, "SELECT stopped FROM @run WHERE id = $1::text", []any{id}, func(row scan) (r string, err error) {
		err = row(&r)
		return r, err
	})
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}

// Forget drops runs that nothing happened to since then.
func (s *Store) Forget(ctx context.Context, before time.Time) (int, error) {
	total := 0
	err := s.do(ctx, "forget runs", func(t *tx) (err error) {
		t.relaxed = true
		total, err = t.change(`WITH old AS (SELECT id FROM @run WHERE touched < $1::bigint FOR UPDATE SKIP LOCKED),
			calls AS (DELETE FROM @run_call WHERE run IN (SELECT id FROM old)) DELETE FROM @run WHERE id IN (SELECT id FROM old)`, state.Nanos(before))
		return err
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}
