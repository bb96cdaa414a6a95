package statetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// EnvRole is set in the children that play a part; a TestMain that prepares
// something, a server perhaps, leaves that out for them.
const EnvRole = "FUSEBOX_STATETEST_ROLE"

// What else a child process is told, by its environment.
const (
	envAddress = "FUSEBOX_STATETEST_ADDRESS"
	envCount   = "FUSEBOX_STATETEST_COUNT"
	envName    = "FUSEBOX_STATETEST_NAME"
)

// Main is for the TestMain of a store that is tested with [WithProcesses]: the
// test binary starts itself again, and plays a part instead of the tests.
//
//	func TestMain(m *testing.M) { os.Exit(statetest.Main(m, open)) }
func Main(m *testing.M, open Opener) int {
	role := os.Getenv(EnvRole)
	if role == "" {
		return m.Run()
	}
	st, err := open(context.Background(), os.Getenv(envAddress))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	n, _ := strconv.Atoi(os.Getenv(envCount))
	c := &child{st: st, name: os.Getenv(envName), n: n, out: bufio.NewWriter(os.Stdout)}
	c.say("ready")
	if err := c.play(role); err != nil {
		c.say("error %v", err)
		return 1
	}
	if err := st.Close(); err != nil {
		c.say("error %v", err)
		return 1
	}
	return 0
}

type child struct {
	st   state.Store
	name string
	n    int
	mu   sync.Mutex
	out  *bufio.Writer
}

// say prints one line at once: the parent counts only what it has read.
func (c *child) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, format+"\n", args...)
	c.out.Flush()
}

func (c *child) play(role string) error {
	switch role {
	case "ack":
		return c.ack()
	case "count":
		return c.count()
	case "budget":
		return c.budget()
	case "hold":
		return c.hold()
	case "watch":
		return c.watch()
	case "claim":
		return c.claim()
	case "audit":
		return c.audit()
	}
	return fmt.Errorf("no such role: %s", role)
}

// ack writes for ever, from many goroutines, and names what was acknowledged.
func (c *child) ack() error {
	errs := make(chan error)
	for w := range 16 {
		go func() {
			r := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(w)))
			for n := 0; ; n++ {
				if err := c.ackOne(r, fmt.Sprintf("%s-%d-%d", c.name, w, n)); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	return <-errs
}

func (c *child) ackOne(r *rand.Rand, id string) error {
	ctx, at := context.Background(), time.Now()
	switch r.IntN(7) {
	case 0, 1, 2:
		in := intent(id, at)
		res := reservation(id, at, line("acc", 0, 1))
		d := state.Dispatch{Intent: &in, Reservation: &res, Leases: []state.LeaseUpdate{{Key: "lease", F: func(d state.Doc) ([]byte, bool) {
			data, _ := increment(true)(d)
			return data, true
		}}}}
		out, err := c.st.Dispatch(ctx, d)
		if err != nil {
			return err
		}
		c.say("intent %s %d", id, counter(out.Docs[0].Data))
		if r.IntN(2) == 0 {
			return nil
		}
		if _, err := c.st.Settle(ctx, id, state.Settlement{Outcome: taxonomy.Succeeded, By: "child"}); err != nil {
			return err
		}
		c.say("settled %s", id)
		if err := c.st.SettleGrant(ctx, id, tokens(1)); err != nil {
			return err
		}
		c.say("used %s", id)
	case 3:
		if err := c.st.Put(ctx, item(id, at)); err != nil {
			return err
		}
		c.say("item %s", id)
	case 4:
		if err := c.st.Grant(ctx, approval(id, at)); err != nil {
			return err
		}
		c.say("approval %s", id)
	case 5:
		d, err := c.st.Update(ctx, "mode", increment(true))
		if err != nil {
			return err
		}
		c.say("mode %s %d", id, counter(d.Data))
	case 6:
		_, err := c.st.Update(ctx, "count", increment(false)) // promised to survive kill -9, not power loss
		if err != nil {
			return err
		}
		if err := c.st.Stop(ctx, id, "loop"); err != nil {
			return err
		}
		c.say("stopped %s", id)
	}
	return nil
}

// count adds to one document, as counts and as changes of mode.
func (c *child) count() error {
	for i := range c.n {
		if _, err := c.st.Update(context.Background(), "k", increment(i%50 == 0)); err != nil {
			return err
		}
	}
	return nil
}

// budget has 16 callers fight for one budget, half of them through blocks.
func (c *child) budget() error {
	ctx := context.Background()
	var serial, spent int64
	var mu sync.Mutex
	id := func() string {
		mu.Lock()
		defer mu.Unlock()
		serial++
		return fmt.Sprint(c.name, "-", serial)
	}
	blocks := state.NewBlocks(c.st, state.BlockOptions{NewID: id, Calls: 8, Share: 8})
	for _, err := range together(16, func(w int) error {
		r := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(w)))
		for range c.n {
			used, err := c.spend(ctx, blocks, id, w%2 == 0, 1+r.Int64N(8))
			if err != nil {
				return err
			}
			mu.Lock()
			spent += used
			mu.Unlock()
			u, err := c.st.Usage(ctx, "acc")
			if err != nil {
				return err
			}
			if sum := u[0].Used.Add(u[0].Reserved).Tokens; sum > processLimit {
				return fmt.Errorf("account stands at %d of %d", sum, processLimit)
			}
		}
		return nil
	}) {
		if err != nil {
			return err
		}
	}
	if err := blocks.Close(ctx); err != nil {
		return err
	}
	c.say("spent %d", spent)
	return nil
}

// processLimit is the budget that processes fight for.
const processLimit = 3000

func (c *child) spend(ctx context.Context, blocks *state.Blocks, id func() string, local bool, want int64) (int64, error) {
	lines := []state.Line{line("acc", processLimit, want)}
	if local {
		s, err := blocks.Take(ctx, lines)
		if errors.Is(err, state.ErrExhausted) {
			return 0, nil
		}
		s.Settle(tokens(want))
		return want, err
	}
	name := id()
	_, err := c.st.Reserve(ctx, state.Reservation{ID: name, Lines: lines, Expires: far})
	if errors.Is(err, state.ErrExhausted) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return want, c.st.SettleGrant(ctx, name, tokens(want))
}

// hold claims an item for a moment, and finishes it when it is told to.
func (c *child) hold() error {
	claimed, _, err := c.st.Claim(context.Background(), c.name, state.From{}, 1, time.Duration(c.n)*time.Millisecond)
	if err != nil || len(claimed) != 1 {
		return fmt.Errorf("claimed %d items (%v)", len(claimed), err)
	}
	c.say("holds %d", claimed[0].Claim)
	bufio.NewReader(os.Stdin).ReadString('\n')
	err = c.st.Finish(context.Background(), claimed[0].ID, claimed[0].Claim, state.Disposition{State: state.Done})
	c.say("fenced %v", errors.Is(err, state.ErrFenced))
	return nil
}

// watch tells the first n changes.
func (c *child) watch() error {
	events, err := c.st.Watch(context.Background(), "brk/")
	if err != nil {
		return err
	}
	c.say("watching")
	for e := range events {
		if e.Lost {
			return errors.New("the watch was lost")
		}
		if e.Beat {
			continue
		}
		c.say("saw %s", e.Doc.Data)
		if c.n--; c.n == 0 {
			return nil
		}
	}
	return errors.New("the watch ended")
}

// claim takes and finishes items until none is left.
func (c *child) claim() error {
	for {
		claimed, _, err := c.st.Claim(context.Background(), c.name, state.From{}, 2, time.Hour)
		if err != nil || len(claimed) == 0 {
			return err
		}
		for _, it := range claimed {
			c.say("item %s", it.ID)
			if err := c.st.Finish(context.Background(), it.ID, it.Claim, state.Disposition{State: state.Done}); err != nil {
				return err
			}
		}
	}
}
