package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/receipts"
)

// What somebody types in the first minutes is answered with what to type instead.
func TestFirstWords(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"servve", exitUsage, `did you mean "serve"?`},
		{"breakers lst", exitUsage, `did you mean "list"?`},
		{"nonsense", exitUsage, "see fusebox --help"},
		{"--version", exitOK, "fusebox version "},
		{"policy export " + t.TempDir() + "/p --json", exitOK, `"dir": `},
	} {
		var out, bad bytes.Buffer
		status := run(t.Context(), strings.Fields(c.args), strings.NewReader(""), &out, &bad)
		if said := out.String() + bad.String(); status != c.status || !strings.Contains(said, c.says) {
			t.Errorf("fusebox %s: status %d, %q; want %d and %q", c.args, status, said, c.status, c.says)
		}
	}
}

// The tail of a log that is being written is no reason to worry anybody; the
// same tail of a log that nobody writes is.
func TestTailOfALivingLog(t *testing.T) {
	for _, c := range []struct {
		live bool
		kind string
		want bool
	}{{true, "unsealed", true}, {false, "unsealed", false}, {true, "truncated", false}} {
		v := receipts.Verdicts{Exit: receipts.ExitUnproven, Logs: []receipts.LogVerdicts{{Live: c.live,
			Verdicts: []receipts.Verdict{{Status: receipts.Pass}, {Status: receipts.Unproven, Kind: c.kind}}}}}
		if got := strings.Contains(describeVerdicts(&v, nil).Says, "being written"); got != c.want {
			t.Errorf("live %v, %s: calm is %v, want %v", c.live, c.kind, got, c.want)
		}
	}
}

// R-OPS-6: who looks at one circuit is told of the wider one that a person
// holds open.
func TestShowNamesWhatIsWider(t *testing.T) {
	f := circuitsFound{Source: fromServer, Breakers: []circuitDoc{
		{Scope: "provider:openai", State: "CLOSED", Override: "forced_open"},
		{Scope: "provider:openai/-", State: "CLOSED"},
		{Scope: "provider:openai/-/gpt-x", State: "RAMP"},
		{Scope: "provider:openai/-/gpt-xl", State: "OPEN"},
	}}
	var out bytes.Buffer
	if err := f.writeOne(&out, f.named("provider:openai/-/gpt-x"), false); err != nil {
		t.Fatal(err)
	}
	if said := out.String(); strings.Count(said, "wider") != 1 || !strings.Contains(said, "provider:openai is CLOSED, forced_open") {
		t.Errorf("show says:\n%s", said)
	}
}
