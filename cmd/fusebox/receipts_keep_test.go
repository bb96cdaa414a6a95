package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Prune takes away what is old enough and nothing else, the log verifies after
// it, and a log that a process has is left alone.
func TestReceiptsPrune(t *testing.T) {
	root := filepath.Join(t.TempDir(), "receipts")
	l, _, _, err := receipts.OpenSlot(t.Context(), root, receipts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-100 * 24 * time.Hour).UnixMicro()
	for i := range 600 {
		r := &receipts.Receipt{Kind: receipts.KindAdmission, Decision: receipts.Some(taxonomy.DecideReject), Reason: "circuit_open", Operation: "messages"}
		if i < 300 {
			r.TimeUS = old
		}
		if _, err := l.Submit(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := fusebox(t, "", "receipts", "prune", root); status != exitBusy || !strings.Contains(errs, "stop the server") || strings.Count(errs, "\n") != 1 {
		t.Errorf("beside a writer: status %d, %q", status, errs)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	prune := func(args ...string) int64 {
		t.Helper()
		status, out, errs := fusebox(t, "", append([]string{"receipts", "prune", root, "--json"}, args...)...)
		var d struct{ Logs []prunedRow }
		if err := json.Unmarshal([]byte(out), &d); status != exitOK || err != nil || len(d.Logs) != 1 {
			t.Fatalf("prune %v: status %d, %v: %s%s", args, status, err, out, errs)
		}
		return d.Logs[0].Receipts
	}
	for _, c := range []struct {
		args []string
		want int64
	}{{[]string{"--audit", "0"}, 0}, {[]string{"--audit", "4800h"}, 0}, {nil, 300}, {nil, 0}} {
		if n := prune(c.args...); n != c.want {
			t.Errorf("prune %v: %d bodies, want %d", c.args, n, c.want)
		}
	}
	if status, out, _ := fusebox(t, "", "receipts", "verify", root); status != exitOK {
		t.Errorf("verify: status %d\n%s", status, out)
	}
}

func counted(kind receipts.WindowKind, failures, samples, row int64) receipts.Window {
	return receipts.Window{Kind: kind, SampleSize: samples, Failures: failures, Successes: samples - failures,
		RatioPPM: failures * 1_000_000 / max(samples, 1), Consecutive: row}
}

// The sentence about the share of failures is exact: with so many fewer it lies
// under the limit, and with one less than that it does not.
func TestExplainFailureRatio(t *testing.T) {
	for _, c := range []struct {
		failures, samples, limit int64
		want                     string
	}{
		{10, 20, 500_000, "1 failure fewer among 20"},
		{20, 20, 500_000, "11 failures fewer among 20"},
		{9, 20, 400_000, "2 failures fewer among 20"},
		{7, 20, 333_333, "1 failure fewer among 20"},
	} {
		r := receipts.Receipt{Kind: receipts.KindTransition, Reason: "failure_ratio", PrevState: receipts.StateClosed, State: receipts.StateOpen,
			Scope: "provider:a/b", Layer: taxonomy.LayerProvider, Window: counted(receipts.TimeWindow, c.failures, c.samples, 1),
			Limits: []receipts.Count{{Name: "open_ppm", N: c.limit}, {Name: "min_samples", N: 20}}}
		x := explainReceipt(&r, nil, nil, nil)
		if got := strings.Join(x.Flip, " "); !strings.HasPrefix(got, c.want) {
			t.Errorf("%d of %d over %d: %q, want %q", c.failures, c.samples, c.limit, got, c.want)
		}
	}
}

// What one thing alone explains is named; what the receipts do not tell is not
// made up.
func TestWhy(t *testing.T) {
	base := receipts.Receipt{Kind: receipts.KindAdmission, PolicyVersion: "a@sha256:1", ConfigDigest: "sha256:2", Operation: "mail.send",
		Decision: receipts.Some(taxonomy.DecideAllow)}
	for name, c := range map[string]struct {
		change func(*receipts.Receipt)
		want   string
	}{
		"policy alone":             {func(r *receipts.Receipt) { r.PolicyVersion = "b@sha256:3" }, "policy"},
		"policy and tenant":        {func(r *receipts.Receipt) { r.PolicyVersion, r.Tenant = "b@sha256:3", "acme" }, ""},
		"an override among others": {func(r *receipts.Receipt) { r.State, r.Tenant = receipts.StateForcedOpen, "acme" }, "override"},
		"a circuit, another agent": {func(r *receipts.Receipt) { r.State, r.Agent = receipts.StateOpen, "b" }, "prior state"},
		"a circuit, another policy": {func(r *receipts.Receipt) {
			r.State, r.PolicyVersion = receipts.StateOpen, "b@sha256:3"
		}, ""},
		"a fault":              {func(r *receipts.Receipt) { r.FailMode, r.Agent = receipts.StoreUnavailableClosed, "b" }, "fault"},
		"nothing recorded":     {func(*receipts.Receipt) {}, ""},
		"the refusal's own":    {func(r *receipts.Receipt) { r.Outcome = receipts.Some(taxonomy.FailedBeforeSend) }, ""},
		"arguments of the run": {func(r *receipts.Receipt) { r.ArgsFP = "k1:2" }, "arguments"},
	} {
		refused := base
		refused.Decision = receipts.Some(taxonomy.DecideReject)
		c.change(&refused)
		if d := compareReceipts(&base, &refused); d.Explains != c.want || d.Same || d.Says == "" {
			t.Errorf("%s: explains %q, want %q (%s)", name, d.Explains, c.want, d.Says)
		}
	}
	other := base
	other.Tenant = "acme"
	if d := compareReceipts(&base, &other); !d.Same || d.Explains != "" {
		t.Errorf("the same decision: %+v", d)
	}
}

// R-RCP-4: two runs are told apart at their first decision that differs.
func TestWhyRuns(t *testing.T) {
	root := filepath.Join(t.TempDir(), "receipts")
	l, _, _, err := receipts.OpenSlot(t.Context(), root, receipts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(run, operation string, d taxonomy.Decision, policy taxonomy.PolicyVersion) {
		t.Helper()
		r := &receipts.Receipt{Kind: receipts.KindAdmission, RunID: run, Operation: operation, Decision: receipts.Some(d), PolicyVersion: policy, Reason: "x"}
		if _, err := l.Submit(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range []string{"a", "b", "c", "d"} {
		put(run, "search", taxonomy.DecideAllow, "p@sha256:1")
	}
	put("a", "mail", taxonomy.DecideAllow, "p@sha256:1")
	put("b", "mail", taxonomy.DecideReject, "p@sha256:2")
	put("c", "bank", taxonomy.DecideAllow, "p@sha256:1")
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		x, y, says string
		equal      int
		explains   string
	}{
		{"a", "b", "part at step 2: mail, allow against mail, reject", 1, "policy"},
		{"a", "c", "part at step 2: mail, allow against bank, allow", 1, ""},
		{"a", "d", "alike in 1 decision; then only a went on", 1, ""},
		{"d", "d", "alike in all of 1 decision", 1, ""},
	} {
		status, out, errs := fusebox(t, "", "receipts", "why", "--runs", c.x, c.y, root, "--json")
		var d runsDoc
		if err := json.Unmarshal([]byte(out), &d); status != exitOK || err != nil {
			t.Fatalf("%s, %s: status %d, %v: %s", c.x, c.y, status, err, errs)
		}
		if !strings.Contains(d.Says, c.says) || d.Equal != c.equal || d.Why != nil && d.Why.Explains != c.explains || (d.Why == nil) != !strings.Contains(d.Says, "part") {
			t.Errorf("%s, %s: %+v", c.x, c.y, d)
		}
	}
	if status, _, errs := fusebox(t, "", "receipts", "why", "--runs", "a", "nobody", root); status != exitFailed || strings.Count(errs, "\n") != 1 {
		t.Errorf("no such run: status %d, %q", status, errs)
	}
	if _, out, _ := fusebox(t, "", "receipts", "why", "--runs", "a", "b", root); !strings.Contains(out, "The policy explains it: p@sha256:1, then p@sha256:2") {
		t.Errorf("%s", out)
	}
}
