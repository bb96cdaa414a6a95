package policies

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// idle: entries that are well-formed and have no effect.
func (f *finder) idle() {
	if f.s.Rollout.Stage != taxonomy.ModeEnforce {
		for _, b := range f.s.Breakers {
			if b.Rule.Mode == taxonomy.ModeEnforce {
				f.add("stage_observes", false, b.Line, "breaker %s says enforce, and rollout.stage = %q leaves it observing", b.Name, f.s.Rollout.Stage)
				break
			}
		}
	}
	for i, p := range f.s.Prices {
		if slices.ContainsFunc(f.s.Prices[:i], func(q Price) bool { return wider(q.Provider, p.Provider) && wider(q.Model, p.Model) }) {
			f.add("shadowed_price", false, p.Line, "the price of %s/%s is never used: an earlier [[price]] matches all that it does", p.Provider, p.Model)
		}
	}
	for _, l := range f.s.Budget.Limits {
		if l.CostUSD > 0 && len(f.s.Prices) == 0 {
			f.add("no_prices", false, l.Line, "budget limit %s counts money, and there is no [[price]]: a call costs what its caller's estimate says, and nothing without one", l.Name)
		}
	}
	for _, b := range f.s.Breakers {
		for _, name := range append(slices.Clone(b.Probes.Only), b.Probes.Never...) {
			if b.Layer == taxonomy.LayerTool && !f.declared(name) && !slices.ContainsFunc(f.s.Tools, func(t Tool) bool { return t.Tool == name || t.Action == name }) {
				f.add("unknown_probe", false, b.Line, "breaker %s: probe operation %q is described by no [[tool]]", b.Name, name)
			}
		}
	}
	for _, b := range f.s.Breakers {
		f.unreachable(b)
	}
	for _, t := range f.s.Tools {
		if t.Compensate != "" && !t.Effect.Writes() {
			f.add("nothing_to_compensate", false, t.Line, "tool %s is read_only, so its compensate is never used", t.Tool)
		}
	}
}

// unreachable: limits of a breaker that nothing can ever reach.
func (f *finder) unreachable(b Breaker) {
	r := &b.Rule
	ratios := r.Trip.FailureRatio > 0 || r.Trip.SlowRatio > 0
	if w := r.Window; w.Kind == breaker.CountWindow && r.Ramp.Steps[0] > 0 && ratios && r.Ramp.MinSamples > w.Size {
		f.add("idle_ramp_ratio", false, b.Line, "breaker %s: ramp.min_samples %d can never be reached in a window of %d, so no ratio is judged while traffic comes back", b.Name, r.Ramp.MinSamples, w.Size)
	}
	room := b.MaxCircuits
	if room == 0 {
		room = breaker.DefaultCircuits
	}
	if b.Rollup.Children > 0 && int64(b.Rollup.Children) >= int64(room) {
		f.add("idle_rollup", false, b.Line, "breaker %s: rollup.children %d can never be open at once: max_circuits %d leaves room for %d of them beside their parent", b.Name, b.Rollup.Children, room, room-1)
	}
	if c := r.Cooldown; r.Probe.Evidence&breaker.Calls != 0 && c.RetryAfterMax < c.Base {
		f.add("idle_retry_after", false, b.Line, "breaker %s: cooldown.retry_after_max (%s) is below cooldown.base (%s), so no server's Retry-After ever lengthens a cooldown", b.Name, c.RetryAfterMax, c.Base)
	}
}

// wider reports that one pattern matches all that another does.
func wider(a, b string) bool {
	prefix, any := strings.CutSuffix(a, "*")
	return a == b || any && strings.HasPrefix(b, prefix)
}

// signatures: one that is there and that nobody checks.
func (f *finder) signatures(b *Bundle) {
	if b.OPASigned && b.SignedBy == "" {
		f.add("foreign_signature", false, 0, "%s is of opa sign and is not checked: it covers neither %s nor modules; fusebox policy sign covers everything", opaSignatureFile, SettingsFile)
	}
}

// observed: entries of config.authority.observe that name no rule of a team, so
// that the rule somebody meant is enforced.
func (f *finder) observed(b *Bundle) {
	var data struct {
		Fusebox struct {
			Config struct {
				Authority struct {
					Observe []string `json:"observe"`
				} `json:"authority"`
			} `json:"config"`
		} `json:"fusebox"`
	}
	if len(b.Data) == 0 || json.Unmarshal(b.Data, &data) != nil {
		return // rules of another making may hold something else there
	}
	for _, entry := range data.Fusebox.Config.Authority.Observe {
		team, reason, _ := strings.Cut(entry, ".")
		found := slices.ContainsFunc(b.Rego, func(r File) bool {
			return packageOf(r.Bytes) == "fusebox.authority.rules."+team && bytes.Contains(r.Bytes, []byte(strings.Trim(strconv.Quote(reason), `"`)))
		})
		if !found {
			f.add("unknown_observed", false, 0, "data.fusebox.config.authority.observe names %q, which is no rule below fusebox.authority.rules; what was meant is enforced", entry)
			continue
		}
		f.add("observed", false, 0, "authority rule %s is only observed: receipts show what it would have said, and it stops nobody", entry)
	}
}

// Unfed names the breakers that routing never feeds: breakers and layers are
// what its rules name (rego.Snapshot.Fed).
func (b *Bundle) Unfed(breakers, layers []string) []Finding {
	out := []Finding{}
	f := &finder{s: b.Settings}
	for _, k := range b.Settings.Breakers {
		if !slices.Contains(breakers, k.Name) && !slices.Contains(layers, k.Layer.String()) {
			f.add("unfed_breaker", false, k.Line, "breaker %s is fed by no routing rule, so it never opens by itself", k.Name)
		}
	}
	for _, name := range breakers {
		if b.Settings.Breaker(name) == nil {
			f.add("unknown_breaker", true, 0, "a routing rule feeds breaker %q, which policy.toml does not declare; that answer will be an error", name)
		}
	}
	return append(out, f.out...)
}
