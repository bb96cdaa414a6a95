package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/sdk"
)

const modelScope = "provider:openai/-/gpt-x"

const modelCall = `{"kind":"model","name":"chat.completions","provider":"openai","model":"gpt-x","effect":"read_only"}`

// fails records model calls that a provider answered with 503.
func fails(t *testing.T, base string, times int) {
	t.Helper()
	failsOn(t, base, modelCall, times)
}

func failsOn(t *testing.T, base, call string, times int) {
	t.Helper()
	for range times {
		id, token := admitted(t, base, call)
		if status, a := ask(t, "POST", base+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token)); status != 204 {
			t.Fatalf("dispatch: status %d, %v", status, a)
		}
		status, a := ask(t, "POST", base+"/v1/record", fmt.Sprintf(
			`{"permit":%q,"token":%q,"observation":{"transport":{"dispatched":"yes"},"response":{"status":503},"elapsed_ms":20}}`, id, token))
		if status != 200 {
			t.Fatalf("record: status %d, %v", status, a)
		}
	}
}

// decision is what one model call is answered.
func decision(t *testing.T, base string) string {
	t.Helper()
	return decisionOn(t, base, modelCall)
}

func decisionOn(t *testing.T, base, call string) string {
	t.Helper()
	_, a := ask(t, "POST", base+"/v1/admit", `{"operation":`+call+`,"shadow":true}`)
	return text(a, "decision")
}

// circuitsListed is fusebox breakers list --json.
func circuitsListed(t *testing.T, args ...string) (source string, circuits map[string]circuitDoc) {
	t.Helper()
	status, out, errs := fusebox(t, "", append([]string{"breakers", "list", "--json"}, args...)...)
	var found circuitsFound
	if err := json.Unmarshal([]byte(out), &found); status != 0 || err != nil {
		t.Fatalf("list %v: status %d, %v\n%s%s", args, status, err, out, errs)
	}
	circuits = map[string]circuitDoc{}
	for _, c := range found.Breakers {
		circuits[c.Scope] = c
	}
	return found.Source, circuits
}

// A data directory without a server shows the circuits that its server showed,
// and looking changes nothing.
func TestBreakersOfADirectory(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	fails(t, p.agent, 5)
	if status, _, errs := fusebox(t, "", "breakers", "open", "tool:mail", "--for", "2h", "--reason", "drill", "--by", "ann", "--data", data); status != 0 {
		t.Fatal(errs)
	}
	var before map[string]circuitDoc
	within(t, "the server's hearing of the override", func() bool {
		source, found := circuitsListed(t, "--data", data)
		before = found
		return source == fromServer && found["tool:mail"].Override == "forced_open"
	})
	p.stop(t)
	source, after := circuitsListed(t, "--data", data)
	if source != fromStore || len(after) == 0 {
		t.Fatalf("read from the %s: %v", source, after)
	}
	open := after[modelScope]
	if open.State != "OPEN" || open.Reason != "consecutive_failures" || open.Consecutive != 5 || open.RetryAt.IsZero() {
		t.Fatalf("the open circuit is stored as %+v", open)
	}
	for _, scope := range []string{modelScope, "tool:mail"} {
		b, a := before[scope], after[scope]
		for _, pair := range [][2]*time.Time{{&b.Since, &a.Since}, {&b.RetryAt, &a.RetryAt}, {&b.OverrideEnd, &a.OverrideEnd}} {
			if d := pair[0].Sub(*pair[1]).Abs(); d > 5*time.Second {
				t.Errorf("%s: %s became %s", scope, pair[0], pair[1])
			}
			*pair[0], *pair[1] = time.Time{}, time.Time{}
		}
		if got, want := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b); got != want {
			t.Errorf("the server showed\n%s\nand the directory shows\n%s", want, got)
		}
	}
	size := mustRead(t, data, "state.db")
	status, out, _ := fusebox(t, "", "breakers", "show", modelScope, "--data", data)
	if status != 0 || !strings.Contains(out, "OPEN") || !strings.Contains(out, "5 of 5 failed, 5 in a row") || !strings.Contains(out, "no server runs") {
		t.Errorf("show: status %d\n%s", status, out)
	}
	if status, out, _ := fusebox(t, "", "breakers", "show", open.Key, "--data", data, "--json"); status != 0 || !strings.Contains(out, `"scope": "`+modelScope+`"`) {
		t.Errorf("show by key: status %d\n%s", status, out)
	}
	if mustRead(t, data, "state.db") != size {
		t.Error("looking changed the state")
	}
}

// R-BRK-9: overrides of a directory on which no server runs are durable, say who
// and why and until when, leave a receipt, and bind the server that starts next.
func TestOverrideWithoutAServer(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	fails(t, p.agent, 5)
	p.stop(t)

	decide := func(args ...string) circuitDoc {
		t.Helper()
		status, out, errs := fusebox(t, "", append([]string{"breakers"}, append(args, "--reason", "ticket 4711", "--by", "operator ann", "--data", data, "--json")...)...)
		var doc overriddenDoc
		if err := json.Unmarshal([]byte(out), &doc); status != 0 || err != nil || doc.V != 1 {
			t.Fatalf("%v: status %d, %v\n%s%s", args, status, err, out, errs)
		}
		return doc.Circuit
	}
	asked := time.Now()
	c := decide("close", modelScope, "--for", "2h")
	if c.State != "OPEN" || c.Override != "forced_closed" || c.OverrideBy != "operator ann" || c.OverrideWhy != "ticket 4711" ||
		c.OverrideEnd.Sub(asked.Add(2*time.Hour)).Abs() > time.Minute {
		t.Fatalf("close: %+v", c)
	}
	p = serve(t, data)
	if d := decision(t, p.agent); d != "allow" {
		t.Errorf("an open circuit that was closed by hand: %s", d)
	}
	if _, found := circuitsListed(t, "--data", data); found[modelScope].OverrideEnd.Sub(c.OverrideEnd).Abs() > time.Minute || found[modelScope].OverrideBy != "operator ann" {
		t.Errorf("the server found %+v", found[modelScope])
	}
	p.stop(t)

	if c := decide("release", modelScope); c.Override != "" || c.State != "OPEN" {
		t.Fatalf("release: %+v", c)
	}
	if c := decide("open", "provider:openai", "--for", "1h"); c.State != "CLOSED" || c.Override != "forced_open" {
		t.Fatalf("open: %+v", c)
	}
	p = serve(t, data)
	if d := decision(t, p.agent); d == "allow" {
		t.Error("a provider that was opened by hand lets a call go")
	}
	p.stop(t)
	status, out, _ := fusebox(t, "", "receipts", "list", "--data", data, "--kind", "override", "--json")
	for _, want := range []string{`"reason":"forced_closed"`, `"reason":"released"`, `"reason":"forced_open"`} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("no receipt says %s:\n%s", want, out)
		}
	}
	if n := strings.Count(out, `"ticket":"ticket 4711"`); n != 3 {
		t.Errorf("%d receipts of 3 say why:\n%s", n, out)
	}
	if status, out, errs := fusebox(t, "", "receipts", "verify", data+"/receipts"); status != 0 {
		t.Errorf("verify: status %d\n%s%s", status, out, errs)
	}
}

// The same commands over a server's operator plane, in the same words and with
// the same statuses.
func TestBreakersOverTheOperatorPlane(t *testing.T) {
	r := inProcess(t, func(o *startOptions) {
		o.Config.Operators = []sdk.Operator{{Name: "ann", Token: sdk.HashToken("token-ann"), Role: sdk.OperatorRole},
			{Name: "eve", Token: sdk.HashToken("token-eve"), Role: sdk.Viewer}}
	})
	t.Setenv("FUSEBOX_TOKEN", "token-ann")
	cmd := func(args ...string) (int, string, string) {
		return fusebox(t, "", append(append([]string{"breakers"}, args...), "--server", r.operator)...)
	}
	status, out, errs := cmd("open", "provider:a b", "--for", "30m", "--reason", "drill")
	if status != 0 || !strings.HasPrefix(out, "provider:a%20b: forced_open until ") || !strings.HasSuffix(out, "decided by ann: drill\n") {
		t.Errorf("open: status %d, %q%s", status, out, errs)
	}
	if _, found := circuitsListed(t, "--server", r.operator); found["provider:a%20b"].OverrideBy != "ann" {
		t.Errorf("list: %v", found)
	}
	if status, out, _ := cmd("show", "provider|provider=5:a%20b", "--json"); status != 0 || !strings.Contains(out, "forced_open") {
		t.Errorf("show by key: status %d, %s", status, out)
	}
	if status, out, errs := cmd("release", "provider:a%20b", "--reason", "drill"); status != 0 || out != "provider:a%20b: no override; the circuit is CLOSED\n" {
		t.Errorf("release: status %d, %q%s", status, out, errs)
	}
	for _, c := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"open", modelScope, "--for", "0s", "--reason", "x"}, exitUsage, "--for must say how long"},
		{[]string{"open", modelScope, "--for", "1m"}, exitUsage, "--reason must say why"},
		{[]string{"open", "nothing:x", "--for", "1m", "--reason", "x"}, exitFailed, "one of the breakers provider,"},
		{[]string{"close", "provider:a//b", "--for", "1m", "--reason", "x"}, exitFailed, "part 2 (region) is empty; write - for an absent one"},
		{[]string{"show", "nothing:x"}, exitFailed, "there is no circuit"},
		{[]string{"list", "--layer", "nothing"}, exitUsage, "layer"},
	} {
		status, out, errs := cmd(c.args...)
		if status != c.want || !strings.Contains(errs, c.says) || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: status %d, %q, %q", c.args, status, out, errs)
		}
	}
	t.Setenv("FUSEBOX_TOKEN", "token-eve")
	if status, _, errs := cmd("open", modelScope, "--for", "1m", "--reason", "x"); status != exitFailed || !strings.Contains(errs, "role") {
		t.Errorf("a viewer: status %d, %s", status, errs)
	}
}

// The former names of open and close still work, and are not advertised.
func TestFormerNamesOfOverrides(t *testing.T) {
	_, help, _ := fusebox(t, "", "breakers", "--help")
	var names []string
	for _, sub := range breakersCommand().Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "close list open release show" || strings.Contains(help, "force-") {
		t.Errorf("the commands are %s\n%s", got, help)
	}
	data := t.TempDir()
	serve(t, data).stop(t)
	for former, want := range map[string]string{"force-open": "forced_open", "force-closed": "forced_closed"} {
		status, out, errs := fusebox(t, "", "breakers", former, modelScope, "--for", "1m", "--reason", "x", "--data", data)
		if status != 0 || !strings.Contains(out, modelScope+": "+want) {
			t.Errorf("%s: status %d, %s%s", former, status, out, errs)
		}
	}
}

// An empty list says of which circuits it is true.
func TestNothingToList(t *testing.T) {
	for want, f := range map[string]circuitsFound{
		"every circuit is closed and as good as new":                                                         {},
		"no circuit that could be read is open, forced or counting":                                          {partly: true},
		`no circuit whose scope begins with "a\x1b" that could be read is open, forced or counting`:          {scope: "a\x1b", partly: true},
		"no circuit of the tool layer is open, forced or counting; fusebox breakers list shows all that are": {layer: "tool"},
	} {
		if got := f.nothing(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
