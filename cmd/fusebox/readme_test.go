package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const readmePath = "../../README.md"

// block is the code between two markers of a page.
func block(t *testing.T, page, name string) string {
	t.Helper()
	re := regexp.MustCompile("(?s)<!-- " + name + ": begin -->\n```[a-z]+\n(.*?)```\n<!-- " + name + ": end -->")
	m := re.FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("README.md has no block %q", name)
	}
	return m[1]
}

// shell runs commands of the README in a folder and returns what they print.
// fusebox is this program; curl is the real one, or the stand-in beside this.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("sh is not installed: the commands of the README cannot be run")
	}
	cmd := exec.Command(sh, "-eu")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(script)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the README's commands fail: %v\n%s\n%s", err, out, errs.String())
	}
	return string(out)
}

// TestReadmeSequence runs the commands of the README as they are printed,
// against a real server: admit, dispatch, record, reconcile. Only the address
// is another one.
func TestReadmeSequence(t *testing.T) {
	readme := mustRead(t, readmePath)
	script := block(t, readme, "sequence") + block(t, readme, "reconcile") + "\ncurl -s http://127.0.0.1:4141/v1/intents?state=ALL\n"
	if n := strings.Count(script, "http://127.0.0.1:4141/v1/"); n < 5 {
		t.Fatalf("the README's sequence makes %d requests", n)
	}
	p := serve(t, t.TempDir())
	out := shell(t, t.TempDir(), strings.ReplaceAll(script, "http://127.0.0.1:4141", p.agent))
	for _, want := range []string{
		`"decision":"allow"`, "\n204\n", `"outcome":"UNKNOWN"`, `"class":"ambiguous_write"`,
		`"next":{"action":"reconcile"`, `"retry":{"allowed":false`, `"state":"SETTLED"`, `"outcome":"SUCCEEDED"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the README's sequence does not print %s:\n%s", want, out)
		}
	}
}

// The security engineer's five minutes: the rule loads, and binds.
func TestReadmeRule(t *testing.T) {
	dir := t.TempDir()
	if out := shell(t, dir, block(t, mustRead(t, readmePath), "rule")); !strings.Contains(out, " loads\n") {
		t.Errorf("the README's rule is not accepted: %s", out)
	}
	r := inProcess(t, func(o *startOptions) { o.Config.Policies.Path = filepath.Join(dir, "my-policies") })
	for tenant, want := range map[string]string{"acme": "allow", "globex": "reject"} {
		_, a := ask(t, "POST", r.agent+"/v1/admit", `{"operation":`+strings.Replace(mailOperation, "acme", tenant, 1)+`}`)
		if text(a, "decision") != want {
			t.Errorf("tenant %s: %v", tenant, a)
		}
	}
}

// The platform engineer's five minutes: the module is built, pinned, checked,
// and judges.
func TestReadmeModule(t *testing.T) {
	if _, err := exec.LookPath("sha256sum"); err != nil {
		t.Skip("sha256sum is not installed: the README's module is not built")
	}
	dir := t.TempDir()
	script := block(t, mustRead(t, readmePath), "module")
	script = strings.ReplaceAll(script, "./module-policies", dir+"/module-policies")
	script = strings.ReplaceAll(script, "observation.jsonl", dir+"/observation.jsonl")
	out := shell(t, "../..", script)
	if !strings.Contains(out, `"class":"budget","reason":"spending_cap"`) || !strings.Contains(out, `"classified_by":"wasm:acme-billing@sha256:`) {
		t.Errorf("the README's module does not judge: %s", out)
	}
}

// The Go agent's five minutes compile.
func TestReadmeGo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(block(t, mustRead(t, readmePath), "go")), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "vet", file)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the README's program: %v\n%s", err, out)
	}
}

// The README links pages that are there.
func TestReadmeLinks(t *testing.T) {
	for _, page := range []string{readmePath, "README.md"} {
		for _, m := range regexp.MustCompile(`\]\(([^)#]+(?:\.md|LICENSE))\)`).FindAllStringSubmatch(mustRead(t, page), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links %s, which is not there", page, m[1])
			}
		}
	}
}

// The five minutes with an MCP server, as printed: its tools are declared, a call
// is refused in words, a person allows it, and it goes.
func TestReadmeMCP(t *testing.T) {
	dir := t.TempDir()
	server := "#!/bin/sh\nexec '" + os.Args[0] + "' " + asMCPServer + " '" + filepath.Join(dir, "sent") + "'\n"
	if err := os.WriteFile(filepath.Join(dir, "post-server"), []byte(server), 0o700); err != nil {
		t.Fatal(err)
	}
	out := shell(t, dir, block(t, mustRead(t, readmePath), "mcp"))
	for _, want := range []string{" loads\n", `"isError":true`, "fusebox approvals grant post.send", "approval ", `"text":"sent"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the README's commands do not print %s:\n%s", want, out)
		}
	}
	if sent := mustRead(t, filepath.Join(dir, "sent")); sent != "ann\n" {
		t.Errorf("sent: %q", sent)
	}
}

// A policy from a few answers, as both pages print it: it is written, its tests
// pass, and doctor finds nothing.
func TestReadmeInit(t *testing.T) {
	for _, page := range []string{readmePath, "README.md"} {
		out := shell(t, t.TempDir(), block(t, mustRead(t, page), "init"))
		for _, want := range []string{", in observe; ", "nobody has tested:", " 0 failed", "before supervised operation", "\nnothing found\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: the commands do not print %q:\n%s", page, want, out)
			}
		}
	}
}
