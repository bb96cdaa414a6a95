package engine

import (
	"context"
	"sync"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

const (
	runCalls = 64     // newest calls kept of each run
	runsKept = 10_000 // runs kept in memory; older ones are read back from the store
)

// runs is the working copy of what each run did lately. Loops are judged on
// it, so it survives a restart by way of state.Runs and covers subagents,
// which share their parent's run.
type runs struct {
	store state.Runs

	mu   sync.Mutex
	byID map[string]*run
	old  []string // ids by age, for eviction
}

type run struct {
	mu      sync.Mutex
	loaded  bool
	calls   []taxonomy.Call
	stopped string // the reason, "" while it may go on
}

func newRuns(s state.Runs) *runs { return &runs{store: s, byID: map[string]*run{}} }

func (r *runs) get(id string) *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x, ok := r.byID[id]; ok {
		return x
	}
	if len(r.old) >= runsKept {
		delete(r.byID, r.old[0])
		r.old = r.old[1:]
	}
	x := &run{}
	r.byID[id] = x
	r.old = append(r.old, id)
	return x
}

// look returns the run's calls, oldest first, and why it was stopped, if it
// was. A store that cannot be read leaves both as far as they are known.
func (r *runs) look(ctx context.Context, id string) (calls []taxonomy.Call, stopped string, err error) {
	if id == "" {
		return nil, "", nil
	}
	x := r.get(id)
	x.mu.Lock()
	defer x.mu.Unlock()
	err = x.load(ctx, r.store, id)
	return append([]taxonomy.Call(nil), x.calls...), x.stopped, err
}

func (x *run) load(ctx context.Context, s state.Runs, id string) error {
	if x.loaded {
		return nil
	}
	calls, err := s.Run(ctx, id)
	if err != nil {
		return err
	}
	stopped, err := s.Stopped(ctx, id)
	if err != nil {
		return err
	}
	x.calls, x.stopped, x.loaded = append(calls, x.calls...), stopped, true
	x.trim()
	return nil
}

func (x *run) trim() {
	if n := len(x.calls) - runCalls; n > 0 {
		x.calls = append(x.calls[:0], x.calls[n:]...)
	}
}

// add appends one call in memory and in the store.
func (r *runs) add(ctx context.Context, id string, c taxonomy.Call) error {
	if id == "" {
		return nil
	}
	x := r.get(id)
	x.mu.Lock()
	err := x.load(ctx, r.store, id)
	x.calls = append(x.calls, c)
	x.trim()
	x.mu.Unlock()
	if err != nil {
		return err
	}
	return r.store.Append(ctx, id, c)
}

// stop ends a run, here at once and in the store for good.
func (r *runs) stop(ctx context.Context, id, reason string) error {
	x := r.get(id)
	x.mu.Lock()
	if x.stopped == "" {
		x.stopped = reason
	}
	x.mu.Unlock()
	return r.store.Stop(ctx, id, reason)
}
