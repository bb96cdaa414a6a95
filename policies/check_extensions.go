package policies

import (
	"fmt"
	"io/fs"
	"strings"
)

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
		c.vocabulary(p+".vocabulary", &m.Vocabulary)
		c.bench(p+".bench", &m.Bench)
	}
}

func (c *checker) vocabulary(p string, v *Vocabulary) {
	for j, r := range v.Reasons {
		c.word(fmt.Sprintf("%s.reasons[%d]", p, j), r)
	}
	for name := range v.Facts {
		c.word(p+".facts."+name, name)
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
		if strings.ToLower(g.Name) != g.Name || strings.ContainsAny(g.Name, "_.") {
			c.fail(p+".name", "must be lower-case letters, digits and '-', got %q", g.Name)
		}
		c.oneOf(p+".role", g.Role, "classifier", "reconciler", "approver", "evaluator")
		c.digest(p+".sha256", g.SHA256)
		c.selects(p+".select", &g.Select)
		c.vocabulary(p+".vocabulary", &g.Vocabulary)
		c.oneOf(p+".on_failure", g.OnFailure, "", "next", "unknown")
		if g.OnFailure == "unknown" && g.Role != "classifier" {
			c.fail(p+".on_failure", "is for a classifier; one of role %s that fails has said nothing", g.Role)
		}
		if g.Deadline > MaxPluginDeadline {
			c.fail(p+".deadline", "must be at most %s, got %s: a decision waits for it", MaxPluginDeadline, g.Deadline)
		}
		c.bench(p+".bench", &g.Bench)
	}
}
