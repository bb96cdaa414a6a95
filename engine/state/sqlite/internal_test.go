package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

func opened(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(context.Background(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestCheckVersion(t *testing.T) {
	for version, good := range map[string]bool{
		"3.51.3": true, "3.51.10": true, "3.54.1": true, "4.0": true,
		"3.51.2": false, "3.9.9": false, "3.51": false, "2.99.99": false, "": false, "x": false,
	} {
		if err := checkVersion(version); (err == nil) != good || err != nil && !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("SQLite %q: %v", version, err)
		}
	}
}

func TestTimesSurvive(t *testing.T) {
	for _, want := range []time.Time{
		{}, time.Unix(0, 1).UTC(), time.Unix(-5, 7).UTC(), time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC), time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		var got time.Time
		if err := state.Stamp(&got).Scan(state.Nanos(want)); err != nil || !got.Equal(want) {
			t.Errorf("%s came back as %s (%v)", want, got, err)
		}
	}
	// What does not fit stays in order.
	past, future := time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	if !(state.Nanos(past) < state.Nanos(time.Unix(-1, 0)) && state.Nanos(future) > state.Nanos(time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC))) {
		t.Errorf("%d, %d", state.Nanos(past), state.Nanos(future))
	}
}

// After a restart of the machine counts may be gone, so every version seen
// before is of another epoch.
func TestRestartOfTheMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	put := func(state.Doc) ([]byte, bool) { return []byte("v"), true }
	s := opened(t, path)
	if s.epoch == 0 {
		t.Skip("SKIP: this system has no boot id")
	}
	before, err := s.Update(t.Context(), "k", put)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = opened(t, path)
	if d, _ := s.Load(t.Context(), "k"); d[0].Rev != before.Rev {
		t.Fatalf("version %+v after a restart of the program, %+v before", d[0].Rev, before.Rev)
	}
	if err := s.writer.exec("UPDATE store SET boot = 'an earlier one'"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = opened(t, path)
	d, _ := s.Load(t.Context(), "k")
	if d[0].Rev.Epoch == before.Rev.Epoch || !d[0].Rev.Newer(before.Rev) {
		t.Fatalf("version %+v after a restart of the machine, %+v before", d[0].Rev, before.Rev)
	}
}

// After a failed sync nobody knows what is on the disk: the callers are told,
// and nothing more is acknowledged until the file is opened anew.
func TestFailedCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := opened(t, path)
	err := s.writer.do(t.Context(), "update k", true, func(tx *tx) error {
		if _, err := tx.putDoc("k", []byte("v"), true); err != nil {
			return err
		}
		// What COMMIT would have answered.
		return fault{s.writer.commitFailed(errors.New("disk I/O error"))}
	})
	if !errors.Is(err, state.ErrUnknown) || !strings.Contains(err.Error(), "disk I/O error") {
		t.Fatalf("got %v", err)
	}
	_, err = s.Update(t.Context(), "k", func(state.Doc) ([]byte, bool) { return []byte("w"), true })
	if !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), "restart to open the file anew") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("got %v", err)
	}
	s.Close()
	s = opened(t, path)
	if _, err := s.Update(t.Context(), "k", func(state.Doc) ([]byte, bool) { return []byte("w"), true }); err != nil {
		t.Fatal(err)
	}
}

// A query that selects by state must be served by an index: a store that keeps
// a million settled intents still finds the open ones at once.
func TestIndexesServe(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "state.db"))
	open, _ := intentWhere(state.IntentQuery{States: []state.IntentState{state.Unsettled, state.InFlight}})
	for name, c := range map[string]struct {
		query, index string
		args         []any
	}{
		"open intents":   {"SELECT id FROM intent WHERE " + open + "(created, id) > (?, ?) ORDER BY created, id", "intent_open", []any{0, 1, 0, ""}},
		"all intents":    {"SELECT id FROM intent WHERE (created, id) > (?, ?) ORDER BY created, id", "intent_age", []any{0, ""}},
		"condemn":        {"SELECT id FROM intent WHERE state < 2 AND state = 0 ORDER BY created, id", "intent_open", nil},
		"ready items":    {"SELECT id FROM item WHERE state < 2 AND expires > ? AND dependency = ? ORDER BY priority DESC, expires, id", "item_ready", []any{0, ""}},
		"stale items":    {"SELECT id FROM item WHERE state < 2 AND expires <= ?", "item_due", []any{0}},
		"modes":          {"SELECT key FROM doc WHERE mode_rev > ? ORDER BY mode_rev", "doc_mode", []any{0}},
		"one run's":      {"SELECT call FROM run_call WHERE run = ? ORDER BY n", "PRIMARY KEY", []any{""}},
		"tenant's scope": {"SELECT id FROM approval WHERE tenant = ? AND scope IN (?)", "approval_scope", []any{"", ""}},
	} {
		rows, err := s.db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+c.query, c.args...)
		if err != nil {
			t.Fatal(name, err)
		}
		plan := ""
		err = eachRow(rows, func(row scan) (bool, error) {
			var a, b, n int
			var detail string
			err := row(&a, &b, &n, &detail)
			plan += detail + "; "
			return true, err
		})
		if err != nil || !strings.Contains(plan, c.index) {
			t.Errorf("%s: %s (%v), want index %s", name, plan, err, c.index)
		}
	}
}
