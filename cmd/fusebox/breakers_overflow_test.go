package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// R-BRK-2: scopes that found no room share one circuit, named by its breaker
// alone. It is shown, decided about and found again like any other, with a
// server and without.
func TestTheCircuitOfAFullTable(t *testing.T) {
	dir, data := filepath.Join(t.TempDir(), "policies"), t.TempDir()
	if status, _, errs := fusebox(t, "", "policy", "export", dir); status != 0 {
		t.Fatal(errs)
	}
	file := filepath.Join(dir, "policy.toml")
	const scope = "scope = [\"provider\", \"region\", \"model\"]"
	text := strings.Replace(mustRead(t, file), scope, "max_circuits = 3\n"+scope, 1)
	if !strings.Contains(text, "max_circuits") {
		t.Fatal("the scope of the provider breaker is written otherwise now")
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(modelCall, `"openai"`, `"p2"`, 1)
	breakers := func(args ...string) string {
		t.Helper()
		status, out, errs := fusebox(t, "", append(append([]string{"breakers"}, args...), "--data", data)...)
		if status != 0 {
			t.Fatalf("%v: status %d\n%s", args, status, errs)
		}
		return out
	}

	p := serve(t, data, "--policies", dir)
	failsOn(t, p.agent, modelCall, 5)
	failsOn(t, p.agent, other, 5)
	if _, found := circuitsListed(t, "--data", data); found["provider"].State != "OPEN" || found[modelScope].State != "OPEN" {
		t.Fatalf("the server shows %v", found)
	}
	if out := breakers("close", "provider", "--for", "1h", "--reason", "checked", "--by", "ann"); !strings.HasPrefix(out, "provider: forced_closed until ") {
		t.Error(out)
	}
	p.stop(t)
	if out := breakers("list", "--policies", dir); strings.Contains(out, "belong to no breaker") || !strings.Contains(out, "provider  ") {
		t.Errorf("the directory shows\n%s", out)
	}
	p = serve(t, data, "--policies", dir)
	if d := decisionOn(t, p.agent, other); d != "allow" {
		t.Errorf("the shared circuit was closed by hand before the restart: %s", d)
	}
	breakers("release", "provider", "--reason", "over", "--by", "ann")
	within(t, "the server's hearing of the release", func() bool { return decisionOn(t, p.agent, other) != "allow" })
	if out := breakers("show", "provider"); !strings.Contains(out, "5 of 5 failed") {
		t.Error(out)
	}
}
