package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
)

// A ruleSet is what answers say about authority: rules of a team named starter,
// which only deny and ask for approval, with their tests.
type ruleSet struct {
	names []string // "starter.kind_not_named", for authority.observe
	files []policies.File
}

// A startingRule is one rule that an answer makes, and what its test asks.
type startingRule struct {
	name, verb, doc, body, sets, test string
}

// startingRules writes the rules that the answers make. An answer that rules
// nothing out makes none.
func startingRules(d *answersDoc) (*ruleSet, error) {
	var rules []startingRule
	if len(d.Calls) == 1 {
		rules = append(rules, kindRule(d.Calls[0]))
	}
	if n := len(d.Effects); n > 0 && n < len(effectNames) {
		rules = append(rules, effectRule(d.Effects))
	}
	if len(d.NeverTwice) > 0 {
		rules = append(rules, neverRule(d.NeverTwice))
	}
	set := &ruleSet{names: []string{}}
	if len(rules) == 0 {
		return set, nil
	}
	var code, tests strings.Builder
	code.WriteString(`# METADATA
# title: What was said when this policy began
# description: |
#   Rules that fusebox init made of the answers. They are listed under
#   authority.observe in fusebox/config/data.json: receipts show what they would
#   have said, and they stop nobody until they are taken out of that list.
# schemas:
#   - input: schema.operation
package fusebox.authority.rules.starter
`)
	tests.WriteString("package fusebox.authority.rules.starter_test\n\nimport data.fusebox.authority.rules.starter\n\nasked(kind, effect, class) := {\"operation\": {\"kind\": kind, \"effect\": effect, \"action_class\": class, \"attempt\": 1, \"origin\": \"first\"}}\n")
	for _, r := range rules {
		set.names = append(set.names, "starter."+r.name)
		fmt.Fprintf(&code, "\n%s\n# METADATA\n# description: %s\n# labels: { rule: starter.%s }\n%s contains %q if {\n%s}\n", r.sets, r.doc, r.name, r.verb, r.name, r.body)
		tests.WriteString("\n" + r.test)
	}
	for _, f := range []policies.File{
		{Path: "fusebox/authority/rules/starter.rego", Bytes: []byte(code.String())},
		{Path: "fusebox/authority/rules/starter_test.rego", Bytes: []byte(tests.String())},
	} {
		text, err := rego.Format(f.Path, f.Bytes)
		if err != nil {
			return nil, fmt.Errorf("write the starting rules: %w", err)
		}
		set.files = append(set.files, policies.File{Path: f.Path, Bytes: text})
	}
	return set, nil
}

// kindRule denies what was said not to be called.
func kindRule(called string) startingRule {
	kind, other := "tool", "model"
	if called == "models" {
		kind, other = other, kind
	}
	return startingRule{
		name: "kind_not_named", verb: "deny",
		doc:  fmt.Sprintf("It was said that only %s are called.", called),
		body: fmt.Sprintf("\tinput.operation.kind == %q\n", other),
		test: fmt.Sprintf(`test_only_what_was_named_is_called if {
	"kind_not_named" in starter.deny with input as asked(%q, "read_only", "")
	not "kind_not_named" in starter.deny with input as asked(%q, "read_only", "")
	not "kind_not_named" in starter.deny with input as asked("workflow", "read_only", "")
}
`, other, kind),
	}
}

// effectRule denies effects of tools that nobody named.
func effectRule(named []string) startingRule {
	var others []string
	for _, e := range effectNames {
		if !slices.Contains(named, e) {
			others = append(others, e)
		}
	}
	return startingRule{
		name: "effect_not_named", verb: "deny",
		doc:  "A call of a tool does what nobody said that tools do.",
		sets: "_effects := " + regoSet(named) + "\n",
		body: "\tinput.operation.kind == \"tool\"\n\tnot input.operation.effect in _effects\n",
		test: fmt.Sprintf(`test_tools_do_what_was_named if {
	every effect in %s {
		"effect_not_named" in starter.deny with input as asked("tool", effect, "")
		not "effect_not_named" in starter.deny with input as asked("model", effect, "")
	}
	every effect in %s {
		not "effect_not_named" in starter.deny with input as asked("tool", effect, "")
	}
}
`, regoSet(others), regoSet(named)),
	}
}

// neverRule asks a person before anything that must never happen twice is tried
// a second time, whatever is known of the first.
func neverRule(classes []string) startingRule {
	return startingRule{
		name: "never_twice", verb: "require_approval",
		doc: "What must never happen twice is not tried twice unless a person says so.",
		sets: "_never_twice := " + regoSet(classes) + "\n\n_again if input.operation.attempt > 1\n\n" +
			"_again if input.operation.origin in {\"retry\", \"replay\"}\n",
		body: "\tinput.operation.action_class in _never_twice\n\tinput.operation.effect != \"read_only\"\n\t_again\n",
		test: fmt.Sprintf(`tried(effect, class, attempt, origin) := {"operation": object.union(
	asked("tool", effect, class).operation,
	{"attempt": attempt, "origin": origin},
)}

test_what_must_never_happen_twice_is_not_tried_twice if {
	every class in %s {
		starter.require_approval == set() with input as tried("non_repeatable", class, 1, "first")
		starter.require_approval == {"never_twice"} with input as tried("non_repeatable", class, 2, "first")
		starter.require_approval == {"never_twice"} with input as tried("idempotent_write", class, 1, "replay")
		starter.require_approval == {"never_twice"} with input as tried("non_repeatable", class, 1, "retry")
		starter.require_approval == set() with input as tried("read_only", class, 2, "retry")
	}
	starter.require_approval == set() with input as tried("non_repeatable", "something.else", 2, "retry")
}
`, regoSet(classes)),
	}
}

func regoSet(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = fmt.Sprintf("%q", t)
	}
	return "{" + strings.Join(quoted, ", ") + "}"
}
