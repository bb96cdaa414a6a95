package policies

import (
	"fmt"
	"regexp"
	"strings"
)

// A RuleKind is what a new rule of a team does.
type RuleKind string

const (
	RuleDeny     RuleKind = "deny"
	RuleApproval RuleKind = "require_approval"
)

var ruleName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// NewRule writes the starting point of a team's authority rule and its test:
// two files to be put into a bundle, which pass as they are and are to be
// changed. actionClass is what the rule is about.
func NewRule(team, name string, kind RuleKind, actionClass string) ([]File, error) {
	for what, s := range map[string]string{"team": team, "rule": name} {
		if !ruleName.MatchString(s) {
			return nil, fmt.Errorf("new rule: %s must be lower-case letters, digits and '_', beginning with a letter, got %q", what, s)
		}
		if regoWords[s] {
			return nil, fmt.Errorf("new rule: %q is a word of Rego itself; choose another %s name", s, what)
		}
	}
	if kind != RuleDeny && kind != RuleApproval {
		return nil, fmt.Errorf("new rule: kind must be %q or %q, got %q", RuleDeny, RuleApproval, kind)
	}
	if actionClass == "" || strings.ContainsAny(actionClass, "\"\\\n\r\t") {
		return nil, fmt.Errorf("new rule: action class must be a plain text, got %q", actionClass)
	}
	fill := strings.NewReplacer("{team}", team, "{name}", name, "{kind}", string(kind), "{class}", actionClass).Replace
	base := "fusebox/authority/rules/" + team + "_" + name
	return []File{{base + ".rego", []byte(fill(ruleTemplate))}, {base + "_test.rego", []byte(fill(ruleTestTemplate))}}, nil
}

var regoWords = map[string]bool{"as": true, "contains": true, "data": true, "default": true, "else": true, "every": true, "false": true,
	"if": true, "import": true, "in": true, "input": true, "not": true, "null": true, "package": true, "some": true, "true": true, "with": true}

const ruleTemplate = `# METADATA
# title: {name}, a rule of team {team}
# description: |
#   Say here what the rule is for and who asked for it. A team's rules can deny
#   and ask for approval; they can never allow. To watch it before it stops
#   anybody, list "{team}_{name}" under authority.observe in fusebox/config/data.json.
# schemas:
#   - input: schema.operation
package fusebox.authority.rules.{team}_{name}

# METADATA
# labels: { rule: {team}.{name} }
{kind} contains "{name}" if {
	input.operation.action_class == "{class}"
	input.operation.effect != "read_only"
	input.operation.amount > 10000
}
`

const ruleTestTemplate = `package fusebox.authority.rules.{team}_{name}_test

import data.fusebox.authority.rules.{team}_{name}

asked(class, effect, amount) := {"operation": {"action_class": class, "effect": effect, "amount": amount}}

test_it_applies if {
	{team}_{name}.{kind} == {"{name}"} with input as asked("{class}", "non_repeatable", 10001)
}

test_it_stops_at_its_limit if {
	{team}_{name}.{kind} == set() with input as asked("{class}", "non_repeatable", 10000)
}

test_it_leaves_reads_alone if {
	{team}_{name}.{kind} == set() with input as asked("{class}", "read_only", 10001)
}

test_it_leaves_other_classes_alone if {
	{team}_{name}.{kind} == set() with input as asked("something.else", "non_repeatable", 10001)
}
`
