package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// combinations are the answers to fusebox init: every combination of what each
// question has to choose from. Effects are every set of them.
func combinations() (out [][]string) {
	for _, calls := range []string{"models", "tools", "models,tools"} {
		for set := 1; set < 1<<len(effectNames); set++ {
			var effects []string
			for i, e := range effectNames {
				if set&(1<<i) != 0 {
					effects = append(effects, e)
				}
			}
			named := [][]string{nil}
			if calls != "models" {
				var tools []string
				for _, e := range effects {
					tools = append(tools, "--tool", "crm/"+e+"="+e)
				}
				named = append(named, tools, []string{"--never-twice", "payment,wire"}, append(slices.Clone(tools), "--never-twice", "payment,wire"))
				if slices.Contains(effects, "non_repeatable") {
					named = append(named, []string{"--never-twice", "mail/send,bank.pay"})
				}
			} else if set > 1 {
				continue // which effects tools have is not asked
			}
			for _, more := range named {
				for _, fail := range []string{"open/open", "open/closed", "closed/open", "closed/closed"} {
					rules, store, _ := strings.Cut(fail, "/")
					line := []string{"--calls", calls, "--effects", strings.Join(effects, ","), "--" + flagRules, rules, "--" + flagStore, store, "--owner", "Team A"}
					out = append(out, append(line, more...))
				}
			}
		}
	}
	return out
}

// startingOf is what one command line makes, without writing it.
func startingOf(t *testing.T, line []string) (*starting, fstest.MapFS) {
	t.Helper()
	var a answers
	cmd := &cobra.Command{}
	a.flags(cmd)
	if err := cmd.ParseFlags(line); err != nil {
		t.Fatal(err)
	}
	s, err := a.starting()
	if err != nil {
		t.Fatalf("%v: %v", line, err)
	}
	files := fstest.MapFS{}
	for _, f := range s.files {
		files[f.Path] = &fstest.MapFile{Data: f.Bytes}
	}
	return s, files
}

// R-OPS-5: every combination of answers makes a bundle in observe that loads,
// names what it assumed and what is untested, and whose own tests pass. Tests
// are run once for each of the rules and data that answers make.
func TestInitEveryCombination(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	all := combinations()
	tested := map[string]bool{}
	for _, line := range all {
		s, files := startingOf(t, line)
		b, err := policies.Open(files, policies.Options{Name: "starting"})
		if err != nil {
			t.Fatalf("%v: %v", line, err)
		}
		if b.Settings.Rollout.Stage != taxonomy.ModeObserve || b.Revision != "start-1" {
			t.Errorf("%v: stage %s, revision %s", line, b.Settings.Rollout.Stage, b.Revision)
		}
		if len(s.assumed) == 0 || len(s.untested) < 4 || !strings.Contains(string(b.SettingsTOML), "# Nobody has tested:") {
			t.Errorf("%v: it does not say what it assumed and what is untested", line)
		}
		for _, k := range b.Settings.Breakers {
			if k.Owner.Policy != "Team A" || k.Owner.Alerts != "Team A" {
				t.Errorf("%v: breaker %s is owned by %v", line, k.Name, k.Owner)
			}
		}
		for _, f := range b.Findings() {
			if f.Must {
				t.Errorf("%v: %s", line, f)
			}
		}
		rules := string(b.Data)
		for _, r := range b.Rego {
			if strings.Contains(r.Path, "starter") {
				rules += string(r.Bytes)
			}
		}
		if !tested[rules] {
			tested[rules] = true
			passes(t, line, b, len(tested))
		}
	}
	t.Logf("%d combinations, %d different sets of rules", len(all), len(tested))
	if len(all) < 500 || len(tested) < 60 {
		t.Errorf("%d combinations with %d different sets of rules: some are left out", len(all), len(tested))
	}
}

// passes runs tests of the n-th different bundle: those of the rules that answers
// made, and for each seventh all of authority, whose data answers add to. With
// FUSEBOX_CAMPAIGN set every test of every bundle is run.
func passes(t *testing.T, line []string, b *policies.Bundle, n int) {
	t.Helper()
	files, o := filesOf(b)
	in := "fusebox/authority/rules/starter"
	if n%7 == 0 || !slices.ContainsFunc(b.Rego, func(f policies.File) bool { return strings.HasPrefix(f.Path, in) }) {
		in = "fusebox/authority/"
	}
	if os.Getenv("FUSEBOX_CAMPAIGN") == "" {
		files.Modules = slices.DeleteFunc(files.Modules, func(m rego.Module) bool { return !strings.HasPrefix(m.Path, in) })
	}
	r, err := rego.Test(t.Context(), files, o)
	if err != nil {
		t.Fatalf("%v: %v", line, err)
	}
	if r.Ok() {
		return
	}
	for _, x := range r.Tests {
		if x.Verdict != "PASS" {
			t.Errorf("%v: %s.%s: %s %s", line, x.Package, x.Name, x.Verdict, x.Detail)
		}
	}
	t.Fatalf("%v: %d tests passed, %d failed", line, r.Passed, r.Failed)
}

// What is written passes policy check, and the stock opa tool: its tests, its
// strict check against the schemas, and its formatter.
func TestInitStockOPA(t *testing.T) {
	opa := stockTool(t)
	for i, line := range [][]string{
		{"--calls", "models"},
		{"--calls", "tools", "--effects", "read_only", "--" + flagStore, "closed"},
		{"--effects", strings.Join(effectNames, ","), "--tool", "a/b=conditionally_repeatable", "--never-twice", "mail/send,payment,wire", "--" + flagRules, "open"},
	} {
		dir := filepath.Join(t.TempDir(), "p")
		if status, _, errs := fusebox(t, "", append([]string{"init", dir, "--defaults"}, line...)...); status != 0 {
			t.Fatalf("%v: status %d: %s", line, status, errs)
		}
		if status, out, errs := fusebox(t, "", "policy", "check", dir, "--strict"); status != 0 || strings.Contains(out, "warning:") {
			t.Errorf("%v: policy check: status %d: %s%s", line, status, out, errs)
		}
		for _, args := range [][]string{
			{"test", "--fail-on-empty", dir},
			{"check", "--strict", "--capabilities", "../../rego/capabilities.json", "-s", "../../rego/schemas", dir},
			{"fmt", "--fail", "-l", dir},
		} {
			if out, err := exec.Command(opa, args...).CombinedOutput(); err != nil {
				t.Errorf("%d: opa %s: %v\n%s", i, args[0], err, out)
			}
		}
	}
}

// stockTool finds the stock opa: $FUSEBOX_OPA, bin/opa, or the PATH.
func stockTool(t *testing.T) string {
	t.Helper()
	for _, p := range []string{os.Getenv("FUSEBOX_OPA"), "../../bin/opa"} {
		if abs, err := filepath.Abs(p); p != "" && err == nil {
			if _, err := os.Stat(abs); err == nil {
				return abs
			}
		}
	}
	p, err := exec.LookPath("opa")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the stock opa tool is not here; `make bin/opa` builds it")
		}
		t.Skip("skipped: the stock opa tool is not here; `make bin/opa` builds it")
	}
	return p
}

// Answers mean what they say: reads, owners and effects stand where they decide.
func TestInitAnswersDecide(t *testing.T) {
	for _, fail := range []string{"open", "closed"} {
		_, files := startingOf(t, []string{"--" + flagRules, fail, "--" + flagStore, fail, "--tool", "a/b=conditionally_repeatable", "--effects", strings.Join(effectNames, ",")})
		b, err := policies.Open(files, policies.Options{Name: "starting"})
		if err != nil {
			t.Fatal(err)
		}
		reads := map[string]string{"open": "allow", "closed": "reject"}[fail]
		loss := map[string]string{"open": "local", "closed": "deny"}[fail]
		if b.Settings.Answers.Reads != reads || b.Settings.Breaker("provider").OnStoreLoss.String() != loss || b.Settings.Breaker("quota").OnStoreLoss.String() != loss {
			t.Errorf("%s: reads %s, store %s", fail, b.Settings.Answers.Reads, b.Settings.Breaker("provider").OnStoreLoss)
		}
		if got := b.Settings.Breaker("ambiguity").OnStoreLoss.String(); got != "deny" {
			t.Errorf("%s: the ambiguity circuit is %s while the store is gone", fail, got)
		}
		if tool := b.Settings.Tools[0]; tool.Effect != taxonomy.NonRepeatable || tool.ActionClass != "a.b" {
			t.Errorf("a tool with an unknown condition became %v", tool)
		}
	}
}

// The questions are asked in order, an answer that cannot be used is asked for
// again, and an empty line keeps what was shown.
func TestInitAsks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	typed := strings.Join([]string{"tools", "read_only, nonsense", "read_only,non_repeatable", "mail/send=non_repeatable", "payment", "Payments", "", "closed"}, "\n") + "\n"
	status, out, errs := fusebox(t, typed, "init", dir, "--ask", "--json")
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	for _, want := range []string{`"never_twice": [`, `"payment"`, `"owner": "Payments"`, `"reads_when_store_is_gone": "closed"`, `"tests": `} {
		if !strings.Contains(out, want) {
			t.Errorf("the answer lacks %s:\n%s", want, out)
		}
	}
	if !strings.Contains(errs, "What do your agents call?") || !strings.Contains(errs, "may name read_only") {
		t.Errorf("asked: %s", errs)
	}
	if strings.Contains(out, "--never-twice") || !strings.Contains(out, "--reads-when-rules-fail: reads are refused") {
		t.Errorf("what was assumed is not what was left out:\n%s", out)
	}
	if status, _, errs := fusebox(t, "tools\n", "init", dir+"2", "--ask"); status != exitUsage || !strings.Contains(errs, "--defaults") {
		t.Errorf("answers that end early: status %d: %s", status, errs)
	}
}

// Nothing is written over, and what cannot be used leaves nothing.
func TestInitWritesOverNothing(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "p")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"--calls other", "--effects", "--tool mail=non_repeatable", "--tool mail/send=sometimes", "--calls models --tool a/b=read_only",
		"--calls models --never-twice payment", "--owner a\"b", "--reads-when-rules-fail maybe", "--revision a@b",
		"--tool a/b=read_only --never-twice a/b", "--effects read_only --never-twice a/b", "--never-twice a/b/c", "--ask --defaults",
	} {
		if status, _, errs := fusebox(t, "", append([]string{"init", dir}, strings.Fields(line)...)...); status != exitUsage || !strings.Contains(errs, "--") {
			t.Errorf("%s: status %d: %s", line, status, errs)
		}
	}
	if status, _, errs := fusebox(t, "", "init", dir); status != 0 { // an empty folder is free
		t.Fatalf("status %d: %s", status, errs)
	}
	before := mustRead(t, dir, "policy.toml")
	if status, _, errs := fusebox(t, "", "init", dir, "--owner", "other"); status != exitSetup || !strings.Contains(errs, "not empty") {
		t.Errorf("a folder that is there: status %d: %s", status, errs)
	}
	if mustRead(t, dir, "policy.toml") != before {
		t.Error("it was written over")
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 1 {
		t.Errorf("something is left beside it: %v %v", entries, err)
	}
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := fusebox(t, "", "init", filepath.Join(file, "p")); status != exitSetup || errs == "" {
		t.Errorf("a file in the way: status %d: %s", status, errs)
	}
}
