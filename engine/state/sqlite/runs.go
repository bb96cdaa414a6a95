package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Append adds a call and keeps the newest. It is a count, not a promise: the
// last calls may be lost with the machine's power.
func (s *Store) Append(ctx context.Context, id string, c taxonomy.Call) error {
	if id == "" {
		return fmt.Errorf("append call: %w: the run has no id", state.ErrInvalid)
	}
	call, err := state.EncodeDocument(c)
	if err != nil {
		return fmt.Errorf("append call to run %s: %w", id, err)
	}
	return s.writer.do(ctx, "append call to run "+id, false, func(t *tx) error {
		var n int64
		_, err := t.row(`INSERT INTO run (id, last, stopped, touched) VALUES (?1, 1, '', ?2)
			ON CONFLICT (id) DO UPDATE SET last = last + 1, touched = ?2 RETURNING last`, []any{id, state.Nanos(t.now)}, &n)
		if err != nil {
			return err
		}
		if err := t.exec("INSERT INTO run_call (run, n, call) VALUES (?, ?, ?)", id, n, call); err != nil {
			return err
		}
		return t.exec("DELETE FROM run_call WHERE run = ? AND n <= ?", id, n-state.RunLength)
	})
}

// Run returns the calls kept, oldest first.
func (s *Store) Run(ctx context.Context, id string) ([]taxonomy.Call, error) {
	return query(ctx, s, "run "+id, "SELECT call FROM run_call WHERE run = ? ORDER BY n", []any{id}, func(row scan, out *[]taxonomy.Call) error {
		var c taxonomy.Call
		err := row(state.Document(&c))
		*out = append(*out, c)
		return err
	})
}

// Stop marks a run as stopped.
func (s *Store) Stop(ctx context.Context, id, reason string) error {
	if id == "" || reason == "" {
		return fmt.Errorf("stop run %q: %w: a stop needs the run's id and a reason", id, state.ErrInvalid)
	}
	return s.writer.do(ctx, "stop run "+id, true, func(t *tx) error {
		return t.exec(`INSERT INTO run (id, last, stopped, touched) VALUES (?1, 0, ?2, ?3)
			ON CONFLICT (id) DO UPDATE SET stopped = iif(stopped = '', ?2, stopped), touched = ?3`, id, reason, state.Nanos(t.now))
	})
}

// Stopped returns why a run was stopped.
func (s *Store) Stopped(ctx context.Context, id string) (string, error) {
	return query(ctx, s, "stopped run "+id, "SELECT stopped FROM run WHERE id = ?", []any{id}, func(row scan, out *string) error { return row(out) })
}

// Forget drops runs that nothing happened to since then.
func (s *Store) Forget(ctx context.Context, before time.Time) (int, error) {
	total := 0
	err := s.writer.do(ctx, "forget runs", false, func(t *tx) error {
		const old = "SELECT id FROM run WHERE touched < ?"
		if err := t.exec("DELETE FROM run_call WHERE run IN ("+old+")", state.Nanos(before)); err != nil {
			return err
		}
		n, err := t.change("DELETE FROM run WHERE touched < ?", state.Nanos(before))
		total = n
		return err
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}
