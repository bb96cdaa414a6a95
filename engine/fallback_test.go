package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// down is a house whose provider circuit is open, with one contract.
func down(t *testing.T, f engine.Fallback, change func(*engine.Policy)) *enginetest.House {
	f.Name = "provider-open"
	h := with(t, func(p *engine.Policy) {
		p.Fallbacks = []engine.Fallback{f}
		if change != nil {
			change(p)
		}
	})
	dead := enginetest.NewRemote(enginetest.HTTP(500, `{}`))
	for i := range 5 {
		_, _ = h.Do(t.Context(), enginetest.Model(fmt.Sprintf("x%d", i)), dead.Send)
	}
	return h
}

// R-FBK-2: a human case carries the work and what is known of it to those who
// decide, and their number is bounded: then the next candidate is tried.
func TestHumanCasesAreKeptAndBounded(t *testing.T) {
	h := down(t, engine.Fallback{Reviewers: "operations", MaxCases: 2, Saved: "the request", Then: "review", Candidates: []taxonomy.Candidate{
		{ID: "ask", Kind: "human"}, {ID: "refuse", Kind: "refuse"}}}, nil)
	var taken []string
	for i := range 3 {
		res, err := h.DoWith(t.Context(), enginetest.Model(fmt.Sprintf("m%d", i)), enginetest.NewRemote().Send, engine.Means{Payload: []byte("sealed")})
		if err == nil || res.Fallback == nil {
			t.Fatalf("%+v, %v", res.Fallback, err)
		}
		f := res.Fallback
		taken = append(taken, f.Candidate.ID)
		if f.Candidate.ID == "ask" && (f.Case == "" || f.Reviewers != "operations" || f.Then != "review" || f.Saved != "the request") {
			t.Errorf("the caller is told %+v", f)
		}
	}
	if fmt.Sprint(taken) != "[ask ask refuse]" {
		t.Errorf("taken %v", taken)
	}
	its := itemsOf(t, h, state.Dead)
	if len(its) != 2 || its[0].Reason != "human_review:provider-open" || string(its[0].Payload) != "sealed" || its[0].Dependency == "" {
		t.Fatalf("%+v", its)
	}
	if err := h.Store.Move(t.Context(), its[0].ID, state.Disposition{State: state.Dropped, Reason: "decided"}); err != nil {
		t.Fatal(err)
	}
	if res, _ := h.DoWith(t.Context(), enginetest.Model("m9"), enginetest.NewRemote().Send, engine.Means{}); res.Fallback.Candidate.ID != "ask" {
		t.Errorf("a decided case makes room: %+v", res.Fallback)
	}
}

// A cached answer that is older than its contract allows is not shown.
func TestCachedAnswerHasAnAge(t *testing.T) {
	h := down(t, engine.Fallback{MaxAge: map[string]time.Duration{"cache": time.Hour}, Candidates: []taxonomy.Candidate{{ID: "cache", Kind: "cached"}, {ID: "refuse", Kind: "refuse"}}}, nil)
	for age, want := range map[time.Duration]string{59 * time.Minute: "cache", 61 * time.Minute: "refuse"} {
		res, _ := h.DoWith(t.Context(), enginetest.Model(""), enginetest.NewRemote().Send, engine.Means{
			Cached: func(taxonomy.Candidate, taxonomy.Operation) (string, time.Duration, bool) { return "old", age, true }})
		if res.Fallback == nil || res.Fallback.Candidate.ID != want {
			t.Errorf("age %s: %+v", age, res.Fallback)
		}
	}
}

// R-POL-6: where the fallback rules fail, a read gets what its policy declares
// or nothing, as policy says.
func TestPolicyErrorOfFallback(t *testing.T) {
	for _, proceed := range []bool{true, false} {
		h := down(t, engine.Fallback{Candidates: []taxonomy.Candidate{{ID: "draft", Kind: "draft"}}}, func(p *engine.Policy) { p.OnError.ReadsProceed = proceed })
		h.Rules.OnFallback = func(*taxonomy.FallbackInput) taxonomy.FallbackAnswer {
			return taxonomy.FallbackAnswer{Evaluation: taxonomy.Evaluation{Entrypoint: "fallback", Error: "policy_error"}}
		}
		res, err := h.DoWith(t.Context(), enginetest.Model("m"), enginetest.NewRemote().Send, engine.Means{})
		if err == nil || proceed != (res.Fallback != nil) {
			t.Errorf("proceed %v: %+v, %v", proceed, res.Fallback, err)
		}
	}
}

// R-FBK-4: the contract's own latency budget gives a synchronous read its
// degraded answer, and a write waits for its end.
func TestContractHasALatencyBudget(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Fallbacks = []engine.Fallback{{Name: "provider-open", Within: 5 * time.Second, Candidates: []taxonomy.Candidate{{ID: "draft", Kind: "draft"}}},
			{Name: "tool-open", Within: 5 * time.Second, Candidates: []taxonomy.Candidate{{ID: "draft", Kind: "draft"}}}}
	})
	slow := func(end chan struct{}) engine.Send {
		return func(ctx context.Context, _ engine.Call) taxonomy.Observation {
			<-end
			return enginetest.HTTP(200, `{}`).Observation
		}
	}
	end := make(chan struct{})
	done := make(chan engine.Result, 1)
	go func() {
		res, _ := h.DoWith(context.WithoutCancel(t.Context()), enginetest.Model("m"), slow(end), engine.Means{})
		done <- res
	}()
	res := <-done // the virtual clock moves by itself while somebody sleeps
	if res.Fallback == nil || res.Fallback.Candidate.ID != "draft" || res.Verdict.Reason != "latency_budget" {
		t.Fatalf("%+v %+v", res.Verdict, res.Fallback)
	}
	close(end)
	ended := make(chan struct{})
	close(ended)
	if res, err := h.DoWith(t.Context(), enginetest.Write("w"), slow(ended), engine.Means{}); err != nil || res.Fallback != nil {
		t.Fatalf("%+v, %v", res.Fallback, err)
	}
}
