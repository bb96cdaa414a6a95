package rego

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A bad policy is refused with file, line and reason (R-POL-4).
func TestLoadRefusals(t *testing.T) {
	auth := func(body string) *Files {
		return policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + denyByDefault + body})
	}
	cases := []struct {
		name  string
		files *Files
		file  string
		line  int
		code  string
		words string
	}{
		{"syntax", auth("decision := {"), "authority.rego", 3, "parse", "unexpected eof"},
		{"rego v0", auth("p { true }"), "authority.rego", 3, "parse", "`if` keyword"},
		{"strict: unused variable", auth("p if { x := 1 }"), "authority.rego", 3, "compile", "assigned var x unused"},
		{"strict: unused import", policy(map[Entrypoint]string{Authority: "package fusebox.authority\nimport data.fusebox.x\n" + denyByDefault}), "authority.rego", 2, "compile", "import data.fusebox.x unused"},
		{"type", auth("p if count(1) == 2"), "authority.rego", 3, "type", "invalid argument"},
		{"http.send", auth("p if http.send({}).x"), "authority.rego", 3, "builtin", "builtin http.send is not allowed"},
		{"time.now_ns", auth("p if time.now_ns() > 1"), "authority.rego", 3, "builtin", "builtin time.now_ns is not allowed"},
		{"x509 against the wall clock", auth("p if crypto.x509.parse_and_verify_certificates(\"\")[0]"), "authority.rego", 3, "builtin", "is not allowed"},
		{"unknown function", auth("p if frobnicate(1)"), "authority.rego", 3, "type", "undefined function frobnicate"},
		{"misspelt entrypoint", policy(map[Entrypoint]string{Authority: "package fusebox.authority\ndefault desicion := 1\n"}), "authority.rego", 1, "entrypoint", "data.fusebox.authority.decision has no rule"},
		{"entrypoint that may be undefined", policy(map[Entrypoint]string{Authority: "package fusebox.authority\ndecision := 1 if input.agent.id == \"x\"\n"}), "authority.rego", 2, "entrypoint", "give it a default"},
		{"field that does not exist", auth("p if input.operation.regoin == \"eu\"\ndecision := {} if p"), "authority.rego", 3, "schema", "did you mean input.operation.region?"},
		{"inside a scalar", auth("decision := {} if input.operation.tenant.name == \"eu\""), "authority.rego", 3, "schema", "input.operation.tenant.name does not exist"},
		{"another question's field", auth("decision := {} if input.outcome.class == \"x\""), "authority.rego", 3, "schema", "input.outcome.class does not exist in fusebox.operation/v1"},
		{"package outside the roots", policy(nil, Module{Path: "x.rego", Source: []byte("package other\np := 1\n")}), "x.rego", 1, "roots", "package other lies outside"},
		{"data outside the roots", &Files{Modules: policy(nil).Modules, Data: []byte(`{"other":1}`)}, "data", 0, "roots", "data.other lies outside"},
		{"data is a list", &Files{Modules: policy(nil).Modules, Data: []byte(`[1]`)}, "data", 0, "data", "must be a JSON object"},
		{"data is not JSON", &Files{Modules: policy(nil).Modules, Data: []byte(`{`)}, "data", 0, "data", "unexpected EOF"},
		{"data and a rule in one place", &Files{Modules: policy(nil).Modules, Data: []byte(`{"fusebox":{"authority":{"decision":1}}}`)}, "authority.rego", 2, "compile", "conflict"},
		{"one file twice", policy(nil, Module{Path: "authority.rego", Source: []byte("package fusebox.x\n")}), "authority.rego", 0, "duplicate", "given twice"},
		{"empty file", policy(nil, Module{Path: "x.rego"}), "x.rego", 0, "parse", "empty"},
		{"too much Rego", policy(nil, Module{Path: "x.rego", Source: make([]byte, MaxRegoBytes)}), "x.rego", 0, "size", "exceeds"},
		{"recursion", auth("p if q\nq if p"), "authority.rego", 3, "recursion", "recursive"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			wantProblem(t, problemsOf(t, c.files, Options{}), c.file, c.line, c.code, c.words)
		})
	}
}

// One try shows everything that is wrong.
func TestLoadListsEveryProblem(t *testing.T) {
	f := policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + denyByDefault +
		"decision := {} if input.operation.regoin == \"eu\"\ndecision := {} if input.agnt.id == \"x\"\n"})
	got := problemsOf(t, f, Options{})
	wantProblem(t, got, "authority.rego", 3, "schema", "input.operation.regoin")
	wantProblem(t, got, "authority.rego", 4, "schema", "input.agnt.id")
	if err := (&LoadError{Problems: got}).Error(); !strings.Contains(err, "2 problems") {
		t.Error(err)
	}
}

// An operator allows a builtin by name: the memo is off for what can reach it,
// on for the rest, and what it returned is kept (R-POL-5).
func TestBuiltinAllowedByName(t *testing.T) {
	body := denyByDefault + "decision := {\"decision\": \"allow\", \"reasons\": [\"r\"], \"obligations\": []} if time.now_ns() > 1\n"
	wantProblem(t, problemsOf(t, policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + body}), Options{}),
		"authority.rego", 3, "builtin", "time.now_ns")
	s := authority(t, body, Options{Allow: []string{"time.now_ns"}})
	if m := s.Memo(Authority); m.On || !strings.Contains(m.Why, "time.now_ns") {
		t.Errorf("memo of authority: %+v", m)
	}
	if !s.Memo(Routing).On {
		t.Error("memo of routing is off")
	}
	a := s.Authorize(t.Context(), ask())
	if a.Decision != taxonomy.Allow || !strings.Contains(string(a.Evaluation.Returned), "time.now_ns") {
		t.Errorf("%+v returned %s", a, a.Evaluation.Returned)
	}
	if _, err := Compile(t.Context(), policy(nil), Options{Allow: []string{"no.such"}}); err == nil {
		t.Error("an unknown name was allowed")
	}
	if CapabilitiesDigest(nil) == CapabilitiesDigest([]string{"time.now_ns"}) {
		t.Error("allowing a builtin leaves the capabilities digest as it was")
	}
}

// What is allowed but unwise is said with file and line.
func TestWarnings(t *testing.T) {
	s := authority(t, denyByDefault+`decision := {"decision": "allow", "reasons": ["r"], "obligations": []} if input.operation.request_id == "x"
`, Options{})
	w := s.Warnings()
	if len(w) != 1 || w[0].File != "authority.rego" || w[0].Line != 3 || !strings.Contains(w[0].Text, "input.operation.request_id") {
		t.Errorf("%+v", w)
	}
	s = authority(t, denyByDefault+`decision := {"decision": "allow", "reasons": ["r"], "obligations": []} if f(input)
f(x) if x.operation.tenant == "a"
`, Options{})
	if m := s.Memo(Authority); m.On || !strings.Contains(m.Why, "authority.rego:3") {
		t.Errorf("%+v", m)
	}
	if a := s.Authorize(t.Context(), ask()); a.Evaluation.Memo != "off" || a.Evaluation.Error != "" {
		t.Errorf("%+v", a)
	}
	if w := compileShipped(t, Options{}).Warnings(); len(w) != 0 {
		t.Errorf("the shipped bundle has warnings: %v", w)
	}
}

// The shipped bundle as a condition of activation: its tests, its coverage, and
// the same answers with parts of the evaluator off (R-POL-2).
func TestShippedBundleActivates(t *testing.T) {
	s := compileShipped(t, Options{RequireTests: true, MinCoverage: 95, Differential: true})
	r := s.Tests()
	if !r.Ok() || r.Passed < 80 || r.Coverage < 95 {
		t.Errorf("passed %d, failed %d, coverage %.1f, missed %v", r.Passed, r.Failed, r.Coverage, r.Missed)
	}
}

func TestActivationNeedsPassingTests(t *testing.T) {
	wantProblem(t, problemsOf(t, policy(nil), Options{RequireTests: true}), "", 0, "tests", "no tests")
	failing := policy(nil, Module{Path: "a_test.rego", Source: []byte("package fusebox.a_test\ntest_x if 1 == 2\ntest_y if true\n")})
	wantProblem(t, problemsOf(t, failing, Options{RequireTests: true}), "a_test.rego", 2, "tests", "data.fusebox.a_test.test_x: FAIL")
	thin := policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + denyByDefault + "decision := {} if {\n\tinput.agent.id == \"x\"\n\tinput.operation.tenant == \"y\"\n}\n"},
		Module{Path: "a_test.rego", Source: []byte("package fusebox.a_test\ntest_y if true\n")})
	wantProblem(t, problemsOf(t, thin, Options{MinCoverage: 95}), "", 0, "tests", "95.0 % are required; the first line without a test is")
	broken := policy(nil, Module{Path: "a_test.rego", Source: []byte("package fusebox.a_test\ntest_x if {\n")})
	wantProblem(t, problemsOf(t, broken, Options{RequireTests: true}), "a_test.rego", 3, "parse", "unexpected eof")
}

// A cancelled compilation leaves nothing half-made.
func TestCompileUnderCancelledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Compile(ctx, shipped(t), Options{}); err == nil {
		if a := s.Authorize(t.Context(), ask()); a.Evaluation.Error != "" {
			t.Errorf("%+v", a)
		}
	}
}

// A team's rule is checked against the schema although it says nothing of
// schemas itself, also inside lists, where the read set alone would not look.
func TestTeamRulesAreTypeChecked(t *testing.T) {
	f := shipped(t)
	f.Modules = append(f.Modules, Module{Path: "fusebox/authority/rules/x.rego", Source: []byte(
		"package fusebox.authority.rules.x\n\ndeny contains \"x\" if {\n\tsome a in input.approvals\n\ta.idd == \"y\"\n}\n")})
	wantProblem(t, problemsOf(t, f, Options{}), "fusebox/authority/rules/x.rego", 5, "type", "undefined ref: a.idd")
	f = shipped(t)
	f.Modules = append(f.Modules, Module{Path: "fusebox/authority/rules/x.rego", Source: []byte(
		"package fusebox.authority.rules.x\n\ndeny contains \"x\" if input.operation.amount == \"much\"\n")})
	wantProblem(t, problemsOf(t, f, Options{}), "fusebox/authority/rules/x.rego", 3, "type", "match error")
}

// A test that never ends keeps nobody waiting for ever: the bundle is refused.
func TestEndlessTestIsRefused(t *testing.T) {
	endless := Module{Path: "endless_test.rego", Source: []byte(
		"package fusebox.endless_test\n\ntest_for_ever if {\n\tevery x in numbers.range(1, 1000000) {\n\t\tevery y in numbers.range(1, 1000000) {\n\t\t\tx * y > 0\n\t\t}\n\t}\n}\n")}
	f := policy(nil, endless)
	wantProblem(t, problemsOf(t, f, Options{RunTests: true, ProofTime: 200 * time.Millisecond}), "", 0, "tests", "did not end within 200ms")
}

// Tests are asked for, and asked for to be there, apart.
func TestMissingTests(t *testing.T) {
	compile(t, policy(nil), Options{RunTests: true, Differential: true})
	wantProblem(t, problemsOf(t, policy(nil), Options{RequireTests: true}), "", 0, "tests", "has no tests")
}

// What a rule would have said that is only observed binds nobody and is among
// the rules that spoke, remembered answers included (R-POL-8).
func TestObservedRules(t *testing.T) {
	s := authority(t, `default decision := {"decision": "deny", "reasons": ["x"], "obligations": []}

# METADATA
# labels: { rule: a.b }
decision := {"decision": "allow", "reasons": ["r"], "obligations": [], "observed": {"deny:team.late", "deny:team.early"}} if input.operation.tenant == "tenant-a"
`, Options{VerifyEvery: 1})
	for range 2 {
		a := s.Authorize(t.Context(), ask())
		if a.Decision != taxonomy.Allow || !slices.Equal(a.Evaluation.Rules, []string{"a.b", "observed:deny:team.early", "observed:deny:team.late"}) {
			t.Errorf("got %+v", a)
		}
	}
	if m := s.Memo(Authority); !m.On || m.Checks != 1 {
		t.Errorf("memo %+v", m)
	}
	bad := authority(t, `default decision := {"decision": "allow", "reasons": ["x"], "obligations": [], "observed": "all"}
`, Options{})
	if a := bad.Authorize(t.Context(), ask()); a.Decision != taxonomy.Deny || a.Evaluation.Error != "policy_error" {
		t.Errorf("an answer of another shape: %+v", a)
	}
}
