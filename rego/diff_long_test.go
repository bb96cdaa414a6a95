//go:build long

package rego

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// edited is the shipped bundle with one thing replaced in one of its files;
// file "data" is the data document.
func edited(t testing.TB, file, old, new string) *Files {
	t.Helper()
	f := shipped(t)
	done := false
	if file == "data" {
		done = bytes.Contains(f.Data, []byte(old))
		f.Data = bytes.Replace(f.Data, []byte(old), []byte(new), 1)
	}
	for i, m := range f.Modules {
		if m.Path == file {
			done = bytes.Contains(m.Source, []byte(old))
			f.Modules[i].Source = bytes.Replace(m.Source, []byte(old), []byte(new), 1)
		}
	}
	if !done {
		t.Fatalf("%s has no %q", file, old)
	}
	return f
}

// compared is the diff between the shipped bundle and another one. The tables
// of the shipped bundle have some ten thousand inputs, so these tests are a campaign:
// go test -tags long -run Diff ./rego
func compared(t testing.TB, f *Files) *Diff {
	t.Helper()
	o := Options{Version: "old", Deadline: time.Minute}
	before := compileShipped(t, o)
	o.Version = "new"
	return Compare(t.Context(), before, compile(t, f, o), nil)
}

// A threshold that moves is seen at its edges, and raising it is looser.
func TestDiffSeesAThreshold(t *testing.T) {
	d := compared(t, edited(t, "data", `"approve_above":10000,"deny_above"`, `"approve_above":20000,"deny_above"`))
	if !d.Looser() {
		t.Error("a higher limit is not called looser")
	}
	if !shows(d, Authority, Looser, "require_approval", "allow", is("operation.action_class", "refund"), is("operation.amount", "10001")) ||
		!shows(d, Authority, Looser, "require_approval", "allow", is("operation.action_class", "refund"), is("operation.amount", "20000")) {
		dump(t, d)
		t.Error("the edges 10001 and 20000 are not in the diff")
	}
	for _, c := range d.Changes {
		if c.Question != Authority {
			t.Errorf("%+v", c)
		}
		for _, w := range c.When {
			for _, not := range []string{"10000", "20001"} {
				if w.Field == "operation.amount" && slices.Contains(w.Values, not) != w.Except {
					t.Errorf("changes at %s, where it must not: %+v", not, c)
				}
			}
		}
	}
}

func TestDiffSeesADenial(t *testing.T) {
	d := compared(t, edited(t, "data", `"allowed":["mail.send",`, `"allowed":[`))
	if d.Looser() || !shows(d, Authority, Stricter, "allow: declared_action_class", "require_approval", is("operation.action_class", "mail.send")) {
		dump(t, d)
		t.Error("a class that is no longer allowed")
	}
	d = compared(t, edited(t, "fusebox/authority/authority.rego", `_deny contains "identity_mismatch" if {`, `_deny contains "identity_mismatch" if {
	input.operation.kind == "model"`))
	if !d.Looser() || !shows(d, Authority, Looser, "identity_mismatch", "") {
		dump(t, d)
		t.Error("a denial that no longer holds for tools")
	}
}

func TestDiffSeesRouting(t *testing.T) {
	d := compared(t, edited(t, "fusebox/routing/routing.rego", `input.outcome.class in {"semantic_quality", "validation"}`, `input.outcome.class == "semantic_quality"`))
	if d.Looser() || !shows(d, Routing, Changed, "semantic/semantic@schema failure", "no feeds", is("outcome.class", "validation")) {
		dump(t, d)
		t.Error("validation no longer feeds")
	}
	if len(d.Changes) > 8 {
		dump(t, d)
		t.Errorf("%d rows for one change of one class", len(d.Changes))
	}
	var md, js bytes.Buffer
	if err := d.WriteMarkdown(&md); err != nil || !strings.Contains(md.String(), "| routing | ") {
		t.Error(md.String())
	}
	var back Diff
	if err := d.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Changes) != len(d.Changes) {
		t.Error(err, js.String())
	}
}

func TestDiffSeesAdmissionAndFallback(t *testing.T) {
	d := compared(t, edited(t, "data", `"queue_from_priority":5`, `"queue_from_priority":3`))
	if !shows(d, Admission, Changed, "low_priority", "important_work_waits", is("operation.priority", "3")) {
		dump(t, d)
		t.Error("a lower priority waits now")
	}
	d = compared(t, edited(t, "fusebox/fallback/fallback.rego", `count(lost & {"privacy", "authority", "audit"}) == 0`, `count(lost & {"privacy", "authority"}) == 0`))
	if !shows(d, Fallback, Changed, "", "cached-audit") {
		dump(t, d)
		t.Error("audit may be lost now")
	}
}
