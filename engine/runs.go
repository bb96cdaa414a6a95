package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

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
	wait  time.Duration // for the store, each time: a frozen one must not freeze the calls of a run

	mu   sync.Mutex
	byID map[string]*run
	old  []string // ids by age, for eviction
}

type run struct {
	mu      sync.Mutex
	loaded  bool
	calls   []taxonomy.Call
	open    []openCall // requests that may be tried again: their attempts are one call
	stopped string     // the reason, "" while it may go on
}

// openCall is the latest attempt of a request whose last word is not spoken.
type openCall struct {
	request string
	call    taxonomy.Call
}

// openMost bounds the open calls of a run; the oldest is taken for finished.
const openMost = 8

// runOf is the run that an operation belongs to, "" without one.
func runOf(op *taxonomy.Operation) string {
	if op.RunID == "" {
		return ""
	}
	return runKey(op.Tenant, op.RunID)
}

// runKey names a run in memory and in the store. The same id under two tenants
// is two runs: nobody who guesses an id reaches another tenant's run. The length
// keeps a tenant's name from spelling another's run.
func runKey(tenant, run string) string {
	return strconv.Itoa(len(tenant)) + ":" + tenant + "|" + run
}

func newRuns(s state.Runs, wait time.Duration) *runs {
	return &runs{store: s, wait: wait, byID: map[string]*run{}}
}

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
	err = x.load(ctx, r, id)
	calls = append(calls, x.calls...)
	for _, o := range x.open {
		calls = append(calls, o.call)
	}
	return calls, x.stopped, err
}

func (x *run) load(ctx context.Context, r *runs, id string) error {
	if x.loaded {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	calls, err := r.store.Run(ctx, id)
	if err != nil {
		return err
	}
	stopped, err := r.store.Stopped(ctx, id)
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

// add notes an attempt. The attempts of one request are one call: an engine
// that tries again as it was told is no agent that repeats itself. final says
// that no further attempt is to be expected.
func (r *runs) add(ctx context.Context, id, request string, c taxonomy.Call, final bool) error {
	if id == "" {
		return nil
	}
	x := r.get(id)
	x.mu.Lock()
	err := x.load(ctx, r, id)
	x.open = slices.DeleteFunc(x.open, func(o openCall) bool { return o.request == request })
	x.open = append(x.open, openCall{request, c})
	var done []taxonomy.Call
	for len(x.open) > openMost {
		done = append(done, x.finish(0))
	}
	if final {
		done = append(done, x.finish(len(x.open)-1))
	}
	x.mu.Unlock()
	return errors.Join(err, r.keep(ctx, id, done))
}

// end says that a request will not be tried again.
func (r *runs) end(ctx context.Context, id, request string) error {
	if id == "" {
		return nil
	}
	x := r.get(id)
	x.mu.Lock()
	var done []taxonomy.Call
	if i := slices.IndexFunc(x.open, func(o openCall) bool { return o.request == request }); i >= 0 {
		done = append(done, x.finish(i))
	}
	x.mu.Unlock()
	return r.keep(ctx, id, done)
}

// endAll says that no request of any run will be tried again: the engine closes.
func (r *runs) endAll(ctx context.Context) error {
	r.mu.Lock()
	all := maps.Clone(r.byID)
	r.mu.Unlock()
	var errs error
	for id, x := range all {
		x.mu.Lock()
		var done []taxonomy.Call
		for len(x.open) > 0 {
			done = append(done, x.finish(0))
		}
		x.mu.Unlock()
		errs = errors.Join(errs, r.keep(ctx, id, done))
	}
	return errs
}

// finish moves an open call to the finished ones. x.mu is held.
func (x *run) finish(i int) taxonomy.Call {
	c := x.open[i].call
	x.open = slices.Delete(x.open, i, i+1)
	x.calls = append(x.calls, c)
	x.trim()
	return c
}

// keep writes finished calls to the store.
func (r *runs) keep(ctx context.Context, id string, done []taxonomy.Call) error {
	if len(done) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	var errs error
	for _, c := range done {
		errs = errors.Join(errs, r.store.Append(ctx, id, c))
	}
	return errs
}

// stop ends a run, here at once and in the store for good.
func (r *runs) stop(ctx context.Context, id, reason string) error {
	x := r.get(id)
	x.mu.Lock()
	if x.stopped == "" {
		x.stopped = reason
	}
	x.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	return r.store.Stop(ctx, id, reason)
}
