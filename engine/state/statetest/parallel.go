package statetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// together runs f n times at once, all released at the same moment.
func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// count counts errors of a kind; nil counts successes.
func count(errs []error, kind error) (n int) {
	for _, err := range errs {
		if kind == nil && err == nil || kind != nil && errors.Is(err, kind) {
			n++
		}
	}
	return n
}

func (s *suite) parallel(t *testing.T) {
	t.Run("no update is lost", func(t *testing.T) {
		st := s.open(t)
		const workers, each = 16, 25
		for _, err := range together(workers, func(i int) error {
			for n := range each {
				if _, err := st.Update(t.Context(), "k", increment(n%5 == 0)); err != nil {
					return err
				}
			}
			return nil
		}) {
			ok(t, err)
		}
		equal(t, counter(must[[]state.Doc](t)(st.Load(ctx(t), "k"))[0].Data), workers*each, "events folded")
	})
	// R-FLT-8: two workers, and two hundred, at the same half-open moment.
	t.Run("one lease holder", func(t *testing.T) {
		for _, workers := range []int{2, 200} {
			st := s.open(t)
			at := now(t, st)
			won := together(workers, func(i int) error {
				in := intent(key(i), at)
				_, err := st.Dispatch(t.Context(), state.Dispatch{Intent: &in, Leases: []state.LeaseUpdate{{Key: "probe",
					F: func(d state.Doc) ([]byte, bool) { return []byte(in.ID), d.Data == nil }}}})
				return err
			})
			equal(t, count(won, nil), 1, "lease holders")
			equal(t, count(won, state.ErrRefused), workers-1, "refused")
			found := collect(t, st.Find(ctx(t), state.IntentQuery{}))
			equal(t, len(found), 1, "intents")
			equal(t, string(must[[]state.Doc](t)(st.Load(ctx(t), "probe"))[0].Data), found[0].ID, "the holder")
		}
	})
	// R-AGT-3: 16 parallel calls at 10 % remaining never overspend.
	t.Run("sixteen reservations at ten percent", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		must[state.Grant](t)(st.Reserve(ctx(t), reservation("spent", at, line("acc", 1000, 900))))
		ok(t, st.SettleGrant(ctx(t), "spent", tokens(900)))
		stop := make(chan struct{})
		watched := make(chan error, 1)
		go func() { watched <- neverOver(t, st, "acc", 1000, stop) }()
		won := together(16, func(i int) error {
			_, err := st.Reserve(t.Context(), reservation(key(i), at, line("acc", 1000, 30)))
			if err == nil && i%2 == 0 {
				err = st.SettleGrant(t.Context(), key(i), tokens(30))
			}
			return err
		})
		close(stop)
		ok(t, <-watched)
		equal(t, count(won, nil), 3, "reservations that fit into 100")
		equal(t, count(won, state.ErrExhausted), 13, "refused")
		u := usage(t, st, "acc")
		equal(t, u.Used.Add(u.Reserved), tokens(990), "used and reserved")
	})
	t.Run("an item has one worker", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		const items = 40
		for i := range items {
			ok(t, st.Put(ctx(t), item(key(i), at)))
		}
		var mu sync.Mutex
		holders := map[string]int{}
		for _, err := range together(8, func(i int) error {
			for {
				claimed, _, err := st.Claim(t.Context(), fmt.Sprint("worker ", i), state.From{}, 3, time.Hour)
				if err != nil || len(claimed) == 0 {
					return err
				}
				mu.Lock()
				for _, it := range claimed {
					holders[it.ID]++
				}
				mu.Unlock()
			}
		}) {
			ok(t, err)
		}
		equal(t, len(holders), items, "items claimed")
		for id, n := range holders {
			equal(t, n, 1, "workers of "+id)
		}
	})
	// 200 deliveries of one queue item id admit it once.
	t.Run("two hundred deliveries", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		for _, err := range together(200, func(int) error { return st.Put(t.Context(), item("a", at)) }) {
			ok(t, err)
		}
		claimed, _, err := st.Claim(ctx(t), "w", state.From{}, 500, time.Minute)
		ok(t, err)
		equal(t, len(claimed), 1, "claimed")
	})
}

// neverOver reads an account until told to stop. settled + open grants <=
// limit must hold at every read.
func neverOver(t *testing.T, st state.Store, account string, limit int64, stop <-chan struct{}) error {
	for {
		u, err := st.Usage(t.Context(), account)
		if err != nil {
			return err
		}
		if sum := u[0].Used.Add(u[0].Reserved); sum.Tokens > limit {
			return fmt.Errorf("account %s stands at %d of %d", account, sum.Tokens, limit)
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// increment counts in a document.
func increment(mode bool) func(state.Doc) ([]byte, bool) {
	return func(d state.Doc) ([]byte, bool) {
		return binary.BigEndian.AppendUint64(nil, uint64(counter(d.Data)+1)), mode
	}
}

func counter(data []byte) int {
	if len(data) != 8 {
		return 0
	}
	return int(binary.BigEndian.Uint64(data))
}
