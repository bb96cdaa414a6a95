package rego

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Fields that must meet are combined, although none of them is of the core.
func TestDiffCombinesWhatARuleReads(t *testing.T) {
	team := func(body string) *Snapshot {
		return compile(t, policy(map[Entrypoint]string{Authority: `package fusebox.authority
default decision := {"decision": "deny", "reasons": ["x"], "obligations": []}
decision := {"decision": "allow", "reasons": ["r"], "obligations": []} if count(_deny) == 0
_deny contains "old" if input.operation.tenant == "evil"
_deny contains reason if {
	some team
	some reason in data.fusebox.authority.rules[team].deny
}
`}, Module{Path: "t.rego", Source: []byte("package fusebox.authority.rules.t\n" + body)}), Options{Deadline: time.Minute})
	}
	d := Compare(t.Context(), team(""), team(`deny contains "night" if {
	input.agent.id == "bot"
	input.operation.tenant == "acme"
	input.operation.amount > 7
	input.clock.hour == 3
	input.clock.weekday == "sunday"
}
`), nil)
	if len(d.Changes) != 1 || d.Partial != nil || !shows(d, Authority, Stricter, "allow: r", "deny", is("agent.id", "bot"),
		is("operation.tenant", "acme"), is("operation.amount", "8"), is("clock.hour", "3"), is("clock.weekday", "sunday")) {
		dump(t, d)
		t.Error("five fields that must meet")
	}
}

// A rule that can tell a set that is not there from an empty one is asked, too.
func TestDiffSeesASetAppear(t *testing.T) {
	counting := func(more ...Module) *Snapshot {
		return compile(t, policy(map[Entrypoint]string{Authority: `package fusebox.authority
default decision := {"decision": "deny", "reasons": ["x"], "obligations": []}
decision := {"decision": "allow", "reasons": ["r"], "obligations": []} if _any
_any if {
	some team
	count(data.fusebox.authority.rules[team].deny) == 0
}
`}, more...), Options{Deadline: time.Minute})
	}
	d := Compare(t.Context(), counting(), counting(Module{Path: "t.rego", Source: []byte(
		"package fusebox.authority.rules.t\ndeny contains \"never\" if input.operation.tenant == \"nobody\"\n")}), nil)
	if !d.Looser() {
		dump(t, d)
		t.Error("the empty set that appeared allows everything")
	}
}

// A rule may replace the input of others; then what changed cannot be looked at
// by itself, and the diff says that not everything was combined.
func TestDiffSaysWhatItCouldNotCombine(t *testing.T) {
	s := func(amount string) *Snapshot {
		return authority(t, denyByDefault+`decision := {"decision": "allow", "reasons": ["r"], "obligations": []} if {
	_small with input.operation.amount as input.operation.priority
}
_small if input.operation.amount < `+amount+"\n", Options{Deadline: time.Minute})
	}
	d := Compare(t.Context(), s("5"), s("9"), nil)
	var text strings.Builder
	if err := d.WriteText(&text); err != nil || !slices.Equal(d.Partial, []Entrypoint{Authority}) || !strings.Contains(text.String(), "may have been missed") {
		t.Errorf("%v %s", d.Partial, text.String())
	}
}

// Every input that two policies answer differently is in their diff: the whole
// product of a few fields is asked directly and looked up in it.
func TestDiffMissesNothing(t *testing.T) {
	luck := rand.New(rand.NewPCG(5, 8))
	for round := range 8 {
		old, new := drawRules(luck), drawRules(luck)
		if luck.IntN(2) == 0 { // like an edit: most rules stay
			new = slices.Clone(old)
			new[luck.IntN(len(new))] = drawRules(luck)[0]
		}
		a, b := ruled(t, old), ruled(t, new)
		d := Compare(t.Context(), a, b, nil)
		if d.Partial != nil || d.Truncated {
			t.Fatalf("round %d: partial %v, truncated %v", round, d.Partial, d.Truncated)
		}
		for _, in := range product() {
			x, y := a.Authorize(t.Context(), in), b.Authorize(t.Context(), in)
			was, is := show(&x), show(&y)
			if was != is && !slices.ContainsFunc(d.Changes, func(c Change) bool { return c.Old == was && c.New == is && covers(c, in) }) {
				dump(t, d)
				t.Fatalf("round %d: %+v %+v: %s became %s, and the diff does not say so\nold %s\nnew %s", round, in.Operation, in.AgentID, was, is, old, new)
			}
		}
	}
}

func ruled(t *testing.T, rules []string) *Snapshot {
	return authority(t, `default decision := {"decision": "deny", "reasons": ["x"], "obligations": []}
decision := {"decision": "deny", "reasons": _deny, "obligations": []} if count(_deny) > 0
decision := {"decision": "require_approval", "reasons": _ask, "obligations": []} if {
	count(_deny) == 0
	count(_ask) > 0
}
decision := {"decision": "allow", "reasons": ["r"], "obligations": []} if {
	count(_deny) == 0
	count(_ask) == 0
	_fine
}
_deny contains "never" if input.operation.tool == "never"
_ask contains "never" if input.operation.tool == "never"
_fine if {
	input.operation.tool == "never"
	input.operation.amount > 5
	input.operation.amount < 9
	input.agent.id in {"bot", "max"}
	input.operation.action_class in {"pay", "mail"}
}
`+strings.Join(rules, ""), Options{Deadline: time.Minute})
}

var (
	diffAgents  = []string{otherText, "bot", "max"}
	diffClasses = []string{"", "pay", "mail"}
	diffAmounts = []int64{0, 4, 5, 6, 8, 9, 10}
)

func drawRules(luck *rand.Rand) []string {
	conditions := []string{`input.agent.id == "bot"`, `input.agent.id != "max"`, `input.operation.action_class == "pay"`, `input.operation.action_class in {"pay", "mail"}`,
		`input.operation.amount > 5`, `input.operation.amount < 9`, `input.operation.effect != "read_only"`, `not input.operation.effect == "non_repeatable"`}
	out := make([]string, 2+luck.IntN(4))
	for i := range out {
		body := ""
		for _, k := range luck.Perm(len(conditions))[:1+luck.IntN(3)] {
			body += "\t" + conditions[k] + "\n"
		}
		head := []string{`_deny contains "d1"`, `_deny contains "d2"`, `_ask contains "a1"`, `_fine`}[luck.IntN(4)]
		out[i] = fmt.Sprintf("%s if {\n%s}\n", head, body)
	}
	return out
}

func product() (out []*taxonomy.AuthorityInput) {
	for _, agent := range diffAgents {
		for _, class := range diffClasses {
			for _, amount := range diffAmounts {
				for _, effect := range effects() {
					out = append(out, &taxonomy.AuthorityInput{AgentID: agent, Clock: taxonomy.Clock{Date: "2026-11-30", Hour: 10, Weekday: "monday"},
						Operation: &taxonomy.Operation{ActionClass: class, Amount: amount, Effect: effect, Kind: "tool"}})
				}
			}
		}
	}
	return out
}

// covers reports that a change's conditions hold for an input, of whose fields
// every value is in the table.
func covers(c Change, in *taxonomy.AuthorityInput) bool {
	have := map[string]string{"agent.id": in.AgentID, "operation.action_class": in.Operation.ActionClass,
		"operation.amount": fmt.Sprint(in.Operation.Amount), "operation.effect": in.Operation.Effect.String(), "operation.kind": "tool"}
	for _, w := range c.When {
		if v, known := have[w.Field]; known && slices.Contains(w.Values, v) == w.Except {
			return false
		}
	}
	return true
}

// Rules of every shape are seen to change: objects by key, names with variables
// in them, else branches, defaults.
func TestDiffSeesEveryShape(t *testing.T) {
	for name, body := range map[string]string{
		"object by key":      "_ok if _limits[\"a\"] > 5\n_limits[k] := CHANGED if {\n\tsome k in [\"a\", \"b\"]\n\tinput.operation.tenant == \"acme\"\n}\n",
		"variable in a name": "_ok if _t.x.max > 5\n_t[k].max := CHANGED if {\n\tsome k in [\"x\", \"y\"]\n\tinput.operation.tenant == \"acme\"\n}\n",
		"set by key":         "_ok if some n in _s.x; n > 5\n_s[k] contains CHANGED if {\n\tsome k in [\"x\", \"y\"]\n\tinput.operation.tenant == \"acme\"\n}\n",
		"else":               "_ok if _n > 5\n_n := 1 if input.operation.tenant == \"other\"\nelse := CHANGED if input.operation.tenant == \"acme\"\n",
		"default":            "_ok if _n > 5\ndefault _n := CHANGED\n_n := 1 if input.operation.tenant == \"other\"\n",
		"function":           "_ok if _f(input.operation.tenant) > 5\n_f(x) := CHANGED if x == \"acme\"\n",
		"comprehension":      "_ok if count([x | some x in [1, 2, 3, 4, 5, 6]; input.operation.tenant == \"acme\"; x < CHANGED]) > 5\n",
		"not":                "_ok if not _no\n_no if input.operation.amount < CHANGED\n",
	} {
		s := func(n string) *Snapshot {
			text := strings.NewReplacer("CHANGED", n, "; n > 5", "\n\tn > 5", "_ok if some n", "_ok if {\n\tsome n").Replace(body)
			if name == "set by key" {
				text = strings.Replace(text, "n > 5\n", "n > 5\n}\n", 1)
			}
			return authority(t, denyByDefault+"decision := {\"decision\": \"allow\", \"reasons\": [\"r\"], \"obligations\": []} if _ok\n"+text, Options{Deadline: time.Minute})
		}
		d := Compare(t.Context(), s("1"), s("9"), nil)
		if len(d.Changes) == 0 {
			t.Errorf("%s: %d inputs were asked and nothing was seen", name, d.Asked)
		}
	}
}
