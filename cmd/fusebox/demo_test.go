package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The demo ends as its page says, with figures that both remotes counted, and
// the command that it prints verifies what it left.
func TestDemo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	cmd := exec.Command(os.Args[0], "demo", "--data", dir, "--json")
	cmd.Env = append(os.Environ(), asFusebox+"=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var r demoReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	// Reached with fusebox, and with a plain retry loop of three tries.
	want := map[string][3]int{actStorm: {8, 5, 24}, actRecovery: {4, 4, 4}, actMail: {3, 3, 7}, actLoop: {8, 3, 8}, actPayment: {1, 0, 1}}
	for _, a := range r.Acts {
		if got := [3]int{a.Wanted, a.Guarded, a.Plain}; got != want[a.Name] {
			t.Errorf("act %s: wanted, reached, plain are %v, want %v", a.Name, got, want[a.Name])
		}
		delete(want, a.Name)
	}
	if len(want) > 0 {
		t.Errorf("acts that did not happen: %v", want)
	}
	if r.Damage != (damageReport{MailsWanted: 2, MailsDelivered: 2, MailsPlain: 4, Paid: 0, PaidPlain: 1}) {
		t.Errorf("what took effect: %+v", r.Damage)
	}
	if u := r.Unknown; u.Outcome != "UNKNOWN" || u.Class != "ambiguous_write" || u.Resent != 0 || u.Finding != "reconciled_applied" {
		t.Errorf("the silent mail: %+v", u)
	}
	if !strings.HasPrefix(r.Module.By, "wasm:acme-mail@sha256:") || r.Module.Class != "budget" {
		t.Errorf("the module: %+v", r.Module)
	}
	moves := map[string]bool{}
	for _, c := range r.Circuits {
		moves[c.Scope+" "+c.From+" "+c.To] = true
	}
	for _, m := range []string{"provider:anthropic/-/demo-model CLOSED OPEN", "provider:anthropic/-/demo-model OPEN HALF_OPEN",
		"provider:anthropic/-/demo-model HALF_OPEN CLOSED", "loop:demo/demo-run CLOSED OPEN"} {
		if !moves[m] {
			t.Errorf("no circuit moved %s: %v", m, r.Circuits)
		}
	}
	if !r.Receipts.Verified || r.Receipts.Count == 0 || !strings.Contains(r.Receipts.Command, r.Receipts.Dir) {
		t.Errorf("receipts: %+v", r.Receipts)
	}
	if status, out, errs := fusebox(t, "", "receipts", "verify", r.Receipts.Dir, "--trusted", r.Receipts.Checkpoint, "--deep"); status != 0 {
		t.Errorf("verify: status %d\n%s%s", status, out, errs)
	}
	// Its evidence is not written over.
	if status, _, errs := fusebox(t, "", "demo", "--data", dir); status != exitSetup || !strings.Contains(errs, "earlier demo") {
		t.Errorf("a demo over a demo: status %d, %s", status, errs)
	}
}

// The demo changes what would take minutes, and nothing else.
func TestDemoPolicyIsTheBuiltInOne(t *testing.T) {
	text := mustRead(t, "../../policies/policy.toml")
	demo, err := demoPolicy(text, "http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(text, "\n"), strings.Split(demo, "\n")
	changed := 0
	for i, line := range was {
		if is[i] != line {
			changed++
		}
	}
	if changed != len(demoSettings) {
		t.Errorf("%d lines differ, want %d", changed, len(demoSettings))
	}
	if _, err := demoPolicy(strings.Replace(text, "\ncooldown = {", "\ncooling = {", 1), ""); err == nil {
		t.Error("a default that moved is not noticed")
	}
}
