package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"github.com/fusebox-dev/fusebox/sdk"
)

// No token, no change; and every role may do what it is for, and no more.
func TestRoleMatrix(t *testing.T) {
	roles := map[string]sdk.Role{"viewer": sdk.Viewer, "operator": sdk.OperatorRole, "approver": sdk.ApproverRole, "admin": sdk.AdministratorRole}
	r := inProcess(t, func(o *startOptions) {
		for name, role := range roles {
			o.Config.Operators = append(o.Config.Operators, sdk.Operator{Name: name, Token: sdk.HashToken("token-" + name), Role: role})
		}
	})
	open := inProcess(t, nil)
	send := func(base, token, path, body string) (int, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		return answerOf(t, req)
	}
	const circuit = "provider:openai/-/gpt-x"
	for _, c := range []struct {
		path, body string
		may        []string
	}{
		{"/v1/overrides", `{"scope":"` + circuit + `","action":"force_open","for":"1m","reason":"drill"}`, []string{"operator", "admin"}},
		{"/v1/approvals", `{"scope":"refund","tenant":"acme","for":"1m","reason":"ticket"}`, []string{"approver", "admin"}},
	} {
		for who := range roles {
			want := http.StatusForbidden
			for _, m := range c.may {
				if m == who {
					want = http.StatusOK
				}
			}
			if status, a := send(r.operator, "token-"+who, c.path, c.body); status != want {
				t.Errorf("%s as %s: status %d, want %d: %v", c.path, who, status, want, a)
			}
		}
		for token, want := range map[string]int{"": 401, "token-nobody": 401} {
			if status, _ := send(r.operator, token, c.path, c.body); status != want {
				t.Errorf("%s with token %q: status %d", c.path, token, status)
			}
		}
		// Without operators nobody changes anything, on the loopback either.
		if status, a := send(open.operator, "", c.path, c.body); status != 403 || text(a, "error", "code") != "no_operators" {
			t.Errorf("%s without operators: status %d, %v", c.path, status, a)
		}
	}
	// The agent plane has no such door.
	if status, _ := send(r.agent, "token-admin", "/v1/overrides", "{}"); status != 404 {
		t.Errorf("overrides on the agent plane: status %d", status)
	}
	// A reason and an end are demanded.
	for body, field := range map[string]string{
		`{"scope":"` + circuit + `","action":"force_open","for":"1m"}`:                 "reason",
		`{"scope":"` + circuit + `","action":"force_open","reason":"x"}`:               "for",
		`{"scope":"` + circuit + `","action":"force_open","for":"48h","reason":"x"}`:   "for",
		`{"scope":"` + circuit + `","action":"toggle","for":"1m","reason":"x"}`:        "action",
		`{"scope":"nothing:at/all","action":"force_open","for":"1m","reason":"x"}`:     "scope",
		`{"scope":"` + circuit + `","action":"force_open","for":"1m","reason":"a\nb"}`: "reason",
	} {
		if status, a := send(r.operator, "token-operator", "/v1/overrides", body); status < 400 || text(a, "error", "field") != field {
			t.Errorf("%s: status %d, %v", body, status, a)
		}
	}
	_, a := send(r.operator, "token-operator", "/v1/overrides", `{"scope":"`+circuit+`","action":"force_open","for":"1m","reason":"drill"}`)
	if s := fmt.Sprint(at(a, "breakers")); !strings.Contains(s, "forced_open") || !strings.Contains(s, "operator") || !strings.Contains(s, "drill") {
		t.Errorf("the override does not say who and why: %s", s)
	}
}

// The commands work on the data directory of a running server: it hears of an
// override through the store, and the receipt says who and why.
func TestOverrideOfARunningServer(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	const scope = "provider:openai/-/gpt-x"
	model := `{"operation":{"kind":"model","name":"chat.completions","provider":"openai","model":"gpt-x","effect":"read_only"}}`
	decision := func() string { _, a := ask(t, "POST", p.agent+"/v1/admit", model); return text(a, "decision") }
	if d := decision(); d != "allow" {
		t.Fatalf("before: %s", d)
	}
	for _, c := range []struct{ action, more, want string }{{"open", "--for=30m", "reject"}, {"release", "", "allow"}} {
		args := []string{"breakers", c.action, scope, "--data", data, "--reason", "drill", "--by", "operator ann"}
		if c.more != "" {
			args = append(args, c.more)
		}
		if status, _, errs := fusebox(t, "", args...); status != 0 {
			t.Fatalf("%s: status %d, %s", c.action, status, errs)
		}
		within(t, "the server's hearing of "+c.action, func() bool { return decision() == c.want })
	}
	status, out, _ := fusebox(t, "", "receipts", "list", "--data", data, "--kind", "override", "--json")
	if status != 0 || strings.Count(out, `"by":"operator ann"`) < 2 {
		t.Errorf("the receipts of the overrides: status %d\n%s", status, out)
	}
	for _, args := range [][]string{{"--for=30m"}, {"--reason=x"}, {"--reason=x", "--for=forever"}} {
		line := append([]string{"breakers", "open", scope, "--data", data}, args...)
		if status, _, errs := fusebox(t, "", line...); status != exitUsage || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: status %d, %s", args, status, errs)
		}
	}
}

// An approval lets one call go, by the data directory alone or beside a server.
func TestApproval(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	del := strings.Replace(strings.Replace(mailOperation, `"mail.send"`, `"files.delete"`, 1), `"action_class":"mail.send"`, `"action_class":"data.delete"`, 1)
	admit := func() map[string]any { _, a := ask(t, "POST", p.agent+"/v1/admit", `{"operation":`+del+`}`); return a }
	if a := admit(); text(a, "decision") != "require_approval" || a["permit"] != nil {
		t.Fatalf("before: %v", a)
	}
	status, out, errs := fusebox(t, "", "approvals", "grant", "data.delete", "--tenant", "acme", "--for", "1h", "--once", "--reason", "ticket 4711", "--by", "ann", "--data", data, "--json")
	if status != 0 || !strings.Contains(out, `"single_use": true`) {
		t.Fatalf("grant: status %d, %s%s", status, out, errs)
	}
	a := admit()
	if text(a, "decision") != "allow" {
		t.Fatalf("with the approval: %v", a)
	}
	if status, a := ask(t, "POST", p.agent+"/v1/permits/"+text(a, "permit", "id")+"/dispatch", fmt.Sprintf(`{"token":%q}`, text(a, "permit", "token"))); status != 204 {
		t.Fatalf("dispatch: status %d, %v", status, a)
	}
	if a := admit(); text(a, "decision") != "require_approval" {
		t.Errorf("the approval was for one call: %v", a)
	}
	if status, out, _ := fusebox(t, "", "approvals", "list", "--data", data); status != 0 || !strings.Contains(out, "data.delete") || !strings.Contains(out, "ticket 4711") {
		t.Errorf("list: status %d, %s", status, out)
	}
}

// R-AGT-5: a denial is a person's no, and is listed as one.
func TestDenial(t *testing.T) {
	data := t.TempDir()
	if status, _, errs := fusebox(t, "", "approvals", "deny", "data.delete", "--tenant", "acme", "--for", "1h", "--data", data, "--reason", "not in the freeze", "--by", "ann"); status != exitSetup {
		t.Fatalf("on nothing: status %d, %s", status, errs)
	}
	serve(t, data)
	if status, out, errs := fusebox(t, "", "approvals", "deny", "data.delete", "--tenant", "acme", "--for", "1h", "--data", data, "--reason", "not in the freeze", "--by", "ann"); status != 0 || !strings.HasPrefix(out, "denial ") {
		t.Fatalf("status %d\n%s%s", status, out, errs)
	}
	if status, out, _ := fusebox(t, "", "approvals", "list", "--data", data); status != 0 || !strings.Contains(out, "denied") {
		t.Fatalf("list: status %d\n%s", status, out)
	}
}

// Dead letters wait for a person, who retries or discards them with a reason.
func TestDeadLetters(t *testing.T) {
	data := t.TempDir()
	store, err := sqlite.Open(t.Context(), filepath.Join(data, "state.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		it := state.Item{ID: id, RequestID: id, State: state.Dead, Created: time.Now(), Expires: time.Now().Add(time.Hour), Dependency: "tool:mail/send/acme",
			Operation: []byte(`{"kind":"tool","name":"mail.send"}`), Reason: "gave up", Payload: []byte("secret payload")}
		if err := store.Put(context.Background(), it); err != nil {
			t.Fatal(err)
		}
	}
	store.Close()
	status, out, errs := fusebox(t, "", "dead", "list", "--data", data)
	if status != 0 || !strings.Contains(out, "mail.send") || !strings.Contains(out, "gave up") || strings.Contains(out, "secret") {
		t.Fatalf("dead list: status %d\n%s%s", status, out, errs)
	}
	if status, _, errs := fusebox(t, "", "dead", "retry", "one", "--data", data); status != exitUsage || !strings.Contains(errs, "why") {
		t.Errorf("without a reason: status %d, %s", status, errs)
	}
	for _, c := range [][2]string{{"retry", "one"}, {"discard", "two"}} {
		if status, _, errs := fusebox(t, "", "dead", c[0], c[1], "--data", data, "--reason", "ticket 4711", "--by", "ann"); status != 0 {
			t.Errorf("%s: status %d, %s", c[0], status, errs)
		}
	}
	for list, want := range map[string]string{"WAITING": "one", "DROPPED": "two"} {
		if status, out, _ := fusebox(t, "", "queue", "list", "--state", list, "--data", data, "--json"); status != 0 || !strings.Contains(out, `"id": "`+want+`"`) {
			t.Errorf("%s: status %d\n%s", list, status, out)
		}
	}
	if status, out, errs := fusebox(t, "", "dead", "show", "two", "--data", data); status != 0 || !strings.Contains(out, "ann: ticket 4711") || !strings.Contains(out, "tool:mail/send/acme") || strings.Contains(out, "secret") {
		t.Errorf("show: status %d\n%s%s", status, out, errs)
	}
	if status, out, _ := fusebox(t, "", "queue", "show", "two", "--data", data, "--json"); status != 0 || !strings.Contains(out, `"state": "DROPPED"`) {
		t.Errorf("show --json: status %d\n%s", status, out)
	}
	if status, _, errs := fusebox(t, "", "dead", "compensate", "two", "--data", data, "--reason", "x"); status == 0 || !strings.Contains(errs, "only a dead letter is compensated") {
		t.Errorf("compensate: status %d\n%s", status, errs)
	}
	if status, _, errs := fusebox(t, "", "queue", "drop", "one", "--data", data, "--reason", "not wanted"); status != 0 {
		t.Errorf("drop: status %d\n%s", status, errs)
	}
	if status, _, errs := fusebox(t, "", "dead", "discard", "three", "--data", data, "--reason", "x"); status == 0 || !strings.Contains(errs, "no such item") {
		t.Errorf("an item that is not there: status %d, %s", status, errs)
	}
	if status, out, _ := fusebox(t, "", "receipts", "list", "--data", data, "--kind", "queue"); status != 0 || !strings.Contains(out, "operator_retry") || !strings.Contains(out, "operator_discard") {
		t.Errorf("the receipts: status %d\n%s", status, out)
	}
}

// Reconciling works the same without a server, and over its operator plane.
func TestReconcileByCommand(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	var ids []string
	for i := range 2 {
		id, token := admitted(t, p.agent, strings.Replace(mailOperation, `"a-1"`, fmt.Sprintf(`"a-%d"`, i), 1))
		ask(t, "POST", p.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
		ask(t, "POST", p.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, timedOut))
		ids = append(ids, id)
	}
	reconcile := func(id string, more ...string) (int, string, string) {
		return fusebox(t, "", append([]string{"intents", "reconcile", id, "--data", data, "--applied", "--evidence", "mail log 09:12", "--by", "ann"}, more...)...)
	}
	if status, out, errs := reconcile(ids[0]); status != 0 || !strings.Contains(out, "reconciled_applied") {
		t.Errorf("beside the server: status %d, %s%s", status, out, errs)
	}
	if status, _, errs := reconcile(ids[1], "--server", p.oper); status != 1 || !strings.Contains(errs, "operator") {
		t.Errorf("over a plane without operators: status %d, %s", status, errs)
	}
	p.stop(t)
	if status, out, errs := reconcile(ids[1]); status != 0 || !strings.Contains(out, "ann: mail log 09:12") {
		t.Errorf("without a server: status %d, %s%s", status, out, errs)
	}
	if status, out, _ := fusebox(t, "", "receipts", "verify", filepath.Join(data, "receipts")); status != 0 {
		t.Errorf("verify: status %d\n%s", status, out)
	}
}
