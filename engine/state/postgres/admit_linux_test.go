package postgres_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
)

// BenchmarkLocalAdmit is the admission of a read by the copy of the store's
// circuits, while the store is followed: it must not matter which one it is. The
// figures are this thread's processor time in the least disturbed round, both
// stores in turn.
func BenchmarkLocalAdmit(b *testing.B) {
	file, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "state.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	near, far := admitting(b, file), admitting(b, open(b, postgres.Options{}))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := [2]time.Duration{time.Hour, time.Hour}
	const rounds, calls = 40, 500
	for range rounds {
		for i, admit := range []func(){near, far} {
			begin := threadTime(b)
			for range calls {
				admit()
			}
			least[i] = min(least[i], (threadTime(b)-begin)/calls)
		}
	}
	ratio, verdict := float64(least[1])/float64(least[0]), "ok"
	if ratio > 1.2 {
		verdict = "short"
	}
	fmt.Printf("RATIO state/postgres/local_admit_vs_sqlite %.3g 1.2 %s (%v and %v)\n", ratio, verdict, least[1], least[0])
	for b.Loop() {
		far()
	}
}

// admitting is one admission over a store that is followed.
func admitting(b *testing.B, store state.Store) func() {
	h := enginetest.New(b, func(p *engine.Parts) { p.Store, p.Clock = store, engine.RealClock() })
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Run(ctx)
	}()
	b.Cleanup(func() { cancel(); <-done })
	for !h.StoreView().Followed {
		time.Sleep(time.Millisecond)
	}
	op := enginetest.Model("r1")
	return func() {
		p, err := h.Admit(ctx, op)
		if err == nil {
			err = p.Abandon(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func threadTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
