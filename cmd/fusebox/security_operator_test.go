package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
)

var allRoles = map[string]sdk.Role{"viewer": sdk.Viewer, "operator": sdk.OperatorRole, "approver": sdk.ApproverRole, "admin": sdk.AdministratorRole}

func withOperators(o *startOptions) {
	o.Config.Limits.FailedTokens = 1_000_000 // that wrong tokens are throttled is shown elsewhere
	for name, role := range allRoles {
		o.Config.Operators = append(o.Config.Operators, sdk.Operator{Name: name, Token: sdk.HashToken("token-" + name), Role: role})
	}
}

// operate sends one request to the operator plane.
func operate(t *testing.T, r *running, token, method, path, body string, header ...string) (*http.Response, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.operator+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return responseOf(t, req)
}

// concrete is a path of an endpoint that exists.
func concrete(path string) string {
	return strings.NewReplacer("{id}", "0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c", "{step}", "hold").Replace(path)
}

// R-OPS-4: every role at every endpoint of the operator plane: who looks needs a
// token, who changes needs the role, and without operators nobody changes
// anything. What is refused leaves nothing behind.
func TestRolesAtEveryEndpoint(t *testing.T) {
	r := inProcess(t, withOperators)
	open := inProcess(t, nil)
	before := receiptsWith(t, r, func(*receipts.Receipt) bool { return true })
	endpoints := r.server.operatorEndpoints()
	for _, path := range []string{"/", "/page.css"} { // the page is for whoever may look
		endpoints = append(endpoints, endpoint{method: "GET", path: path})
	}
	for _, e := range endpoints {
		path := concrete(e.path)
		for _, token := range []string{"", "token-nobody", "viewer", "Bearer"} {
			want := http.StatusUnauthorized
			if e.path == "/healthz" {
				want = http.StatusOK
			}
			if resp, a := operate(t, r, token, e.method, path, "{}"); resp.StatusCode != want {
				t.Errorf("%s %s with token %q: status %d, want %d: %v", e.method, path, token, resp.StatusCode, want, a)
			}
		}
		for name, role := range allRoles {
			resp, a := operate(t, r, "token-"+name, e.method, path, "{}") // says not why
			switch {
			case e.method == "GET" && resp.StatusCode != 200:
				t.Errorf("%s %s as %s: status %d, %v", e.method, path, name, resp.StatusCode, a)
			case e.method == "POST" && !slices.Contains(e.may, role) && (resp.StatusCode != 403 || text(a, "error", "code") != "role_refused"):
				t.Errorf("%s %s as %s: status %d, %v", e.method, path, name, resp.StatusCode, a)
			case e.method == "POST" && slices.Contains(e.may, role) && resp.StatusCode != 400 && resp.StatusCode != 404:
				t.Errorf("%s %s as %s, without a reason: status %d, %v", e.method, path, name, resp.StatusCode, a)
			case e.method == "POST" && e.may == nil:
				t.Errorf("%s %s asks for no role", e.method, path)
			}
		}
		if e.method == "POST" {
			if resp, a := operate(t, open, "token-admin", e.method, path, "{}"); resp.StatusCode != 403 || text(a, "error", "code") != "no_operators" {
				t.Errorf("%s %s without operators: status %d, %v", e.method, path, resp.StatusCode, a)
			}
			// Not on the agent plane either, whose own requests of that path know no operators.
			if own := slices.ContainsFunc(r.server.endpoints(), func(a endpoint) bool { return a.path == e.path && a.method == e.method }); !own {
				if status, _ := ask(t, "POST", r.agent+path, "{}"); status != 404 && status != 405 {
					t.Errorf("POST %s on the agent plane: status %d", path, status)
				}
			}
		}
	}
	if after := receiptsWith(t, r, func(*receipts.Receipt) bool { return true }); after != before {
		t.Errorf("%d receipts were written of what was refused", after-before)
	}
}

// R-OPS-4: every change asks who and why, and its receipt says both: over HTTP,
// for every endpoint that changes something. Who is the token's owner, whatever
// the body claims.
func TestEveryChangeSaysWhoAndWhy(t *testing.T) {
	w := waitingServer(t, withOperators)
	id, token := admitted(t, w.agent, strings.Replace(mailOperation, "acme", "globex", 1))
	ask(t, "POST", w.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
	ask(t, "POST", w.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, timedOut))
	w.put("q-1")
	bundle, err := policies.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	changed := *bundle
	changed.SettingsTOML = bytes.Replace(bundle.SettingsTOML, []byte(`claim = "2m"`), []byte(`claim = "3m"`), 1)
	raw, err := changed.Build(policies.BuildOptions{Tests: true})
	if err != nil {
		t.Fatal(err)
	}
	archive := base64.StdEncoding.EncodeToString(raw)
	done := map[string]bool{}
	for i, c := range []struct {
		template, path, body, reason string
		kind                         receipts.Kind
	}{
		{"/v1/overrides", "/v1/overrides", `{"scope":"provider:openai/-/gpt-x","action":"force_open","for":"1m"%s}`, "reason", receipts.KindOverride},
		{"/v1/overrides", "/v1/overrides", `{"scope":"provider:openai/-/gpt-x","action":"force_closed","for":"1m"%s}`, "reason", receipts.KindOverride},
		{"/v1/overrides", "/v1/overrides", `{"scope":"provider:openai/-/gpt-x","action":"release"%s}`, "reason", receipts.KindOverride},
		{"/v1/approvals", "/v1/approvals", `{"scope":"refund","tenant":"acme","for":"1m"%s}`, "reason", receipts.KindOverride},
		{"/v1/approvals", "/v1/approvals", `{"scope":"refund","tenant":"acme","for":"1m","denies":true%s}`, "reason", receipts.KindOverride},
		{"/v1/queue/{id}", "/v1/queue/q-1", `{"action":"retry"%s}`, "reason", receipts.KindQueue},
		{"/v1/queue/{id}", "/v1/queue/q-1", `{"action":"discard"%s}`, "reason", receipts.KindQueue},
		{"/v1/reconcile", "/v1/reconcile", `{"permit":"` + id + `","finding":"still_unknown","by":"somebody"%s}`, "evidence", receipts.KindReconcile},
		{"/v1/reconcile", "/v1/reconcile", `{"permit":"` + id + `","finding":"applied","by":"somebody"%s}`, "evidence", receipts.KindReconcile},
		{"/v1/rollout/{step}", "/v1/rollout/start", `{"archive":"` + archive + `","source":"next","by":"somebody"%s}`, "reason", receipts.KindRollout},
		{"/v1/rollout/{step}", "/v1/rollout/advance", `{"by":"somebody"%s}`, "reason", receipts.KindRollout},
		{"/v1/rollout/{step}", "/v1/rollout/hold", `{"by":"somebody"%s}`, "reason", receipts.KindRollout},
		{"/v1/rollout/{step}", "/v1/rollout/rollback", `{"by":"somebody"%s}`, "reason", receipts.KindRollout},
	} {
		done[c.template] = true
		why := fmt.Sprintf("ticket %d", 4711+i)
		all := receiptsWith(t, w.running, func(*receipts.Receipt) bool { return true })
		for _, bad := range []string{"", fmt.Sprintf(`,%q:""`, c.reason), fmt.Sprintf(`,%q:"two\nlines"`, c.reason), fmt.Sprintf(`,%q:%q`, c.reason, strings.Repeat("x", maxWhy+1))} {
			resp, a := operate(t, w.running, "token-admin", "POST", c.path, fmt.Sprintf(c.body, bad))
			if resp.StatusCode != 400 || text(a, "error", "field") != c.reason {
				t.Errorf("%s with%s as its reason: status %d, %v", c.path, bad, resp.StatusCode, a)
			}
		}
		if n := receiptsWith(t, w.running, func(*receipts.Receipt) bool { return true }); n != all {
			t.Errorf("%s without a reason left %d receipts", c.path, n-all)
		}
		if resp, a := operate(t, w.running, "token-admin", "POST", c.path, fmt.Sprintf(c.body, fmt.Sprintf(`,%q:%q`, c.reason, why))); resp.StatusCode != 200 {
			t.Errorf("%s with a reason: status %d, %v", c.path, resp.StatusCode, a)
			continue
		}
		if n := receiptsWith(t, w.running, func(rec *receipts.Receipt) bool {
			who, said := rec.By, rec.By
			if o := rec.Override; o != nil {
				who, said = o.By, o.Ticket
			}
			return rec.Kind == c.kind && strings.HasPrefix(who, "admin") && strings.Contains(said, why)
		}); n != 1 {
			t.Errorf("%s: %d receipts say who and why", c.path, n)
		}
	}
	for _, e := range w.server.operatorEndpoints() {
		if e.method == "POST" && !done[e.path] {
			t.Errorf("POST %s is not tried here", e.path)
		}
	}
}

// No page of another origin changes or frames anything here, whoever its visitor
// is: a browser sends a password that it knows by itself.
func TestOtherPagesCannotOperate(t *testing.T) {
	r := inProcess(t, withOperators)
	for _, e := range append(r.server.operatorEndpoints(), endpoint{method: "GET", path: "/"}) {
		path := concrete(e.path)
		for _, foreign := range [][]string{
			{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
			{"Origin", strings.Replace(r.operator, "127.0.0.1", "127.0.0.1.evil.example", 1)}, {"Origin", r.agent},
		} {
			if e.method != "POST" {
				continue
			}
			if resp, a := operate(t, r, "token-admin", "POST", path, "{}", foreign...); resp.StatusCode != 403 || text(a, "error", "code") != "cross_origin" {
				t.Errorf("POST %s with %v: status %d, %v", path, foreign, resp.StatusCode, a)
			}
		}
		for _, token := range []string{"token-admin", ""} {
			resp, _ := operate(t, r, token, e.method, path, "{}")
			h := resp.Header
			if h.Get("X-Frame-Options") != "DENY" || !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") ||
				h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" || len(h.Values("Set-Cookie")) > 0 {
				t.Errorf("%s %s: headers %v", e.method, path, h)
			}
		}
	}
	// A form of an older browser, which names no origin, cannot say who it is in a
	// way that counts: without a token it is nobody.
	resp, err := http.Post(r.operator+"/v1/overrides", "text/plain", strings.NewReader(`{"scope":"x","action":"release","reason":"y"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 401 {
		t.Errorf("a plain form: status %d, %s", resp.StatusCode, body)
	}
}
