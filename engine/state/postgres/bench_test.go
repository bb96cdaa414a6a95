package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
)

// ratio prints one line of `make bench`.
func ratio(name string, value, least float64) {
	verdict := "ok"
	if value < least {
		verdict = "short"
	}
	fmt.Printf("RATIO state/postgres/%s %.3g %.3g %s\n", name, value, least, verdict)
}

// gang runs do from so many goroutines until b.N are done.
func gang(b *testing.B, workers int, do func(n int64) error) (perSecond float64) {
	var n atomic.Int64
	b.ResetTimer()
	begin := time.Now()
	errs := make(chan error, workers)
	for range workers {
		go func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					errs <- nil
					return
				}
				if err := do(i); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
	perSecond = float64(b.N) / time.Since(begin).Seconds()
	b.StopTimer()
	b.ReportMetric(perSecond, "ops/s")
	return perSecond
}

// BenchmarkDispatch is the whole of a write's durable step.
func BenchmarkDispatch(b *testing.B) {
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprint("writers=", workers), func(b *testing.B) {
			st := open(b, postgres.Options{})
			gang(b, workers, func(n int64) error {
				d := dispatch(fmt.Sprintf("%012d", n))
				d.Reservation.Lines[0].Account = fmt.Sprint("run", n%100)
				d.Leases[0].Key = fmt.Sprint("brk", n%16)
				d.Leases[0].F = func(state.Doc) ([]byte, bool) { return make([]byte, 200), true }
				_, err := st.Dispatch(context.Background(), d)
				return err
			})
		})
	}
}

// BenchmarkUpdate is counts, of one circuit and of many.
func BenchmarkUpdate(b *testing.B) {
	for _, keys := range []int64{1, 64} {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) {
			st := open(b, postgres.Options{})
			gang(b, 16, func(n int64) error {
				_, err := st.Update(context.Background(), fmt.Sprint("brk", n%keys), func(state.Doc) ([]byte, bool) { return make([]byte, 200), false })
				return err
			})
		})
	}
}

// BenchmarkBlocks is one hot budget: from a block against a reservation each.
func BenchmarkBlocks(b *testing.B) {
	found := map[string]float64{}
	lines := []state.Line{{Account: "tenant", Limit: state.Amounts{Tokens: 1 << 50}, Want: state.Amounts{Tokens: 100}}}
	b.Run("reservation", func(b *testing.B) {
		st := open(b, postgres.Options{})
		found["plain"] = gang(b, 64, func(n int64) error {
			id := fmt.Sprintf("r-%012d", n)
			if _, err := st.Reserve(context.Background(), state.Reservation{ID: id, Lines: lines, Expires: time.Now().Add(time.Hour)}); err != nil {
				return err
			}
			return st.SettleGrant(context.Background(), id, state.Amounts{Tokens: 90})
		})
	})
	b.Run("block", func(b *testing.B) {
		st := open(b, postgres.Options{})
		var serial atomic.Int64
		blocks := state.NewBlocks(st, state.BlockOptions{NewID: func() string { return fmt.Sprint("b", serial.Add(1)) }, Calls: 1024})
		found["block"] = gang(b, 64, func(int64) error {
			s, err := blocks.Take(context.Background(), lines)
			s.Settle(state.Amounts{Tokens: 90})
			return err
		})
	})
	if found["plain"] > 0 && found["block"] > 0 {
		ratio("block_budget_vs_reservation", found["block"]/found["plain"], 20)
	}
}

// BenchmarkLoad is the read-through of a high-impact action.
func BenchmarkLoad(b *testing.B) {
	st := open(b, postgres.Options{})
	for _, k := range []string{"brk/a", "ovr/a", "apr/a"} {
		st.Update(context.Background(), k, func(state.Doc) ([]byte, bool) { return make([]byte, 200), true })
	}
	gang(b, 1, func(int64) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := st.Load(ctx, "brk/a", "ovr/a", "apr/a")
		return err
	})
}
