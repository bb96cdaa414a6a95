package rego

import (
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A rate limit with an instruction to wait opens the credential's quota at
// once, is counted as the tenant's burst, and blames nobody else (R-POL-7,
// R-TAX-7). The second time it is remembered, and says so.
func TestRouteOneOutcome(t *testing.T) {
	s := compileShipped(t, Options{Version: "v@sha256:0", KeepInput: true})
	in := &taxonomy.RouteInput{Operation: goldenOperation("model", taxonomy.ReadOnly), Outcome: taxonomy.Failed,
		Class: taxonomy.RateLimit, Reason: "quota_requests", HTTPStatus: 429, RetryAfterMS: 17_000, Attempt: 1}
	want := []taxonomy.Feed{
		{Layer: taxonomy.LayerProvider, Breaker: "burst", Level: "tenant", Signal: taxonomy.SignalFailure, Reason: "rate_limit"},
		{Layer: taxonomy.LayerProvider, Breaker: "quota", Level: "model", Signal: taxonomy.SignalOpenNow, Reason: "rate_limit", UntilMS: 17_000},
	}
	for i, memo := range []string{"miss", "hit"} {
		a := s.Route(t.Context(), in)
		if diff := differ(want, a.Feeds); diff != "" {
			t.Fatalf("call %d: %s", i, diff)
		}
		ev := a.Evaluation
		if ev.Error != "" || ev.Memo != memo || ev.Entrypoint != "routing" {
			t.Errorf("call %d: %+v", i, ev)
		}
		if diff := differ([]string{"routing.burst.failure", "routing.quota.open"}, ev.Rules); diff != "" {
			t.Errorf("call %d: fired rules: %s", i, diff)
		}
		const input = `{"operation":{"kind":"model"},"outcome":{"class":"rate_limit","reason":"quota_requests","retry_after_ms":17000,"status":"FAILED"}}`
		if string(ev.Input) != input {
			t.Errorf("call %d: kept input %s", i, ev.Input)
		}
	}
}

// The zero values deny, reject, feed nothing and choose nothing, and an input
// without an operation is named.
func TestMissingOperation(t *testing.T) {
	s := compileShipped(t, Options{})
	if a := s.Route(t.Context(), &taxonomy.RouteInput{}); a.Feeds != nil || a.Evaluation.Error != "invalid_input:operation" {
		t.Errorf("route: %+v", a)
	}
	if a := s.Authorize(t.Context(), nil); a.Decision != taxonomy.Deny || a.Evaluation.Error != "invalid_input:operation" || a.Reasons[0] != "invalid_input:operation" {
		t.Errorf("authorize: %+v", a)
	}
	if a := s.Admission(t.Context(), nil); a.Action != taxonomy.ActionReject || a.Evaluation.Error == "" {
		t.Errorf("admission: %+v", a)
	}
	in := &taxonomy.FallbackInput{Operation: goldenOperation("model", taxonomy.ReadOnly)}
	if a := s.Fallback(t.Context(), in); a.Order != nil || a.Evaluation.Error != "invalid_input:rejection" {
		t.Errorf("fallback: %+v", a)
	}
}
