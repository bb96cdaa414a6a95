package main

import (
	"net/url"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// families group error classes by whose fault they are. A circuit whose figures
// mix the health of a remote with mistakes of callers answers no question.
var families = map[taxonomy.Class]string{
	taxonomy.TransientTransport: "health", taxonomy.PersistentDependency: "health", taxonomy.RateLimit: "health",
	taxonomy.ClientInput: "caller", taxonomy.Cancellation: "caller",
	taxonomy.Authentication: "identity", taxonomy.Authorization: "identity", taxonomy.PolicyDenial: "identity",
	taxonomy.SemanticQuality: "quality", taxonomy.Validation: "quality",
	taxonomy.NoProgress: "progress", taxonomy.Budget: "money", taxonomy.AmbiguousWrite: "doubt",
}

// judges reports whether a breaker opens by what it counts, rather than by a
// decision alone.
func judges(b *policies.Breaker) bool {
	return b.Layer != taxonomy.LayerBudget && b.Layer != taxonomy.LayerAuthority
}

func (x *exam) oneBucket(p *examPoint) {
	const do = "name in counts the classes of one kind, and give the others a breaker of their own layer"
	s := x.bundle.Settings
	layers := map[taxonomy.Layer]bool{}
	for i := range s.Breakers {
		b := &s.Breakers[i]
		layers[b.Layer] = true
		if !judges(b) {
			continue
		}
		line := x.at(b.Line, "counts")
		if len(b.Counts) == 0 {
			p.found(x.policyFile, line, do, "breaker %s counts every class of error, whoever caused it", b.Name)
			continue
		}
		mixed := map[string]bool{}
		for _, c := range b.Counts {
			mixed[families[c]] = true
		}
		if len(mixed) > 2 || mixed["health"] && (mixed["caller"] || mixed["identity"] || mixed["quality"] || mixed["doubt"] || mixed["money"]) {
			p.found(x.policyFile, line, do, "breaker %s counts failures of several kinds in one window: %s", b.Name, classNames(b.Counts))
		}
	}
	if len(layers) == 1 {
		p.found(x.policyFile, s.Breakers[0].Line, "declare breakers for the other layers; fusebox policy export shows one of each", "every breaker is of one layer, so every failure counts there")
	}
	if breakers, fed, all := x.snapshot.Fed(); all && len(breakers)+len(fed) == 1 {
		p.found("fusebox/routing", 0, "let routing feed the layer that each class of error belongs to", "the routing rules feed one place only: %s", strings.Join(append(breakers, fed...), ", "))
	}
	p.saw("counts of %s in %d layers, and what routing feeds", plural(len(s.Breakers), "breaker", "breakers"), len(layers))
}

func classNames(cs []taxonomy.Class) string {
	out := make([]string, len(cs))
	for i, c := range cs {
		out[i] = c.String()
	}
	return strings.Join(out, ", ")
}

func (x *exam) processState(p *examPoint) {
	const do = "give all of them one PostgreSQL store: [store] url_env = \"FUSEBOX_STORE\""
	c := &x.cfg.Store
	switch {
	case c.Driver == "memory":
		p.found(x.config, x.configLine("[store]", 0, "driver"), do+"; on one machine leave the driver out", "store.driver = \"memory\": each process has circuits, intents and budgets of its own, and loses them when it ends")
	case x.fleet && !x.postgres():
		p.found(x.config, x.configLine("[store]", 0, "driver"), do, "a fleet (--fleet) keeps its state in a SQLite file, which one machine has for itself")
	case x.postgres() && c.Listen == "none":
		p.saw("store.listen = \"none\": processes hear of each other's circuits by asking, not at once")
	}
	kind := "SQLite, for the processes of one machine"
	if x.postgres() {
		kind = "PostgreSQL, shared"
	} else if c.Driver == "memory" {
		kind = "memory"
	}
	p.saw("store: %s; --fleet: %t", kind, x.fleet)
}

// postgres reports whether state is in a database that machines share.
func (x *exam) postgres() bool {
	c := &x.cfg.Store
	return c.Driver == "postgres" || c.Driver == "" && (c.URLEnv != "" || strings.HasPrefix(c.URL, "postgres"))
}

func (x *exam) outerRetries(p *examPoint) {
	if x.cfg.Reject.Profile == "wait" {
		p.found(x.config, x.configLine("[reject]", 0, "profile"), "use profile \"auto\", and let fusebox wait and retry", "reject.profile = \"wait\" answers refused calls so that callers' own loops send them again")
	}
	for _, f := range x.bundle.Settings.Fallbacks {
		if f.Then == "retry" {
			p.found(x.policyFile, x.at(f.Line, "then"), "write then = \"wait\" or \"review\": who retries is decided in [retry]", "fallback %s tells callers to retry by themselves", f.Name)
		}
	}
	own := []string{x.cfg.Listen.Agent, "127.0.0.1:4141", "localhost:4141"}
	for i, u := range x.cfg.Upstreams {
		if at, err := url.Parse(u.URL); err == nil && slices.Contains(own, at.Host) {
			p.found(x.config, x.configLine("[[upstream]]", i, "url"), "name the remote itself: one layer owns the retries", "upstream %s is a fusebox again (%s), so attempts multiply", u.Name, at.Host)
		}
	}
	most := x.mostAttempts()
	n := 0
	if err := x.eachReceipt(func(r *receiptSeen) {
		n++
		if r.Attempt > most {
			p.found("", 0, "switch the retries of that client off (max_retries=0): fusebox retries for it", "request %s was sent %d times, [retry] allows at most %d: somebody else sends it again", r.RequestID, r.Attempt, most)
		}
	}); err != nil {
		p.saw("receipts: %v", err)
	} else {
		p.saw("attempt numbers of the newest %s, against at most %d of [retry]", plural(n, "receipt", "receipts"), most)
	}
	p.saw("reject.profile, then of %s, addresses of %s", plural(len(x.bundle.Settings.Fallbacks), "fallback contract", "fallback contracts"), plural(len(x.cfg.Upstreams), "configured upstream", "configured upstreams"))
}

// mostAttempts is the most that any profile and the queue allow for one request.
func (x *exam) mostAttempts() int64 {
	r := &x.bundle.Settings.Retry
	return int64(max(r.Model.Attempts, r.Tool.Attempts, r.Workflow.Attempts, r.Background.Attempts) * max(x.bundle.Settings.Queue.Attempts, 1))
}

func (x *exam) unequalFallback(p *examPoint) {
	s := x.bundle.Settings
	n := 0
	for i := range s.Fallbacks {
		f := &s.Fallbacks[i]
		for j := range f.Candidates {
			k := &f.Candidates[j]
			line := x.candidateLine(f, j)
			for _, l := range k.Losses {
				if l == "privacy" || l == "authority" || l == "audit" {
					p.found(x.policyFile, line, "take the candidate out; no answer is worth that loss", "fallback %s: candidate %s loses %s", f.Name, k.ID, l)
				}
			}
			if k.Kind == "alternate" {
				n++
				x.unequal(p, f, k, line)
			}
		}
	}
	p.saw("%s of %s, against the effect, key and reconciliation of the tools they stand in for", plural(n, "alternate", "alternates"), plural(len(s.Fallbacks), "contract", "contracts"))
}

// unequal compares an alternate with every write that its contract may be asked
// for: that of breakers of the tool layer.
func (x *exam) unequal(p *examPoint, f *policies.Contract, k *policies.Candidate, line int) {
	s := x.bundle.Settings
	forTools := slices.ContainsFunc(s.Breakers, func(b policies.Breaker) bool { return b.Fallback == f.Name && b.Layer == taxonomy.LayerTool })
	if !forTools {
		return
	}
	const do = "describe the alternate with [[tool]] as carefully as what it replaces, or let the contract refuse, draft or ask a person"
	if k.Tool == "" {
		p.found(x.policyFile, line, do, "fallback %s: candidate %s sends calls of tools, writes too, to %s%s, of which nothing is known", f.Name, k.ID, k.Provider, k.Model)
		return
	}
	to := slices.IndexFunc(s.Tools, func(t policies.Tool) bool { return t.Tool == k.Tool || t.Tool+"/"+t.Action == k.Tool })
	if to < 0 {
		p.found(x.policyFile, line, do, "fallback %s: candidate %s sends writes to %s, which no [[tool]] describes", f.Name, k.ID, k.Tool)
		return
	}
	alt := &s.Tools[to]
	for i := range s.Tools {
		t := &s.Tools[i]
		if t == alt || !t.Effect.Writes() || !alt.Effect.Writes() || t.Tool == alt.Tool {
			continue
		}
		if t.Effect.Repeatable() && !alt.Effect.Repeatable() || t.Idempotency != "" && alt.Idempotency == "" || t.Reconcile.By != "" && alt.Reconcile.By == "" {
			p.found(x.policyFile, line, do, "fallback %s: candidate %s sends writes of %s/%s to %s, which promises less (effect %s, idempotency %q, reconcile %q)",
				f.Name, k.ID, t.Tool, t.Action, k.Tool, alt.Effect, alt.Idempotency, alt.Reconcile.By)
		}
	}
}

// candidateLine is where the n-th candidate of a contract begins.
func (x *exam) candidateLine(f *policies.Contract, n int) int {
	lines := strings.Split(string(x.bundle.SettingsTOML), "\n")
	for i := f.Line; i < len(lines); i++ {
		bare := strings.TrimSpace(lines[i])
		switch {
		case strings.HasPrefix(bare, "[[fallback.candidate]]"):
			if n == 0 {
				return i + 1
			}
			n--
		case strings.HasPrefix(bare, "["):
			return f.Line
		}
	}
	return f.Line
}

func (x *exam) destructiveProbes(p *examPoint) {
	s := x.bundle.Settings
	harm := func(name string) *policies.Tool {
		i := slices.IndexFunc(s.Tools, func(t policies.Tool) bool {
			return (t.Tool == name || t.Action == name || t.Tool+"/"+t.Action == name || t.Tool+"."+t.Action == name) && t.Effect.Writes()
		})
		if i < 0 {
			return nil
		}
		return &s.Tools[i]
	}
	n := 0
	for i := range s.Breakers {
		b := &s.Breakers[i]
		for _, name := range b.Probes.Only {
			n++
			if t := harm(name); t != nil {
				p.found(x.policyFile, x.at(b.Line, "probe"), "probe with a read, or leave probe.only out: any safe call will do", "breaker %s probes with %s, which writes (%s)", b.Name, name, t.Effect)
			}
		}
	}
	for i := range s.Tools {
		t := &s.Tools[i]
		if t.Reconcile.By != "tool" {
			continue
		}
		n++
		look := slices.IndexFunc(s.Tools, func(l policies.Tool) bool { return l.Tool+"/"+l.Action == t.Reconcile.Tool })
		if look < 0 || s.Tools[look].Effect.Writes() {
			p.found(x.policyFile, x.at(t.Line, "reconcile"), "look up with a tool that is described as read_only", "tool %s/%s is looked up with %s, which no [[tool]] describes as read_only", t.Tool, t.Action, t.Reconcile.Tool)
		}
	}
	p.saw("%s named as probe or look-up, against the effects of %s; a write that was tried before never probes (R-BRK-6)", plural(n, "operation", "operations"), plural(len(s.Tools), "tool", "tools"))
}
