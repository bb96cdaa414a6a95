package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-OPS-9: at every endpoint of the decision API, what belongs to another tenant
// is answered exactly like what does not exist, and is not touched.
func TestTenantsAtEveryEndpoint(t *testing.T) {
	w := waitingServer(t, twoTenants)
	one, two := w.as("token-one"), w.as("token-two")
	const never = "0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c"

	// What tenant one has: a permit, an UNKNOWN write with its receipt and its
	// circuit, and queued work in the hands of a worker.
	op := strings.TrimSuffix(mailOperation, "}") + `,"request_id":"req-one"}`
	w.free("acme")
	given := func(op string) (id, token string) {
		_, a := one.ask("POST", "/v1/admit", `{"operation":`+op+`}`)
		if text(a, "decision") != "allow" {
			t.Fatalf("admit: %v", a)
		}
		return text(a, "permit", "id"), text(a, "permit", "token")
	}
	unused, unusedToken := given(modelCall) // of another circuit than the one that is forced open below
	sent, sentToken := given(op)
	one.ask("POST", "/v1/permits/"+sent+"/dispatch", fmt.Sprintf(`{"token":%q}`, sentToken))
	_, rec := one.ask("POST", "/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, sent, sentToken, timedOut))
	receipt := text(rec, "receipt", "id")
	if text(rec, "outcome") != "UNKNOWN" || receipt == "" {
		t.Fatalf("recorded: %v", rec)
	}
	w.hold("acme", time.Hour)
	waits := strings.NewReplacer(`"action":"send"`, `"action":"send","origin":"background"`, "req-one", "q-one").Replace(op)
	waits = strings.Replace(waits, `"effect":"non_repeatable"`, `"effect":"read_only"`, 1) // an open ambiguity asks a person about writes
	_, a := one.ask("POST", "/v1/admit", `{"operation":`+waits+`}`)
	ticket := text(a, "ticket")
	if status, a := one.ask("POST", "/v1/queue", fmt.Sprintf(`{"ticket":%q,"operation":%s,"payload":"one's draft"}`, ticket, waits)); status != 200 {
		t.Fatalf("put: status %d, %v (admit said %v)", status, a, at(a, "decision"))
	}
	claim, _ := one.claim("q-one")

	tried := map[string]bool{}
	try := func(template, path, body string, ids ...string) {
		t.Helper()
		tried[template] = true
		method, path, _ := strings.Cut(path, " ")
		say := func(name string) (int, string) {
			p, b := path, body
			if name != "" {
				for _, id := range ids {
					p, b = strings.ReplaceAll(p, id, name), strings.ReplaceAll(b, id, name)
				}
			}
			status, a := two.ask(method, p, b)
			text, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			return status, string(text)
		}
		status, text := say("")
		if strings.Contains(text, "acme") || strings.Contains(text, "one's") {
			t.Errorf("%s tells of another tenant: %s", template, text)
		}
		if ids == nil {
			return
		}
		nstatus, ntext := say(never)
		for _, id := range ids {
			text, ntext = strings.ReplaceAll(text, id, "ID"), strings.ReplaceAll(ntext, never, "ID")
		}
		if status < 400 || status != nstatus || text != ntext {
			t.Errorf("%s: another's is answered with %d %s, what does not exist with %d %s", template, status, text, nstatus, ntext)
		}
	}
	try("POST /v1/admit", "POST /v1/admit", `{"shadow":true,"operation":`+mailOperation+`}`)
	try("POST /v1/permits/{id}/dispatch", "POST /v1/permits/"+unused+"/dispatch", fmt.Sprintf(`{"token":%q}`, unusedToken), unused)
	try("POST /v1/permits/{id}/dispatch", "POST /v1/permits/"+sent+"/dispatch", fmt.Sprintf(`{"token":%q}`, sentToken), sent)
	try("POST /v1/record", "POST /v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, unused, unusedToken, timedOut), unused)
	try("POST /v1/record", "POST /v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, sent, sentToken, timedOut), sent)
	try("POST /v1/reconcile", "POST /v1/reconcile", fmt.Sprintf(`{"permit":%q,"finding":"not_applied","evidence":"x"}`, sent), sent)
	try("POST /v1/reconcile", "POST /v1/reconcile", fmt.Sprintf(`{"permit":%q,"finding":"lookup"}`, sent), sent)
	try("POST /v1/reconcile", "POST /v1/reconcile", `{"request_id":"req-one","finding":"not_applied","evidence":"x"}`, "req-one")
	for _, state := range []string{"UNKNOWN", "ALL"} {
		try("GET /v1/intents", "GET /v1/intents?tenant=acme&state="+state, "")
		try("GET /v1/intents", "GET /v1/intents?request_id=req-one&state="+state, "")
	}
	try("GET /v1/breakers", "GET /v1/breakers", "")
	try("GET /v1/breakers", "GET /v1/breakers?scope=ambiguity:mail/send/acme", "")
	try("GET /v1/receipts/{id}", "GET /v1/receipts/"+receipt, "", receipt)
	try("GET /v1/queue", "GET /v1/queue?state=ALL", "")
	try("GET /v1/queue/{id}", "GET /v1/queue/q-one", "", "q-one")
	try("POST /v1/queue", "POST /v1/queue", fmt.Sprintf(`{"ticket":%q,"operation":%s}`, ticket, waits), "q-one")
	try("POST /v1/queue/claim", "POST /v1/queue/claim", `{"worker":"w-2"}`)
	try("POST /v1/queue/{id}/release", "POST /v1/queue/q-one/release", fmt.Sprintf(`{"claim":%q}`, claim), "q-one")
	try("POST /v1/queue/{id}/renew", "POST /v1/queue/q-one/renew", fmt.Sprintf(`{"claim":%q}`, claim), "q-one")
	try("POST /v1/queue/{id}/finish", "POST /v1/queue/q-one/finish", fmt.Sprintf(`{"claim":%q,"state":"dead","reason":"x"}`, claim), "q-one")
	try("GET /v1/openapi.json", "GET /v1/openapi.json", "")
	for _, e := range w.server.endpoints() {
		if !tried[e.method+" "+e.path] {
			t.Errorf("%s %s is not tried here", e.method, e.path)
		}
	}
	// And nothing of it was touched.
	if status, a := one.ask("POST", "/v1/permits/"+unused+"/dispatch", fmt.Sprintf(`{"token":%q}`, unusedToken)); status != 204 {
		t.Errorf("its permit: status %d, %v", status, a)
	}
	if _, a := one.ask("GET", "/v1/intents?state=UNKNOWN", ""); !strings.Contains(fmt.Sprint(a), sent) {
		t.Errorf("its UNKNOWN write: %v", a)
	}
	if status, a := one.step("q-one", "renew", claim, ""); status != 200 || text(a, "item", "state") != "CLAIMED" {
		t.Errorf("its queued work: status %d, %v", status, a)
	}
	if status, _ := one.ask("GET", "/v1/receipts/"+receipt, ""); status != 200 {
		t.Errorf("its receipt: status %d", status)
	}
}

// R-OPS-9, R-AGT-5: an approval that one tenant was given lets nobody else go,
// whatever they call themselves.
func TestApprovalsOfTenantsAreApart(t *testing.T) {
	w := &waiting{running: inProcess(t, twoTenants), t: t}
	del := strings.Replace(strings.Replace(mailOperation, `"mail.send"`, `"files.delete"`, 1), `"action_class":"mail.send"`, `"action_class":"data.delete"`, 1)
	if err := w.client.Engine().Approve(t.Context(), taxonomy.Approval{ID: "a-1", By: "ann", Scope: "data.delete", Tenant: "acme", Until: time.Now().Add(time.Hour), Reason: "ticket"}); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"token-one": "allow", "token-two": "require_approval"} {
		if _, a := w.as(token).ask("POST", "/v1/admit", `{"operation":`+del+`}`); text(a, "decision") != want {
			t.Errorf("%s: %v, want %s", token, a, want)
		}
	}
}

// R-OPS-9: nobody spends another tenant's budget, also under its name and run.
func TestBudgetsOfTenantsAreApart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies")
	if status, _, errs := fusebox(t, "", "policy", "export", dir); status != 0 {
		t.Fatal(errs)
	}
	path := filepath.Join(dir, "policy.toml")
	if err := os.WriteFile(path, []byte(strings.Replace(mustRead(t, path), "attempts = 500", "attempts = 2", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &waiting{running: inProcess(t, func(o *startOptions) { twoTenants(o); o.Config.Policies.Path = dir }), t: t}
	spend := func(c *waiting, n int) int {
		op := strings.TrimSuffix(mailOperation, "}") + fmt.Sprintf(`,"run_id":"r-1","args_fp":"fp-%d"}`, n)
		_, a := c.ask("POST", "/v1/admit", `{"operation":`+op+`}`)
		if text(a, "decision") != "allow" {
			return 0
		}
		status, _ := c.ask("POST", "/v1/permits/"+text(a, "permit", "id")+"/dispatch", fmt.Sprintf(`{"token":%q}`, text(a, "permit", "token")))
		return status
	}
	for _, c := range []string{"token-two", "token-one"} {
		went := 0
		for n := range 4 {
			if spend(w.as(c), n) == http.StatusNoContent {
				went++
			}
		}
		if went != 2 {
			t.Errorf("%s could send %d of 4 times; its budget is 2", c, went)
		}
	}
}

// R-OPS-9, R-AGT-1: who guesses the id of another tenant's run, and loops in it
// under its name, stops only its own.
func TestRunsOfTenantsAreApart(t *testing.T) {
	w := &waiting{running: inProcess(t, twoTenants), t: t}
	const read = `{"kind":"tool","name":"docs.read","provider":"docs","effect":"read_only","tenant":"acme"}`
	call := func(c *waiting, n int) string {
		op := strings.TrimSuffix(read, "}") + fmt.Sprintf(`,"run_id":"r-1","args_fp":"fp","request_id":"req-%d"}`, n)
		_, a := c.ask("POST", "/v1/admit", `{"operation":`+op+`}`)
		if text(a, "decision") != "allow" {
			return text(a, "decision")
		}
		id, token := text(a, "permit", "id"), text(a, "permit", "token")
		c.ask("POST", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
		c.ask("POST", "/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,"observation":{"transport":{"dispatched":"yes"},"response":{"status":200,"headers":{},"body":"{\"same\":1}"}}}`, id, token))
		return "allow"
	}
	looped := ""
	for n := range 12 {
		if looped = call(w.as("token-two"), n); looped != "allow" {
			break
		}
	}
	if looped == "allow" {
		t.Fatal("twelve equal calls are no loop")
	}
	if got := call(w.as("token-one"), 100); got != "allow" {
		t.Errorf("another tenant's loop reaches this run: %s", got)
	}
}
