package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPluginPage follows the page for plugin authors from nothing to a write that
// the plugin settled, as its commands are printed. Only the source that it builds
// against, and the server's address and data, are others.
func TestPluginPage(t *testing.T) {
	if _, err := exec.LookPath("sha256sum"); err != nil {
		t.Skip("sha256sum is not installed: the page's plugin is not pinned")
	}
	page := mustRead(t, "../../plugins/README.md")
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	author := strings.Replace(block(t, page, "plugin-author"), "--kind reconciler\n", "--kind reconciler --fusebox '"+source+"'\n", 1)
	out := shell(t, dir, author+block(t, page, "plugin-pin"))
	if !strings.Contains(out, `{"finding":"applied"}`) {
		t.Errorf("the page's commands do not print the answer:\n%s", out)
	}
	data := filepath.Join(dir, "data")
	t.Setenv("LEDGER", filepath.Join(dir, "ledger.txt"))
	p := serve(t, data, "--config", filepath.Join(dir, "fusebox.toml"), "--policies", filepath.Join(dir, "my-policies"))
	script := strings.ReplaceAll(block(t, page, "plugin-use"), "http://127.0.0.1:4141", p.agent)
	out = shell(t, dir, strings.Replace(script, "receipts list", "receipts list --data '"+data+"'", 1))
	if !strings.Contains(out, "my-lookup@0.1.0") || !strings.Contains(out, "applied") {
		t.Errorf("no receipt names the plugin:\n%s", out)
	}
	metrics := string(get(t, p.oper+"/metrics", nil))
	if !strings.Contains(metrics, `fusebox_plugin_running{kind="reconciler",plugin="my-lookup"} 1`) {
		t.Error("the metrics do not show that it runs")
	}
}

// Every kind's template builds.
func TestPluginTemplates(t *testing.T) {
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"classifier", "reconciler", "approver", "evaluator", "receipts"} {
		dir := t.TempDir()
		if status, _, errs := fusebox(t, "", "plugin", "new", "one", "--kind", kind, "--fusebox", source, "--dir", filepath.Join(dir, "one")); status != 0 {
			t.Fatalf("%s: %s", kind, errs)
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "bin"), ".")
		cmd.Dir = filepath.Join(dir, "one")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", kind, err, out)
		}
	}
	for _, args := range [][]string{{"plugin", "new", "one"}, {"plugin", "new", "One", "--kind", "approver"}, {"plugin", "ask", "x", "--kind", "other"}} {
		if status, _, _ := fusebox(t, "", args...); status != exitUsage {
			t.Errorf("%v: status %d", args, status)
		}
	}
}
