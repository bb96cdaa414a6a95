package policies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

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
