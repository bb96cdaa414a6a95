package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

func openAddress(ctx context.Context, path string) (state.Store, error) {
	return sqlite.Open(ctx, path, sqlite.Options{})
}

func TestMain(m *testing.M) { os.Exit(statetest.Main(m, openAddress)) }

func open(t *testing.T, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func place(t *testing.T) string { return filepath.Join(t.TempDir(), "state.db") }

func TestStore(t *testing.T) {
	statetest.Run(t,
		func(t *testing.T) state.Store { return open(t, place(t), sqlite.Options{}) },
		statetest.WithClock(func(t *testing.T, now func() time.Time) state.Store {
			return open(t, place(t), sqlite.Options{Now: now})
		}),
		statetest.WithProcesses(place, openAddress))
}

// Every method that promises durability syncs; counts alone do not.
func TestFsyncAudit(t *testing.T) { statetest.Audit(t, place(t)) }
