package rego

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stockOPA finds the stock opa tool: $FUSEBOX_OPA, bin/opa (`make policies`
// builds it there), or the PATH.
func stockOPA(t *testing.T) string {
	t.Helper()
	for _, p := range []string{os.Getenv("FUSEBOX_OPA"), "../bin/opa"} {
		if p == "" {
			continue
		}
		if abs, err := filepath.Abs(p); err == nil {
			if _, err := os.Stat(abs); err == nil {
				return abs
			}
		}
	}
	p, err := exec.LookPath("opa")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the stock opa tool is not here; `make policies` builds bin/opa")
		}
		t.Skip("skipped: the stock opa tool is not here; `make policies` builds bin/opa")
	}
	return p
}

func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	return string(out), err
}

// The in-process tester has the names and verdicts of stock `opa test`, also
// for tests that fail, that stop with an error and that are skipped (R-POL-2).
func TestSameVerdictsAsStockOPA(t *testing.T) {
	opa := stockOPA(t)
	odd := []Module{
		{Path: "odd_test.rego", Source: []byte("package fusebox.odd_test\n\ntest_passes if true\n\ntest_fails if 1 == 2\n\ntodo_test_later if false\n\ntest_undefined if input.x.y\n\ntest_conflict if f(1) == 1\n\nf(x) := 1 if x > 0\n\nf(x) := 2 if x > 0\n")},
	}
	for name, files := range map[string]*Files{"shipped": shipped(t), "odd": policy(nil, odd...)} {
		dir := t.TempDir()
		for _, m := range files.Modules {
			p := filepath.Join(dir, filepath.FromSlash(m.Path))
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, m.Source, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if files.Data != nil {
			if err := os.WriteFile(filepath.Join(dir, "data.json"), files.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command(opa, "test", "--timeout", "5m", "--format", "json", "--capabilities", "capabilities.json", dir).Output()
		if name == "shipped" && err != nil {
			t.Fatalf("%v %s", err, out)
		}
		var stock []struct {
			Package string          `json:"package"`
			Name    string          `json:"name"`
			Fail    bool            `json:"fail"`
			Skip    bool            `json:"skip"`
			Error   json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(out, &stock); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		var want []string
		for _, r := range stock {
			verdict := "PASS"
			switch {
			case r.Skip:
				verdict = "SKIPPED"
			case len(r.Error) > 0:
				verdict = "ERROR"
			case r.Fail:
				verdict = "FAIL"
			}
			want = append(want, r.Package+"."+r.Name+" "+verdict)
		}
		report, err := Test(t.Context(), files, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range report.Tests {
			got = append(got, r.Package+"."+r.Name+" "+r.Verdict)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := differ(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The published policies pass the stock tool with the published capabilities
// and schemas, and a mistyped field does not (R-POL-2).
func TestStockCheck(t *testing.T) {
	opa := stockOPA(t)
	for _, args := range [][]string{
		{"fmt", "--fail", "-l", "../policies"},
		{"check", "--strict", "../policies"},
		{"check", "--strict", "--capabilities", "capabilities.json", "-s", "schemas", "../policies"},
		{"check", "--strict", "-b", "../policies"},
		{"test", "--timeout", "5m", "../policies"},
		{"test", "--timeout", "5m", "-b", "../policies"},
	} {
		if out, err := run(t, opa, args...); err != nil {
			t.Errorf("opa %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	dir := t.TempDir()
	source, err := os.ReadFile("../policies/fusebox/routing/routing.rego")
	if err != nil {
		t.Fatal(err)
	}
	typo := strings.Replace(string(source), "input.operation.kind", "input.operation.knd", 1)
	if err := os.WriteFile(filepath.Join(dir, "routing.rego"), []byte(typo), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, opa, "check", "--strict", "--capabilities", "capabilities.json", "-s", "schemas", dir)
	if err == nil || !strings.Contains(out, "undefined ref: input.operation.knd") {
		t.Errorf("a mistyped field: %v %s", err, out)
	}
}

// Formatting is that of stock `opa fmt`, and the shipped files have it.
func TestFormat(t *testing.T) {
	for _, m := range shipped(t).Modules {
		out, err := Format(m.Path, m.Source)
		if err != nil || string(out) != string(m.Source) {
			t.Errorf("%s is not formatted: %v", m.Path, err)
		}
	}
	out, err := Format("x.rego", []byte("package x\nimport data.y\n\n\np if{input.a==y.b}"))
	if err != nil || string(out) != "package x\n\nimport data.y\n\np if input.a == y.b\n" {
		t.Errorf("%v %q", err, out)
	}
	if _, err := Format("x.rego", []byte("package x\np {")); err == nil || !strings.Contains(err.Error(), "x.rego") {
		t.Errorf("%v", err)
	}
	if Evaluator != "opa/1.22.3" {
		t.Logf("evaluator %s", Evaluator)
	}
}

// A rule in a test file would make tests pass on what no server has.
func TestTestFilesDoNotAddToThePolicy(t *testing.T) {
	f := policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + denyByDefault + "_deny contains \"a\" if input.operation.tenant == \"b\"\n"},
		Module{Path: "more_test.rego", Source: []byte("package fusebox.authority\n\n_deny contains \"b\" if true\n\ntest_b if \"b\" in _deny\n")})
	wantProblem(t, problemsOf(t, f, Options{RunTests: true}), "more_test.rego", 3, "tests", "adds to fusebox.authority._deny from a test file")
}

// Depth is no way to end the process.
func TestDeepRegoIsRefused(t *testing.T) {
	for name, deep := range map[string]string{"arrays": strings.Repeat("[", 1_000_000), "calls": strings.Repeat("f(", 1_000_000),
		"not": "p if " + strings.Repeat("not ", 1_000_000), "sets": strings.Repeat("{", 1_000_000)} {
		f := policy(nil, Module{Path: "deep.rego", Source: []byte("package fusebox.deep\n\nx := " + deep + "\n")})
		if _, err := Compile(t.Context(), f, Options{}); err == nil {
			t.Errorf("%s were accepted", name)
		}
	}
}
