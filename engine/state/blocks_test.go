package state_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
)

// counting counts the reservations and settlements that reach the store.
type counting struct {
	state.Budgets
	reserves, settles atomic.Int64
}

func (c *counting) Reserve(ctx context.Context, r state.Reservation) (state.Grant, error) {
	c.reserves.Add(1)
	return c.Budgets.Reserve(ctx, r)
}

func (c *counting) SettleGrant(ctx context.Context, id string, used state.Amounts) error {
	c.settles.Add(1)
	return c.Budgets.SettleGrant(ctx, id, used)
}

var serial atomic.Int64

func newID() string { return fmt.Sprint("block-", serial.Add(1)) }

func tokens(n int64) state.Amounts { return state.Amounts{Tokens: n} }

func line(account string, limit, want int64) []state.Line {
	return []state.Line{{Account: account, Limit: tokens(limit), Want: tokens(want)}}
}

func stands(t *testing.T, s state.Budgets, account string, used, reserved int64) {
	t.Helper()
	u, err := s.Usage(t.Context(), account)
	if err != nil || u[0].Used.Tokens != used || u[0].Reserved.Tokens != reserved {
		t.Fatalf("account stands at %+v (%v), want %d used, %d reserved", u, err, used, reserved)
	}
}

func TestBlocksSpendLocally(t *testing.T) {
	store := &counting{Budgets: memory.New(memory.Options{})}
	b := state.NewBlocks(store, state.BlockOptions{NewID: newID})
	for range 640 {
		s, err := b.Take(t.Context(), line("acc", 100_000, 10))
		if err != nil {
			t.Fatal(err)
		}
		s.Settle(tokens(10))
		s.Settle(tokens(10)) // only the first counts
	}
	if n := store.reserves.Load(); n > 20 {
		t.Errorf("640 calls took %d reservations", n)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	stands(t, store, "acc", 6400, 0)
	if _, err := b.Take(t.Context(), line("acc", 100_000, 10)); !errors.Is(err, state.ErrClosed) {
		t.Errorf("take from closed blocks: %v", err)
	}
}

// Units that have no limit never make a process go back to the store.
func TestBlocksUnitsWithoutLimit(t *testing.T) {
	store := &counting{Budgets: memory.New(memory.Options{})}
	b := state.NewBlocks(store, state.BlockOptions{NewID: newID})
	for range 1000 {
		s, err := b.Take(t.Context(), []state.Line{{Account: "acc", Limit: state.Amounts{CostNanoUSD: 1000}, Want: state.Amounts{Tokens: 10, Attempts: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		s.Settle(state.Amounts{Tokens: 7, Attempts: 1})
	}
	if n := store.reserves.Load(); n != 1 {
		t.Errorf("1000 calls took %d reservations", n)
	}
	b.Close(t.Context())
	if u, _ := store.Usage(t.Context(), "acc"); u[0].Used != (state.Amounts{Tokens: 7000, Attempts: 1000}) {
		t.Errorf("used %+v", u[0].Used)
	}
}

// A busy process takes larger blocks, and smaller ones when it is busy no more.
func TestBlocksFollowThePace(t *testing.T) {
	store := &counting{Budgets: memory.New(memory.Options{})}
	now := time.Unix(1_800_000_000, 0)
	b := state.NewBlocks(store, state.BlockOptions{NewID: newID, Now: func() time.Time { return now }})
	take := func(calls int, pause time.Duration) int64 {
		before := store.reserves.Load()
		for range calls {
			s, err := b.Take(t.Context(), line("acc", 1<<40, 10))
			if err != nil {
				t.Fatal(err)
			}
			s.Settle(tokens(10))
			now = now.Add(pause)
		}
		return store.reserves.Load() - before
	}
	if n := take(20_000, 10*time.Microsecond); n > 12 {
		t.Errorf("20,000 calls in 0.2 s took %d reservations", n)
	}
	take(20_000, 20*time.Millisecond)
	now = now.Add(2 * time.Minute)
	if n := take(256, 200*time.Millisecond); n < 2 {
		t.Errorf("after a quiet time 256 calls took %d reservations: the blocks stayed as large as they were", n)
	}
}

// What a call uses beside the units it reserved neither blocks nor overdraws.
func TestBlocksUnitsNotReserved(t *testing.T) {
	store := &counting{Budgets: memory.New(memory.Options{})}
	b := state.NewBlocks(store, state.BlockOptions{NewID: newID})
	for range 100 {
		s, err := b.Take(t.Context(), line("acc", 100_000, 10))
		if err != nil {
			t.Fatal(err)
		}
		s.Settle(state.Amounts{Tokens: 1, CostNanoUSD: 5, TimeMS: 7, Attempts: 1})
	}
	if n := store.reserves.Load(); n > 3 {
		t.Errorf("100 calls took %d reservations", n)
	}
	b.Close(t.Context())
	u, _ := store.Usage(t.Context(), "acc")
	if u[0].Used != (state.Amounts{Tokens: 100, CostNanoUSD: 500, TimeMS: 700, Attempts: 100}) {
		t.Errorf("used %+v", u[0].Used)
	}
}

func TestBlocksShrinkNearTheLimit(t *testing.T) {
	store := memory.New(memory.Options{})
	b := state.NewBlocks(store, state.BlockOptions{NewID: newID})
	var spends []state.Spend
	for {
		s, err := b.Take(t.Context(), line("acc", 1000, 10))
		if err != nil {
			full, ok := errors.AsType[*state.Exhausted](err)
			if !ok || full.Account != "acc" {
				t.Fatal(err)
			}
			break
		}
		spends = append(spends, s)
	}
	if n := len(spends); n != 100 {
		t.Errorf("%d calls of 10 fit into 1000", n)
	}
	for _, s := range spends {
		s.Settle(tokens(10))
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	stands(t, store, "acc", int64(10*len(spends)), 0)
}

// Two processes: what one does not use comes back for the other.
func TestBlocksReturn(t *testing.T) {
	now := memory.NewClock(time.Now())
	store := memory.New(memory.Options{Now: now.Now})
	options := state.BlockOptions{NewID: newID, Now: now.Now, Share: 1}
	a, b := state.NewBlocks(store, options), state.NewBlocks(store, options)
	s, err := a.Take(t.Context(), line("acc", 100, 10))
	if err != nil {
		t.Fatal(err)
	}
	s.Settle(tokens(10))
	if _, err := b.Take(t.Context(), line("acc", 100, 10)); !errors.Is(err, state.ErrExhausted) {
		t.Fatalf("the first process holds all, got %v", err)
	}
	now.Advance(time.Second)
	if err := a.Return(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	stands(t, store, "acc", 10, 0)
	if _, err := b.Take(t.Context(), line("acc", 100, 10)); err != nil {
		t.Fatal(err)
	}
	// b dies here: its block counts as used, also after its expiry.
	now.Advance(time.Hour)
	if _, err := a.Take(t.Context(), line("acc", 100, 10)); !errors.Is(err, state.ErrExhausted) {
		t.Fatalf("a dead process's block was free, got %v", err)
	}
	stands(t, store, "acc", 10, 90)
}

// A block is not used past its time, because then others may count it as used.
func TestBlocksEnd(t *testing.T) {
	now := memory.NewClock(time.Now())
	store := &counting{Budgets: memory.New(memory.Options{Now: now.Now})}
	b := state.NewBlocks(store, state.BlockOptions{NewID: newID, Now: now.Now, Lifetime: time.Minute})
	for i := range 4 {
		s, err := b.Take(t.Context(), line("acc", 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		s.Settle(tokens(1))
		if got := store.reserves.Load(); got != int64(1+i/2) {
			t.Errorf("after %d takes, 20 s apart, %d blocks", i+1, got)
		}
		now.Advance(20 * time.Second)
	}
	stands(t, store, "acc", 2, 64)
}

// The answer to a reservation is lost: the same is asked again, so the block
// is found if it was given, and taken if it was not. Nothing is counted twice.
func TestBlocksUnknownCommit(t *testing.T) {
	for name, fault := range map[string]memory.Fault{"given": {Unknown: true}, "not given": {Lost: true}} {
		t.Run(name, func(t *testing.T) {
			store := memory.New(memory.Options{})
			b := state.NewBlocks(store, state.BlockOptions{NewID: newID, Calls: 2, Share: 1})
			faulty := func(method string) func(memory.Op) memory.Fault {
				return func(op memory.Op) memory.Fault {
					if op.Method == method {
						return fault
					}
					return memory.Fault{}
				}
			}
			store.Inject(faulty("Reserve"))
			if _, err := b.Take(t.Context(), line("acc", 100, 10)); !errors.Is(err, state.ErrUnknown) {
				t.Fatal(err)
			}
			store.Inject(nil)
			s, err := b.Take(t.Context(), line("acc", 100, 10))
			if err != nil {
				t.Fatal(err)
			}
			stands(t, store, "acc", 0, 20)
			s.Settle(tokens(10))
			store.Inject(faulty("SettleGrant"))
			if err := b.Close(t.Context()); !errors.Is(err, state.ErrUnknown) {
				t.Fatal(err)
			}
			store.Inject(nil)
			if err := b.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			stands(t, store, "acc", 10, 0)

			// Closed while the answer to a reservation is unknown.
			b = state.NewBlocks(store, state.BlockOptions{NewID: newID, Calls: 2, Share: 1})
			store.Inject(faulty("Reserve"))
			b.Take(t.Context(), line("acc", 100, 10))
			store.Inject(nil)
			if err := b.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			stands(t, store, "acc", 10, 0)
		})
	}
}

// R-AGT-3: many processes and callers, random amounts, never overspent, and
// all of it accounted for.
func TestHammerBlocks(t *testing.T) {
	const limit = 5000
	store := memory.New(memory.Options{})
	var processes []*state.Blocks
	for range 8 {
		processes = append(processes, state.NewBlocks(store, state.BlockOptions{NewID: newID, Calls: 16, Share: 4}))
	}
	var spent atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			b := processes[i%len(processes)]
			for range 60 {
				want := 1 + r.Int64N(9)
				s, err := b.Take(t.Context(), append(line("all", limit, want), line(fmt.Sprint("run", i%3), 0, want)...))
				if errors.Is(err, state.ErrExhausted) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				used := r.Int64N(want + 1)
				s.Settle(tokens(used))
				spent.Add(used)
				u, err := store.Usage(t.Context(), "all")
				if err != nil {
					t.Error(err)
				} else if sum := u[0].Used.Add(u[0].Reserved).Tokens; sum > limit {
					t.Errorf("account stands at %d of %d", sum, limit)
				}
			}
		})
	}
	wg.Wait()
	for _, b := range processes {
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	stands(t, store, "all", spent.Load(), 0)
}

func TestBlocksRefuseBadInput(t *testing.T) {
	b := state.NewBlocks(memory.New(memory.Options{}), state.BlockOptions{NewID: newID})
	for _, l := range [][]state.Line{line("", 1, 1), line("a", -1, 1), line("a", 1, -1)} {
		if _, err := b.Take(t.Context(), l); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
