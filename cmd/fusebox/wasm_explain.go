package main

import (
	"cmp"
	"slices"
	"strings"
)

// judged says who gave the verdict: which module was asked, what it said or how
// it failed, and what that cost.
func (x *explainer) judged() {
	r, m := x.r, &x.r.Module
	what := "Module"
	if r.Plugin != "" && r.Plugin == m.Name {
		what = "Plugin"
	}
	by, answered := strings.CutPrefix(r.ClassifiedBy, "wasm:")
	if plugin, ok := strings.CutPrefix(r.ClassifiedBy, "plugin:"); ok {
		by, answered = plugin, true
	}
	name, digest, _ := strings.Cut(by, "@")
	if digest == m.Digest { // the note is about the one that answered, and knows its version
		name = cmp.Or(m.Name, name)
	}
	floor, refused := strings.CutPrefix(m.Error, "floor:")
	switch {
	case refused:
		say(&x.Why, "%s %s answered, and the floor refused it (%s): a module cannot call a dispatched write settled.", what, m.Name, floor)
	case m.Error != "" && r.ClassifiedBy == "policy:on_failure":
		say(&x.Why, "%s %s was asked and failed: %s. Its on_failure makes a write UNKNOWN then.", what, m.Name, m.Error)
	case m.Error != "":
		say(&x.Why, "%s %s was asked and failed: %s. The next one judged instead.", what, m.Name, m.Error)
	case what == "Plugin" && slices.Contains(r.Flags, "evaluator_rejected"):
		say(&x.Why, "%s %s found fault with the result.", what, m.Name)
	case m.Name != "" && !answered:
		say(&x.Why, "%s %s was asked and had no opinion.", what, m.Name)
	}
	rule, table := strings.CutPrefix(r.ClassifiedBy, "table:")
	switch {
	case table:
		say(&x.Why, "The built-in table judged it by its rule %s.", rule)
	case answered:
		what = "Module"
		if strings.HasPrefix(r.ClassifiedBy, "plugin:") {
			what = "Plugin"
		}
		say(&x.Why, "%s %s said %s %s, %s (%s).", what, name, r.Outcome.V, r.ErrorClass, r.ErrorCode, digest)
	case r.ClassifiedBy != "" && r.ClassifiedBy != "policy:on_failure":
		say(&x.Why, "%s judged it.", r.ClassifiedBy)
	}
	if m.Fuel > 0 {
		say(&x.Why, "Asking %s took %d units of fuel under the limits %s.", m.Name, m.Fuel, m.Limits)
	}
}
