package sdk

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/builtin"
)

// Version is the stamp of a bundle under this build: the bundle itself, the
// builtins it may use, the document schemas and the built-in table. The same
// policy has the same stamp wherever it was loaded from.
func Version(b *policies.Bundle) taxonomy.PolicyVersion {
	return b.Digest(
		policies.Line("capabilities", rego.CapabilitiesDigest(nil)),
		policies.Line("schemas", rego.SchemasDigest()),
		policies.Line("table", sha256.Sum256([]byte(builtin.Default().Digest()))),
	)
}

// A loaded policy is a bundle that was compiled: what the engine is given, and
// what people ask about it.
type loaded struct {
	bundle   *policies.Bundle
	snapshot *rego.Snapshot
	policy   *engine.Policy
	modules  []*module
	plugins  []*plugin
	warnings []string
	stage    taxonomy.Mode // that it is in: its own word, or its rollout's
}

// compile turns a bundle into one engine.Policy under one version: Rego into a
// snapshot, modules through the sandbox, settings into the engine's terms.
// Modules that prev holds unchanged are shared with it. Nothing of a bundle
// that fails to compile takes effect.
//
// o is how the rules are compiled and what they have to pass; version and
// breakers are filled in.
func compile(ctx context.Context, b *policies.Bundle, prev *loaded, p *Parts, o rego.Options) (*loaded, error) {
	return compileAs(ctx, b, b.Settings.Rollout.Stage, prev, p, o)
}

// compileAs is compile for a bundle that is in another stage than it says: a
// candidate binds in its canary, and once it is promoted.
func compileAs(ctx context.Context, b *policies.Bundle, stage taxonomy.Mode, prev *loaded, p *Parts, o rego.Options) (*loaded, error) {
	version := Version(b)
	s := b.Settings
	o.Version, o.Breakers = version, regoBreakers(s)
	snapshot, err := compileRules(ctx, b, o)
	if err != nil {
		return nil, &policyError{b.Source, err}
	}
	l := &loaded{bundle: b, snapshot: snapshot, stage: stage}
	if l.modules, err = openModules(ctx, b, prev); err != nil {
		return nil, &policyError{b.Source, err}
	}
	if err := l.openPlugins(ctx, prev, p); err != nil {
		closeModules(l.modules)
		return nil, &policyError{b.Source, err}
	}
	for _, w := range snapshot.Warnings() {
		l.warnings = append(l.warnings, w.String())
	}
	if len(s.Breakers) == 0 {
		l.warn("the policy has no [[breaker]], so nothing will ever open; fusebox policy export DIR writes a complete one to begin from")
	}
	l.policy = l.terms(version)
	for _, m := range l.modules {
		l.policy.Classifiers, l.policy.Choosers = m.join(l.policy.Classifiers, l.policy.Choosers)
	}
	l.join()
	l.policy.Classifiers = append(l.policy.Classifiers, p.Classifiers...)
	return l, nil
}

// terms are the settings in the engine's terms.
func (l *loaded) terms(version taxonomy.PolicyVersion) *engine.Policy {
	s := l.bundle.Settings
	return &engine.Policy{
		Version:     version,
		Rules:       l.snapshot,
		Table:       builtin.Default().WithLoops(detector(&s.Loop)),
		Breakers:    l.settings(),
		Fallbacks:   contracts(s),
		Tools:       l.tools(),
		Budgets:     l.budgets(),
		Retries:     retries(&s.Retry),
		RetryTokens: retryTokens(&s.Budget.Retry),
		Prices:      prices(s),
		Bulkheads:   bulkheads(s),
		Queue:       queueRules(&s.Queue),
		OnError:     engine.PolicyErrorRule{ReadsProceed: s.Answers.Reads == "allow"},
		StoreLoss:   storeLoss(s),
		HighImpact:  highImpact(s),
		ReadIntents: readIntents(s),
		HintMost:    s.Retry.RetryAfterMax,
		Exhausted:   s.Budget.OnExhausted,
		Reserve:     s.Budget.Reservation,
		Observe:     observed(l.stage),
		WritesFree:  !s.Rollout.EnforceWrites,
		Close:       func() error { l.letGo(); return nil },
	}
}

// A policyError says which source did not load, in the words of the room that
// refused it.
type policyError struct {
	source string
	err    error
}

func (e *policyError) Error() string {
	return "load policy " + e.source + ": " + strings.TrimPrefix(e.err.Error(), "load policy: ")
}

func (e *policyError) Unwrap() error { return e.err }

// detector is the loop detector with the policy's thresholds. A success may be
// repeated once more than a failure, because work often looks the same from
// outside; and one tool may fail once more on other targets than on one, because
// trying three addresses is no loop.
func detector(l *policies.Loop) builtin.Detector {
	d := builtin.Detector{Failures: l.SameCall, Successes: l.SameCall + 1, Errors: l.SameError + 1, Cycles: l.PingPong, Stale: l.Steps}
	if l.Steps == 0 {
		d.Stale = -1 // not watched
	}
	return d
}

// regoBreakers is what routing must know of the breakers to refuse a feed that
// names none.
func regoBreakers(s *policies.Settings) []rego.Breaker {
	out := make([]rego.Breaker, len(s.Breakers))
	for i, b := range s.Breakers {
		out[i] = rego.Breaker{Name: b.Name, Layer: b.Layer, Scope: b.Scope}
	}
	return out
}

// observed reports whether a stage binds nothing but authority's denials and
// the rule about UNKNOWN writes. A shadow or a canary is a candidate beside
// another version; alone it observes.
func observed(stage taxonomy.Mode) bool { return stage != taxonomy.ModeEnforce }

// settings are the breakers in the mode that the stage of the whole policy
// leaves them.
func (l *loaded) settings() []breaker.Setting {
	s := l.bundle.Settings
	out := make([]breaker.Setting, len(s.Breakers))
	for i, b := range s.Breakers {
		out[i] = b.Setting
		if observed(l.stage) {
			out[i].Rule.Mode = taxonomy.ModeObserve
		}
	}
	if st := l.stage; st == taxonomy.ModeShadow || st == taxonomy.ModeCanary {
		l.warn("rollout.stage is %q: a policy that is alone in force only observes", st)
	}
	return out
}

func (l *loaded) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

func contracts(s *policies.Settings) []engine.Fallback {
	out := make([]engine.Fallback, len(s.Fallbacks))
	for i, c := range s.Fallbacks {
		out[i] = engine.Fallback{Name: c.Name, Within: c.LatencyBudget, Reviewers: c.Reviewers, MaxCases: c.MaxCases, Saved: c.Saved, Then: c.Then,
			MaxAge: map[string]time.Duration{}, ExpiresIn: map[string]time.Duration{}}
		for j := range c.Candidates {
			k := &c.Candidates[j]
			out[i].Candidates = append(out[i].Candidates, k.Shown())
			out[i].MaxAge[k.ID], out[i].ExpiresIn[k.ID] = k.MaxAge, k.ExpiresIn
		}
	}
	return out
}

// tools are the declared ones. How a lookup is done is wiring, under the name
// that reconcilerName gives it.
func (l *loaded) tools() []engine.Tool {
	s := l.bundle.Settings
	out := make([]engine.Tool, len(s.Tools))
	for i, t := range s.Tools {
		out[i] = engine.Tool{Tool: t.Tool, Action: t.Action, ActionClass: t.ActionClass, Effect: t.Effect, Compensate: t.Compensate,
			Key: t.Idempotency, Timeout: t.Timeout, Reconcile: reconcilerName(&t.Reconcile),
			Lookup: engine.Lookup{After: t.Reconcile.After, Every: t.Reconcile.Every, Tries: int64(t.Reconcile.Tries)},
			Polls:  t.Loop == "poll" || t.Loop == "off"}
		if t.Compensate == policies.NoCompensation {
			out[i].Compensate = ""
		}
		switch t.Condition {
		case "live_key":
			out[i].Condition = "key"
		case "precondition":
			out[i].Condition = "precondition"
		case "status_lookup":
			out[i].Condition = "lookup"
		}
	}
	return out
}

// reconcilerName is the key in Parts.Reconcilers under which a declared lookup
// is found, or who else tells: no reconciler has the names of a callback and of a
// person.
func reconcilerName(r *policies.Reconcile) string {
	switch r.By {
	case "http":
		return "http"
	case "tool":
		return "tool:" + r.Tool
	case "plugin":
		return "plugin:" + r.Plugin
	}
	return r.By
}

func (l *loaded) budgets() []engine.Budget {
	var out []engine.Budget
	for _, b := range l.bundle.Settings.Budget.Limits {
		e := engine.Budget{Name: b.Name, Scope: b.Scope, Limit: state.Amounts{
			CostNanoUSD: nano(b.CostUSD), Tokens: b.Tokens, Attempts: b.Attempts, TimeMS: b.Time.Milliseconds()}}
		switch b.Window {
		case "hour":
			e.Window = time.Hour
		case "day":
			e.Window = 24 * time.Hour
		case "month":
			e.Month = true
		}
		out = append(out, e)
	}
	return out
}

// prices go to the engine in nano dollars, in the order in which they are tried.
func prices(s *policies.Settings) []engine.Price {
	out := make([]engine.Price, len(s.Prices))
	for i, p := range s.Prices {
		out[i] = engine.Price{Provider: p.Provider, Model: p.Model,
			InputPerMillion: nano(p.Input), CachedPerMillion: nano(p.CachedInput), OutputPerMillion: nano(p.Output), PerCall: nano(p.PerCall)}
	}
	return out
}

// nano turns dollars into nano dollars.
func nano(usd float64) int64 { return int64(math.Round(usd * 1e9)) }

// readIntents are the classes whose reads leave durable intents.
func readIntents(s *policies.Settings) []string {
	var out []string
	for _, i := range s.Impacts {
		if i.Intents {
			out = append(out, i.ActionClass)
		}
	}
	return out
}

// bulkheads are the declared ones, and one for each tool that bounds its calls.
func bulkheads(s *policies.Settings) []engine.Bulkhead {
	var out []engine.Bulkhead
	for _, b := range s.Bulkheads {
		out = append(out, engine.Bulkhead{Name: b.Name, Scope: b.Scope, Most: b.Most})
	}
	for _, t := range s.Tools {
		if t.MaxParallel <= 0 {
			continue
		}
		b := engine.Bulkhead{Name: "tool:" + t.Tool, Tool: t.Tool, Action: t.Action, Scope: []string{"tool"}, Most: t.MaxParallel}
		if t.Action != "" {
			b.Name, b.Scope = b.Name+"/"+t.Action, []string{"tool", "action"}
		}
		out = append(out, b)
	}
	return out
}

func retries(r *policies.Retry) []engine.RetryProfile {
	out := []engine.RetryProfile{
		profile("model", &r.Model, r.Deadline), profile("tool", &r.Tool, r.Deadline), profile("workflow", &r.Workflow, r.Deadline),
		// Background work has hours; the deadline of the other profiles is not its own.
		profile("background", &r.Background, max(r.Deadline, time.Hour)),
	}
	return out
}

func profile(name string, p *policies.Profile, deadline time.Duration) engine.RetryProfile {
	e := engine.RetryProfile{Name: name, Attempts: p.Attempts, Base: p.Base, Cap: p.Cap, Growth: 2, Jitter: p.Jitter,
		Deadline: deadline, PerAttempt: p.Timeout}
	if n := len(p.Waits); n > 0 {
		e.Base, e.Cap = p.Waits[0], p.Waits[n-1]
		if n > 1 && p.Waits[0] > 0 {
			e.Growth = float64(p.Waits[1]) / float64(p.Waits[0])
		}
	}
	return e
}

// tokenScale makes whole numbers of shares of a token.
const tokenScale = 1000

func retryTokens(b *policies.RetryBudget) engine.RetryTokens {
	return engine.RetryTokens{Capacity: int64(b.Capacity * tokenScale), Cost: tokenScale, Refill: int64(b.Ratio * tokenScale), Every: b.Refill, Floor: int64(b.Floor)}
}

func queueRules(q *policies.Queue) engine.QueueRules {
	r := engine.QueueRules{Expires: q.Expires, MaxItems: q.MaxItems, PerTenant: q.PerTenant, Manual: q.Replay == "never",
		Attempts: q.Attempts, Claim: q.Claim, KeepDead: q.Deadline}
	if q.Pace > 0 {
		r.Drain = max(int(q.Pace), 1)
		r.Every = time.Duration(float64(r.Drain) / q.Pace * float64(time.Second))
	}
	return r
}

// storeLoss says what reads do while the store is gone: what their action class
// declares, else what the provider's circuit is worth without it.
func storeLoss(s *policies.Settings) []engine.StoreLossRule {
	var out []engine.StoreLossRule
	for _, b := range s.Breakers {
		if b.Layer == taxonomy.LayerProvider {
			out = append(out, engine.StoreLossRule{ReadsOpen: b.OnStoreLoss != breaker.LossDeny})
			break
		}
	}
	for _, i := range s.Impacts {
		out = append(out, engine.StoreLossRule{ActionClass: i.ActionClass, ReadsOpen: i.OnStoreLoss != breaker.LossDeny})
	}
	return out
}

func highImpact(s *policies.Settings) []string {
	var out []string
	for _, i := range s.Impacts {
		if i.Impact == "high" {
			out = append(out, i.ActionClass)
		}
	}
	return out
}

// errNoPolicy says that a configured path is not there.
var errNoPolicy = errors.New("there is no policy there")
