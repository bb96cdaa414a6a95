package statetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// broken are stores with one fault each, and the part of the suite that has to
// find it. A suite that lets one pass is worth nothing.
var broken = map[string]struct {
	found string
	make  func(*memory.Store) state.Store
}{
	"lost update":         {"parallel", func(s *memory.Store) state.Store { return &lostUpdate{Store: s} }},
	"stale load":          {"linear/documents", func(s *memory.Store) state.Store { return &staleLoad{Store: s} }},
	"version restarts":    {"circuits", func(s *memory.Store) state.Store { return &restarting{Store: s} }},
	"torn dispatch":       {"dispatch", func(s *memory.Store) state.Store { return &tornDispatch{s} }},
	"check, then reserve": {"parallel", func(s *memory.Store) state.Store { return &racyBudget{Store: s} }},
	"reserves twice":      {"budgets", func(s *memory.Store) state.Store { return &reservesTwice{Store: s} }},
	"settles twice":       {"intents", func(s *memory.Store) state.Store { return &settlesTwice{s} }},
	"condemns everybody":  {"intents", func(s *memory.Store) state.Store { return &condemnsAll{s} }},
	"no fencing":          {"clock", func(s *memory.Store) state.Store { return &unfenced{s} }},
	"claims the expired":  {"clock", func(s *memory.Store) state.Store { return &claimsExpired{s} }},
	"claims for anybody":  {"queue", func(s *memory.Store) state.Store { return &claimsForAnybody{s} }},
	"approval for ever":   {"dispatch", func(s *memory.Store) state.Store { return &keepsApproval{s} }},
	"watch forgets":       {"watch", func(s *memory.Store) state.Store { return &forgetfulWatch{s} }},
	"short memory":        {"runs", func(s *memory.Store) state.Store { return &shortRuns{s} }},
}

const envBroken = "FUSEBOX_TEST_BROKEN"

// TestFindsBrokenStores runs the suite on each in a process of its own, and
// requires that it fails there.
func TestFindsBrokenStores(t *testing.T) {
	if name := os.Getenv(envBroken); name != "" {
		statetest.Run(t,
			func(t *testing.T) state.Store { return broken[name].make(memory.New(memory.Options{})) },
			statetest.WithClock(func(t *testing.T, now func() time.Time) state.Store {
				return broken[name].make(memory.New(memory.Options{Now: now}))
			}),
			statetest.WithPatience(2*time.Second))
		return
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestFindsBrokenStores$/^"+strings.ReplaceAll(b.found, "/", "$/^")+"$")
			cmd.Env = append(os.Environ(), envBroken+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passed\n%s", out)
			}
			if !strings.Contains(string(out), "--- FAIL: TestFindsBrokenStores/"+b.found) {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// lostUpdate reads and writes in two steps.
type lostUpdate struct {
	*memory.Store
}

func (s *lostUpdate) Update(ctx context.Context, key string, f func(state.Doc) ([]byte, bool)) (state.Doc, error) {
	docs, err := s.Load(ctx, key)
	if err != nil {
		return state.Doc{}, err
	}
	data, mode := f(docs[0])
	runtime.Gosched()
	time.Sleep(50 * time.Microsecond)
	return s.Store.Update(ctx, key, func(state.Doc) ([]byte, bool) { return data, mode })
}

// staleLoad answers every third load from a replica that lags.
type staleLoad struct {
	*memory.Store
	mu   sync.Mutex
	n    int
	lags map[string][]state.Doc
}

func (s *staleLoad) Load(ctx context.Context, keys ...string) ([]state.Doc, error) {
	fresh, err := s.Store.Load(ctx, keys...)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.lags[strings.Join(keys, "/")]
	if s.lags == nil {
		s.lags = map[string][]state.Doc{}
	}
	s.lags[strings.Join(keys, "/")] = fresh
	if s.n++; s.n%3 == 0 && old != nil {
		return old, err
	}
	return fresh, err
}

// restarting counts versions by key, from 1 again after a deletion.
type restarting struct {
	*memory.Store
	mu sync.Mutex
	n  map[string]uint64
}

func (s *restarting) rev(d state.Doc, write bool) state.Doc {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = map[string]uint64{}
	}
	if d.Rev == (state.Rev{}) {
		delete(s.n, d.Key)
		return d
	}
	if write {
		s.n[d.Key]++
	}
	d.Rev.N = s.n[d.Key]
	return d
}

func (s *restarting) Update(ctx context.Context, key string, f func(state.Doc) ([]byte, bool)) (state.Doc, error) {
	wrote := false
	d, err := s.Store.Update(ctx, key, func(d state.Doc) ([]byte, bool) {
		data, mode := f(s.rev(d, false))
		wrote = data != nil
		return data, mode
	})
	return s.rev(d, wrote), err
}

func (s *restarting) Load(ctx context.Context, keys ...string) ([]state.Doc, error) {
	docs, err := s.Store.Load(ctx, keys...)
	for i := range docs {
		docs[i] = s.rev(docs[i], false)
	}
	return docs, err
}

// tornDispatch commits the reservation by itself.
type tornDispatch struct{ *memory.Store }

func (s *tornDispatch) Dispatch(ctx context.Context, d state.Dispatch) (state.Dispatched, error) {
	if d.Reservation != nil {
		if _, err := s.Reserve(ctx, *d.Reservation); err != nil {
			return state.Dispatched{}, err
		}
	}
	return s.Store.Dispatch(ctx, d)
}

// racyBudget looks whether there is room, and then takes it. Between the two
// it waits a moment for others to look too.
type racyBudget struct {
	*memory.Store
	looked atomic.Int64
}

func (s *racyBudget) Reserve(ctx context.Context, r state.Reservation) (state.Grant, error) {
	var names []string
	for _, l := range r.Lines {
		names = append(names, l.Account)
	}
	us, err := s.Usage(ctx, names...)
	if err != nil {
		return state.Grant{}, err
	}
	for i := range r.Lines {
		if err := (state.Reservation{ID: r.ID, Lines: r.Lines[i : i+1]}).Fits(func(string) state.Usage { return us[i] }); err != nil {
			return state.Grant{}, err
		}
	}
	n := s.looked.Add(1)
	for begin := time.Now(); s.looked.Load() < n+3 && time.Since(begin) < 20*time.Millisecond; {
		runtime.Gosched()
	}
	r.Lines = append([]state.Line(nil), r.Lines...)
	for i := range r.Lines {
		r.Lines[i].Limit = state.Amounts{}
	}
	return s.Store.Reserve(ctx, r)
}

// reservesTwice takes a repeated reservation for a new one.
type reservesTwice struct {
	*memory.Store
	mu sync.Mutex
	n  int
}

func (s *reservesTwice) Reserve(ctx context.Context, r state.Reservation) (state.Grant, error) {
	g, err := s.Store.Reserve(ctx, r)
	if err == nil {
		s.mu.Lock()
		s.n++
		again := r
		again.ID = fmt.Sprint(r.ID, "#", s.n)
		s.mu.Unlock()
		if s.n > 1 {
			s.Store.Reserve(ctx, again)
		}
	}
	return g, err
}

// settlesTwice lets the last word win.
type settlesTwice struct{ *memory.Store }

func (s *settlesTwice) Settle(ctx context.Context, id string, r state.Settlement) (state.Intent, error) {
	in, err := s.Store.Settle(ctx, id, r)
	if err != nil {
		in, _ = s.Intent(ctx, id)
		in.Result = r
	}
	return in, nil
}

// condemnsAll does not ask whose intent it is.
type condemnsAll struct{ *memory.Store }

func (s *condemnsAll) Condemn(ctx context.Context, o state.Owner, by string) (moved []state.Intent, err error) {
	for in := range s.Find(ctx, state.IntentQuery{States: []state.IntentState{state.InFlight}}) {
		in, _ = s.Settle(ctx, in.ID, state.Settlement{Class: taxonomy.AmbiguousWrite, Reason: "owner_gone", By: by})
		moved = append(moved, in)
	}
	return moved, nil
}

// unfenced takes every result for the present holder's.
type unfenced struct{ *memory.Store }

func (s *unfenced) Finish(ctx context.Context, id string, claim uint64, d state.Disposition) error {
	for it := range s.Items(ctx, state.ItemQuery{}) {
		if it.ID == id {
			claim = it.Claim
		}
	}
	if err := s.Store.Finish(ctx, id, claim, d); err == nil {
		return nil
	}
	return s.Move(ctx, id, d)
}

// claimsExpired hands out what is too old.
type claimsExpired struct{ *memory.Store }

func (s *claimsExpired) Claim(ctx context.Context, worker string, from state.From, n int, lease time.Duration) (claimed, expired []state.Item, err error) {
	claimed, expired, err = s.Store.Claim(ctx, worker, from, n, lease)
	return append(claimed, expired...), nil, err
}

// claimsForAnybody does not ask whose item it hands out.
type claimsForAnybody struct{ *memory.Store }

func (s *claimsForAnybody) Claim(ctx context.Context, worker string, from state.From, n int, lease time.Duration) (claimed, expired []state.Item, err error) {
	from.Tenant = ""
	return s.Store.Claim(ctx, worker, from, n, lease)
}

// keepsApproval checks a single-use approval and does not use it up.
type keepsApproval struct{ *memory.Store }

func (s *keepsApproval) Dispatch(ctx context.Context, d state.Dispatch) (state.Dispatched, error) {
	d.UseApproval = ""
	return s.Store.Dispatch(ctx, d)
}

// forgetfulWatch drops every second change.
type forgetfulWatch struct{ *memory.Store }

func (s *forgetfulWatch) Watch(ctx context.Context, prefix string) (<-chan state.Event, error) {
	in, err := s.Store.Watch(ctx, prefix)
	out := make(chan state.Event)
	go func() {
		defer close(out)
		n := 0
		for e := range in {
			if !e.Beat && !e.Lost {
				if n++; n%2 == 1 {
					continue
				}
			}
			select {
			case out <- e:
			case <-ctx.Done():
			}
		}
	}()
	return out, err
}

// shortRuns keeps fewer calls than it should.
type shortRuns struct{ *memory.Store }

func (s *shortRuns) Run(ctx context.Context, run string) ([]taxonomy.Call, error) {
	calls, err := s.Store.Run(ctx, run)
	return calls[max(0, len(calls)-32):], err
}
