package rego

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNothingChangesInTheSamePolicy(t *testing.T) {
	d := Compare(t.Context(), compileShipped(t, Options{}), compileShipped(t, Options{}), nil)
	if len(d.Changes) != 0 || d.Truncated || d.Looser() || d.Asked != 0 {
		t.Errorf("asked %d, truncated %v, %d changes, first %+v", d.Asked, d.Truncated, len(d.Changes), d.Changes[:min(1, len(d.Changes))])
	}
	var b strings.Builder
	if err := d.WriteText(&b); err != nil || !strings.Contains(b.String(), "no decision changes") {
		t.Error(b.String())
	}
}

// shows looks for a change whose conditions contain these.
func shows(d *Diff, ep Entrypoint, trend Trend, old, new string, when ...Condition) bool {
	for _, c := range d.Changes {
		if c.Question != ep || c.Trend != trend || !strings.Contains(c.Old, old) || !strings.Contains(c.New, new) {
			continue
		}
		all := true
		for _, w := range when {
			found := false
			for _, x := range c.When {
				found = found || x.Field == w.Field && slices.Contains(x.Values, w.Values[0]) != x.Except
			}
			all = all && found
		}
		if all {
			return true
		}
	}
	return false
}

func is(field, value string) Condition { return Condition{Field: field, Values: []string{value}} }

func dump(t *testing.T, d *Diff) {
	t.Helper()
	var b strings.Builder
	if err := d.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	t.Log(s[:min(len(s), 6000)])
}

// Small policies, whose whole tables take no time; diff_long_test.go does the
// same with the shipped one.
func TestDiffOfSmallPolicies(t *testing.T) {
	o := Options{Deadline: time.Minute}
	rule := func(body string) *Snapshot { return authority(t, denyByDefault+body, o) }
	limit := func(n string) *Snapshot {
		return rule(`decision := {"decision": "allow", "reasons": ["r"], "obligations": ["log"]} if {
	input.operation.action_class == "refund"
	input.operation.amount <= ` + n + `
}
`)
	}
	d := Compare(t.Context(), limit("100"), limit("200"), nil)
	if !shows(d, Authority, Looser, "deny: x", "allow: r [log]", is("operation.action_class", "refund"), is("operation.amount", "101")) ||
		!shows(d, Authority, Looser, "deny: x", "allow", is("operation.amount", "200")) || len(d.Changes) != 1 {
		dump(t, d)
		t.Error("a limit that moves is one line with its edges")
	}
	if back := Compare(t.Context(), limit("200"), limit("100"), nil); back.Looser() || !shows(back, Authority, Stricter, "allow", "deny", is("operation.amount", "200")) {
		dump(t, back)
		t.Error("lowering a limit is stricter")
	}
	d = Compare(t.Context(), rule(`decision := {"decision": "allow", "reasons": ["r"], "obligations": ["log"]} if input.operation.kind == "model"`+"\n"),
		rule(`decision := {"decision": "allow", "reasons": ["r"], "obligations": []} if input.operation.kind == "model"`+"\n"), nil)
	if !d.Looser() {
		dump(t, d)
		t.Error("an obligation that is gone is looser")
	}
	d = Compare(t.Context(), rule(""), rule(`decision := {"decision": "allow", "reasons": ["vip"], "obligations": []} if input.operation.attributes.tier == "gold"`+"\n"), nil)
	if !shows(d, Authority, Looser, "deny", "allow: vip", is("operation.attributes.tier", `"gold"`)) || len(d.Changes) != 1 {
		dump(t, d)
		t.Error("an attribute is walked")
	}
	// A function, a table in data, and a set between the field and the constant.
	d = Compare(t.Context(), rule(""), rule(`decision := {"decision": "allow", "reasons": ["r"], "obligations": []} if "night" in _tags
_tags contains f(input.operation.tool)
f("lamp") := "night"
f("sun") := "day"
`), nil)
	if !shows(d, Authority, Looser, "deny", "allow", is("operation.tool", "lamp")) {
		dump(t, d)
		t.Error("a constant in a function's argument is walked")
	}
	route := func(class string) *Snapshot {
		return compile(t, policy(map[Entrypoint]string{Routing: `package fusebox.routing
decision contains f if {
	input.outcome.class == "` + class + `"
	f := {"layer": "tool", "level": "tool", "signal": "failure", "reason": "r"}
}
`}), o)
	}
	d = Compare(t.Context(), route("rate_limit"), route("budget"), nil)
	if len(d.Changes) != 2 || !shows(d, Routing, Changed, "no feeds", "tool/@tool failure (r)", is("outcome.class", "budget")) || d.Looser() {
		dump(t, d)
		t.Error("a class that is fed instead of another")
	}
	var text, md, js bytes.Buffer
	if err := d.WriteText(&text); err != nil || !strings.Contains(text.String(), "  outcome.class: budget\n  - no feeds\n  + tool/@tool failure (r)\n") {
		t.Error(text.String())
	}
	if err := d.WriteMarkdown(&md); err != nil || !strings.Contains(md.String(), "| routing | outcome.class: budget | no feeds | tool/@tool failure (r) | changed |") {
		t.Error(md.String())
	}
	var back Diff
	if err := d.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || differ(d, &back) != "" {
		t.Error(err, js.String())
	}
}
