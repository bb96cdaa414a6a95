package rego

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

const allow = `{"decision": "allow", "reasons": ["r"], "obligations": []}`

// Everything that can go wrong while a policy is evaluated comes out as a
// denial with a reason of its own, is not remembered, and leaves the process
// alive (R-POL-6).
func TestKillListOfRules(t *testing.T) {
	cases := []struct{ name, body, want, detail string }{
		{"undefined answer", denyByDefault + "decision := {\"decision\": \"allow\", \"reasons\": x, \"obligations\": []} if input.agent.id == \"agent-a\"\nx := 1 if input.agent.id == \"nobody\"", "", ""},
		{"conflict", denyByDefault + "decision := " + allow + " if input.agent.id != \"\"\ndecision := {\"decision\": \"deny\", \"reasons\": [\"r\"], \"obligations\": []} if input.agent.id != \"\"", "policy_conflict", "eval_conflict_error"},
		{"division by zero", denyByDefault + "decision := " + allow + " if not deny\ndeny if 1 / input.operation.amount > 0", "policy_error", "divide by zero"},
		{"number too big", denyByDefault + "decision := " + allow + " if not deny\ndeny if to_number(input.operation.idempotency_key) > 0", "policy_error", ""},
		{"endless rule", denyByDefault + "decision := " + allow + " if {\n\tsome i in numbers.range(1, 100000)\n\tsome j in numbers.range(1, 100000)\n\ti * j == input.operation.amount + 7\n\ti < 0\n}", "policy_timeout", ""},
		{"not an object", "default decision := 5", "policy_error", "want an object, got number"},
		{"missing member", "default decision := {\"decision\": \"allow\", \"reasons\": [\"r\"]}", "policy_error", `"obligations" is missing`},
		{"unknown member", "default decision := {\"decision\": \"allow\", \"reasons\": [\"r\"], \"obligations\": [], \"ttl\": 1}", "policy_error", "unknown member"},
		{"unknown decision", "default decision := {\"decision\": \"maybe\", \"reasons\": [\"r\"], \"obligations\": []}", "policy_error", `"maybe" is not one of`},
		{"no reasons", "default decision := {\"decision\": \"allow\", \"reasons\": [], \"obligations\": []}", "policy_error", "at least one reason"},
		{"reason is no string", "default decision := {\"decision\": \"allow\", \"reasons\": [1], \"obligations\": []}", "policy_error", "want a string"},
		{"too many reasons", denyByDefault + "decision := {\"decision\": \"allow\", \"reasons\": [sprintf(\"%d\", [i]) | some i in numbers.range(1, 70)], \"obligations\": []} if input.agent.id != \"\"", "policy_error", "at most 64"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := authority(t, c.body, Options{Deadline: 300 * time.Millisecond})
			in := ask()
			in.Operation.IdempotencyKey = "1e999999999"
			for range 2 {
				a := s.Authorize(t.Context(), in)
				if a.Decision != taxonomy.Deny {
					t.Fatalf("decided %s", a.Decision)
				}
				if a.Evaluation.Error != c.want || !strings.Contains(a.Evaluation.Detail, c.detail) {
					t.Errorf("error %q, detail %q", a.Evaluation.Error, a.Evaluation.Detail)
				}
				if c.want != "" && (a.Evaluation.Memo != "miss" || a.Reasons[0] != c.want) {
					t.Errorf("a failure was remembered, or has no reason: %+v", a)
				}
			}
		})
	}
}

// A rule that divides by zero would just not fire, and with it its denial; the
// list of builtin errors is what catches that. So is a type error.
func TestDenyRuleThatFailsIsNoAllow(t *testing.T) {
	s := authority(t, denyByDefault+"decision := "+allow+" if not deny\ndeny if startswith(input.operation.attributes.note, \"x\")\n", Options{})
	in := ask()
	in.Operation.Attributes = taxonomy.Attributes{"note": int64(5)}
	if a := s.Authorize(t.Context(), in); a.Decision != taxonomy.Deny || a.Evaluation.Error != "policy_error" {
		t.Errorf("%+v", a)
	}
	in.Operation.Attributes["note"] = "fine"
	if a := s.Authorize(t.Context(), in); a.Decision != taxonomy.Allow {
		t.Errorf("%+v", a)
	}
}

// OPA panics on values that no typed input can hold. Should one ever come
// through, the process lives and the answer says what happened.
func TestPanicsOfTheEvaluator(t *testing.T) {
	s := authority(t, denyByDefault+"decision := "+allow+" if input.operation.amount + 1 > 2\n", Options{})
	for _, n := range []string{"NaN", "+Inf", "-Inf", "zz"} {
		bad := ast.NewObject(ast.Item(ast.StringTerm("operation"), ast.ObjectTerm(
			ast.Item(ast.StringTerm("amount"), ast.NewTerm(ast.Number(n))))))
		r := s.authz.query.run(t.Context(), bad, plainMode)
		if r.code == "" {
			t.Errorf("%s: evaluated to %v", n, r.value)
		}
		t.Logf("%s: %s %s", n, r.code, r.detail)
	}
	if a := s.Authorize(t.Context(), ask()); a.Evaluation.Error != "" {
		t.Errorf("afterwards: %+v", a)
	}
}

// Input that no caller may send is named by its field, on a miss and on a hit.
func TestKillListOfInputs(t *testing.T) {
	many := make([]taxonomy.ApprovalFact, 65)
	roles := make([]string, 65)
	for i := range roles {
		roles[i] = fmt.Sprintf("role-%02d", i)
		many[i] = taxonomy.ApprovalFact{By: roles[i], Scope: "s"}
	}
	cases := []struct {
		name   string
		change func(*taxonomy.AuthorityInput)
		want   string
	}{
		{"invalid UTF-8", func(in *taxonomy.AuthorityInput) { in.Operation.User = "a\xffb" }, "invalid_input:operation.user"},
		{"invalid UTF-8 in a field no rule reads", func(in *taxonomy.AuthorityInput) { in.Operation.ArgsFP = "a\xffb" }, "invalid_input:operation.args_fp"},
		{"1 MB string", func(in *taxonomy.AuthorityInput) { in.Operation.Name = strings.Repeat("x", 1<<20) }, "invalid_input:operation.name"},
		{"line break in a scope part", func(in *taxonomy.AuthorityInput) { in.Operation.Tenant = "acme\nother" }, "invalid_input:operation.tenant"},
		{"C1 control in a scope part", func(in *taxonomy.AuthorityInput) { in.Operation.Model = "m\u0085" }, "invalid_input:operation.model"},
		{"delete in a scope part", func(in *taxonomy.AuthorityInput) { in.AgentID = "agent\x7f" }, "invalid_input:agent.id"},
		{"65 approvals", func(in *taxonomy.AuthorityInput) { in.Approvals = many }, "invalid_input:approvals"},
		{"65 roles", func(in *taxonomy.AuthorityInput) { in.Roles = roles }, "invalid_input:agent.roles"},
		{"long approver", func(in *taxonomy.AuthorityInput) {
			in.Approvals = []taxonomy.ApprovalFact{{By: strings.Repeat("x", 5000)}}
		}, "invalid_input:approvals"},
		{"attribute of another type", func(in *taxonomy.AuthorityInput) { in.Operation.Attributes = taxonomy.Attributes{"x": 1.5} }, "invalid_input:operation.attributes"},
		{"attribute with a bad name", func(in *taxonomy.AuthorityInput) { in.Operation.Attributes = taxonomy.Attributes{"a\nb": "x"} }, "invalid_input:operation.attributes"},
		{"attribute with a bad text", func(in *taxonomy.AuthorityInput) { in.Operation.Attributes = taxonomy.Attributes{"a": "\xff"} }, "invalid_input:operation.attributes"},
		{"too many dependencies", func(in *taxonomy.AuthorityInput) { in.Operation.DependsOn = roles }, "invalid_input:operation.depends_on"},
	}
	s := compileShipped(t, Options{})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s.Authorize(t.Context(), ask())
			in := ask()
			c.change(in)
			a := s.Authorize(t.Context(), in)
			if a.Decision != taxonomy.Deny || a.Evaluation.Error != c.want {
				t.Errorf("%s, error %q", a.Decision, a.Evaluation.Error)
			}
		})
	}
	// Empty is not missing: an agent without roles or approvals is judged.
	in := ask()
	in.Roles, in.Approvals = []string{}, []taxonomy.ApprovalFact{}
	if a := s.Authorize(t.Context(), in); a.Evaluation.Error != "" {
		t.Errorf("empty roles: %+v", a)
	}
	// Letters of any script may name a tenant.
	in.Operation.Tenant = "ÅcmeИ社"
	if a := s.Authorize(t.Context(), in); a.Evaluation.Error != "" {
		t.Errorf("a tenant with letters beyond ASCII: %+v", a)
	}
}

// The quick look at an operation misses no field: a bad value in any of them
// is found, whichever fields a later version adds.
func TestOrdinaryOperationIsChecked(t *testing.T) {
	fields := reflect.TypeFor[taxonomy.Operation]()
	for i := range fields.NumField() {
		op := *goldenOperation("tool", taxonomy.ReadOnly)
		if !ordinary(&op) {
			t.Fatal("the golden operation is not ordinary")
		}
		switch f := reflect.ValueOf(&op).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("\xff")
		case reflect.Slice:
			f.Set(reflect.ValueOf([]string{"\xff"}))
		case reflect.Map:
			op.Attributes = taxonomy.Attributes{"a": "\xff"}
		default:
			continue
		}
		in := ask()
		in.Operation = &op
		if ordinary(&op) || operationDocument.invalid(in) == "" {
			t.Errorf("a bad %s is not found", fields.Field(i).Name)
		}
	}
}

// A caller that gives up is told apart from a policy that is too slow.
func TestCancelledCaller(t *testing.T) {
	s := authority(t, denyByDefault+"decision := "+allow+" if {\n\tsome i in numbers.range(1, 100000)\n\tsome j in numbers.range(1, 100000)\n\ti * j == input.operation.amount + 7\n\ti < 0\n}\n",
		Options{Deadline: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := s.Authorize(ctx, ask()); a.Decision != taxonomy.Deny || a.Evaluation.Error != "policy_canceled" {
		t.Errorf("%+v", a)
	}
}

// What routing rules say is held against what is declared.
func TestFeedsAreChecked(t *testing.T) {
	breakers := []Breaker{
		{Name: "provider", Layer: taxonomy.LayerProvider, Scope: []string{"provider", "model"}},
		{Name: "quota", Layer: taxonomy.LayerProvider, Scope: []string{"provider", "credential"}},
		{Name: "tool", Layer: taxonomy.LayerTool, Scope: []string{"tool", "tenant"}},
	}
	feed := func(s string) string { return "decision contains f if f := {" + s + "}\n" }
	const ok = `"layer": "provider", "breaker": "provider", "level": "model", "signal": "failure", "reason": "r"`
	cases := []struct{ name, rules, want string }{
		{"fine", feed(ok), ""},
		{"filled in", feed(`"layer": "tool", "level": "tenant", "signal": "failure", "reason": "r"`), ""},
		{"ambiguous breaker", feed(`"layer": "provider", "level": "model", "signal": "failure", "reason": "r"`), "has not exactly one breaker"},
		{"unknown layer", feed(strings.Replace(ok, `"layer": "provider"`, `"layer": "cloud"`, 1)), `"cloud" is not one of`},
		{"no layer", feed(strings.Replace(ok, `"layer": "provider"`, `"layer": "none"`, 1)), "cannot be fed"},
		{"unknown breaker", feed(strings.Replace(ok, `"breaker": "provider"`, `"breaker": "x"`, 1)), "is not declared"},
		{"breaker of another layer", feed(strings.Replace(ok, `"breaker": "provider"`, `"breaker": "tool"`, 1)), "is of layer tool"},
		{"level outside the scope", feed(strings.Replace(ok, `"level": "model"`, `"level": "tenant"`, 1)), "is not in the scope"},
		{"level that is no part", feed(strings.Replace(ok, `"level": "model"`, `"level": "amount"`, 1)), "is not a field that a scope can name"},
		{"unknown signal", feed(strings.Replace(ok, "failure", "panic", 1)), `"panic" is not one of`},
		{"no reason", feed(strings.Replace(ok, `"r"`, `""`, 1)), "reason is empty"},
		{"missing member", feed(strings.Replace(ok, `, "reason": "r"`, "", 1)), `"reason" is missing`},
		{"wait with failure", feed(ok + `, "until_ms": 5`), "goes with open_now only"},
		{"endless wait", feed(strings.Replace(ok, "failure", "open_now", 1) + `, "until_ms": 1000000000000`), "is not between"},
		{"wait that is no integer", feed(strings.Replace(ok, "failure", "open_now", 1) + `, "until_ms": 1.5`), "want an integer"},
		{"success and failure", feed(ok) + feed(strings.Replace(ok, "failure", "success", 1)), "both success and failure"},
		{"too many", "decision contains f if {\n\tsome i in numbers.range(1, 40)\n\tf := {\"i\": i}\n}\n", "at most 32"},
		{"not a set of objects", "decision contains 5\n", "want an object"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := compile(t, policy(map[Entrypoint]string{Routing: "package fusebox.routing\n" + c.rules}), Options{Breakers: breakers})
			a := s.Route(t.Context(), routed())
			if c.want == "" {
				if a.Evaluation.Error != "" || len(a.Feeds) != 1 || a.Feeds[0].Breaker == "" {
					t.Errorf("%+v", a)
				}
				return
			}
			if a.Feeds != nil || a.Evaluation.Error != "policy_error" || !strings.Contains(a.Evaluation.Detail, c.want) {
				t.Errorf("%+v", a)
			}
		})
	}
}

// Admission and fallback answers keep the floor: no queue without expiry, no
// going on with a write, no candidate that was not declared.
func TestAdmissionAndFallbackFloors(t *testing.T) {
	admission := func(answer string, effect taxonomy.Effect) taxonomy.AdmissionAnswer {
		s := compile(t, policy(map[Entrypoint]string{Admission: "package fusebox.admission\ndefault decision := " + answer + "\n"}), Options{})
		return s.Admission(t.Context(), &taxonomy.AdmissionInput{Operation: goldenOperation("tool", effect)})
	}
	for _, c := range []struct {
		answer string
		effect taxonomy.Effect
		want   taxonomy.AdmissionAction
		detail string
	}{
		{`{"action": "queue", "reason": "r", "expires_in_s": 60}`, taxonomy.NonRepeatable, taxonomy.ActionQueue, ""},
		{`{"action": "queue", "reason": "r", "expires_in_s": 0}`, taxonomy.ReadOnly, taxonomy.ActionReject, "no expiry, no entry"},
		{`{"action": "queue", "reason": "r", "expires_in_s": -1}`, taxonomy.ReadOnly, taxonomy.ActionReject, "is not between"},
		{`{"action": "proceed", "reason": "r", "expires_in_s": 0}`, taxonomy.ReadOnly, taxonomy.ActionProceed, ""},
		{`{"action": "proceed", "reason": "r", "expires_in_s": 0}`, taxonomy.IdempotentWrite, taxonomy.ActionReject, "proceed is for read_only"},
		{`{"action": "reject", "reason": "", "expires_in_s": 0}`, taxonomy.ReadOnly, taxonomy.ActionReject, "reason is empty"},
		{`{"action": "later", "reason": "r", "expires_in_s": 0}`, taxonomy.ReadOnly, taxonomy.ActionReject, "is not one of"},
	} {
		a := admission(c.answer, c.effect)
		if a.Action != c.want || !strings.Contains(a.Evaluation.Detail, c.detail) || (c.detail != "") != (a.Evaluation.Error != "") {
			t.Errorf("%s for %s: %+v", c.answer, c.effect, a)
		}
	}
	fallback := func(answer string) taxonomy.FallbackAnswer {
		s := compile(t, policy(map[Entrypoint]string{Fallback: "package fusebox.fallback\ndefault decision := " + answer + "\n"}), Options{})
		return s.Fallback(t.Context(), &taxonomy.FallbackInput{Operation: goldenOperation("model", taxonomy.ReadOnly), Rejection: &taxonomy.Rejection{},
			Candidates: []taxonomy.Candidate{{ID: "a"}, {ID: "b"}}})
	}
	if a := fallback(`[{"choose": "b", "reason": "r"}, {"choose": "a", "reason": "s"}]`); len(a.Order) != 2 || a.Order[0].ID != "b" {
		t.Errorf("%+v", a)
	}
	for answer, detail := range map[string]string{
		`[{"choose": "c", "reason": "r"}]`:                                 "none of the declared",
		`[{"choose": "a", "reason": "r"}, {"choose": "a", "reason": "s"}]`: "named twice",
		`{{"choose": "a", "reason": "r"}}`:                                 "order matters",
		`[{"choose": "a"}]`:                                                "is missing",
	} {
		if a := fallback(answer); a.Order != nil || a.Evaluation.Error != "policy_error" || !strings.Contains(a.Evaluation.Detail, detail) {
			t.Errorf("%s: %+v", answer, a)
		}
	}
}
