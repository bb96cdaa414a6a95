package enginetest

import (
	"context"
	"strings"
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
	return plainAdmission(in)
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

// plainAdmission lets local steps go on, keeps important work, and refuses the
// rest.
func plainAdmission(in *taxonomy.AdmissionInput) taxonomy.AdmissionAnswer {
	op := in.Operation
	for _, c := range in.Blocked {
		if c.Breaker == "loop" || c.Layer == taxonomy.LayerAuthority {
			return taxonomy.AdmissionAnswer{Reason: "stopped"}
		}
		if c.Breaker == "ambiguity" && op.Effect.Writes() {
			return taxonomy.AdmissionAnswer{Action: taxonomy.ActionRequireApproval, Reason: "unknown_mutation"}
		}
	}
	switch {
	case op.Kind == "workflow" && op.Effect == taxonomy.ReadOnly:
		return taxonomy.AdmissionAnswer{Action: taxonomy.ActionProceed, Reason: "local_step"}
	case op.Priority >= 5:
		return taxonomy.AdmissionAnswer{Action: taxonomy.ActionQueue, Reason: "important_work_waits", ExpiresIn: 15 * time.Minute}
	}
	return taxonomy.AdmissionAnswer{Reason: "low_priority"}
}

// plainRoute feeds the layer that a class belongs to.
func plainRoute(in *taxonomy.RouteInput) []taxonomy.Feed {
	home := taxonomy.Feed{Layer: taxonomy.LayerTool, Breaker: "tool", Level: "tenant"}
	if in.Operation.Kind == "model" {
		home = taxonomy.Feed{Layer: taxonomy.LayerProvider, Breaker: "provider", Level: "model"}
	}
	home.Reason = in.Reason
	if strings.HasPrefix(in.Reason, "contention_") {
		home.Signal = taxonomy.SignalExcluded
		return []taxonomy.Feed{home}
	}
	switch in.Class {
	case taxonomy.NoClass:
		home.Signal = taxonomy.SignalSuccess
		if home.Breaker == "provider" {
			quota := home
			quota.Breaker = "quota"
			return []taxonomy.Feed{home, quota}
		}
	case taxonomy.TransientTransport, taxonomy.PersistentDependency, taxonomy.RateLimit:
		home.Signal = taxonomy.SignalFailure
		if in.Class == taxonomy.RateLimit && home.Breaker == "provider" && !strings.HasPrefix(in.Reason, "capacity_") {
			home.Breaker = "quota" // one credential's; capacity is the provider's own
		}
		if in.RetryAfterMS >= 60_000 {
			home.Signal, home.UntilMS = taxonomy.SignalOpenNow, in.RetryAfterMS
		}
	case taxonomy.AmbiguousWrite:
		home = taxonomy.Feed{Layer: taxonomy.LayerTool, Breaker: "ambiguity", Level: "tenant", Signal: taxonomy.SignalFailure, Reason: in.Reason}
	case taxonomy.NoProgress:
		home = taxonomy.Feed{Layer: taxonomy.LayerWorkflow, Breaker: "loop", Level: "run_id", Signal: taxonomy.SignalOpenNow, Reason: in.Reason}
	case taxonomy.Authentication:
		home = taxonomy.Feed{Layer: taxonomy.LayerAuthority, Breaker: "credential", Level: "credential", Signal: taxonomy.SignalFailure, Reason: in.Reason}
	case taxonomy.PolicyDenial, taxonomy.Authorization:
		home = taxonomy.Feed{Layer: taxonomy.LayerAuthority, Breaker: "authority", Level: "action_class", Signal: taxonomy.SignalFailure, Reason: in.Reason}
	case taxonomy.SemanticQuality, taxonomy.Validation:
		home = taxonomy.Feed{Layer: taxonomy.LayerSemantic, Breaker: "semantic", Level: "schema", Signal: taxonomy.SignalFailure, Reason: in.Reason}
	default:
		home.Signal = taxonomy.SignalExcluded
	}
	return []taxonomy.Feed{home}
}

// Breakers are the circuits that the plain routing feeds: the starting figures
// of each layer, enforced, without jitter, and closed again by one probe.
func Breakers() []breaker.Setting {
	set := func(name string, layer taxonomy.Layer, contract string, change func(*breaker.Setting), scope ...string) breaker.Setting {
		s := breaker.Defaults(name, layer, scope...)
		s.Rule.Mode = taxonomy.ModeEnforce
		s.Rule.Cooldown.Jitter = 0
		s.Fallback = contract
		if layer == taxonomy.LayerProvider || layer == taxonomy.LayerTool {
			s.Rule.Probe.Successes, s.Rule.Ramp = 1, breaker.Ramp{}
		}
		if change != nil {
			change(&s)
		}
		return s
	}
	return []breaker.Setting{
		set("provider", taxonomy.LayerProvider, "provider-open", func(s *breaker.Setting) {
			s.Rule.Trip.SlowOver, s.Rule.Trip.SlowRatio = 20*time.Second, breaker.One*8/10
		}, "provider", "region", "model"),
		set("quota", taxonomy.LayerProvider, "provider-open", func(s *breaker.Setting) {
			s.Rule.Cooldown = breaker.Cooldown{Base: 5 * time.Second, Growth: 1_500_000, Max: time.Minute, RetryAfterMax: 10 * time.Minute}
			s.Rule.Ramp = breaker.Defaults("quota", taxonomy.LayerProvider).Rule.Ramp
		}, "provider", "credential", "model"),
		set("tool", taxonomy.LayerTool, "tool-open", nil, "tool", "action", "tenant"),
		set("ambiguity", taxonomy.LayerTool, "tool-open", func(s *breaker.Setting) {
			s.Rule.Trip = breaker.Trip{Unknown: 1}
			s.Rule.Cooldown = breaker.Cooldown{Base: time.Minute, Growth: breaker.One, Max: 10 * time.Minute, RetryAfterMax: 10 * time.Minute}
			s.Rule.Probe.Evidence, s.Rule.Probe.Successes = breaker.Reconciled, 1
		}, "tool", "action", "tenant"),
		set("semantic", taxonomy.LayerSemantic, "review", nil, "model", "prompt_version", "schema"),
		set("loop", taxonomy.LayerWorkflow, "stop", func(s *breaker.Setting) {
			s.Rule.Cooldown = breaker.Cooldown{Base: 10 * time.Minute, Growth: breaker.One, Max: 10 * time.Minute, RetryAfterMax: 10 * time.Minute}
		}, "tenant", "run_id"),
		set("authority", taxonomy.LayerAuthority, "stop", func(s *breaker.Setting) {
			s.Rule.Trip = breaker.Trip{Consecutive: 3}
			s.Rule.Cooldown = breaker.Cooldown{Base: 5 * time.Minute, Growth: breaker.One, Max: time.Hour, RetryAfterMax: 10 * time.Minute}
		}, "agent", "tool", "action_class"),
		set("credential", taxonomy.LayerAuthority, "stop", func(s *breaker.Setting) {
			s.Rule.Trip = breaker.Trip{Consecutive: 3}
			s.Rule.Cooldown = breaker.Cooldown{Base: time.Minute, Growth: breaker.One, Max: time.Hour, RetryAfterMax: 10 * time.Minute}
		}, "provider", "credential"),
	}
}
