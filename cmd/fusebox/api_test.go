package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/sdk"
)

// inProcess starts both planes in this process.
func inProcess(t *testing.T, change func(*startOptions)) *running {
	t.Helper()
	o := startOptions{
		Config: sdk.Config{Data: t.TempDir(), Listen: sdk.Listen{Agent: "127.0.0.1:0", Operator: "127.0.0.1:0"}},
		Logger: newLogger(io.Discard, sdk.LogConfig{}),
		Drain:  10 * time.Millisecond,
	}
	if change != nil {
		change(&o)
	}
	r, err := start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// R-ADM-5: one permit sends one operation once, and only with its own token.
func TestPermitIsSingleUseAndBound(t *testing.T) {
	r := inProcess(t, nil)
	base := r.agent
	id, token := admitted(t, base, mailOperation)
	other, otherToken := admitted(t, base, strings.Replace(mailOperation, `"a-1"`, `"a-2"`, 1))
	dispatch := func(id, body string) (int, string) {
		status, a := ask(t, "POST", base+"/v1/permits/"+id+"/dispatch", body)
		return status, text(a, "error", "code")
	}
	for _, c := range []struct {
		name, id, body string
		status         int
		code           string
	}{
		{"no token", id, "", 400, "bad_request"},
		{"an empty token", id, `{"token":""}`, 400, "bad_request"},
		{"a forged token", id, `{"token":"v1.99999999999999.AAAA"}`, 403, "token_refused"},
		{"another permit's token", id, fmt.Sprintf(`{"token":%q}`, otherToken), 403, "token_refused"},
		{"a permit that never was", "0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c", fmt.Sprintf(`{"token":%q}`, token), 404, "permit_unknown"},
		{"its own token", id, fmt.Sprintf(`{"token":%q}`, token), 204, ""},
		{"a second time", id, fmt.Sprintf(`{"token":%q}`, token), 409, "permit_used"},
		{"the other one", other, fmt.Sprintf(`{"token":%q}`, otherToken), 204, ""},
	} {
		if status, code := dispatch(c.id, c.body); status != c.status || code != c.code {
			t.Errorf("dispatch with %s: status %d, code %q; want %d, %q", c.name, status, code, c.status, c.code)
		}
	}
	status, a := ask(t, "POST", base+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, otherToken, timedOut))
	if status != 403 {
		t.Errorf("record with another permit's token: status %d, %v", status, a)
	}
}

// The operation is the one that was admitted, whatever a record says of it: a
// write cannot be made a read after the fact.
func TestRecordCannotChangeTheOperation(t *testing.T) {
	r := inProcess(t, nil)
	base := r.agent
	id, token := admitted(t, base, mailOperation)
	ask(t, "POST", base+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
	_, a := ask(t, "POST", base+"/v1/record", fmt.Sprintf(
		`{"permit":%q,"token":%q,"outcome":"FAILED","observation":{"operation":{"kind":"tool","effect":"read_only"},"transport":{"dispatched":"yes","error_kind":"read_timeout"},"elapsed_ms":1}}`, id, token))
	if text(a, "outcome") != "UNKNOWN" || text(a, "class") != "ambiguous_write" || at(a, "retry", "allowed") != false {
		t.Errorf("a timed-out write recorded as a read that failed: %v", a)
	}
}

// A record may be repeated after a lost answer and says the same; another
// observation does not change what was recorded.
func TestRecordIsIdempotent(t *testing.T) {
	r := inProcess(t, nil)
	base := r.agent
	id, token := admitted(t, base, mailOperation)
	if status, _ := ask(t, "POST", base+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token)); status != 204 {
		t.Fatalf("dispatch: status %d", status)
	}
	body := fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, timedOut)
	_, first := ask(t, "POST", base+"/v1/record", body)
	_, again := ask(t, "POST", base+"/v1/record", body)
	if text(first, "receipt", "id") == "" || text(first, "receipt", "id") != text(again, "receipt", "id") || text(again, "outcome") != "UNKNOWN" {
		t.Errorf("recorded twice: %v, then %v", first, again)
	}
	if text(first, "next", "action") != "reconcile" || text(first, "next", "key") == "" || at(first, "receipt", "durable") != true {
		t.Errorf("a write that timed out is answered with %v", first)
	}
	status, a := ask(t, "POST", base+"/v1/record", strings.Replace(body, "30000", "30001", 1))
	if status != 409 || text(a, "error", "code") != "recorded_differently" {
		t.Errorf("another observation: status %d, %v", status, a)
	}
	status, a = ask(t, "GET", base+"/v1/receipts/"+text(first, "receipt", "id"), "")
	if status != 200 || text(a, "receipt", "outcome") != "UNKNOWN" {
		t.Errorf("its receipt: status %d, %v", status, a)
	}
}

// A result for something that was sent without a dispatch is accepted, as
// UNKNOWN, and says so: nothing durable vouches for it.
func TestUndeclaredDispatchIsUnknown(t *testing.T) {
	r := inProcess(t, nil)
	base := r.agent
	id, token := admitted(t, base, mailOperation)
	_, a := ask(t, "POST", base+"/v1/record", fmt.Sprintf(
		`{"permit":%q,"token":%q,"observation":{"transport":{"dispatched":"yes"},"response":{"status":200,"headers":{},"body":"{}"},"elapsed_ms":1}}`, id, token))
	if text(a, "outcome") != "UNKNOWN" || !strings.Contains(fmt.Sprint(at(a, "flags")), "undeclared_dispatch") {
		t.Errorf("answered with %v", a)
	}
}

// R-ADM-5: a permit ends by itself, and dispatching it then is refused.
func TestPermitExpires(t *testing.T) {
	r := inProcess(t, func(o *startOptions) { o.PermitTTL = 50 * time.Millisecond })
	base := r.agent
	_, a := ask(t, "POST", base+"/v1/admit", `{"v":1,"operation":`+mailOperation+`}`)
	ends, err := time.Parse(time.RFC3339Nano, text(a, "permit", "expires_at"))
	if err != nil {
		t.Fatalf("%v: %v", err, a)
	}
	time.Sleep(time.Until(ends) + 10*time.Millisecond)
	status, no := ask(t, "POST", base+"/v1/permits/"+text(a, "permit", "id")+"/dispatch", fmt.Sprintf(`{"token":%q}`, text(a, "permit", "token")))
	if status != 409 || text(no, "error", "code") != "permit_expired" {
		t.Errorf("after its end: status %d, %v", status, no)
	}
	if _, list := ask(t, "GET", base+"/v1/intents?state=ALL", ""); len(at(list, "intents").([]any)) != 0 {
		t.Errorf("it left intents: %v", list)
	}
}

// A shadow admit decides and gives nothing: no permit, no intent.
func TestShadowAdmitGivesNothing(t *testing.T) {
	r := inProcess(t, nil)
	base := r.agent
	status, a := ask(t, "POST", base+"/v1/admit", `{"v":1,"shadow":true,"operation":`+mailOperation+`}`)
	if status != 200 || text(a, "decision") != "allow" || at(a, "permit") != nil || at(a, "shadow") != true {
		t.Errorf("status %d, %v", status, a)
	}
	if _, list := ask(t, "GET", base+"/v1/intents?state=ALL", ""); len(at(list, "intents").([]any)) != 0 {
		t.Errorf("it left intents: %v", list)
	}
}

// Every decision is answered with 200, and a denial says all that a caller
// needs: why, under which policy, what next, and where the evidence is.
func TestDenialIsAnAnswer(t *testing.T) {
	r := inProcess(t, nil)
	base := r.agent
	status, a := ask(t, "POST", base+"/v1/admit", `{"v":1,"operation":{"kind":"tool","tool":"bank","action":"transfer","action_class":"payment","effect":"non_repeatable","amount":6000000,"agent":"a-1"}}`)
	if status != 200 || text(a, "decision") != "reject" || text(a, "rejection", "layer") != "authority" || text(a, "rejection", "next") != "stop" {
		t.Errorf("status %d, %v", status, a)
	}
	if text(a, "policy") == "" || text(a, "receipt", "id") == "" || text(a, "message_for_model") == "" || at(a, "rejection", "remote_called") != false {
		t.Errorf("a denial that says too little: %v", a)
	}
}

// What the operator plane shows follows what happened, and changes nothing.
func TestOperatorPlane(t *testing.T) {
	r := inProcess(t, nil)
	base := r.agent
	id, token := admitted(t, base, mailOperation)
	ask(t, "POST", base+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
	ask(t, "POST", base+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, timedOut))
	page := get(t, r.operator+"/", nil)
	for _, want := range []string{"ambiguity:mail/send/acme", id, "1 write is UNKNOWN", string(r.client.Version()), "observed only"} {
		if !strings.Contains(page, want) {
			t.Errorf("the status page does not show %q", want)
		}
	}
	metrics := get(t, r.operator+"/metrics", nil)
	for _, want := range []string{
		"fusebox_unknown_pending{layer=\"tool\"} 1", "fusebox_outcomes_total{error_class=\"ambiguous_write\"", "fusebox_policy_info{digest12=",
		"fusebox_receipts_written_total{class=\"ledger\"}", "fusebox_state_store_degraded{reason=\"stale\"} 0", "fusebox_state_store_degraded{reason=\"went_back\"} 0", "fusebox_breaker_transitions_total{breaker=\"ambiguity\",from=\"CLOSED\"",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	for _, secret := range []string{"acme", "a-1", id} {
		if strings.Contains(metrics, secret) {
			t.Errorf("/metrics tells %q: a tenant, an agent or an id is a label", secret)
		}
	}
	if status, a := ask(t, "GET", r.operator+"/healthz", ""); status != 200 || at(a, "ok") != true {
		t.Errorf("/healthz: status %d, %v", status, a)
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		req, err := http.NewRequestWithContext(t.Context(), method, r.operator+"/status.json", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s on the operator plane: status %d", method, resp.StatusCode)
		}
	}
}

// The page runs its own script only, cannot be framed and is not stored.
func TestPageHeaders(t *testing.T) {
	r := inProcess(t, nil)
	resp, err := http.Get(r.operator + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	csp := resp.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("content security policy %q lacks %s", csp, want)
		}
	}
	if strings.Contains(csp, "unsafe") || resp.Header.Get("X-Frame-Options") != "DENY" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers: %v", resp.Header)
	}
	if page, _ := io.ReadAll(resp.Body); strings.Count(string(page), "<script") != 1 || !strings.Contains(string(page), `<script src="/page.js" type="module"></script>`) || strings.Contains(string(page), "style=") {
		t.Error("the page holds an inline script or style, which its own policy forbids")
	}
}

// R-OPS-9: with client tokens a tenant comes from the token, and nobody sees
// another tenant's intents, receipts or circuits.
func TestTenantsAreApart(t *testing.T) {
	r := inProcess(t, func(o *startOptions) {
		o.Config.Clients = []sdk.AgentClient{
			{Name: "one", Token: sdk.HashToken("token-one"), Tenant: "acme"},
			{Name: "two", Token: sdk.HashToken("token-two"), Tenant: "globex"},
		}
		o.Config.Operators = []sdk.Operator{{Name: "ann", Token: sdk.HashToken("token-ann")}}
	})
	base := r.agent
	as := func(token, method, path, body string) (int, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set(tokenHeader, token)
		}
		return answerOf(t, req)
	}
	for _, token := range []string{"", "token-three"} {
		if status, _ := as(token, "POST", "/v1/admit", `{"operation":`+mailOperation+`}`); status != http.StatusUnauthorized {
			t.Errorf("token %q: status %d", token, status)
		}
	}
	// The second client says it is the first one's tenant.
	_, a := as("token-two", "POST", "/v1/admit", `{"operation":`+mailOperation+`}`)
	id, permit := text(a, "permit", "id"), text(a, "permit", "token")
	as("token-two", "POST", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, permit))
	_, rec := as("token-two", "POST", "/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, permit, timedOut))
	receipt := text(rec, "receipt", "id")
	if scope := fmt.Sprint(at(rec, "feeds")); !strings.Contains(scope, "globex") || strings.Contains(scope, "acme") {
		t.Errorf("it counted toward %s", scope)
	}
	count := func(token, path, list string) int {
		_, a := as(token, "GET", path, "")
		l, _ := at(a, list).([]any)
		return len(l)
	}
	for _, c := range []struct {
		token string
		want  int
	}{{"token-two", 1}, {"token-one", 0}} {
		if n := count(c.token, "/v1/intents?tenant=globex", "intents"); n != c.want {
			t.Errorf("%s sees %d intents, want %d", c.token, n, c.want)
		}
		if n := count(c.token, "/v1/breakers?scope=ambiguity", "breakers"); n != c.want {
			t.Errorf("%s sees %d circuits, want %d", c.token, n, c.want)
		}
		status, _ := as(c.token, "GET", "/v1/receipts/"+receipt, "")
		if (status == 200) != (c.want == 1) {
			t.Errorf("%s reads the receipt with status %d", c.token, status)
		}
	}
	finding := fmt.Sprintf(`{"permit":%q,"finding":"not_applied","evidence":"none"}`, id)
	if status, _ := as("token-one", "POST", "/v1/reconcile", finding); status != http.StatusNotFound {
		t.Errorf("another tenant reconciles with status %d", status)
	}
	if status, _ := as("token-two", "POST", "/v1/reconcile", finding); status != http.StatusOK {
		t.Errorf("its own tenant reconciles with status %d", status)
	}
	// The operator plane has its own tokens.
	for token, want := range map[string]int{"": 401, "token-one": 401, "token-ann": 200} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.operator+"/status.json", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if status, _ := answerOf(t, req); status != want {
			t.Errorf("operator plane with %q: status %d, want %d", token, status, want)
		}
	}
	if status, _ := ask(t, "GET", r.operator+"/healthz", ""); status != 200 {
		t.Errorf("/healthz needs a token: status %d", status)
	}
}

// A body that never ends, or is too large, costs one request.
func TestBodyLimits(t *testing.T) {
	r := inProcess(t, nil)
	big := `{"v":1,"operation":{"name":"` + strings.Repeat("x", maxAdmitBody) + `"}}`
	if status, a := ask(t, "POST", r.agent+"/v1/admit", big); status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, %v", status, a)
	}
}

func get(t *testing.T, url string, header http.Header) string {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	if req.Header == nil {
		req.Header = http.Header{}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET %s: status %d, %v", url, resp.StatusCode, err)
	}
	return string(b)
}
