package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/sdk"
)

// serverOn starts a server on a data directory; the test stops it.
func serverOn(t *testing.T, data string, change func(*startOptions)) *running {
	t.Helper()
	o := startOptions{Logger: newLogger(io.Discard, sdk.LogConfig{}), Drain: 10 * time.Millisecond,
		Config: sdk.Config{Data: data, Listen: sdk.Listen{Agent: "127.0.0.1:0", Operator: "127.0.0.1:0"}}}
	if change != nil {
		change(&o)
	}
	r, err := start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mailUntil(end time.Time) string {
	return strings.TrimSuffix(mailOperation, "}") + fmt.Sprintf(`,"deadline":%d}`, end.UnixMilli())
}

// graceLimit is the most that a permit outlives its operation's deadline.
const graceLimit = 5 * time.Second

// R-ADM-5: a permit never outlives its operation's deadline by more than 5 s:
// undispatched it ends with the deadline; dispatched and never recorded it is
// UNKNOWN then, and what is recorded later is heard and marked late.
func TestPermitEndsWithItsDeadline(t *testing.T) {
	r := inProcess(t, func(o *startOptions) { o.PermitTTL = time.Hour })
	for _, left := range []time.Duration{2 * time.Second, 20 * time.Minute, 3 * time.Hour} {
		deadline := time.Now().Add(left)
		_, a := ask(t, "POST", r.agent+"/v1/admit", `{"operation":`+mailUntil(deadline)+`}`)
		ends, err := time.Parse(time.RFC3339Nano, text(a, "permit", "expires_at"))
		if err != nil || ends.After(deadline.Add(graceLimit)) || ends.After(time.Now().Add(time.Hour)) {
			t.Errorf("%s before the deadline the permit ends at %s, the deadline is %s: %v", left, ends, deadline, a)
		}
		if !strings.HasPrefix(text(a, "permit", "token"), fmt.Sprintf("v1.%d.", ends.UnixMilli())) {
			t.Errorf("the token says another end than %s", ends)
		}
	}
	deadline := time.Now().Add(2 * time.Second)
	id, token := admitted(t, r.agent, mailUntil(deadline))
	unused, unusedToken := admitted(t, r.agent, mailUntil(deadline))
	if status, a := ask(t, "POST", r.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token)); status != 204 {
		t.Skipf("this machine took two seconds for two requests: status %d, %v", status, a)
	}
	var intent map[string]any
	within(t, "the end of the permit", func() bool {
		_, a := ask(t, "GET", r.agent+"/v1/intents?state=UNKNOWN", "")
		for _, in := range at(a, "intents").([]any) {
			intent = in.(map[string]any)
		}
		return intent != nil
	})
	if ends, err := time.Parse(time.RFC3339Nano, text(intent, "expires")); err != nil || ends.After(deadline.Add(graceLimit+time.Second)) {
		t.Errorf("UNKNOWN by itself at %s, the deadline was %s", ends, deadline)
	}
	if status, a := ask(t, "POST", r.agent+"/v1/permits/"+unused+"/dispatch", fmt.Sprintf(`{"token":%q}`, unusedToken)); status != 409 || text(a, "error", "code") != "permit_expired" {
		t.Errorf("dispatched after its end: status %d, %v", status, a)
	}
	record := fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, delivered)
	var receipt string
	for i := range 2 {
		status, a := ask(t, "POST", r.agent+"/v1/record", record)
		if status != 200 || !strings.Contains(fmt.Sprint(at(a, "flags")), "late") || i == 1 && text(a, "receipt", "id") != receipt {
			t.Errorf("recorded late: status %d, %v", status, a)
		}
		receipt = text(a, "receipt", "id")
	}
}

// R-ADM-5, R-OPS-9: a permit is good for its caller's tenant and at the process
// that gave it, and nowhere else.
func TestPermitsDoNotMove(t *testing.T) {
	clients := func(o *startOptions) {
		o.Config.Clients = []sdk.AgentClient{
			{Name: "one", Token: sdk.HashToken("token-one"), Tenant: "acme"},
			{Name: "two", Token: sdk.HashToken("token-two"), Tenant: "globex"},
			{Name: "three", Token: sdk.HashToken("token-three"), Tenant: "acme"},
		}
	}
	data := t.TempDir()
	r := inProcess(t, func(o *startOptions) { o.Config.Data = data; clients(o) })
	// Another process with the very same key and callers.
	copied := t.TempDir()
	key, err := os.ReadFile(filepath.Join(data, "permit.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied, "permit.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	twin := inProcess(t, func(o *startOptions) { o.Config.Data = copied; clients(o) })
	as := func(base, caller, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(tokenHeader, caller)
		status, a := answerOf(t, req)
		if path == "/v1/admit" {
			return status, text(a, "permit", "id") + " " + text(a, "permit", "token")
		}
		return status, text(a, "error", "code")
	}
	_, given := as(r.agent, "token-one", "/v1/admit", `{"operation":`+mailOperation+`}`)
	id, token, _ := strings.Cut(given, " ")
	if id == "" || token == "" {
		t.Fatalf("not admitted: %q", given)
	}
	dispatch, record := fmt.Sprintf(`{"token":%q}`, token), fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, delivered)
	for _, c := range []struct {
		name, base, caller string
		want               int
	}{
		{"another tenant", r.agent, "token-two", 404},
		{"another process with the same key", twin.agent, "token-one", 404},
		{"nobody", r.agent, "", 401},
	} {
		if status, code := as(c.base, c.caller, "/v1/permits/"+id+"/dispatch", dispatch); status != c.want {
			t.Errorf("dispatch by %s: status %d, %s", c.name, status, code)
		}
		if status, code := as(c.base, c.caller, "/v1/record", record); status != c.want {
			t.Errorf("record by %s: status %d, %s", c.name, status, code)
		}
	}
	if status, code := as(r.agent, "token-three", "/v1/permits/"+id+"/dispatch", dispatch); status != 204 {
		t.Errorf("dispatch by its tenant: status %d, %s", status, code)
	}
	// Once dispatched, its intent lies in the store: still nobody else's.
	for _, c := range [][2]string{{r.agent, "token-two"}, {twin.agent, "token-one"}} {
		if status, code := as(c[0], c[1], "/v1/record", record); status != 404 {
			t.Errorf("record of a dispatched one: status %d, %s", status, code)
		}
	}
	if status, code := as(r.agent, "token-one", "/v1/record", record); status != 200 {
		t.Errorf("its own record: status %d, %s", status, code)
	}
}

// R-ADM-5, R-CALL-2: what was dispatched before a restart can be recorded after
// it, once, late, with its own token; what was not is gone.
func TestPermitsAfterARestart(t *testing.T) {
	data := t.TempDir()
	before := serverOn(t, data, nil)
	id, token := admitted(t, before.agent, mailOperation)
	second, secondToken := admitted(t, before.agent, strings.Replace(mailOperation, "acme", "globex", 1))
	unused, unusedToken := admitted(t, before.agent, strings.Replace(mailOperation, "acme", "initech", 1))
	for _, p := range [][2]string{{id, token}, {second, secondToken}} {
		if status, a := ask(t, "POST", before.agent+"/v1/permits/"+p[0]+"/dispatch", fmt.Sprintf(`{"token":%q}`, p[1])); status != 204 {
			t.Fatalf("dispatch: status %d, %v", status, a)
		}
	}
	if err := before.stop(); err != nil {
		t.Fatal(err)
	}
	r := inProcess(t, func(o *startOptions) { o.Config.Data = data })
	dispatch := func(id, token string) (int, string) {
		status, a := ask(t, "POST", r.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
		return status, text(a, "error", "code")
	}
	for _, c := range []struct {
		name, id, token string
		status          int
		code            string
	}{
		{"what was dispatched", id, token, 409, "permit_used"},
		{"what was dispatched, with another's token", id, secondToken, 404, "permit_unknown"},
		{"what was not dispatched", unused, unusedToken, 404, "permit_unknown"},
	} {
		if status, code := dispatch(c.id, c.token); status != c.status || code != c.code {
			t.Errorf("dispatch of %s: status %d, %s", c.name, status, code)
		}
	}
	// Both are UNKNOWN: nobody who is left can say. The API and the command agree.
	_, list := ask(t, "GET", r.agent+"/v1/intents?state=UNKNOWN", "")
	status, out, errs := fusebox(t, "", "intents", "list", "--json", "--data", data)
	for _, want := range []string{id, second} {
		if !strings.Contains(fmt.Sprint(list), want) || status != 0 || !strings.Contains(out, `"id": "`+want+`"`) || !strings.Contains(out, `"state": "UNKNOWN"`) {
			t.Errorf("UNKNOWN are %v; the command says %d %s%s", list, status, out, errs)
		}
	}
	record := func(id, token string) (int, map[string]any) {
		return ask(t, "POST", r.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, delivered))
	}
	if status, a := record(id, secondToken); status != 403 || text(a, "error", "code") != "token_refused" {
		t.Errorf("recorded with another's token: status %d, %v", status, a)
	}
	if status, a := record(unused, unusedToken); status != 404 {
		t.Errorf("recorded what was not dispatched: status %d, %v", status, a)
	}
	status, a := record(id, token)
	if status != 200 || text(a, "outcome") != "SUCCEEDED" || !strings.Contains(fmt.Sprint(at(a, "flags")), "late") {
		t.Errorf("recorded late: status %d, %v", status, a)
	}
	if status, a := record(id, token); status != 200 || text(a, "outcome") != "SUCCEEDED" || !strings.Contains(fmt.Sprint(at(a, "flags")), "already_settled") {
		t.Errorf("and again: status %d, %v", status, a)
	}
	if status, a := ask(t, "POST", r.agent+"/v1/reconcile", fmt.Sprintf(`{"permit":%q,"finding":"not_applied","by":"ann","evidence":"no such mail"}`, second)); status != 200 || text(a, "state") != "SETTLED" || text(a, "outcome") != "FAILED" {
		t.Errorf("reconciled: status %d, %v", status, a)
	}
	if status, a := record(second, secondToken); status != 200 || text(a, "outcome") != "FAILED" {
		t.Errorf("recorded after its reconciliation: status %d, %v; what was found stands", status, a)
	}
}
