package main

import (
	"cmp"
	"strings"
)

// judged says who gave the verdict: which module was asked, what it said or how
// it failed, and what that cost.
func (x *explainer) judged() {
	r, m := x.r, &x.r.Module
	by, answered := strings.CutPrefix(r.ClassifiedBy, "wasm:")
	name, digest, _ := strings.Cut(by, "@")
	if digest == m.Digest { // the note is about the one that answered, and knows its version
		name = cmp.Or(m.Name, name)
	}
	floor, refused := strings.CutPrefix(m.Error, "floor:")
	switch {
	case refused:
		say(&x.Why, "Module %s answered, and the floor refused it (%s): a module cannot call a dispatched write settled.", m.Name, floor)
	case m.Error != "" && r.ClassifiedBy == "policy:on_failure":
		say(&x.Why, "Module %s was asked and failed: %s. Its on_failure makes a write UNKNOWN then.", m.Name, m.Error)
	case m.Error != "":
		say(&x.Why, "Module %s was asked and failed: %s. The next one judged instead.", m.Name, m.Error)
	case m.Name != "" && !answered:
		say(&x.Why, "Module %s was asked and had no opinion.", m.Name)
	}
	rule, table := strings.CutPrefix(r.ClassifiedBy, "table:")
	switch {
	case table:
		say(&x.Why, "The built-in table judged it by its rule %s.", rule)
	case answered:
		say(&x.Why, "Module %s said %s %s, %s (%s).", name, r.Outcome.V, r.ErrorClass, r.ErrorCode, digest)
	case r.ClassifiedBy != "" && r.ClassifiedBy != "policy:on_failure":
		say(&x.Why, "%s judged it.", r.ClassifiedBy)
	}
	if m.Fuel > 0 {
		say(&x.Why, "Asking %s took %d units of fuel under the limits %s.", m.Name, m.Fuel, m.Limits)
	}
}
