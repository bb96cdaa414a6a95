package policies

import (
	"fmt"
	"slices"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Finding is something that a person should know before this policy decides:
// it loads, and something about it is missing or has no effect (R-POL-8).
type Finding struct {
	Code string `json:"code"`
	Line int    `json:"line"` // of policy.toml; 0 where no line is meant
	Text string `json:"text"`
	Must bool   `json:"must"` // has to be settled before writes may be enforced
}

func (f Finding) String() string {
	if f.Line == 0 {
		return f.Text
	}
	return fmt.Sprintf("%s:%d: %s", SettingsFile, f.Line, f.Text)
}

// Findings says what is missing.
func (b *Bundle) Findings() []Finding {
	f := &finder{s: b.Settings, out: []Finding{}}
	f.mutations()
	f.breakers()
	f.contracts()
	f.layers()
	f.idle()
	f.observed(b)
	f.signatures(b)
	return f.out
}

// writesNotReady is what keeps circuits from binding writes: a write path cannot
// be enforced before its idempotency, reconciliation, approval and compensation
// are declared, and the ambiguity circuit is there (R-POL-8).
func (s *Settings) writesNotReady() []Finding {
	f := &finder{s: s}
	f.mutations()
	f.breakers()
	f.layers()
	return slices.DeleteFunc(f.out, func(x Finding) bool { return !x.Must })
}

type finder struct {
	s   *Settings
	out []Finding
}

func (f *finder) add(code string, must bool, line int, format string, args ...any) {
	f.out = append(f.out, Finding{Code: code, Line: line, Must: must, Text: fmt.Sprintf(format, args...)})
}

// mutations: what changes the world needs a key, a way to find out what became
// of it, and a way to take it back.
func (f *finder) mutations() {
	for _, t := range f.s.Tools {
		name := t.Tool
		if t.Action != "" {
			name += "/" + t.Action
		}
		if !t.Effect.Writes() {
			continue
		}
		high := !t.Effect.Repeatable() || f.high(t.ActionClass)
		if t.Idempotency == "" && t.Reconcile.By == "" && !t.Effect.Repeatable() {
			f.add("no_key_no_reconciliation", true, t.Line, "tool %s changes things and has neither an idempotency key nor reconciliation, so it needs an approval each time; declare idempotency or reconcile", name)
		} else if high && t.Reconcile.By == "" {
			f.add("no_reconciliation", true, t.Line, "tool %s has no reconciliation: an UNKNOWN outcome of it stays unknown until a person looks; declare reconcile", name)
		}
		if high && t.ActionClass == "" {
			f.add("no_action_class", true, t.Line, "tool %s changes things and declares no action_class; the default rules deny it", name)
		}
		if high && t.Compensate == "" {
			f.add("no_compensation", true, t.Line, "tool %s does not say how it is taken back: declare compensate = \"tool/action\", or \"none\" when nothing takes it back", name)
		}
		if t.Compensate != "" && t.Compensate != NoCompensation && !f.declared(t.Compensate) {
			f.add("unknown_compensation", true, t.Line, "tool %s: compensate %q is described by no [[tool]]", name, t.Compensate)
		}
		if t.Reconcile.By == "tool" && !f.readOnly(t.Reconcile.Tool) {
			f.add("unsafe_reconciliation", true, t.Line, "tool %s: reconcile.tool %q is described by no [[tool]] with effect read_only", name, t.Reconcile.Tool)
		}
	}
}

func (f *finder) high(class string) bool {
	m := f.s.Impact(class)
	return m != nil && m.Impact == "high"
}

func (f *finder) declared(name string) bool {
	return slices.ContainsFunc(f.s.Tools, func(t Tool) bool { return t.Tool+"/"+t.Action == name || t.Action == "" && t.Tool == name })
}

func (f *finder) readOnly(name string) bool {
	return slices.ContainsFunc(f.s.Tools, func(t Tool) bool {
		return t.Tool+"/"+t.Action == name && t.Effect == taxonomy.ReadOnly
	})
}

func (f *finder) breakers() {
	for _, b := range f.s.Breakers {
		if b.Owner.Policy == "" || b.Owner.Alerts == "" || b.Owner.Closes == "" || b.Owner.TellsUsers == "" {
			f.add("no_owner", false, b.Line, "breaker %s does not say who owns its policy, is alerted, may close it and tells users", b.Name)
		}
		if b.Fallback == "" {
			f.add("no_fallback", true, b.Line, "breaker %s has no fallback contract, so it cannot be enforced", b.Name)
		}
		if t := b.Rule.Trip; t.FailureRatio > 0 && b.Rule.Window.MinSamples < 3 {
			f.add("small_sample", false, b.Line, "breaker %s judges a ratio on %d outcomes; one unlucky call opens it", b.Name, b.Rule.Window.MinSamples)
		}
	}
}

// contracts: a fallback that nothing names, or that loses what may not be lost.
func (f *finder) contracts() {
	for _, c := range f.s.Fallbacks {
		used := slices.ContainsFunc(f.s.Breakers, func(b Breaker) bool { return b.Fallback == c.Name })
		if !used {
			f.add("unused_fallback", false, c.Line, "fallback %s is named by no breaker", c.Name)
		}
		for _, k := range c.Candidates {
			for _, l := range k.Losses {
				if l == "privacy" || l == "authority" || l == "audit" {
					f.add("unbearable_loss", false, c.Line, "fallback %s: candidate %s loses %s; the default rules never choose it", c.Name, k.ID, l)
				}
			}
		}
	}
}

// layers: what must come first for high-impact actions.
func (f *finder) layers() {
	var have [taxonomy.Layers]bool
	ambiguity, loop := false, false
	for _, b := range f.s.Breakers {
		have[b.Layer] = true
		ambiguity = ambiguity || b.Ambiguity()
		loop = loop || b.Layer == taxonomy.LayerWorkflow && slices.Contains(b.Scope, "run_id")
	}
	for l := 1; l < taxonomy.Layers; l++ {
		if !have[l] {
			f.add("layer_without_breaker", false, 0, "no breaker watches the %s layer", taxonomy.Layer(l))
		}
	}
	if !ambiguity {
		f.add("no_ambiguity_breaker", true, 0, "no breaker is closed by reconciliation; before writes are enforced, UNKNOWN outcomes need one (layer tool, evidence reconciled)")
	}
	if !loop {
		f.add("no_loop_breaker", false, 0, "no breaker of the workflow layer is scoped to run_id, so loops stop nothing")
	}
	if len(f.s.Budget.Limits) == 0 {
		f.add("no_budget", false, 0, "no [[budget.limit]] bounds what runs may spend")
	}
}
