package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// runbookBlock is one block of the runbook, without its indentation.
func runbookBlock(t *testing.T, name string) string {
	t.Helper()
	page := regexp.MustCompile(`(?m)^   `).ReplaceAllString(mustRead(t, "README.md"), "")
	return block(t, page, "runbook-"+name)
}

// R-OPS-6: the runbook, walked command by command as it is printed, against a
// server in trouble: inspect, confirm the scope, freeze replay, preserve queued
// work, verify downstream effects, test recovery, close gradually, review.
func TestRunbook(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home) // so that the commands need no --data
	data, policies := filepath.Join(home, "fusebox"), filepath.Join(t.TempDir(), "policies")
	if status, _, errs := fusebox(t, "", "policy", "export", policies); status != 0 {
		t.Fatal(errs)
	}
	// A night is shorter here: the provider is asked again after a second.
	file := filepath.Join(policies, "policy.toml")
	text := mustRead(t, file)
	quick := text
	for long, short := range map[string]string{`cooldown = { base = "30s", growth = 1.5, max = "2m"`: `cooldown = { base = "1s", growth = 1.0, max = "1s"`,
		`gap = "1s"`: `gap = "10ms"`, `ramp = { steps = [0.1, 0.5], every = "10s"`: `ramp = { steps = [0.1, 0.5], every = "100ms"`} {
		if !strings.Contains(text, long) {
			t.Fatalf("the provider breaker does not say %s now", long)
		}
		quick = strings.Replace(quick, long, short, 1) // it is the first
	}
	if err := os.WriteFile(file, []byte(quick), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, data, "--policies", policies)

	// Trouble: a provider that fails, two mails without an answer, work that
	// waits, a dead letter.
	fails(t, p.agent, 5)
	var intents []string
	for i := range 2 {
		mail := strings.Replace(mailOperation, `"acme"`, fmt.Sprintf(`"tenant-%d"`, i), 1)
		id, token := admitted(t, p.agent, mail)
		ask(t, "POST", p.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
		ask(t, "POST", p.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, timedOut))
		intents = append(intents, id)
	}
	waitsAndDead(t, data)
	explained := openingOf(t, data, modelScope)
	fill := strings.NewReplacer("RECEIPT", explained, "INTENT-1", intents[0], "INTENT-2", intents[1], "ITEM", "dead-1", "DIR", data)
	dir := t.TempDir()
	walk := func(name string, wants ...string) {
		t.Helper()
		out := shell(t, dir, fill.Replace(runbookBlock(t, name)))
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("step %s does not show %q:\n%s", name, want, out)
			}
		}
	}
	is := func(when, want string) {
		t.Helper()
		if got := decision(t, p.agent); got != want {
			t.Errorf("%s: a model call is answered %s, want %s", when, got, want)
		}
	}

	walk("inspect", modelScope, "OPEN", "consecutive_failures", "FAILED", "5 failures in a row")
	walk("scope", modelScope, "consecutive_failures", "verified outcomes")
	walk("freeze", "provider:openai: forced_open until")
	within(t, "the freeze", func() bool { return decision(t, p.agent) == "reject" })
	// The cooldown of the circuit below is long over; the freeze still holds.
	time.Sleep(1100 * time.Millisecond)
	is("frozen", "reject")
	walk("preserve", "waits-1", modelScope, "dead-1")
	var kept queueDoc
	if err := json.Unmarshal([]byte(mustRead(t, dir, "queue.json")), &kept); err != nil || len(kept.Items) != 1 || kept.Items[0].ID != "waits-1" || kept.Items[0].State != "WAITING" {
		t.Errorf("the list of what waits: %+v, %v", kept, err)
	}
	walk("verify", intents[0], intents[1], "SUCCEEDED", "FAILED", "mail log 09:12")
	if status, out, _ := fusebox(t, "", "intents", "list"); status != 0 || !strings.Contains(out, "no such intents") {
		t.Errorf("writes are still in doubt:\n%s", out)
	}
	walk("recover", "no override", modelScope)
	within(t, "the release", func() bool { return decision(t, p.agent) == "allow" })
	// Calls that succeed close it, probe by probe, and then in stages.
	within(t, "the circuit's closing", func() bool {
		for range 10 {
			succeeds(t, p.agent)
		}
		_, circuits := circuitsListed(t, "--scope", modelScope)
		c, ok := circuits[modelScope]
		return !ok || c.State == "CLOSED"
	})
	walk("close", "waits-1", "dead-1: retry")
	is("closed", "allow")
	if status, out, _ := fusebox(t, "", "queue", "list"); status != 0 || !strings.Contains(out, "dead-1") {
		t.Errorf("the dead letter does not wait its turn:\n%s", out)
	}
	walk("review", "provider", "consecutive_failures", "forced_open", "released", "PASS")
}

// succeeds makes one model call that succeeds, where it may go.
func succeeds(t *testing.T, base string) {
	t.Helper()
	_, a := ask(t, "POST", base+"/v1/admit", `{"operation":`+modelCall+`}`)
	id, token := text(a, "permit", "id"), text(a, "permit", "token")
	if id == "" {
		return
	}
	if status, _ := ask(t, "POST", base+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token)); status != 204 {
		return // another probe is out
	}
	ask(t, "POST", base+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,"observation":{"transport":{"dispatched":"yes"},"elapsed_ms":20,`+
		`"response":{"status":200,"headers":{"content-type":"application/json"},"body":"{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}"}}}`, id, token))
}

// waitsAndDead puts an item of work and a dead letter into the store, as a Go
// program on the same directory would.
func waitsAndDead(t *testing.T, data string) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(data, "state.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	now := time.Now()
	for id, s := range map[string]state.ItemState{"waits-1": state.Waiting, "dead-1": state.Dead} {
		if err := store.Put(t.Context(), state.Item{ID: id, RequestID: id, Created: now, Expires: now.Add(time.Hour), State: s, Dependency: modelScope, Replay: "revalidate",
			Operation: taxonomy.AppendOperation(nil, &taxonomy.Operation{Kind: "model", Name: id, Effect: taxonomy.ReadOnly})}); err != nil {
			t.Fatal(err)
		}
	}
}

// openingOf is the id of the receipt of a circuit's opening.
func openingOf(t *testing.T, data, scope string) string {
	t.Helper()
	id := ""
	within(t, "the receipt of the opening", func() bool {
		_, out, _ := fusebox(t, "", "receipts", "list", filepath.Join(data, "receipts"), "--kind", "transition", "--scope", scope, "-n", "1")
		id = newID.FindString(out)
		return id != ""
	})
	return id
}
