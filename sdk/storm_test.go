package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// What must hold when many calls run at once, with the shipped bundle, on the
// stores that are linked here. Package engine/state/statetest shows the same of
// reservations alone, on PostgreSQL too.

var stormStores = []string{"sqlite", "memory"}

// crowd opens a client whose policy has been added to, on a clock that stands
// still.
func crowd(t *testing.T, driver, data, policy string) (*Client, *enginetest.Clock, *enginetest.Meter) {
	clock, meter, no := enginetest.NewClock(), &enginetest.Meter{}, false
	c := open(t, Config{Data: data, Store: StoreConfig{Driver: driver}, Policies: PolicySource{Path: policy, Watch: &no}},
		Parts{Clock: clock, Still: true, Meter: meter, Draw: func() float64 { return 0.5 }})
	return c, clock, meter
}

func added(t *testing.T, text string) string {
	dir := casePolicy(t)
	file := dir + "/policy.toml"
	write(t, file, read(t, file)+text)
	return dir
}

// gate is a dead provider that answers its first calls in groups: nobody of a
// group fails before all of it are there, which is the worst that can happen.
type gate struct {
	mu          sync.Mutex
	reached, in int
	most        int
	group, gone int
	full        chan struct{}
}

func (g *gate) send(context.Context, engine.Call) taxonomy.Observation {
	g.mu.Lock()
	g.reached++
	g.in++
	g.most = max(g.most, g.in)
	full := g.full
	if g.reached <= g.gone {
		if g.reached%g.group == 0 {
			g.full = make(chan struct{})
			close(full)
		}
	} else {
		full = nil
	}
	g.mu.Unlock()
	if full != nil {
		<-full
	}
	g.mu.Lock()
	g.in--
	g.mu.Unlock()
	return answered(503, "{}")
}

// R-FLT-18, R-CALL-1, R-ADM-6: fifty runs at once, each wanting three retries,
// against a provider that is down, with a bulkhead of four. They reach it at most
// threshold - 1 + calls in flight at the trip + probes times; the remote makes it
// as bad as it can be, so it is exactly that.
func TestFiftyRunsAgainstADeadProvider(t *testing.T) {
	const runs, threshold, bulkhead = 50, 5, 4
	for _, driver := range stormStores {
		t.Run(driver, func(t *testing.T) {
			c, clock, meter := crowd(t, driver, t.TempDir(), added(t, fmt.Sprintf("\n[[bulkhead]]\nname = \"models\"\nscope = [\"provider\"]\nmost = %d\n", bulkhead)))
			g := &gate{group: bulkhead, gone: 2 * bulkhead, full: make(chan struct{})}
			storm := func(round int) {
				var group sync.WaitGroup
				for i := range runs {
					group.Go(func() {
						op := model("")
						op.RunID = fmt.Sprintf("run-%d-%d", round, i)
						for { // a run that finds no place asks again, as it would
							_, err := c.Do(t.Context(), op, g.send)
							rej, refused := errors.AsType[*engine.Rejection](err)
							if !refused || rej.Reason != "bulkhead_full" {
								return
							}
							time.Sleep(time.Millisecond)
						}
					})
				}
				group.Wait()
			}
			storm(0)
			probes := meter.Count("transition.provider.OPEN.HALF_OPEN")
			if most := threshold - 1 + bulkhead + probes; g.reached > most {
				t.Errorf("reached %d times, at most %d", g.reached, most)
			}
			if g.reached != 2*bulkhead || g.most != bulkhead {
				t.Errorf("reached %d times, %d at once; want %d, %d at once", g.reached, g.most, 2*bulkhead, bulkhead)
			}
			for round := range 3 {
				before := g.reached
				clock.Advance(3 * time.Minute)
				storm(round + 1)
				if got := g.reached - before; got != 1 {
					t.Errorf("probe %d: %d calls reached the provider, want 1", round, got)
				}
			}
			t.Logf("STORM %s: %d runs of %d attempts, reached %d, then one probe after each cooldown", driver, runs, 4, 2*bulkhead)
		})
	}
}

// R-AGT-3: sixteen parallel calls with a tenth of the budget left never overspend,
// reads that spend from blocks and writes that reserve; on SQLite from two
// processes. Whoever is refused is told why, and what was not used comes back.
func TestSixteenCallsAtATenthOfTheBudget(t *testing.T) {
	const limit, before, each = 1000, 900, 30
	for _, driver := range stormStores {
		for _, kind := range []string{"reads", "writes"} {
			t.Run(driver+" "+kind, func(t *testing.T) {
				data := t.TempDir()
				policy := added(t, fmt.Sprintf("\n[[budget.limit]]\nname = \"drill\"\nscope = [\"tenant\"]\nwindow = \"day\"\ntokens = %d\n", limit))
				first, clock, _ := crowd(t, driver, data, policy)
				clients := []*Client{first, first}
				if driver == "sqlite" {
					clients[1], _, _ = crowd(t, driver, data, policy)
				}
				account := "drill/4:acme@" + clock.Now().UTC().Truncate(24*time.Hour).Format(time.RFC3339)
				store := first.Store()
				spent := state.Reservation{ID: "before", Expires: clock.Now().Add(time.Hour),
					Lines: []state.Line{{Account: account, Limit: state.Amounts{Tokens: limit}, Want: state.Amounts{Tokens: before}}}}
				if _, err := store.Reserve(t.Context(), spent); err != nil {
					t.Fatal(err)
				}
				if err := store.SettleGrant(t.Context(), "before", state.Amounts{Tokens: before}); err != nil {
					t.Fatal(err)
				}
				over := func() {
					us, err := store.Usage(t.Context(), account)
					if err != nil || len(us) != 1 || us[0].Used.Tokens+us[0].Reserved.Tokens > limit {
						t.Errorf("the account stands at %+v, %v", us, err)
					}
				}
				var group sync.WaitGroup
				var mu sync.Mutex
				sent, exhausted := 0, 0
				for i := range 16 {
					group.Go(func() {
						op := model(fmt.Sprint("call-", i))
						if kind == "writes" {
							op = mail(fmt.Sprint("call-", i))
						}
						op.Estimate = taxonomy.Estimate{InputTokens: each}
						_, err := clients[i%2].Do(t.Context(), op, func(context.Context, engine.Call) taxonomy.Observation {
							over()
							mu.Lock()
							sent++
							mu.Unlock()
							return answered(200, fine)
						})
						rej, refused := errors.AsType[*engine.Rejection](err)
						if refused && slices.Contains([]string{"budget_exhausted", "awaits_evidence"}, rej.Reason) { // by the budget, or by its circuit
							mu.Lock()
							exhausted++
							mu.Unlock()
						} else if err != nil {
							t.Error(err)
						}
					})
				}
				group.Wait()
				over()
				if sent*each > limit-before || sent == 0 || sent+exhausted != 16 {
					t.Errorf("%d calls of %d tokens in %d, %d refused", sent, each, limit-before, exhausted)
				}
				t.Logf("STORM %s %s: 16 calls of %d tokens at %d of %d: %d sent, %d refused", driver, kind, each, before, limit, sent, exhausted)
			})
		}
	}
}
