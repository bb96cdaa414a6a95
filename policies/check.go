package policies

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A checker holds settings against each other, once every value by itself is
// of the right kind.
type checker struct {
	d *decoder
	s *Settings
}

func at(kind string, i int) string { return fmt.Sprintf("%s[%d]", kind, i) }

func (c *checker) fail(path, format string, args ...any) { c.d.add(path, format, args...) }

// oneOf refuses a text that is none of the known ones; "" is allowed where it
// is listed.
func (c *checker) oneOf(path, text string, known ...string) {
	if slices.Contains(known, text) {
		return
	}
	hint := ""
	if near := nearest(text, known); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	c.fail(path, "must be %s, got %q%s", strings.Join(quoted(known), ", "), text, hint)
}

func quoted(list []string) []string {
	var out []string
	for _, s := range list {
		if s != "" {
			out = append(out, fmt.Sprintf("%q", s))
		}
	}
	return out
}

func (c *checker) every(path string, texts []string, known ...string) {
	for i, t := range texts {
		c.oneOf(at(path, i), t, known...)
	}
}

func (c *checker) within(path string, n, least, most float64) {
	if n < least || n > most {
		c.fail(path, "must be between %v and %v, got %v", least, most, n)
	}
}

func (c *checker) all() {
	c.breakers()
	c.modules()
	c.plugins()
	c.fallbacks()
	c.tools()
	c.impacts()
	c.budget()
	c.prices()
	c.queue()
	c.retry()
	c.rollout()
	c.oneOf("policy_error.reads", c.s.Answers.Reads, "allow", "reject")
}

// names refuses empty and repeated names.
func (c *checker) names(kind string, n int, name func(int) string) {
	seen := map[string]bool{}
	for i := range n {
		switch s := name(i); {
		case !plain(s):
			c.fail(at(kind, i)+".name", "must be letters, digits, '-', '_' and '.', at most 64 of them and not empty, got %q", s)
		case seen[s]:
			c.fail(at(kind, i)+".name", "%q is the name of an earlier one", s)
		default:
			seen[s] = true
		}
	}
}

func plain(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

func (c *checker) breakers() {
	for _, b := range c.s.Breakers {
		if b.Fallback != "" && c.s.Contract(b.Fallback) == nil {
			var known []string
			for _, f := range c.s.Fallbacks {
				known = append(known, f.Name)
			}
			hint := ""
			if near := nearest(b.Fallback, known); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			}
			c.d.found.add(c.d.file, b.Line, "breaker %q: fallback %q is not declared by any [[fallback]]%s", b.Name, b.Fallback, hint)
		}
		if !c.probed(b) {
			c.d.found.add(c.d.file, b.Line, "breaker %q could never be probed: its evidence is %s, and every operation that feeds it is a write that may not be repeated; name evidence that somebody can give, like reconciled or state_verified",
				b.Name, b.Rule.Probe.Evidence)
		}
	}
}

// probed reports whether something could ever close the circuit. Evidence that
// arrives as an event of its own can always be given. Evidence by calls needs
// operations that may be probes: where every declared action of the tools that
// this breaker is for is a write that may not be repeated, nothing ever could.
func (c *checker) probed(b Breaker) bool {
	const byCalls = 1<<0 | 1<<1 // model_call, safe_call
	if b.Rule.Probe.Evidence&^byCalls != 0 {
		return true
	}
	if b.Layer != taxonomy.LayerTool {
		return b.ProbeBy("model", taxonomy.ReadOnly)
	}
	if len(b.Probes.Only) == 0 {
		return b.ProbeBy("tool", taxonomy.ReadOnly)
	}
	for _, name := range b.Probes.Only {
		declared := false
		for _, t := range c.s.Tools {
			if t.Action == name || t.Tool+"/"+t.Action == name || t.Tool == name {
				declared = true
				if b.ProbeBy("tool", t.Effect) {
					return true
				}
			}
		}
		if !declared {
			return true // an operation that no [[tool]] describes declares its own effect
		}
	}
	return false
}

func (c *checker) modules() {
	c.names("module", len(c.s.Modules), func(i int) string { return c.s.Modules[i].Name })
	for i := range c.s.Modules {
		m, p := &c.s.Modules[i], at("module", i)
		if strings.ToLower(m.Name) != m.Name || strings.ContainsAny(m.Name, "_.") {
			c.fail(p+".name", "must be lower-case letters, digits and '-', got %q", m.Name)
		}
		if m.File == "" || !fs.ValidPath(m.File) {
			c.fail(p+".file", "must be a path inside the bundle, like \"modules/%s.wasm\", got %q", m.Name, m.File)
		}
		if m.File == "policy.wasm" || strings.HasSuffix(m.File, "/policy.wasm") {
			c.fail(p+".file", "must not be named policy.wasm: OPA would take it for its own compiled policy")
		}
		c.digest(p+".sha256", m.SHA256)
		if len(m.Kinds) == 0 {
			c.fail(p+".kinds", "must say what it does: classifier, fallback")
		}
		c.every(p+".kinds", m.Kinds, "classifier", "fallback")
		c.oneOf(p+".profile", m.Profile, "", "pure", "go")
		c.oneOf(p+".isolation", m.Isolation, "", "reset", "fresh")
		c.oneOf(p+".on_failure", m.OnFailure, "", "next", "unknown")
		c.selects(p+".select", &m.Select)
		l := &m.Limits
		if l.Fuel < 0 || l.InitFuel < 0 || l.Instances < 0 || l.Table < 0 || l.LogLines < 0 {
			c.fail(p+".limits", "must not be negative")
		}
		for j, r := range m.Vocabulary.Reasons {
			c.word(fmt.Sprintf("%s.vocabulary.reasons[%d]", p, j), r)
		}
		for name := range m.Vocabulary.Facts {
			c.word(p+".vocabulary.facts."+name, name)
		}
		c.bench(p+".bench", &m.Bench)
	}
}

// word refuses what is not snake_case.
func (c *checker) word(p, s string) {
	if s == "" || len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		c.fail(p, "must be snake_case of at most 64 characters, got %q", s)
	}
}

func (c *checker) bench(p string, b *Bench) {
	if b.Failures < 0 {
		c.fail(p+".failures", "must not be negative, got %d", b.Failures)
	}
}

func (c *checker) selects(p string, s *Select) {
	c.every(p+".kinds", s.Kinds, "model", "tool", "workflow")
}

func (c *checker) digest(p, hex string) {
	if len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		c.fail(p, "must be 64 lower-case hexadecimal digits (sha256sum FILE), got %q", hex)
	}
}

func (c *checker) plugins() {
	c.names("plugin", len(c.s.Plugins), func(i int) string { return c.s.Plugins[i].Name })
	for i := range c.s.Plugins {
		g, p := &c.s.Plugins[i], at("plugin", i)
		c.oneOf(p+".role", g.Role, "classifier", "reconciler", "approver", "evaluator")
		c.digest(p+".sha256", g.SHA256)
		c.selects(p+".select", &g.Select)
		c.bench(p+".bench", &g.Bench)
	}
}

func (c *checker) fallbacks() {
	c.names("fallback", len(c.s.Fallbacks), func(i int) string { return c.s.Fallbacks[i].Name })
	for i := range c.s.Fallbacks {
		f, p := &c.s.Fallbacks[i], at("fallback", i)
		c.oneOf(p+".then", f.Then, "", "retry", "wait", "review")
		if len(f.Candidates) == 0 {
			c.fail(p, "needs at least one [[fallback.candidate]]; kind = \"refuse\" says plainly that there is none")
		}
		ids := map[string]bool{}
		for j := range f.Candidates {
			k := &f.Candidates[j]
			c.candidate(fmt.Sprintf("%s.candidate[%d]", p, j), f, k)
			if ids[k.ID] {
				c.fail(fmt.Sprintf("%s.candidate[%d].id", p, j), "%q is the id of an earlier one", k.ID)
			}
			ids[k.ID] = true
		}
	}
}

func (c *checker) candidate(p string, f *Contract, k *Candidate) {
	if !plain(k.ID) {
		c.fail(p+".id", "must be letters, digits, '-', '_' and '.', got %q", k.ID)
	}
	c.oneOf(p+".kind", k.Kind, "cached", "alternate", "reduced", "draft", "queued", "human", "refuse")
	c.every(p+".losses", k.Losses, "freshness", "accuracy", "privacy", "authority", "audit")
	if k.Message == "" {
		c.fail(p+".message", "must say what the caller is told; nobody may take a fallback for the real answer")
	}
	switch k.Kind {
	case "cached":
		if k.MaxAge == 0 {
			c.fail(p+".max_age", "must say how old a cached answer may be")
		}
		if !slices.Contains(k.Losses, "freshness") {
			c.fail(p+".losses", "must name freshness: a cached answer is an older one")
		}
	case "alternate":
		if k.Provider == "" && k.Model == "" && k.Tool == "" {
			c.fail(p, "an alternate needs provider, model or tool")
		}
	case "queued":
		if k.ExpiresIn == 0 {
			c.fail(p+".expires_in", "must be positive: no expiry, no entry")
		}
	case "human":
		if f.Reviewers == "" || f.MaxCases == 0 {
			c.fail(p, "a human case needs reviewers and max_cases on its [[fallback]]: somebody with authority, and a bound on their work")
		}
	}
}

func (c *checker) tools() {
	seen := map[string]bool{}
	for i := range c.s.Tools {
		t, p := &c.s.Tools[i], at("tool", i)
		if t.Tool == "" {
			c.fail(p+".tool", "must name the tool")
		}
		if key := t.Tool + "/" + t.Action; seen[key] {
			c.fail(p, "%q is described by an earlier [[tool]]", key)
		} else {
			seen[key] = true
		}
		c.oneOf(p+".loop", t.Loop, "", "watch", "poll", "off")
		c.oneOf(p+".condition", t.Condition, "", "live_key", "precondition", "status_lookup")
		if t.Effect == taxonomy.ConditionallyRepeatable && t.Condition == "" {
			c.fail(p+".condition", "must say when it may be repeated; else declare it non_repeatable")
		}
		if t.Idempotency != "" && !strings.HasPrefix(t.Idempotency, "header:") && !strings.HasPrefix(t.Idempotency, "argument:") {
			c.fail(p+".idempotency", "must be \"header:NAME\" or \"argument:NAME\", got %q", t.Idempotency)
		}
		c.reconcile(p+".reconcile", &t.Reconcile)
	}
}

func (c *checker) reconcile(p string, r *Reconcile) {
	c.oneOf(p+".by", r.By, "", "http", "plugin", "tool", "callback", "human")
	switch r.By {
	case "http":
		if !strings.HasPrefix(r.URL, "http://") && !strings.HasPrefix(r.URL, "https://") {
			c.fail(p+".url", "must be an http or https URL, got %q", r.URL)
		}
	case "plugin":
		if !slices.ContainsFunc(c.s.Plugins, func(g Plugin) bool { return g.Name == r.Plugin && g.Role == "reconciler" }) {
			c.fail(p+".plugin", "%q is no [[plugin]] with role \"reconciler\"", r.Plugin)
		}
	case "tool":
		if r.Tool == "" {
			c.fail(p+".tool", "must name the lookup, \"tool/action\"")
		}
	}
	if r.Tries < 0 {
		c.fail(p+".tries", "must not be negative, got %d", r.Tries)
	}
}

func (c *checker) impacts() {
	seen := map[string]bool{}
	for i, m := range c.s.Impacts {
		p := at("impact", i)
		if m.ActionClass == "" || seen[m.ActionClass] {
			c.fail(p+".action_class", "must name an action class, once, got %q", m.ActionClass)
		}
		seen[m.ActionClass] = true
		c.oneOf(p+".impact", m.Impact, "high", "low")
		if m.Impact == "high" && m.OnStoreLoss.String() != "deny" {
			c.fail(p+".on_store_loss", "must be \"deny\": high-impact actions fail closed, always")
		}
	}
}

func (c *checker) budget() {
	b := &c.s.Budget
	c.oneOf("budget.on_exhausted", b.OnExhausted, "finalize", "defer", "approval")
	c.within("budget.retry.ratio", b.Retry.Ratio, 0, 1)
	c.within("budget.retry.capacity", b.Retry.Capacity, 0, 1e6)
	if b.Retry.Floor < 0 {
		c.fail("budget.retry.floor", "must not be negative, got %d", b.Retry.Floor)
	}
	if b.Reservation < time.Second {
		c.fail("budget.reservation", "must be at least 1s, got %s", b.Reservation)
	}
	c.names("budget.limit", len(b.Limits), func(i int) string { return b.Limits[i].Name })
	for i, l := range b.Limits {
		p := at("budget.limit", i)
		c.oneOf(p+".window", l.Window, "run", "hour", "day", "month")
		if len(l.Scope) == 0 {
			c.fail(p+".scope", "must name at least one field of the operation")
		}
		for j, part := range l.Scope {
			if _, ok := taxonomy.PartNamed(part); !ok {
				c.oneOf(fmt.Sprintf("%s.scope[%d]", p, j), part, taxonomy.PartNames()...)
			}
		}
		if l.CostUSD < 0 || l.Tokens < 0 || l.Attempts < 0 || l.CostUSD > 1e9 {
			c.fail(p, "amounts must not be negative, and cost_usd at most 1e9")
		}
		if l.CostUSD == 0 && l.Tokens == 0 && l.Attempts == 0 && l.Time == 0 {
			c.fail(p, "limits nothing: set cost_usd, tokens, attempts or time")
		}
		if l.Window == "run" && !slices.Contains(l.Scope, "run_id") {
			c.fail(p+".scope", "must contain run_id where the window is a run")
		}
	}
}

func (c *checker) prices() {
	for i, r := range c.s.Prices {
		p := at("price", i)
		if r.Provider == "" || r.Model == "" {
			c.fail(p, "needs provider and model")
		}
		for _, n := range []float64{r.Input, r.Output, r.CachedInput, r.PerCall} {
			c.within(p, n, 0, 1e6)
		}
	}
}

func (c *checker) queue() {
	q := &c.s.Queue
	c.oneOf("queue.replay", q.Replay, "revalidate", "never")
	if q.Expires <= 0 {
		c.fail("queue.expires", "must be positive: no expiry, no entry")
	}
	c.within("queue.max_items", float64(q.MaxItems), 1, 1e7)
	c.within("queue.per_tenant", float64(q.PerTenant), 1, 1e7)
	c.within("queue.pace", q.Pace, 0.001, 1e4)
	c.within("queue.attempts", float64(q.Attempts), 1, 1000)
	if q.Claim < time.Second {
		c.fail("queue.claim", "must be at least 1s, got %s", q.Claim)
	}
}

func (c *checker) retry() {
	r := &c.s.Retry
	if r.Deadline <= 0 {
		c.fail("retry.deadline", "must be positive")
	}
	if r.RetryAfterMax > taxonomy.MaxRetryAfter {
		c.fail("retry.retry_after_max", "must be at most %s, got %s", taxonomy.MaxRetryAfter, r.RetryAfterMax)
	}
	for name, f := range map[string]*Profile{"model": &r.Model, "tool": &r.Tool, "workflow": &r.Workflow, "background": &r.Background} {
		p := "retry." + name
		c.within(p+".attempts", float64(f.Attempts), 1, 100)
		c.within(p+".jitter", f.Jitter, 0, 1)
		if f.Attempts > 1 && len(f.Waits) == 0 && (f.Base <= 0 || f.Cap < f.Base) {
			c.fail(p, "needs base above 0 and cap not below it, or waits")
		}
	}
	l := &c.s.Loop
	for name, n := range map[string]int{"same_call": l.SameCall, "same_error": l.SameError, "ping_pong": l.PingPong, "steps": l.Steps} {
		if n < 0 || n == 1 || n > 64 {
			c.fail("loop."+name, "must be 0 (not watched) or between 2 and 64, got %d", n)
		}
	}
}

func (c *checker) rollout() {
	r := &c.s.Rollout
	c.within("rollout.canary_percent", r.CanaryPercent, 0, 100)
	if r.Unit != "tenant" && r.Unit != "run_id" && r.Unit != "agent" && r.Unit != "workflow" && r.Unit != "user" {
		c.oneOf("rollout.unit", r.Unit, "tenant", "run_id", "agent", "workflow", "user")
	}
	if r.Stage == taxonomy.ModeCanary && r.CanaryPercent == 0 {
		c.fail("rollout.canary_percent", "must be above 0 in stage canary")
	}
	for i, g := range r.Gates {
		p := at("rollout.gate", i)
		c.oneOf(p+".measure", g.Measure, "opens", "user_failures", "fallback_quality", "interventions", "corrections", "risk")
		if g.MaxRatio < 0 || g.MaxRise < 0 || g.MaxRatio == 0 && g.MaxRise == 0 {
			c.fail(p, "needs max_ratio or max_rise above 0")
		}
	}
}
