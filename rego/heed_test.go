package rego

import (
	"strings"
	"testing"
	"time"
)

// A test of a bundle that takes all memory is ended, and the bundle is refused
// with its name: a bad test file must not end the server that reloads it.
func TestATestThatGrowsIsNamed(t *testing.T) {
	f := policy(nil, Module{Path: "fine_test.rego", Source: []byte("package fusebox.fine_test\n\ntest_fine if true\n")},
		Module{Path: "big_test.rego", Source: []byte("package fusebox.big_test\n\ntest_small if true\n\ntest_big if {\n\tcount(numbers.range(1, 1000000000)) != 3\n}\n")})
	for name, o := range map[string]Options{"plain": {RequireTests: true}, "with coverage": {MinCoverage: 1}} {
		o.TestTime, o.ProofTime = time.Hour, time.Hour // it is memory that ends it, however slow the machine is
		got := problemsOf(t, f, o)
		wantProblem(t, got, "big_test.rego", 5, "tests", "data.fusebox.big_test.test_big: ERROR it was ended: the memory of this process grew by more than 256 MiB")
		for _, p := range got {
			if p.File != "big_test.rego" {
				t.Errorf("%s: also %+v", name, p)
			}
		}
	}
}

// A test that never ends is named, and nobody says that there are no tests.
func TestATestThatNeverEndsIsNamed(t *testing.T) {
	endless := Module{Path: "slow_test.rego", Source: []byte("package fusebox.slow_test\n\ntest_slow if {\n\tsome i in numbers.range(1, 100000)\n\tsome j in numbers.range(1, 100000)\n\ti * j < 0\n}\n")}
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"one test":  {Options{RequireTests: true, TestTime: 300 * time.Millisecond}, "it did not end within 300ms"},
		"all tests": {Options{RequireTests: true, ProofTime: 2 * time.Second}, "it was still running when the 2s for all tests were over"},
	} {
		got := problemsOf(t, policy(nil, endless), c.o)
		wantProblem(t, got, "slow_test.rego", 3, "tests", "data.fusebox.slow_test.test_slow: ERROR "+c.want)
		for _, p := range got {
			if strings.Contains(p.Text, "no tests") {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

// R-POL-6: a rule that fails makes every answer of a server an error, and stock
// opa lets its tests pass all the same. So neither the tests nor the golden inputs
// pass here, and the problem names the rule.
func TestRulesThatFailAreFound(t *testing.T) {
	f := policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + denyByDefault +
		"decision := {\"decision\": \"allow\", \"reasons\": [\"r\"], \"obligations\": []} if not _bad\n\n_bad if {\n\t1 / 0 == 1\n}\n"},
		Module{Path: "authority_test.rego", Source: []byte("package fusebox.authority_test\n\nimport data.fusebox.authority\n\n" +
			"test_a if authority.decision.decision == \"allow\" with input as {}\n\ntest_b if authority.decision.decision == \"allow\" with input as {}\n\n" +
			"half(x) := 1 / x\n\ntest_its_own if not half(0)\n")})
	for name, o := range map[string]Options{"tests": {RequireTests: true}, "golden inputs": {Differential: true}} {
		got := problemsOf(t, f, o)
		wantProblem(t, got, "authority.rego", 6, "fault", "div: divide by zero")
		wantProblem(t, got, "authority.rego", 6, "fault", map[string]string{
			"tests": "in test data.fusebox.authority_test.test_a (authority_test.rego:5)", "golden inputs": "authority asked with {"}[name])
		if len(got) != 1 {
			t.Errorf("%s: one fault is %d problems: %+v", name, len(got), got)
		}
	}
	report, err := Test(t.Context(), f, Options{})
	if err != nil || report.Failed != 2 || report.Passed != 1 || len(report.Tests[0].Faults) != 1 {
		t.Errorf("%v %+v", err, report)
	}
}

// Rules that take too long for an ordinary input are no fault of the evaluator.
func TestGoldenInputsThatAreTooMuch(t *testing.T) {
	f := policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + denyByDefault +
		"decision := {\"decision\": \"allow\", \"reasons\": [\"r\"], \"obligations\": []} if count([sprintf(\"%900000d\", [i]) | some i in numbers.range(1, 2000)]) == 1\n"})
	got := problemsOf(t, f, Options{Differential: true})
	wantProblem(t, got, "", 0, "resources", "authority answers policy_memory")
	for _, p := range got {
		if p.Code != "resources" {
			t.Errorf("also %+v", p)
		}
	}
}
