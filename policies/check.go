package policies

import (
	"fmt"
	"slices"
	"strings"

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
	c.bulkheads()
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
