package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// asOperator is one request of a browser that was asked for a password.
func asOperator(t *testing.T, role, method, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(role, "token-"+role)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const hostileName = `<img src=x onerror=hit()>"';--><script>hit()</script>`

// R-OPS-4: names that agents chose are text on the page and nothing else.
func TestPageShowsHostileNamesAsText(t *testing.T) {
	r := inProcess(t, withOperators)
	quoted, _ := json.Marshal(hostileName)
	failsOn(t, r.agent, strings.Replace(modelCall, `"openai"`, string(quoted), 1), 5)
	admit := strings.NewReplacer(`"mail.send","tool":"mail","action":"send","action_class":"mail.send"`, `"files.delete","tool":"files","action":"delete","action_class":"data.delete"`, `"a-1"`, string(quoted), `"acme"`, string(quoted)).Replace(mailOperation)
	if _, a := ask(t, "POST", r.agent+"/v1/admit", `{"operation":`+admit+`}`); text(a, "decision") != "require_approval" {
		t.Fatalf("the call that wants an approval: %v", a)
	}
	if resp := asOperator(t, "admin", "POST", r.operator+"/v1/overrides", `{"scope":"tool:mail","action":"force_open","for":"1m","reason":"<script>hit()</script>"}`); resp.StatusCode != 200 {
		t.Fatalf("the override: %s", bodyOf(t, resp))
	}
	var page string
	within(t, "all of it on the page", func() bool {
		page = bodyOf(t, asOperator(t, "admin", "GET", r.operator+"/", ""))
		return strings.Contains(page, `data-do="allow"`) && strings.Contains(page, "What the receipts say")
	})
	if !strings.Contains(page, "&lt;script&gt;hit()") || !strings.Contains(page, "onerror=hit()&gt;") {
		t.Error("the names are not on the page as text")
	}
	for _, bad := range []string{"<script>hit", "<img", " style=", "onclick=", "javascript:"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

// The page is one document with status.json, and shows for every circuit its
// window against its limits, and what the receipts say.
func TestPageShowsWhatOpened(t *testing.T) {
	r := inProcess(t, withOperators)
	fails(t, r.agent, 5)
	var d statusDoc
	within(t, "the explained receipt", func() bool {
		d = statusDoc{}
		if err := json.Unmarshal([]byte(bodyOf(t, asOperator(t, "viewer", "GET", r.operator+"/status.json", ""))), &d); err != nil {
			t.Fatal(err)
		}
		return len(d.Open) == 1 && len(d.Open[0].Why) == 2 && len(d.Transitions) == 1
	})
	c := &d.Open[0]
	if c.Scope != modelScope || c.Window.MaxRow != 5 || c.Window.MinSamples != 20 || c.Window.MaxRatio != 0.5 || c.Consecutive != 5 || c.Closes != "platform-oncall" {
		t.Errorf("the circuit: %+v", c)
	}
	if last := c.Window.Buckets[len(c.Window.Buckets)-1]; last.Failed == 0 {
		t.Errorf("the newest bucket is not last: %+v", c.Window.Buckets)
	}
	if why := strings.Join(c.Why[0].Why, " "); !strings.Contains(why, "5 failures in a row; the limit is 5.") || c.Why[1].Kind != "outcome" {
		t.Errorf("why: %+v", c.Why)
	}
	if m := d.Transitions[0]; m.From != "CLOSED" || m.To != "OPEN" || m.Receipt != c.Why[0].Receipt {
		t.Errorf("the transition: %+v", m)
	}
	if l := d.Layers[0]; len(d.Layers) != 6 || l.Layer != "provider" || l.Open != 1 || l.Worst != modelScope || l.Mood() != "bad" {
		t.Errorf("the layers: %+v", d.Layers)
	}
	page := bodyOf(t, asOperator(t, "viewer", "GET", r.operator+"/", ""))
	for _, want := range []string{"1 circuit is open", `aria-label="5 of 5 failed in the last 1m0s"`, `class="mark" x="80"`, "5, limit 5", "5, at least 20", "/receipts/" + c.Why[0].Receipt, "platform-oncall"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	receipt := asOperator(t, "viewer", "GET", r.operator+"/receipts/"+c.Why[0].Receipt, "")
	if text := bodyOf(t, receipt); receipt.StatusCode != 200 || !strings.Contains(text, "would have kept it CLOSED") {
		t.Errorf("the receipt: status %d\n%s", receipt.StatusCode, text)
	}
	for id, want := range map[string]int{"nonsense": 400, "01a22d5b-0000-7000-8000-000000000000": 404} {
		if resp := asOperator(t, "viewer", "GET", r.operator+"/receipts/"+id, ""); resp.StatusCode != want {
			t.Errorf("receipt %s: status %d, want %d", id, resp.StatusCode, want)
		}
	}
}

// Every role is offered what it may do, and nothing else; the server decides
// all the same (TestRoleMatrix).
func TestPageOffersWhatARoleMay(t *testing.T) {
	r := inProcess(t, withOperators)
	fails(t, r.agent, 5)
	put := func(it state.Item) {
		if err := r.client.Store().Put(t.Context(), it); err != nil {
			t.Fatal(err)
		}
	}
	for id, st := range map[string]state.ItemState{"waits": state.Waiting, "died": state.Dead} {
		put(state.Item{ID: id, RequestID: id, State: st, Created: time.Now(), Expires: time.Now().Add(time.Hour), Operation: []byte(`{"kind":"tool","name":"mail.send"}`), Payload: []byte("secret payload")})
	}
	del := strings.Replace(strings.Replace(mailOperation, `"mail.send"`, `"files.delete"`, 1), `"action_class":"mail.send"`, `"action_class":"data.delete"`, 1)
	ask(t, "POST", r.agent+"/v1/admit", `{"operation":`+del+`}`)
	operates, approves := []string{"freeze", "open", "close", "retry", "discard", "compensate"}, []string{"allow", "deny"}
	for role, may := range map[string][]string{"viewer": nil, "operator": operates, "approver": approves, "admin": append(operates[:len(operates):len(operates)], approves...)} {
		var page string
		within(t, "the request that waits, as "+role, func() bool {
			page = bodyOf(t, asOperator(t, role, "GET", r.operator+"/", ""))
			return strings.Contains(page, "files.delete")
		})
		for _, action := range append(operates[:len(operates):len(operates)], approves...) {
			if has, want := strings.Contains(page, `data-do="`+action+`"`), strings.Contains(strings.Join(may, " "), action); has != want {
				t.Errorf("%s is offered %s: %t", role, action, has)
			}
		}
		if strings.Contains(page, "secret") {
			t.Error("the page shows a payload")
		}
	}
	open := inProcess(t, nil)
	if page := get(t, open.operator+"/", nil); strings.Contains(page, "data-do=") || !strings.Contains(page, "nobody signed in") {
		t.Error("without operators a change is offered")
	}
}

// R-OPS-4: the answer of every change names its receipt, which says who and why;
// a request of another origin changes nothing, whoever's browser sends it.
func TestChangesNameTheirReceipt(t *testing.T) {
	r := inProcess(t, withOperators)
	fails(t, r.agent, 5)
	id, token := admitted(t, r.agent, mailOperation)
	ask(t, "POST", r.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
	ask(t, "POST", r.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, timedOut))
	if err := r.client.Store().Put(t.Context(), state.Item{ID: "died", RequestID: "died", State: state.Dead, Created: time.Now(), Expires: time.Now().Add(time.Hour), Operation: []byte(`{"kind":"tool","name":"mail.send"}`)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{"/v1/overrides", `{"scope":"` + modelScope + `","action":"force_closed","for":"1m","reason":"drill"}`},
		{"/v1/overrides", `{"scope":"` + modelScope + `","action":"release","reason":"drill"}`},
		{"/v1/approvals", `{"scope":"refund","tenant":"acme","for":"1m","reason":"drill"}`},
		{"/v1/approvals", `{"scope":"refund","tenant":"acme","for":"1m","denies":true,"reason":"drill"}`},
		{"/v1/queue/died", `{"action":"discard","reason":"drill"}`},
		{"/v1/reconcile", `{"permit":"` + id + `","finding":"applied","evidence":"drill"}`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.operator+c[0], strings.NewReader(c[1]))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("x", "token-admin")
		req.Header.Set("Origin", "https://evil.example")
		if status, a := answerOf(t, req); status != 403 || text(a, "error", "code") != "cross_origin" {
			t.Errorf("%s from another origin: status %d, %v", c[0], status, a)
		}
		resp := asOperator(t, "admin", "POST", r.operator+c[0], c[1])
		receipt := resp.Header.Get("Fusebox-Receipt")
		if resp.StatusCode != 200 || receipt == "" {
			t.Errorf("%s: status %d, receipt %q: %s", c[1], resp.StatusCode, receipt, bodyOf(t, resp))
			continue
		}
		if page := bodyOf(t, asOperator(t, "viewer", "GET", r.operator+"/receipts/"+receipt, "")); !strings.Contains(page, "admin") {
			t.Errorf("%s: the receipt does not say who:\n%s", c[1], page)
		}
	}
	if resp := asOperator(t, "viewer", "POST", r.operator+"/v1/overrides", `{"scope":"tool:mail","action":"force_open","for":"1m","reason":"x"}`); resp.StatusCode != 403 || resp.Header.Get("Fusebox-Receipt") != "" {
		t.Errorf("a viewer: status %d, receipt %q", resp.StatusCode, resp.Header.Get("Fusebox-Receipt"))
	}
	var d statusDoc
	within(t, "all changes among the latest", func() bool {
		d = r.server.status(t.Context())
		return len(d.People) == 6
	})
	if p := d.People[0]; p.By != "admin" || p.Why != "drill" || !strings.Contains(p.What, "applied") {
		t.Errorf("the latest change: %+v", p)
	}
}

// A store that cannot be read, a log that cannot be written and a policy that
// does not load are said in their places.
func TestPageErrors(t *testing.T) {
	d := statusDoc{Now: time.Now(), StoreError: "disk <full>", PolicyError: "line 3 & more", Evidence: evidenceDoc{Degraded: "no space"},
		Layers: layersOf(nil, []breakerDoc{{Layer: taxonomy.LayerTool}}), Source: sourceDoc{Path: "embedded"}}
	d.headline()
	w := httptest.NewRecorder()
	drawPage(w, 200, pageTemplate, &d)
	page := w.Body.String()
	for want, times := range map[string]int{"The state store cannot be read: disk &lt;full&gt;": 3, "The latest one did not load: line 3 &amp; more": 1, "Receipts cannot be written: no space": 1, "<h1 class=\"bad\">The state store cannot be read</h1>": 1, "no breaker": 5} {
		if n := strings.Count(page, want); n != times {
			t.Errorf("the page says %q %d times, want %d", want, n, times)
		}
	}
}

// What stops most stands first: forced open, open, half-open, observed, held closed.
func TestWorstFirst(t *testing.T) {
	one := func(key, state, mode, override string) openDoc {
		return openDoc{circuitDoc: circuitDoc{Key: key, State: state, Mode: mode, Override: override}}
	}
	list := []openDoc{one("held", "OPEN", "enforce", breaker.ForcedClosed.String()), one("seen", "OPEN", "observe", ""), one("half", "HALF_OPEN", "enforce", ""),
		one("open", "OPEN", "enforce", ""), one("forced", "CLOSED", "observe", breaker.ForcedOpen.String())}
	worstFirst(list)
	var order, moods []string
	for i := range list {
		order, moods = append(order, list[i].Key), append(moods, list[i].Mood())
	}
	if got := strings.Join(order, " ") + ": " + strings.Join(moods, " "); got != "forced open half seen held: bad bad warn seen warn" {
		t.Error(got)
	}
}

// The log is checked from the page.
func TestPageVerifies(t *testing.T) {
	r := inProcess(t, withOperators)
	fails(t, r.agent, 5)
	resp := asOperator(t, "viewer", "POST", r.operator+"/verify", "")
	var v verifyDoc
	if err := json.Unmarshal([]byte(bodyOf(t, resp)), &v); err != nil || v.Status == "fail" || v.Receipts == 0 || !v.Trusted {
		t.Fatalf("status %d, %v: %+v", resp.StatusCode, err, v)
	}
	if d := r.server.status(t.Context()); d.Evidence.Latest == nil || d.Evidence.Latest.Says != v.Says {
		t.Errorf("the page does not know: %+v", d.Evidence)
	}
	if resp := asOperator(t, "viewer", "GET", r.operator+"/verify", ""); resp.StatusCode != 405 {
		t.Errorf("a check can be had by GET: status %d", resp.StatusCode)
	}
}
