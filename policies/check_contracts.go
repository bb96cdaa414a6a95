package policies

import (
	"fmt"
	"slices"
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
		if k.ExpiresIn > maxExpiry {
			c.fail(p+".expires_in", "must be at most %s, got %s", maxExpiry, k.ExpiresIn)
		}
	case "human":
		if f.Reviewers == "" || f.MaxCases == 0 {
			c.fail(p, "a human case needs reviewers and max_cases on its [[fallback]]: somebody with authority, and a bound on their work")
		}
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
