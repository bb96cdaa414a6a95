package enginetest

import (
	"context"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Rules answers the four questions in Go, so that the path can be shown without
// a policy engine. A nil function takes the plain answer: everything is
// allowed, work is rejected while something is open, and outcomes are routed
// by class as the shipped policy does it.
type Rules struct {
	OnAuthorize func(*taxonomy.AuthorityInput) taxonomy.AuthorityAnswer
	OnAdmission func(*taxonomy.AdmissionInput) taxonomy.AdmissionAnswer
	OnRoute     func(*taxonomy.RouteInput) taxonomy.RouteAnswer
	OnFallback  func(*taxonomy.FallbackInput) taxonomy.FallbackAnswer
}

var _ engine.Rules = (*Rules)(nil)

func (r *Rules) Authorize(_ context.Context, in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
	if r.OnAuthorize != nil {
		return r.OnAuthorize(in)
	}
	return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow, Reasons: []string{"test"}}
}

func (r *Rules) Admission(_ context.Context, in *taxonomy.AdmissionInput) taxonomy.AdmissionAnswer {
	if r.OnAdmission != nil {
		return r.OnAdmission(in)
	}
	return taxonomy.AdmissionAnswer{Action: taxonomy.ActionReject, Reason: "blocked"}
}

func (r *Rules) Route(_ context.Context, in *taxonomy.RouteInput) taxonomy.RouteAnswer {
	if r.OnRoute != nil {
		return r.OnRoute(in)
	}
	return taxonomy.RouteAnswer{Feeds: plainRoute(in)}
}

func (r *Rules) Fallback(_ context.Context, in *taxonomy.FallbackInput) taxonomy.FallbackAnswer {
	if r.OnFallback != nil {
		return r.OnFallback(in)
	}
	var order []taxonomy.Choice
	for _, c := range in.Candidates {
		order = append(order, taxonomy.Choice{ID: c.ID, Reason: "declared"})
	}
	return taxonomy.FallbackAnswer{Order: order}
}

// plainRoute feeds the layer that a class belongs to.
func plainRoute(in *taxonomy.RouteInput) []taxonomy.Feed {
	home := taxonomy.Feed{Layer: taxonomy.LayerTool, Breaker: "tool", Level: "tenant"}
	if in.Operation.Kind == "model" {
		home = taxonomy.Feed{Layer: taxonomy.LayerProvider, Breaker: "provider", Level: "model"}
	}
	home.Reason = in.Reason
	switch in.Class {
	case taxonomy.NoClass:
		home.Signal = taxonomy.SignalSuccess
	case taxonomy.TransientTransport, taxonomy.PersistentDependency, taxonomy.RateLimit:
		home.Signal = taxonomy.SignalFailure
		if in.RetryAfterMS >= 60_000 {
			home.Signal, home.UntilMS = taxonomy.SignalOpenNow, in.RetryAfterMS
		}
	case taxonomy.AmbiguousWrite:
		home = taxonomy.Feed{Layer: taxonomy.LayerTool, Breaker: "ambiguity", Level: "tenant", Signal: taxonomy.SignalFailure, Reason: in.Reason}
	case taxonomy.NoProgress:
		home = taxonomy.Feed{Layer: taxonomy.LayerWorkflow, Breaker: "loop", Level: "run_id", Signal: taxonomy.SignalOpenNow, Reason: in.Reason}
	case taxonomy.PolicyDenial, taxonomy.Authentication, taxonomy.Authorization:
		home = taxonomy.Feed{Layer: taxonomy.LayerAuthority, Breaker: "authority", Level: "action_class", Signal: taxonomy.SignalFailure, Reason: in.Reason}
	default:
		home.Signal = taxonomy.SignalExcluded
	}
	return []taxonomy.Feed{home}
}

// Breakers are the circuits that plainRoute feeds, with round figures.
func Breakers() []breaker.Setting {
	rule := breaker.Rule{
		Mode:     taxonomy.ModeEnforce,
		Window:   breaker.WindowRule{Kind: breaker.TimeWindow, Length: time.Minute, Buckets: 10, MinSamples: 20},
		Trip:     breaker.Trip{FailureRatio: breaker.One / 2, Consecutive: 5},
		Cooldown: breaker.Cooldown{Base: 30 * time.Second, Growth: breaker.One * 3 / 2, Max: 2 * time.Minute, RetryAfterMax: 10 * time.Minute},
		Probe:    breaker.Probe{Budget: 1, Lease: 30 * time.Second, Successes: 1, Gap: time.Second, Evidence: breaker.Calls},
	}
	ambiguity := rule
	ambiguity.Trip = breaker.Trip{Unknown: 1}
	ambiguity.Probe.Evidence = breaker.Reconciled
	loop := rule
	loop.Probe.Evidence = breaker.StateVerified
	authority := rule
	authority.Trip = breaker.Trip{Consecutive: 3}
	authority.Probe.Evidence = breaker.ApprovalGranted
	return []breaker.Setting{
		{Name: "provider", Layer: taxonomy.LayerProvider, Scope: []string{"provider", "region", "model"}, Rule: rule, Fallback: "provider-open"},
		{Name: "tool", Layer: taxonomy.LayerTool, Scope: []string{"tool", "action", "tenant"}, Rule: rule, Fallback: "tool-open"},
		{Name: "ambiguity", Layer: taxonomy.LayerTool, Scope: []string{"tool", "action", "tenant"}, Rule: ambiguity, Fallback: "tool-open"},
		{Name: "loop", Layer: taxonomy.LayerWorkflow, Scope: []string{"run_id"}, Rule: loop, Fallback: "stop"},
		{Name: "authority", Layer: taxonomy.LayerAuthority, Scope: []string{"agent", "tool", "action_class"}, Rule: authority, Fallback: "stop"},
	}
}
