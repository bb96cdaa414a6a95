package rego

import (
	"slices"
	"strings"
	"testing"
)

// What loads and decides nothing is named: a set of a team that nobody reads, a
// rule nobody calls, data nobody refers to (R-POL-8).
func TestUnused(t *testing.T) {
	files := policy(map[Entrypoint]string{Authority: `package fusebox.authority
default decision := {"decision": "deny", "reasons": ["x"], "obligations": []}
decision := {"decision": "deny", "reasons": {r | some team; some r in data.fusebox.authority.rules[team].deny}, "obligations": []} if data.fusebox.config.on
_helper if data.fusebox.config.dead
`}, Module{Path: "team.rego", Source: []byte("package fusebox.authority.rules.team\ndeny contains \"a\" if _b\n_b if true\ndenies contains \"c\" if true\n")})
	files.Data = []byte(`{"fusebox":{"config":{"on":true,"dead":1,"spare":{"x":1,"y":2}}}}`)
	got := compile(t, files, Options{}).Unused()
	wantProblem(t, got, "authority.rego", 4, "unreached_rule", "fusebox.authority._helper")
	wantProblem(t, got, "team.rego", 4, "unreached_rule", "only deny and require_approval are read")
	wantProblem(t, got, "", 0, "unread_data", "data.fusebox.config.dead")
	wantProblem(t, got, "", 0, "unread_data", "data.fusebox.config.spare,")
	if len(got) != 4 {
		t.Errorf("%d findings: %v", len(got), got)
	}
	if got := compileShipped(t, Options{}).Unused(); len(got) != 0 {
		t.Errorf("the shipped bundle: %v", got)
	}
}

func TestFed(t *testing.T) {
	breakers, layers, all := compileShipped(t, Options{}).Fed()
	if !all || len(layers) != 0 || len(breakers) != 13 || !slices.Contains(breakers, "tenant_authority") {
		t.Errorf("shipped: %v %v %v", breakers, layers, all)
	}
	route := func(feed string) *Files {
		return policy(map[Entrypoint]string{Routing: "package fusebox.routing\ndecision contains f if {\n\tname := concat(\"\", [input.outcome.reason])\n\tname != \"\"\n\tf := " + feed + "\n}\n"})
	}
	if b, l, all := compile(t, route(`{"layer": "tool", "level": "tool", "signal": "failure", "reason": "r"}`), Options{}).Fed(); !all || len(b) != 0 || !slices.Equal(l, []string{"tool"}) {
		t.Errorf("by layer: %v %v %v", b, l, all)
	}
	if b, _, all := compile(t, route(`{"layer": "tool", "breaker": name, "level": "tool", "signal": "failure", "reason": "r"}`), Options{}).Fed(); all {
		t.Errorf("computed: %v", strings.Join(b, ","))
	}
}
