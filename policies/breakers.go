package policies

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// breakerTOML is one [[breaker]] as it is written. What is left out keeps the
// value of breaker.Defaults for its layer.
type breakerTOML struct {
	Name        string            `toml:"name"`
	Layer       taxonomy.Layer    `toml:"layer"`
	Scope       []string          `toml:"scope"`
	Counts      []taxonomy.Class  `toml:"counts"`
	Excludes    []taxonomy.Class  `toml:"excludes"`
	Window      windowTOML        `toml:"window"`
	Trip        tripTOML          `toml:"trip"`
	Rollup      rollupTOML        `toml:"rollup"`
	Cooldown    cooldownTOML      `toml:"cooldown"`
	Probe       probeTOML         `toml:"probe"`
	Ramp        rampTOML          `toml:"ramp"`
	Forget      time.Duration     `toml:"forget"`
	OnStoreLoss breaker.StoreLoss `toml:"on_store_loss"`
	Fallback    string            `toml:"fallback"`
	Mode        taxonomy.Mode     `toml:"mode"`
	Owner       ownerTOML         `toml:"owner"`
	MaxCircuits int               `toml:"max_circuits"`
}

type windowTOML struct {
	Kind       breaker.WindowKind `toml:"kind"`
	Length     time.Duration      `toml:"length"`
	Size       uint32             `toml:"size"`
	Buckets    uint8              `toml:"buckets"`
	MinSamples uint32             `toml:"min_samples"`
}

type tripTOML struct {
	FailureRatio share         `toml:"failure_ratio"`
	Consecutive  uint32        `toml:"consecutive"`
	SlowOver     time.Duration `toml:"slow_over"`
	SlowRatio    share         `toml:"slow_ratio"`
	Unknown      uint32        `toml:"unknown"`
}

type rollupTOML struct {
	Children uint32 `toml:"children"`
	Share    share  `toml:"share"`
}

type cooldownTOML struct {
	Base          time.Duration `toml:"base"`
	Growth        share         `toml:"growth"`
	Max           time.Duration `toml:"max"`
	Jitter        share         `toml:"jitter"`
	RetryAfterMax time.Duration `toml:"retry_after_max"`
}

type probeTOML struct {
	Budget      uint8         `toml:"budget"`
	Lease       time.Duration `toml:"lease"`
	Successes   uint8         `toml:"successes"`
	Gap         time.Duration `toml:"gap"`
	LostMax     uint8         `toml:"lost_max"`
	Evidence    evidence      `toml:"evidence"`
	EvidenceAll bool          `toml:"evidence_all"`
	Only        []string      `toml:"only"`
	Never       []string      `toml:"never"`
	MaxTokens   int64         `toml:"max_tokens"`
}

type rampTOML struct {
	Steps        []share       `toml:"steps"`
	Every        time.Duration `toml:"every"`
	MinSuccesses uint32        `toml:"min_successes"`
	Consecutive  uint32        `toml:"consecutive"`
	MinSamples   uint32        `toml:"min_samples"`
}

type ownerTOML struct {
	Policy     string `toml:"policy"`
	Alerts     string `toml:"alerts"`
	Closes     string `toml:"closes"`
	TellsUsers string `toml:"tells_users"`
}

// A share is a decimal in the file and parts per million in a rule.
type share breaker.PPM

// evidence is one kind or a list of them.
type evidence breaker.Evidence

// breakers reads the [[breaker]] entries.
func (d *decoder) breakers(raw []map[string]any) []Breaker {
	var out []Breaker
	names := map[string]bool{}
	for i, table := range raw {
		path := fmt.Sprintf("breaker[%d]", i)
		before := len(d.found)
		s, ok := d.breaker(path, table)
		if !ok || len(d.found) > before {
			continue
		}
		if names[s.Name] {
			d.add(path+".name", "%q is the name of an earlier breaker", s.Name)
		}
		names[s.Name] = true
		d.validated(path, s.Validate(), fmt.Sprintf("breaker %q: ", s.Name))
		out = append(out, Breaker{Setting: s, Line: lineOf(d.lines, path)})
	}
	return out
}

// breaker reads one entry over the defaults of its layer.
func (d *decoder) breaker(path string, table map[string]any) (breaker.Setting, bool) {
	var head struct {
		Name  string         `toml:"name"`
		Layer taxonomy.Layer `toml:"layer"`
		Scope []string       `toml:"scope"`
	}
	for _, k := range []string{"name", "layer", "scope"} {
		if _, ok := table[k]; !ok {
			d.add(path, "needs %s", k)
			return breaker.Setting{}, false
		}
	}
	before := len(d.found)
	d.into(path, map[string]any{"name": table["name"], "layer": table["layer"], "scope": table["scope"]}, reflect.ValueOf(&head).Elem())
	if len(d.found) > before {
		return breaker.Setting{}, false
	}
	defaults := breaker.Defaults(head.Name, head.Layer, head.Scope...)
	t := written(&defaults)
	d.into(path, table, reflect.ValueOf(&t).Elem())
	if window, ok := table["window"].(map[string]any); ok {
		// A count window has no length unless somebody wrote one, and that is an error
		// that Validate names.
		if _, stated := window["length"]; !stated && t.Window.Kind == breaker.CountWindow {
			t.Window.Length = 0
		}
	}
	// What is restored by a decision or a finding comes back whole: the stages of
	// the layer's default are for calls that prove something one by one.
	if _, stated := table["ramp"]; !stated && breaker.Evidence(t.Probe.Evidence)&breaker.Calls == 0 {
		t.Ramp = rampTOML{}
	}
	if len(t.Ramp.Steps) > breaker.MaxSteps {
		d.add(path+".ramp.steps", "has %d steps, at most %d are possible", len(t.Ramp.Steps), breaker.MaxSteps)
	}
	return t.setting(), true
}

// validated places the complaints of a Validate at the lines of what they are
// about: each begins with the key.
func (d *decoder) validated(path string, err error, prefix string) {
	if err == nil {
		return
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, e := range list {
		text := strings.TrimPrefix(e.Error(), prefix)
		key, _, _ := strings.Cut(text, " ")
		at := path
		if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_.") == "" {
			at = join(path, strings.Split(key, "."))
		}
		d.found.add(d.file, lineOf(d.lines, at), "%s%s", prefix, text)
	}
}

// written is a setting as the file would have it.
func written(s *breaker.Setting) breakerTOML {
	r := &s.Rule
	t := breakerTOML{
		Name: s.Name, Layer: s.Layer, Scope: s.Scope, Counts: s.Counts, Excludes: s.Excludes,
		Window:   windowTOML{r.Window.Kind, r.Window.Length, r.Window.Size, r.Window.Buckets, r.Window.MinSamples},
		Trip:     tripTOML{share(r.Trip.FailureRatio), r.Trip.Consecutive, r.Trip.SlowOver, share(r.Trip.SlowRatio), r.Trip.Unknown},
		Rollup:   rollupTOML{s.Rollup.Children, share(s.Rollup.Share)},
		Cooldown: cooldownTOML{r.Cooldown.Base, share(r.Cooldown.Growth), r.Cooldown.Max, share(r.Cooldown.Jitter), r.Cooldown.RetryAfterMax},
		Probe: probeTOML{r.Probe.Budget, r.Probe.Lease, r.Probe.Successes, r.Probe.Gap, r.Probe.LostMax, evidence(r.Probe.Evidence),
			r.Probe.All, s.Probes.Only, s.Probes.Never, s.Probes.MaxTokens},
		Ramp:        rampTOML{nil, r.Ramp.Every, r.Ramp.MinSuccesses, r.Ramp.Consecutive, r.Ramp.MinSamples},
		Forget:      r.Forget,
		OnStoreLoss: s.OnStoreLoss, Fallback: s.Fallback, Mode: r.Mode,
		Owner: ownerTOML(s.Owner), MaxCircuits: s.MaxCircuits,
	}
	for _, step := range r.Ramp.Steps {
		if step == 0 {
			break
		}
		t.Ramp.Steps = append(t.Ramp.Steps, share(step))
	}
	return t
}

// setting is what package breaker is given.
func (t *breakerTOML) setting() breaker.Setting {
	s := breaker.Setting{
		Name: t.Name, Layer: t.Layer, Scope: t.Scope, Counts: t.Counts, Excludes: t.Excludes,
		Rule: breaker.Rule{
			Mode: t.Mode,
			Window: breaker.WindowRule{Kind: t.Window.Kind, Length: t.Window.Length, Size: t.Window.Size,
				Buckets: t.Window.Buckets, MinSamples: t.Window.MinSamples},
			Trip: breaker.Trip{FailureRatio: breaker.PPM(t.Trip.FailureRatio), Consecutive: t.Trip.Consecutive,
				SlowOver: t.Trip.SlowOver, SlowRatio: breaker.PPM(t.Trip.SlowRatio), Unknown: t.Trip.Unknown},
			Cooldown: breaker.Cooldown{Base: t.Cooldown.Base, Growth: breaker.PPM(t.Cooldown.Growth), Max: t.Cooldown.Max,
				Jitter: breaker.PPM(t.Cooldown.Jitter), RetryAfterMax: t.Cooldown.RetryAfterMax},
			Probe: breaker.Probe{Budget: t.Probe.Budget, Lease: t.Probe.Lease, Successes: t.Probe.Successes, Gap: t.Probe.Gap,
				LostMax: t.Probe.LostMax, Evidence: breaker.Evidence(t.Probe.Evidence), All: t.Probe.EvidenceAll},
			Ramp: breaker.Ramp{Every: t.Ramp.Every, MinSuccesses: t.Ramp.MinSuccesses, Consecutive: t.Ramp.Consecutive,
				MinSamples: t.Ramp.MinSamples},
			Forget: t.Forget,
		},
		Rollup:      breaker.Rollup{Children: t.Rollup.Children, Share: breaker.PPM(t.Rollup.Share)},
		Probes:      breaker.Probes{Only: t.Probe.Only, Never: t.Probe.Never, MaxTokens: t.Probe.MaxTokens},
		OnStoreLoss: t.OnStoreLoss, Fallback: t.Fallback, Owner: breaker.Owner(t.Owner), MaxCircuits: t.MaxCircuits,
	}
	for i := range min(len(t.Ramp.Steps), breaker.MaxSteps) {
		s.Rule.Ramp.Steps[i] = breaker.PPM(t.Ramp.Steps[i])
	}
	if s.Rule.Probe.Evidence&breaker.Calls == 0 {
		s.Rule.Ramp = breaker.Ramp{} // what a decision restored comes back whole
	}
	return s
}
