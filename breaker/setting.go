package breaker

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Setting is one [[breaker]] of a policy: a rule, the scope it is kept for,
// what counts, and who answers for it. Start from [Defaults] and change what
// the policy says.
type Setting struct {
	Name  string // unique in the policy
	Layer taxonomy.Layer
	Scope []string // fields of the operation, widest first; every prefix is a circuit
	Rule  Rule     // window, trip, cooldown, probe, ramp, mode

	// Counts are the error classes whose failures count; empty is all.
	Counts []taxonomy.Class
	// Excludes are the classes that never count, and never open the circuit
	// at once either: they are recorded apart.
	Excludes []taxonomy.Class

	Rollup      Rollup
	Probes      Probes
	OnStoreLoss StoreLoss
	Fallback    string // name of the contract while it is open
	Owner       Owner
	// MaxCircuits bounds the circuits of this breaker, at least one for each
	// part of the scope; 0 is the registry's.
	MaxCircuits int
}

// A Rollup opens a parent when at least Children of its circuits are open, and
// at least Share of those that saw an outcome within the window. One child
// never opens its parent. The zero value is no roll-up.
type Rollup struct {
	Children uint32
	Share    PPM
}

// Probes says which operations may be the probe, beyond what [Evidence] and
// the operation's effect demand. Names are matched with the operation's name.
type Probes struct {
	Only      []string // nothing but these; empty is any
	Never     []string // a health endpoint alone closes no circuit
	MaxTokens int64    // estimated tokens of the smallest useful unit; 0 is no limit
}

// StoreLoss says what a circuit is worth while the state store cannot be read.
// The zero value denies.
type StoreLoss uint8

const (
	LossDeny  StoreLoss = iota // fail closed
	LossLocal                  // the process's own copy decides
	LossAllow                  // low-impact reads go ahead, and say so
)

var lossNames = []string{"deny", "local", "allow"}

func (l StoreLoss) String() string               { return name(lossNames, uint8(l)) }
func (l StoreLoss) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads "deny", "local" or "allow".
func (l *StoreLoss) UnmarshalText(t []byte) error {
	v, err := parse("on_store_loss", lossNames, t)
	*l = StoreLoss(v)
	return err
}

// Owner names who answers for a breaker.
type Owner struct {
	Policy     string // who decides its settings
	Alerts     string // who is woken
	Closes     string // who may close it by hand
	TellsUsers string // who talks to the users
}

// MaxScope is the most parts a scope may have.
const MaxScope = 6

// Defaults is a complete setting for a breaker of this layer over this scope,
// in observe mode. Its figures are starting points to tune.
func Defaults(name string, layer taxonomy.Layer, scope ...string) Setting {
	s := Setting{
		Name: name, Layer: layer, Scope: scope,
		Rule: Rule{
			Window: WindowRule{Kind: TimeWindow, Length: time.Minute, Buckets: MaxBuckets, MinSamples: 20},
			Trip:   Trip{FailureRatio: One / 2, Consecutive: 5},
			Cooldown: Cooldown{Base: 30 * time.Second, Growth: 1_500_000, Max: 2 * time.Minute, Jitter: 200_000,
				RetryAfterMax: 10 * time.Minute},
			Probe: Probe{Budget: 1, Lease: 30 * time.Second, Successes: 3, Gap: time.Second, LostMax: 3},
			Ramp: Ramp{Steps: [MaxSteps]PPM{100_000, 500_000}, Every: 10 * time.Second, MinSuccesses: 3,
				Consecutive: 2, MinSamples: 5},
			Forget: time.Hour,
		},
		OnStoreLoss: LossLocal,
	}
	p := &s.Rule.Probe
	switch layer {
	case taxonomy.LayerProvider:
		p.Evidence = ModelCall
	case taxonomy.LayerTool:
		p.Evidence = SafeCall
	case taxonomy.LayerWorkflow:
		p.Evidence, p.Successes = CasesPassed, 1
	case taxonomy.LayerSemantic:
		p.Evidence, p.Successes = ValidationsPassed, 1
	case taxonomy.LayerBudget:
		p.Evidence, p.Successes = Replenished|CapacityChanged, 1
		s.OnStoreLoss = LossDeny
	case taxonomy.LayerAuthority:
		p.Evidence, p.Successes, p.All = ApprovalGranted|StateVerified, 2, true
		if slices.Contains(scope, "credential") {
			p.Evidence, p.Successes, p.All = CredentialRestored, 1, false
		}
		s.OnStoreLoss = LossDeny
	}
	if !p.byCalls() {
		s.Rule.Ramp = Ramp{} // what was restored by a decision comes back whole
	}
	return s
}

// evidenceOf lists the kinds of proof that match a layer (SPEC R-BRK-6).
var evidenceOf = [taxonomy.Layers]Evidence{
	taxonomy.LayerProvider:  ModelCall | SafeCall,
	taxonomy.LayerTool:      ModelCall | SafeCall | Reconciled | StateVerified,
	taxonomy.LayerWorkflow:  CasesPassed | ApprovalGranted | StateVerified,
	taxonomy.LayerSemantic:  ValidationsPassed,
	taxonomy.LayerBudget:    Replenished | CapacityChanged,
	taxonomy.LayerAuthority: ApprovalGranted | CredentialRestored | StateVerified,
}

// Ambiguity reports whether this is a breaker for UNKNOWN outcomes: in the tool
// layer, and closed by reconciliation.
func (s *Setting) Ambiguity() bool {
	return s.Layer == taxonomy.LayerTool && s.Rule.Probe.Evidence&Reconciled != 0
}

// Validate names everything that is wrong, in the words of policy.toml.
func (s *Setting) Validate() error {
	c := complaints{prefix: fmt.Sprintf("breaker %q", s.Name)}
	c.check(plainName(s.Name), "name must be letters, digits, '-' and '_', at most 64 of them, and not empty")
	known := s.Layer > taxonomy.NoLayer && int(s.Layer) < taxonomy.Layers
	c.check(known, "layer must be provider, tool, workflow, semantic, budget or authority")
	s.checkScope(&c)
	s.Rule.validate(&c)
	e := s.Rule.Probe.Evidence
	if known && e != 0 {
		allowed := evidenceOf[s.Layer]
		c.check(e&^allowed == 0, "probe.evidence %s does not match the %s layer; it can be %s",
			e&^allowed, s.Layer, strings.ReplaceAll(allowed.String(), "+", ", "))
	}
	s.checkClasses(&c)
	s.checkRollup(&c)
	if s.Layer == taxonomy.LayerBudget || s.Layer == taxonomy.LayerAuthority {
		c.check(s.OnStoreLoss == LossDeny, "on_store_loss must be \"deny\" for the %s layer, got %q", s.Layer, s.OnStoreLoss)
	}
	c.check(s.OnStoreLoss <= LossAllow, "on_store_loss must be \"deny\", \"local\" or \"allow\"")
	c.check(s.Rule.Mode != enforce || s.Fallback != "",
		"fallback must name the contract for when it is open; a breaker that enforces needs one")
	for _, n := range s.Probes.Only {
		c.check(!slices.Contains(s.Probes.Never, n), "probe operation %q is both in only and in never, so nothing could probe with it", n)
	}
	c.check(s.Probes.MaxTokens >= 0, "probe.max_tokens must not be negative, got %d", s.Probes.MaxTokens)
	c.check(s.MaxCircuits >= 0, "max_circuits must not be negative, got %d", s.MaxCircuits)
	if s.MaxCircuits > 0 {
		s.checkRoom(&c, s.MaxCircuits)
	}
	return c.err()
}

func (s *Setting) checkScope(c *complaints) {
	c.check(len(s.Scope) > 0, "scope must name at least one field of the operation, widest first")
	c.check(len(s.Scope) <= MaxScope, "scope may name at most %d fields, got %d", MaxScope, len(s.Scope))
	for i, part := range s.Scope {
		if _, ok := taxonomy.PartNamed(part); !ok {
			names := taxonomy.PartNames()
			sort.Strings(names)
			c.add("scope field %q is not one of %s", part, strings.Join(names, ", "))
		}
		c.check(slices.Index(s.Scope, part) == i, "scope names %q twice", part)
	}
}

// checkRoom refuses a table that could not hold the circuits of one call.
func (s *Setting) checkRoom(c *complaints, room int) {
	c.check(room >= len(s.Scope), "max_circuits must be at least %d, one for each part of the scope, got %d", len(s.Scope), room)
}

func (s *Setting) checkClasses(c *complaints) {
	for _, k := range s.Counts {
		c.check(k != taxonomy.NoClass && int(k) < taxonomy.Classes, "counts names %q, which is not an error class", k)
		c.check(!slices.Contains(s.Excludes, k), "%q is both in counts and in excludes", k)
	}
	for _, k := range s.Excludes {
		c.check(k != taxonomy.NoClass && int(k) < taxonomy.Classes, "excludes names %q, which is not an error class", k)
	}
}

func (s *Setting) checkRollup(c *complaints) {
	r := s.Rollup
	if r == (Rollup{}) {
		return
	}
	c.check(r.Children >= 2, "rollup.children must be at least 2, got %d: one child never opens its parent", r.Children)
	c.check(r.Share > 0 && r.Share <= One, "rollup.share must be above 0 and at most 1, got %v", r.Share.Float())
	c.check(len(s.Scope) > 1, "rollup has no effect: a scope of one field has no parent")
}

// ProbeBy reports whether an operation of this kind and effect could be the
// probe of this breaker. A policy whose breaker recovers by calls, and none of
// whose operations could be one, must be refused: it would stay open for ever.
func (s *Setting) ProbeBy(kind string, effect taxonomy.Effect) bool {
	op := taxonomy.Operation{Kind: kind, Effect: effect}
	return Gives(&op)&s.Rule.Probe.Evidence != 0
}

// Gives is what a success of this operation would prove. A probe is a read or a
// safely idempotent call and never the failed mutation again, so a write that
// was tried before, or follows an UNKNOWN, proves nothing.
func Gives(op *taxonomy.Operation) Evidence {
	if !op.Effect.Repeatable() || op.Impact == "high" {
		return 0
	}
	if op.Effect.Writes() && (op.Attempt > 1 || op.PriorUnknown || op.Origin == taxonomy.OriginRetry || op.Origin == taxonomy.OriginReplay) {
		return 0
	}
	if op.Kind == "model" {
		return ModelCall | SafeCall
	}
	return SafeCall
}

// may reports whether this operation may probe as far as Probes says.
func (p *Probes) may(op *taxonomy.Operation) bool {
	if len(p.Only) > 0 && !slices.Contains(p.Only, op.Name) || slices.Contains(p.Never, op.Name) {
		return false
	}
	return p.MaxTokens == 0 || op.Estimate.InputTokens+op.Estimate.OutputTokens <= p.MaxTokens
}

// Validate names every impossible value of the rule.
func (r *Rule) Validate() error {
	c := complaints{prefix: "breaker rule"}
	r.validate(&c)
	return c.err()
}

func (r *Rule) validate(c *complaints) {
	c.check(r.Mode == enforce || r.Mode == taxonomy.ModeObserve, "mode must be \"enforce\" or \"observe\", got %q", r.Mode)
	r.Window.validate(c)
	r.Trip.validate(c, r.Forget, r.Window)
	r.Cooldown.validate(c)
	r.Probe.validate(c)
	r.Ramp.validate(c)
	c.check(r.Forget > 0, "forget must be positive, got %s", r.Forget)
	if r.Window.Kind == TimeWindow {
		c.check(r.Forget >= r.Window.Length, "forget (%s) must not be shorter than window.length (%s)", r.Forget, r.Window.Length)
	}
}

// longest bounds every duration of a rule, so that sums of instants cannot wrap.
const longest = 366 * 24 * time.Hour

func (c *complaints) duration(name string, d, least time.Duration) {
	c.check(d >= least && d <= longest, "%s must be between %s and %s, got %s", name, least, longest, d)
}

func (w *WindowRule) validate(c *complaints) {
	c.check(w.Buckets >= 1 && w.Buckets <= MaxBuckets, "window.buckets must be 1 to %d, got %d", MaxBuckets, w.Buckets)
	switch w.Kind {
	case TimeWindow:
		c.duration("window.length", w.Length, time.Millisecond)
		c.check(w.Size == 0, "window.size has no effect on a time window")
	case CountWindow:
		c.check(w.Size >= 1 && w.Size <= full, "window.size must be 1 to %d, got %d", full, w.Size)
		c.check(w.Length == 0, "window.length has no effect on a count window")
		c.check(w.Buckets == 0 || w.Size%uint32(w.Buckets) == 0, "window.size %d must be a multiple of window.buckets %d", w.Size, w.Buckets)
		c.check(w.MinSamples <= w.Size, "window.min_samples %d can never be reached in a window of %d", w.MinSamples, w.Size)
	default:
		c.add("window.kind must be \"time\" or \"count\"")
	}
	c.check(w.MinSamples >= 1, "window.min_samples must be at least 1")
}

func (t *Trip) validate(c *complaints, forget time.Duration, w WindowRule) {
	c.check(t.FailureRatio <= One, "trip.failure_ratio must be at most 1, got %v", t.FailureRatio.Float())
	c.check(t.SlowRatio <= One, "trip.slow_ratio must be at most 1, got %v", t.SlowRatio.Float())
	c.check((t.SlowRatio > 0) == (t.SlowOver > 0), "trip.slow_over and trip.slow_ratio need each other")
	c.check(t.SlowOver >= 0 && t.SlowOver <= longest, "trip.slow_over must not be negative, got %s", t.SlowOver)
	if w.Kind == CountWindow {
		c.check(t.Unknown <= w.Size, "trip.unknown %d can never be reached in a window of %d", t.Unknown, w.Size)
	}
}

func (d *Cooldown) validate(c *complaints) {
	c.duration("cooldown.base", d.Base, time.Millisecond)
	c.check(d.Growth >= One && d.Growth <= 100*One, "cooldown.growth must be 1 to 100, got %v", d.Growth.Float())
	c.duration("cooldown.max", d.Max, time.Millisecond)
	c.check(d.Max >= d.Base, "cooldown.max (%s) must not be below cooldown.base (%s)", d.Max, d.Base)
	c.check(d.Jitter <= One, "cooldown.jitter must be at most 1, got %v", d.Jitter.Float())
	c.duration("cooldown.retry_after_max", d.RetryAfterMax, time.Millisecond)
}

func (p *Probe) validate(c *complaints) {
	c.check(p.Evidence != 0 && p.Evidence < evidenceEnd,
		"probe.evidence must name what closes the circuit again; without it an open circuit would stay open for ever")
	c.check(p.Successes >= 1, "probe.successes must be at least 1")
	c.check(!p.All || int(p.Successes) >= 1, "probe.evidence_all needs probe.successes")
	if !p.byCalls() {
		return
	}
	c.check(p.Budget >= 1 && p.Budget <= MaxProbes, "probe.budget must be 1 to %d, got %d", MaxProbes, p.Budget)
	c.duration("probe.lease", p.Lease, time.Millisecond)
	c.duration("probe.gap", p.Gap, 0)
}

func (r *Ramp) validate(c *complaints) {
	n := r.steps()
	for i, s := range r.Steps {
		if i >= int(n) {
			c.check(s == 0, "ramp.steps has a step of 0 before %v", s.Float())
			continue
		}
		c.check(s <= One, "ramp.steps must be shares of at most 1, got %v", s.Float())
		c.check(i == 0 || s >= r.Steps[i-1], "ramp.steps must not fall: %v after %v", s.Float(), r.Steps[max(i-1, 0)].Float())
	}
	if n == 0 {
		return
	}
	c.duration("ramp.every", r.Every, 0)
	c.check(r.MinSuccesses >= 1, "ramp.min_successes must be at least 1: time alone proves nothing")
}

// complaints gathers what is wrong with one breaker.
type complaints struct {
	prefix string
	errs   []error
}

func (c *complaints) check(ok bool, format string, args ...any) {
	if !ok {
		c.add(format, args...)
	}
}

func (c *complaints) add(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(c.prefix+": "+format, args...))
}

func (c *complaints) err() error { return errors.Join(c.errs...) }

func plainName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
