package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// ratio prints one line of `make bench`. most says that the bound is an upper
// one.
func ratio(name string, value, bound float64, most bool) {
	verdict := "ok"
	if most && value > bound || !most && value < bound {
		verdict = "short"
	}
	fmt.Printf("RATIO state/sqlite/%s %.3g %.3g %s\n", name, value, bound, verdict)
}

// measured is what one sub-benchmark found.
type measured struct {
	perSecond float64
	commits   sqlite.Commits
}

// gang runs do from so many goroutines until b.N are done.
func gang(b *testing.B, st *sqlite.Store, workers int, do func(n int64) error) measured {
	before := st.Commits()
	var n atomic.Int64
	took := make([]time.Duration, b.N)
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
				at := time.Now()
				if err := do(i); err != nil {
					errs <- err
					return
				}
				took[i-1] = time.Since(at)
			}
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
	seconds := time.Since(begin).Seconds()
	b.StopTimer()
	slices.Sort(took)
	m := measured{perSecond: float64(b.N) / seconds, commits: st.Commits()}
	m.commits.Durable -= before.Durable
	m.commits.Operations -= before.Operations
	b.ReportMetric(m.perSecond, "ops/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(m.commits.Durable)/float64(b.N), "syncs/op")
	return m
}

func benchStore(b *testing.B) *sqlite.Store {
	b.Helper()
	st, err := sqlite.Open(context.Background(), filepath.Join(b.TempDir(), "state.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { st.Close() })
	return st
}

func benchIntent(prefix string, n int64) *state.Intent {
	id := fmt.Sprintf("%s-%012d", prefix, n)
	return &state.Intent{ID: id, RequestID: id, Attempt: 1, Owner: state.Owner{Home: "/data", Incarnation: "i"}, Tenant: "acme",
		Action: "mail/send/acme", IdempotencyKey: id, Operation: make([]byte, 400), Created: time.Now(), Expires: time.Now().Add(time.Hour)}
}

// BenchmarkIntents is DESIGN section 7: at 64 writers at most one sync for 16
// intents, and the speed against one writer.
func BenchmarkIntents(b *testing.B) {
	found := map[int]measured{}
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprint("writers=", workers), func(b *testing.B) {
			st := benchStore(b)
			found[workers] = gang(b, st, workers, func(n int64) error {
				_, err := st.Dispatch(context.Background(), state.Dispatch{Intent: benchIntent("i", n)})
				return err
			})
		})
	}
	if one, many := found[1], found[64]; one.perSecond > 0 && many.perSecond > 0 {
		ratio("syncs_per_16_intents_64_writers", 16*float64(many.commits.Durable)/float64(many.commits.Operations), 1, true)
		ratio("intents_per_second_64_writers_vs_1", many.perSecond/one.perSecond, 1, false)
	}
}

// BenchmarkDispatch is the whole of a write's durable step: reservation in two
// accounts, lease and intent.
func BenchmarkDispatch(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprint("writers=", workers), func(b *testing.B) {
			st := benchStore(b)
			gang(b, st, workers, func(n int64) error {
				in := benchIntent("d", n)
				want := state.Amounts{Tokens: 100, CostNanoUSD: 5, Attempts: 1}
				r := state.Reservation{ID: in.ID, Expires: in.Expires, Lines: []state.Line{{Account: "tenant", Want: want}, {Account: fmt.Sprint("run", n%100), Want: want}}}
				l := state.LeaseUpdate{Key: fmt.Sprint("brk", n%16), F: func(d state.Doc) ([]byte, bool) { return make([]byte, 200), true }}
				_, err := st.Dispatch(context.Background(), state.Dispatch{Intent: in, Reservation: &r, Leases: []state.LeaseUpdate{l}})
				return err
			})
		})
	}
}

// BenchmarkUpdate is counts of one hot circuit; the writer's transaction is
// what combines them.
func BenchmarkUpdate(b *testing.B) {
	found := map[int]measured{}
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprint("writers=", workers), func(b *testing.B) {
			st := benchStore(b)
			found[workers] = gang(b, st, workers, func(int64) error {
				_, err := st.Update(context.Background(), "hot", func(d state.Doc) ([]byte, bool) { return make([]byte, 200), false })
				return err
			})
		})
	}
	if found[1].perSecond > 0 && found[64].perSecond > 0 {
		ratio("updates_per_second_64_writers_vs_1", found[64].perSecond/found[1].perSecond, 1, false)
	}
}

// BenchmarkBlocks is a read's budget: from a block against a reservation each.
func BenchmarkBlocks(b *testing.B) {
	found := map[string]measured{}
	lines := []state.Line{{Account: "tenant", Limit: state.Amounts{Tokens: 1 << 50}, Want: state.Amounts{Tokens: 100}}}
	b.Run("reservation", func(b *testing.B) {
		st := benchStore(b)
		found["plain"] = gang(b, st, 64, func(n int64) error {
			id := fmt.Sprintf("r-%012d", n)
			if _, err := st.Reserve(context.Background(), state.Reservation{ID: id, Lines: lines, Expires: time.Now().Add(time.Hour)}); err != nil {
				return err
			}
			return st.SettleGrant(context.Background(), id, state.Amounts{Tokens: 90})
		})
	})
	b.Run("block", func(b *testing.B) {
		st := benchStore(b)
		var serial atomic.Int64
		blocks := state.NewBlocks(st, state.BlockOptions{NewID: func() string { return fmt.Sprint("b", serial.Add(1)) }, Calls: 1024})
		found["block"] = gang(b, st, 64, func(int64) error {
			s, err := blocks.Take(context.Background(), lines)
			s.Settle(state.Amounts{Tokens: 90})
			return err
		})
	})
	if found["plain"].perSecond > 0 && found["block"].perSecond > 0 {
		ratio("block_budget_vs_reservation", found["block"].perSecond/found["plain"].perSecond, 20, false)
	}
}

// BenchmarkLoad is the read-through of a high-impact action: circuit, override
// and one more in one statement.
func BenchmarkLoad(b *testing.B) {
	st := benchStore(b)
	for _, k := range []string{"brk/a", "ovr/a", "apr/a"} {
		st.Update(context.Background(), k, func(state.Doc) ([]byte, bool) { return make([]byte, 200), true })
	}
	gang(b, st, 1, func(int64) error {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := st.Load(ctx, "brk/a", "ovr/a", "apr/a")
		return err
	})
}

// BenchmarkAppend is a call added to a run's history.
func BenchmarkAppend(b *testing.B) {
	st := benchStore(b)
	gang(b, st, 8, func(n int64) error {
		return st.Append(context.Background(), fmt.Sprint("run", n%50), taxonomy.Call{Name: "search", ArgsHash: "0123456789abcdef", Outcome: taxonomy.Succeeded})
	})
}
