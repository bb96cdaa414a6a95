package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fusebox-dev/fusebox/sdk"
)

// R-CALL-2, R-FLT-6: kill -9 between dispatch and record leaves the intent
// UNKNOWN after a restart: visible, not resent, and still to be settled by its
// late result or by a look-up.
func TestKillBetweenDispatchAndRecord(t *testing.T) {
	data := t.TempDir()
	operation := strings.Replace(mailOperation, `"kind"`, `"request_id":"ticket-17","idempotency_key":"key-17","kind"`, 1)

	p := serve(t, data)
	id, token := admitted(t, p.agent, operation)
	if status, a := ask(t, "POST", p.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token)); status != 204 {
		t.Fatalf("dispatch: status %d, %v", status, a)
	}
	unused, unusedToken := admitted(t, p.agent, strings.Replace(mailOperation, `"a-1"`, `"a-2"`, 1))
	p.kill()

	// Between two lives the state can be read without a server.
	status, out, errs := fusebox(t, "", "intents", "list", "--data", data, "--state", "ALL", "--json")
	if status != 0 || !strings.Contains(out, id) || !strings.Contains(out, `"IN_FLIGHT"`) {
		t.Errorf("the dispatched intent is not on disk: status %d, %s%s", status, out, errs)
	}

	p = serve(t, data)
	_, list := ask(t, "GET", p.agent+"/v1/intents?state=UNKNOWN", "")
	intents, _ := at(list, "intents").([]any)
	if len(intents) != 1 {
		t.Fatalf("after the restart: %v", list)
	}
	in := intents[0].(map[string]any)
	if in["id"] != id || in["outcome"] != "UNKNOWN" || in["class"] != "ambiguous_write" || in["reason"] != "owner_gone" || in["idempotency_key"] != "key-17" {
		t.Errorf("after the restart the intent is %v", in)
	}
	status, out, _ = fusebox(t, "", "intents", "list", "--data", data)
	if status != 0 || !strings.Contains(out, id) || !strings.Contains(out, "owner_gone") {
		t.Errorf("fusebox intents list: status %d, %s", status, out)
	}

	// Not resent: the same request is refused, and the old permit sends nothing.
	if _, a := ask(t, "POST", p.agent+"/v1/admit", `{"operation":`+operation+`}`); text(a, "decision") == "allow" {
		t.Errorf("the same write is admitted again while it is UNKNOWN: %v", a)
	}
	if code, a := ask(t, "POST", p.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token)); code != 409 || text(a, "error", "code") != "permit_used" {
		t.Errorf("the old permit dispatches again: status %d, %v", code, a)
	}
	// A permit that was not dispatched ended with its server.
	if code, _ := ask(t, "POST", p.agent+"/v1/permits/"+unused+"/dispatch", fmt.Sprintf(`{"token":%q}`, unusedToken)); code != 404 {
		t.Errorf("a permit of the earlier server dispatches: status %d", code)
	}

	// The result that comes after all is heard, with the token of the earlier
	// server, and marked late. It cannot be forged.
	answer := `"observation":{"transport":{"dispatched":"yes"},"response":{"status":202,"headers":{"content-type":"application/json"},"body":"{\"status\":\"accepted\"}"},"elapsed_ms":40}`
	if code, _ := ask(t, "POST", p.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, unusedToken, answer)); code != 403 {
		t.Errorf("a forged late record: status %d", code)
	}
	_, rec := ask(t, "POST", p.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, answer))
	if text(rec, "outcome") != "SUCCEEDED" || !strings.Contains(fmt.Sprint(at(rec, "flags")), "late") {
		t.Errorf("the late result is answered with %v", rec)
	}
	_, again := ask(t, "POST", p.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, answer))
	if text(again, "outcome") != "SUCCEEDED" {
		t.Errorf("the same late result again: %v", again)
	}
	p.stop(t)
	if status, out, errs := fusebox(t, "", "receipts", "verify", filepath.Join(data, "receipts"), "--deep"); status != 0 {
		t.Errorf("verify after the crash: status %d\n%s%s", status, out, errs)
	}
}

// A write through the proxy that was in flight when the server was killed
// reaches the upstream once, and waits as UNKNOWN after the restart.
func TestKillWhileAWritePassesTheProxy(t *testing.T) {
	var hits atomic.Int64
	arrived, free := make(chan struct{}, 8), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-free
	}))
	defer upstream.Close()
	defer close(free)
	data := t.TempDir()
	config := filepath.Join(t.TempDir(), "fusebox.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "[[upstream]]\nname = \"crm\"\ndialect = \"plain\"\nurl = %q\n", upstream.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, data, "--config", config)
	req, err := http.NewRequestWithContext(t.Context(), "POST", p.agent+"/crm/orders", strings.NewReader(`{"item":1}`))
	if err != nil {
		t.Fatal(err)
	}
	// An effect that may be sent without an approval, and is a write all the same.
	req.Header.Set("Fusebox-Effect", "idempotent_write")
	go func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-arrived
	p.kill()
	p = serve(t, data, "--config", config)
	_, list := ask(t, "GET", p.agent+"/v1/intents?state=UNKNOWN", "")
	if intents, _ := at(list, "intents").([]any); len(intents) != 1 {
		t.Errorf("after the restart: %v", list)
	}
	if n := hits.Load(); n != 1 {
		t.Errorf("the upstream was reached %d times", n)
	}
}

// R-CALL-2: a second process on the same data directory never marks the first
// one's calls. A server does not get the lock and changes nothing; an embedded
// engine shares the directory and leaves alone what is another's.
func TestSecondProcessChangesNothing(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	id, token := admitted(t, p.agent, mailOperation)
	ask(t, "POST", p.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
	status, out, errs := fusebox(t, "", "serve", "--data", data, "--listen", "127.0.0.1:0", "--listen-operator", "127.0.0.1:0")
	if status != exitBusy || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "is used by another fusebox serve") || out != "" {
		t.Errorf("a second server: status %d, %q, %q", status, out, errs)
	}
	addr := strings.TrimPrefix(p.agent, "http://")
	status, _, errs = fusebox(t, "", "serve", "--data", t.TempDir(), "--listen", addr)
	if status != exitBusy || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, addr) || !strings.Contains(errs, "--listen") {
		t.Errorf("a taken address: status %d, %q", status, errs)
	}
	embedded, err := sdk.Open(t.Context(), sdk.Config{Data: data}, sdk.Parts{})
	if err != nil {
		t.Fatal(err)
	}
	embedded.Engine().Tick(t.Context()) // what its clock drives, once
	if err := embedded.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, list := ask(t, "GET", p.agent+"/v1/intents?state=IN_FLIGHT", ""); len(at(list, "intents").([]any)) != 1 {
		t.Errorf("the first server's call is not in flight any more: %v", list)
	}
}

// SIGHUP puts an edited policy in force; one that does not load leaves the last
// good one.
func TestReload(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies")
	if status, _, errs := fusebox(t, "", "policy", "export", dir); status != 0 {
		t.Fatal(errs)
	}
	r := inProcess(t, func(o *startOptions) { watch := false; o.Config.Policies.Path, o.Config.Policies.Watch = dir, &watch })
	night := `{"operation":` + mailOperation + `}`
	first := r.client.Version()
	if _, a := ask(t, "POST", r.agent+"/v1/admit", night); text(a, "decision") != "allow" {
		t.Fatalf("before: %v", a)
	}
	rule := "package fusebox.authority.rules.night\n\ndeny contains \"no_mail\" if input.operation.action_class == \"mail.send\"\n"
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "fusebox", "authority", "rules", "night.rego"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(rule + "deny contains {\n")
	if err := r.client.Reload(t.Context()); err == nil || r.client.Version() != first {
		t.Errorf("a policy with a syntax error: %v, in force is %s", err, r.client.Version())
	}
	if page := get(t, r.operator+"/", nil); !strings.Contains(page, "did not load") || !strings.Contains(page, "night.rego") {
		t.Error("the status page does not say that the latest policy did not load")
	}
	write(rule)
	if err := r.client.Reload(t.Context()); err != nil || r.client.Version() == first {
		t.Errorf("an edited policy: %v, in force is %s", err, r.client.Version())
	}
	if _, a := ask(t, "POST", r.agent+"/v1/admit", night); text(a, "decision") != "reject" || !strings.Contains(fmt.Sprint(a), "no_mail") {
		t.Errorf("after: %v", a)
	}
}
