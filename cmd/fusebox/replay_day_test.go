package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/replay"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A day is generated traffic: the real engine under the shipped policy through
// 24 simulated hours. Tenants call models and tools; providers fall over and
// recover, quotas run dry, writes time out, answers come back malformed, runs go
// in circles, and some agents ask for what they may not have.
type day struct {
	clock  *enginetest.Clock
	client *sdk.Client
	calls  atomic.Int64
}

// A crowd is one of those who call at once.
type crowd struct {
	*day
	rng *rand.Rand
}

// generateDay leaves a data directory with a log of at least so many receipts.
// The process restarts every hundred thousand, with an empty memory.
func generateDay(t testing.TB, data string, wanted int64) {
	t.Helper()
	d := &day{clock: enginetest.NewClock()}
	began := d.clock.Now()
	var crowds []*crowd
	for i := range 8 {
		crowds = append(crowds, &crowd{d, rand.New(rand.NewPCG(8, uint64(i)))})
	}
	const life = 100_000
	for written := int64(0); written < wanted; {
		d.start(t, data)
		for until := min(written+life, wanted); written < until; written = d.client.Log().Stats().Size {
			// The day passes as its receipts are written.
			due := time.Duration(float64(24*time.Hour) * float64(written) / float64(wanted))
			d.clock.Advance(max(due-d.clock.Now().Sub(began), 0))
			d.client.Engine().Tick(t.Context())
			d.round(t, crowds)
		}
		if err := d.client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

func (d *day) start(t testing.TB, data string) {
	t.Helper()
	no := false
	var err error
	d.client, err = sdk.Open(t.Context(), sdk.Config{Data: data, Store: sdk.StoreConfig{Driver: "memory"},
		Policies: sdk.PolicySource{Watch: &no}}, sdk.Parts{Clock: d.clock, Still: true})
	if err != nil {
		t.Fatal(err)
	}
}

// round lets everybody do a few things at once.
func (d *day) round(t testing.TB, crowds []*crowd) {
	var group sync.WaitGroup
	for _, c := range crowds {
		group.Go(func() {
			for range 8 {
				_, _ = d.client.Do(t.Context(), c.operation(), c.send) // refusals and failures are what a day is made of
			}
		})
	}
	group.Wait()
}

func (d *crowd) one(of ...string) string { return of[d.rng.IntN(len(of))] }

// operation is the next thing that somebody wants done.
func (d *crowd) operation() taxonomy.Operation {
	n := d.calls.Add(1)
	op := taxonomy.Operation{
		Tenant: fmt.Sprintf("t_%02d", d.rng.IntN(40)), Agent: d.one("billing", "support", "research", "ops"),
		RunID: fmt.Sprintf("run-%d", n/24), RequestID: fmt.Sprintf("req-%d", n),
		Workflow: "ticket", WorkflowVersion: "3", TaskClass: d.one("triage", "answer"),
	}
	op.Credential = "k1:" + op.Tenant
	switch n := d.rng.IntN(100); {
	case n < 60:
		op.Kind, op.Name, op.Effect = "model", "chat.completions", taxonomy.ReadOnly
		op.Provider, op.Region, op.Model = d.one("acme-ai", "other-ai"), d.one("eu", "us"), d.one("large", "small")
		op.PromptVersion = "p4"
	case n < 85:
		op.Kind, op.Tool, op.Action, op.Effect = "tool", "crm", "search", taxonomy.ReadOnly
		op.Name, op.Provider, op.ActionClass, op.ArgsFP = "crm.search", "crm", "crm.read", fmt.Sprintf("a%d", d.rng.IntN(30))
	case n < 97:
		op.Kind, op.Tool, op.Action, op.Effect = "tool", "mail", "send", taxonomy.IdempotentWrite
		op.Name, op.Provider, op.ActionClass, op.IdempotencyKey = "mail.send", "mail", "mail.send", op.RequestID
	default:
		op.Kind, op.Tool, op.Action = "tool", "bank", "transfer"
		op.Name, op.Provider, op.ActionClass, op.Amount = "bank.transfer", "bank", "payment", int64(d.rng.IntN(9_000_000))
		op.IdempotencyKey = op.RequestID
	}
	return op
}

// send is the world: mostly well, with bad hours.
func (d *crowd) send(_ context.Context, call engine.Call) taxonomy.Observation {
	d.clock.Advance(time.Duration(d.rng.IntN(40)) * time.Millisecond)
	op, hour := call.Operation, d.clock.Now().Hour()
	n := d.rng.IntN(1000)
	switch {
	case op.Provider == "acme-ai" && op.Region == "eu" && hour%6 == 2 && n < 700:
		return enginetest.HTTP(529, `{"type":"error","error":{"type":"overloaded_error"}}`).Observation
	case op.Tool == "crm" && hour%8 == 5 && n < 600:
		return enginetest.HTTP(503, `unavailable`, "Retry-After", "2").Observation
	case n < 12:
		return enginetest.HTTP(429, `{"error":{"type":"rate_limit_error"}}`, "Retry-After", "1").Observation
	case n < 18:
		return enginetest.Broken("read_timeout").Observation
	case n < 22:
		return enginetest.Refused("connection_refused").Observation
	case n < 24:
		return enginetest.HTTP(401, `{"error":{"type":"authentication_error"}}`).Observation
	case n < 30:
		return enginetest.HTTP(400, `{"error":{"type":"invalid_request_error"}}`).Observation
	case op.Kind == "model" && n < 40:
		return enginetest.HTTP(200, `{"choices":[]}`).Observation
	case op.Kind == "model":
		return enginetest.HTTP(200, `{"choices":[{"finish_reason":"stop","message":{"content":"fine"}}]}`).Observation
	}
	return enginetest.HTTP(200, `{"ok":true}`).Observation
}

// R-RCP-3: a whole day decides again exactly as it was decided, with one worker
// and with several, and on one processor and on more. FUSEBOX_DAY says how many
// receipts the day has (make day: a million); FUSEBOX_DAY_DIR keeps it.
func TestReplayOfADay(t *testing.T) {
	wanted, procs := int64(4000), []int{1, 4}
	if s := os.Getenv("FUSEBOX_DAY"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 {
			t.Fatalf("FUSEBOX_DAY must be a number of receipts, got %q", s)
		}
		wanted = n
	}
	data := cmp.Or(os.Getenv("FUSEBOX_DAY_DIR"), filepath.Join(t.TempDir(), "day"))
	if _, err := os.Stat(data); err != nil {
		generateDay(t, data, wanted)
	}
	sources, err := sourcesIn(filepath.Join(data, "receipts"), "")
	if err != nil {
		t.Fatal(err)
	}
	var first *replay.Report
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, n := range procs {
		runtime.GOMAXPROCS(n)
		o := replay.Options{Self: true, Workers: n}
		policy, err := replayPolicies(t.Context(), nil, &o, false)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		r, err := replay.Run(t.Context(), sources, policy, o)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		t.Logf("%d processors: %d receipts, %d questions in %.1f s: %.0f receipts a second",
			n, r.Receipts, r.Decisions, took.Seconds(), float64(r.Receipts)/took.Seconds())
		if r.Receipts < wanted || r.Decisions < wanted/2 || !r.Identical() || len(r.NotReplayable) > 0 {
			t.Errorf("%d processors: %d receipts, %d decisions, buckets %v, not replayable %v; first: %+v",
				n, r.Receipts, r.Decisions, r.Buckets, r.NotReplayable, r.Changed[:min(len(r.Changed), 1)])
		}
		if first == nil {
			first = r
		} else if !reflect.DeepEqual(first, r) {
			t.Errorf("%d processors tell something else than %d", n, procs[0])
		}
	}
}
