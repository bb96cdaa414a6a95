package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-CALL-7: a partly committed workflow is taken back in reverse order, each
// compensation through admission; what is UNKNOWN is left for reconciliation.
func TestWorkflowIsCompensatedInReverse(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) {
		p.Policy.Tools = []engine.Tool{{Tool: "hotel", Action: "book", Key: "header:Idempotency-Key", Compensate: "hotel.cancel"},
			{Tool: "car", Action: "book", Key: "header:Idempotency-Key", Compensate: "car.cancel"}, {Tool: "mail", Action: "send", Key: "header:Idempotency-Key"}, {Tool: "train", Action: "book", Key: "header:Idempotency-Key"}}
	})
	w := h.Workflow()
	book := func(tool, action string, a enginetest.Answer) {
		op := taxonomy.Operation{Kind: "tool", Name: tool + "." + action, Tool: tool, Action: action, Provider: tool, Tenant: "acme", RequestID: tool}
		_, _ = w.Do(t.Context(), op, enginetest.NewRemote(a).Send)
	}
	book("hotel", "book", enginetest.HTTP(201, `{"id":"h"}`))
	book("car", "book", enginetest.HTTP(201, `{"id":"c"}`))
	book("mail", "send", enginetest.HTTP(202, `{"id":"m"}`))
	book("train", "book", enginetest.Broken("read_timeout"))

	var undone []string
	remote := enginetest.NewRemote(enginetest.HTTP(200, `{"id":"x"}`))
	left, err := w.Compensate(t.Context(), func(done taxonomy.Operation, back string) (taxonomy.Operation, engine.Send, error) {
		undone = append(undone, back)
		return taxonomy.Operation{Kind: "tool", Name: back, Tool: done.Tool, Action: "cancel", Provider: done.Tool, Tenant: "acme", Effect: taxonomy.IdempotentWrite}, remote.Send, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(undone, []string{"car.cancel", "hotel.cancel"}) || remote.Reached() != 2 {
		t.Errorf("undone %v, reached %d", undone, remote.Reached())
	}
	var reasons []string
	for _, l := range left {
		reasons = append(reasons, l.Operation.Tool+" "+l.Reason)
	}
	if !slices.Equal(reasons, []string{"train outcome_unknown", "mail no_compensation"}) {
		t.Errorf("left %v", reasons)
	}
}

// R-AGT-2: a schema failure gets one bounded repair before it counts.
func TestOneRepairBeforeItCounts(t *testing.T) {
	var seen []taxonomy.Feed
	h := enginetest.New(t, func(p *engine.Parts) { p.Checker = failing{} })
	h.Rules.OnRoute = func(in *taxonomy.RouteInput) taxonomy.RouteAnswer {
		return taxonomy.RouteAnswer{Feeds: []taxonomy.Feed{{Layer: taxonomy.LayerSemantic, Level: "schema", Signal: taxonomy.SignalFailure, Reason: in.Reason}}}
	}
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	repairs := 0
	res, err := h.DoWith(t.Context(), enginetest.Model("r1"), remote.Send, engine.Means{Repair: func(res engine.Result) (taxonomy.Operation, engine.Send, bool) {
		repairs++
		for _, f := range res.Feeds {
			seen = append(seen, taxonomy.Feed{Signal: f.Signal, Reason: f.Reason})
		}
		op := res.Operation
		return op, remote.Send, true
	}})
	if err == nil || repairs != 1 || remote.Reached() != 2 {
		t.Fatalf("%d repairs, %d calls, error %v", repairs, remote.Reached(), err)
	}
	if len(seen) != 1 || seen[0].Signal != taxonomy.SignalExcluded || seen[0].Reason != "repair_pending" {
		t.Errorf("the first failure fed %+v", seen)
	}
	if len(res.Feeds) != 1 || res.Feeds[0].Signal != taxonomy.SignalFailure {
		t.Errorf("the failed repair fed %+v", res.Feeds)
	}
}

type failing struct{}

func (failing) Check(*taxonomy.Operation, *taxonomy.Observation) taxonomy.Raw {
	return taxonomy.Raw(`{"schema_id":"invoice.v2","schema_valid":false,"errors":["/total: required"]}`)
}

// R-FBK-1, R-FBK-2, R-FBK-3: an open circuit's contract is carried out: an
// alternate goes through admission itself, the caller is told, and no write
// falls back to something that loses a guarantee.
func TestFallbackIsAPathOfItsOwn(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) {
		p.Policy.Retries = []engine.RetryProfile{{Name: "model", Attempts: 3, Deadline: time.Minute}}
		p.Policy.Fallbacks = []engine.Fallback{{Name: "provider-open", Candidates: []taxonomy.Candidate{
			{ID: "same", Kind: "alternate", Provider: "acme-ai", Model: "large"},
			{ID: "other", Kind: "alternate", Provider: "other-ai", Model: "small", Losses: []string{"accuracy"}, Prohibited: []string{"commit"}},
			{ID: "refuse", Kind: "refuse"},
		}}}
	})
	bad, good := enginetest.NewRemote(enginetest.HTTP(400, `{"error":{"type":"invalid_request_error"}}`)), enginetest.NewRemote(enginetest.HTTP(200, ok))
	means := engine.Means{Alternate: func(c taxonomy.Candidate, op taxonomy.Operation) (taxonomy.Operation, engine.Send, bool) {
		op.Provider, op.Model = c.Provider, c.Model
		return op, good.Send, true
	}}
	if res, err := h.DoWith(t.Context(), enginetest.Model("bad"), bad.Send, means); err == nil || res.Fallback != nil || good.Reached() != 0 {
		t.Fatalf("a caller's own mistake fell back: %v", err)
	}
	dead := enginetest.NewRemote(enginetest.HTTP(503, `{}`))
	res, err := h.DoWith(t.Context(), enginetest.Model("m1"), dead.Send, means)
	if err != nil {
		t.Fatal(err)
	}
	f := res.Fallback
	if f == nil || f.Candidate.ID != "other" || !slices.Equal(f.Losses, []string{"accuracy"}) || f.Receipt == "" || f.Result.Operation.Origin != taxonomy.OriginFallback {
		t.Errorf("fallback %+v", f)
	}
	broken := enginetest.NewRemote(enginetest.Broken("reset"))
	broken.Then(enginetest.HTTP(200, ok))
	stream := enginetest.Broken("reset")
	stream.Observation.Stream = taxonomy.Stream{Started: true, Bytes: 10}
	if res, err := h.DoWith(t.Context(), enginetest.Model("m2"), enginetest.NewRemote(stream).Send, means); err == nil || res.Fallback != nil {
		t.Errorf("a stream that had begun fell back: %+v, %v", res.Fallback, err)
	}
	if res, err := h.DoWith(t.Context(), enginetest.Write("w1"), enginetest.NewRemote(enginetest.Broken("reset")).Send, means); err == nil || res.Fallback != nil {
		t.Errorf("an UNKNOWN write fell back: %+v, %v", res.Fallback, err)
	}
}

// R-FBK-4: after its latency budget a caller gets the declared degraded answer;
// the call itself is settled when it ends.
func TestLatencyBudgetGivesTheDegradedAnswer(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) {
		p.Clock = nil
		p.Policy.Fallbacks = []engine.Fallback{{Name: "provider-open", Candidates: []taxonomy.Candidate{{ID: "draft", Kind: "draft", Losses: []string{"freshness"}}}}}
	})
	release := make(chan struct{})
	settled := make(chan struct{})
	slow := func(ctx context.Context, _ engine.Call) taxonomy.Observation {
		<-release
		defer close(settled)
		return enginetest.HTTP(200, ok).Observation
	}
	res, err := h.DoWith(t.Context(), enginetest.Model("m1"), slow, engine.Means{Within: time.Millisecond})
	if err == nil || res.Fallback == nil || res.Fallback.Candidate.ID != "draft" {
		t.Errorf("got %+v, %v", res.Fallback, err)
	}
	close(release)
	<-settled
}
