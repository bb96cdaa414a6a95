package sdk

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// BenchmarkDecision prints what the whole decision about one read costs under
// the shipped policy (admit, dispatch with its budget block, classify by the
// table, route, record, receipts handed over) against one raw evaluation of the
// reference policy, both as this thread's processor time in the least disturbed
// round.
func BenchmarkDecision(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	no := false
	c, err := Open(b.Context(), Config{Data: b.TempDir(), Policies: PolicySource{Watch: &no}}, Parts{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(context.Background()) //nolint:errcheck // the figures are printed by then
	eval, err := rego.ReferenceEval(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	op := taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "gpt-x", Tenant: "acme",
		Agent: "support-1", Effect: taxonomy.ReadOnly, Estimate: taxonomy.Estimate{InputTokens: 900, OutputTokens: 400}}
	obs := taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes}, ElapsedMS: 300,
		Response: &taxonomy.Response{Status: 200, Headers: map[string]string{"content-type": "application/json"},
			Body: `{"id":"c","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"done"}}]}`}}
	decide := func() {
		p, err := c.Engine().Admit(b.Context(), op)
		if err == nil {
			err = p.Mark(b.Context())
		}
		if err == nil {
			_, err = p.Settle(b.Context(), obs)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	whole := leastOf(b, 20, 200, decide)
	raw := leastOf(b, 20, 100, func() {
		if err := eval(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
	ratio := float64(whole) / float64(raw)
	verdict := "ok"
	if ratio > 0.2 {
		verdict = "short"
	}
	fmt.Printf("RATIO decision_over_eval %.3f 0.2 %s (decision %v, one evaluation %v)\n", ratio, verdict, whole, raw)
	for b.Loop() {
		decide()
	}
}

// leastOf is the least disturbed of several rounds, per call.
func leastOf(b *testing.B, rounds, calls int, f func()) time.Duration {
	best := time.Hour
	for range rounds {
		start := threadTime(b)
		for range calls {
			f()
		}
		best = min(best, (threadTime(b)-start)/time.Duration(calls))
	}
	return best
}

func threadTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
