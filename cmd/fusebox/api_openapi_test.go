package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/sdk"
)

// A describedPlane checks every answer of a plane against the document that it
// serves of itself.
type describedPlane struct {
	t           *testing.T
	base, token string // a bearer token; "" is none
	compiler    *jsonschema.Compiler
	covered     map[string]bool
	last        map[string]any // the latest answer, where it is an object
}

func describedBy(t *testing.T, base, token string) *describedPlane {
	t.Helper()
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(get(t, base+"/v1/openapi.json", header)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return &describedPlane{t: t, base: base, token: token, compiler: c, covered: map[string]bool{}}
}

func (d *describedPlane) schema(pointer string) *jsonschema.Schema {
	d.t.Helper()
	s, err := d.compiler.Compile("openapi.json#" + pointer)
	if err != nil {
		d.t.Fatalf("%s: %v", pointer, err)
	}
	return s
}

func (d *describedPlane) call(method, template, path, body string, want int) {
	t := d.t
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		t.Fatalf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, want, text)
	}
	at := "/paths/" + strings.ReplaceAll(template, "/", "~1") + "/" + strings.ToLower(method)
	d.covered[fmt.Sprint(method, " ", template, " ", want)] = true
	if body != "" {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.schema(at + "/requestBody/content/application~1json/schema").Validate(v); (err == nil) != (want != 400) {
			t.Errorf("%s %s: status %d, and the schema says %v", method, path, want, err)
		}
	}
	if len(text) == 0 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.schema(fmt.Sprint(at, "/responses/", want, "/content/application~1json/schema")).Validate(v); err != nil {
		t.Errorf("%s %s, status %d: %v\n%s", method, path, want, err, text)
	}
	d.last = nil
	_ = json.Unmarshal(text, &d.last) // not every answer is an object
}

// all demands that every endpoint was tried and answered in order.
func (d *describedPlane) all(endpoints []endpoint) {
	d.t.Helper()
	for _, e := range endpoints {
		if !d.covered[e.method+" "+e.path+" 200"] && !d.covered[e.method+" "+e.path+" 204"] {
			d.t.Errorf("%s %s is not tried here", e.method, e.path)
		}
	}
}

// The OpenAPI document is what the server does: every answer of a walk through
// the whole API fits the schema that the document gives for its status, every
// request that can be read fits its schema, and one that cannot does not.
func TestOpenAPIDescribesTheAnswers(t *testing.T) {
	w := waitingServer(t, nil)
	r := w.running
	d := describedBy(t, r.agent, "")
	d.call("POST", "/v1/queue", "/v1/queue", fmt.Sprintf(`{"v":1,"ticket":%q,"operation":%s,"payload":"x"}`, w.refused("q-1"), background("q-1")), 200)
	d.call("POST", "/v1/queue", "/v1/queue", fmt.Sprintf(`{"ticket":"q1.x","operation":%s}`, background("q-1")), 403)
	d.call("POST", "/v1/queue", "/v1/queue", `{"ticket":"x"}`, 400)
	w.put("q-2")
	w.put("q-3")
	d.call("GET", "/v1/queue", "/v1/queue?state=WAITING&limit=5", "", 200)
	d.call("GET", "/v1/queue", "/v1/queue?state=LOST", "", 400)
	d.call("GET", "/v1/queue/{id}", "/v1/queue/q-1", "", 200)
	d.call("GET", "/v1/queue/{id}", "/v1/queue/q-9", "", 404)
	claim, _ := w.claim("q-1")
	d.call("POST", "/v1/queue/{id}/release", "/v1/queue/q-1/release", fmt.Sprintf(`{"claim":%q}`, claim), 200) // refused
	w.free("acme")
	d.call("POST", "/v1/queue/claim", "/v1/queue/claim", `{"v":1,"worker":"w","dependency":"","most":1}`, 200)
	d.call("POST", "/v1/queue/claim", "/v1/queue/claim", `{"worker":"w","least":1}`, 400)
	// Whoever claimed them: all waiting items were claimed at once, or wait for their turn.
	w2, _ := heldOrClaimed(w, "q-2")
	d.call("POST", "/v1/queue/{id}/renew", "/v1/queue/q-2/renew", fmt.Sprintf(`{"claim":%q}`, w2), 200)
	d.call("POST", "/v1/queue/{id}/renew", "/v1/queue/q-2/renew", `{"claim":"clm_x"}`, 409)
	d.call("POST", "/v1/queue/{id}/finish", "/v1/queue/q-2/finish", fmt.Sprintf(`{"claim":%q,"state":"done"}`, w2), 409)
	d.call("POST", "/v1/queue/{id}/finish", "/v1/queue/q-2/finish", fmt.Sprintf(`{"claim":%q,"state":"lost"}`, w2), 400)
	d.call("POST", "/v1/queue/{id}/finish", "/v1/queue/q-2/finish", fmt.Sprintf(`{"claim":%q,"state":"dead","reason":"no draft"}`, w2), 200)
	w3, _ := heldOrClaimed(w, "q-3")
	d.call("POST", "/v1/queue/{id}/release", "/v1/queue/q-3/release", fmt.Sprintf(`{"claim":%q}`, w3), 200) // allowed
	d.call("POST", "/v1/queue/{id}/release", "/v1/queue/q-3/release", `{"claim":"clm_x"}`, 409)

	d.call("POST", "/v1/admit", "/v1/admit", `{"v":1,"operation":`+mailOperation+`}`, 200)
	id, token := text(d.last, "permit", "id"), text(d.last, "permit", "token")
	d.call("POST", "/v1/admit", "/v1/admit", `{"operation":{"kind":"tool","tool":"bank","action":"transfer","action_class":"payment","effect":"non_repeatable","amount":6000000,"agent":"a-1"}}`, 200)
	if d.last["rejection"] == nil {
		t.Fatalf("not a rejection: %v", d.last)
	}
	d.call("POST", "/v1/admit", "/v1/admit", `{"operation":{},"more":1}`, 400)
	d.call("POST", "/v1/permits/{id}/dispatch", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token), 204)
	d.call("POST", "/v1/permits/{id}/dispatch", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token), 409)
	d.call("POST", "/v1/permits/{id}/dispatch", "/v1/permits/"+id+"/dispatch", `{"tokens":"x"}`, 400)
	d.call("POST", "/v1/permits/{id}/dispatch", "/v1/permits/"+id+"/dispatch", `{"token":"v1.9.x"}`, 403)
	d.call("POST", "/v1/record", "/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,"stage":"sent","usage":{"input_tokens":3},%s}`, id, token, timedOut), 200)
	receipt := text(d.last, "receipt", "id")
	d.call("POST", "/v1/record", "/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,"observation":{}}`, id, token), 409)
	d.call("POST", "/v1/record", "/v1/record", `{"permit":"x","observation":{"transport":{"dispatched":"maybe"}}}`, 400)
	d.call("POST", "/v1/record", "/v1/record", `{"permit":"x","token":"y","observation":{}}`, 404)
	d.call("GET", "/v1/intents", "/v1/intents", "", 200)
	d.call("GET", "/v1/intents", "/v1/intents?state=LOST", "", 400)
	d.call("GET", "/v1/breakers", "/v1/breakers?layer=tool", "", 200)
	if l, _ := d.last["breakers"].([]any); len(l) == 0 {
		t.Fatalf("no circuits: %v", d.last)
	}
	d.call("GET", "/v1/breakers", "/v1/breakers?layer=soup", "", 400)
	d.call("POST", "/v1/reconcile", "/v1/reconcile", fmt.Sprintf(`{"permit":%q,"finding":"applied","by":"ann","evidence":"mail log"}`, id), 200)
	d.call("POST", "/v1/reconcile", "/v1/reconcile", `{"permit":"x","finding":"perhaps"}`, 400)
	d.call("GET", "/v1/receipts/{id}", "/v1/receipts/"+receipt, "", 200)
	d.call("GET", "/v1/receipts/{id}", "/v1/receipts/0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c", "", 404)
	d.call("GET", "/v1/openapi.json", "/v1/openapi.json", "", 200)
	d.all(r.server.endpoints())
}

// heldOrClaimed is the claim of an item, whichever request of the walk got it.
func heldOrClaimed(w *waiting, id string) (string, map[string]any) {
	w.server.claims.mu.Lock()
	c := w.server.claims.byID[id]
	w.server.claims.mu.Unlock()
	if c != nil {
		return c.token, nil
	}
	return w.claim(id)
}

// The operator plane's document is what that plane does.
func TestOpenAPIDescribesTheOperatorPlane(t *testing.T) {
	w := waitingServer(t, func(o *startOptions) {
		o.Config.Operators = []sdk.Operator{{Name: "ann", Token: sdk.HashToken("token-ann"), Role: sdk.AdministratorRole}, {Name: "vic", Token: sdk.HashToken("token-vic")}}
	})
	d := describedBy(t, w.operator, "token-ann")
	id, token := admitted(t, w.agent, strings.Replace(mailOperation, "acme", "globex", 1))
	ask(t, "POST", w.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
	ask(t, "POST", w.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, timedOut))
	w.put("q-1")
	for _, path := range []string{"/status.json", "/healthz", "/metrics", "/v1/breakers", "/v1/intents", "/v1/queue", "/v1/approvals", "/v1/report", "/v1/rollout", "/v1/openapi.json"} {
		d.call("GET", path, path, "", 200)
	}
	d.call("GET", "/v1/report", "/v1/report?since=ever", "", 400)
	d.call("GET", "/v1/queue", "/v1/queue?state=LOST", "", 400)
	d.call("POST", "/v1/overrides", "/v1/overrides", `{"scope":"provider:openai/-/gpt-x","action":"force_open","for":"1m","reason":"drill"}`, 200)
	d.call("POST", "/v1/overrides", "/v1/overrides", `{"scope":"nothing:at/all","action":"release","reason":"drill"}`, 404)
	d.call("POST", "/v1/overrides", "/v1/overrides", `{"scope":"provider:openai/-/gpt-x","action":"toggle","reason":"drill"}`, 400)
	d.call("POST", "/v1/approvals", "/v1/approvals", `{"scope":"refund","tenant":"acme","for":"1m","single_use":true,"denies":false,"reason":"ticket"}`, 200)
	d.call("GET", "/v1/approvals", "/v1/approvals", "", 200)
	d.call("POST", "/v1/queue/{id}", "/v1/queue/q-1", `{"action":"discard","reason":"ticket"}`, 200)
	d.call("POST", "/v1/queue/{id}", "/v1/queue/q-1", `{"action":"retry","reason":"ticket"}`, 409)
	d.call("POST", "/v1/queue/{id}", "/v1/queue/q-9", `{"action":"retry","reason":"ticket"}`, 404)
	d.call("POST", "/v1/reconcile", "/v1/reconcile", fmt.Sprintf(`{"permit":%q,"finding":"applied","evidence":"mail log"}`, id), 200)
	d.call("POST", "/v1/reconcile", "/v1/reconcile", `{"permit":"0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c","finding":"applied","evidence":"mail log"}`, 404)

	bundle, err := policies.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	changed := *bundle
	changed.SettingsTOML = bytes.Replace(bundle.SettingsTOML, []byte(`claim = "2m"`), []byte(`claim = "3m"`), 1)
	archive, err := changed.Build(policies.BuildOptions{Tests: true})
	if err != nil {
		t.Fatal(err)
	}
	d.call("POST", "/v1/rollout/{step}", "/v1/rollout/start", fmt.Sprintf(`{"source":"next","archive":%q,"stage":"observe","reason":"ticket"}`, base64.StdEncoding.EncodeToString(archive)), 200)
	d.call("GET", "/v1/rollout", "/v1/rollout", "", 200)
	d.call("POST", "/v1/rollout/{step}", "/v1/rollout/rollback", `{"reason":"ticket"}`, 200)
	d.all(w.server.operatorEndpoints())

	d.token = "token-vic"
	d.call("POST", "/v1/overrides", "/v1/overrides", `{"scope":"provider:openai/-/gpt-x","action":"release","reason":"drill"}`, 403)
	d.token = "token-nobody"
	d.call("GET", "/v1/breakers", "/v1/breakers", "", 401)
}

// Every route is in a document: the muxes of both planes are made of the lists
// that the documents are made of, and hold nothing beside them but pages and
// proxies.
func TestEveryRouteIsDescribed(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	route := regexp.MustCompile(`\.Handle(?:Func)?\("([^"]*)"`)
	known := map[string]bool{"/v1/": true, "/mcp/": true, "/": true} // the API, and the proxies
	for _, f := range sources {
		if strings.HasSuffix(f, "_test.go") || strings.HasPrefix(f, "demo") {
			continue
		}
		for _, m := range route.FindAllStringSubmatch(mustRead(t, f), -1) {
			if path := m[1][strings.IndexByte(m[1], '/'):]; !known[path] && (strings.HasPrefix(path, "/v1/") || strings.HasSuffix(path, ".json")) {
				t.Errorf("%s routes %q beside the lists of endpoints", f, m[1])
			}
		}
	}
	ids := map[string]string{}
	s := &server{meter: newMeter(), limits: &rateLimits{}}
	for _, p := range []plane{decisionAPI(), operatorAPI()} {
		doc, err := openAPIDocument(p, p.endpoints(s))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.endpoints(s) {
			op, ok := doc["paths"].(object)[e.path].(object)[strings.ToLower(e.method)].(object)
			if !ok {
				t.Fatalf("%s %s is not in the document", e.method, e.path)
			}
			id := p.title + " " + op["operationId"].(string)
			if other := ids[id]; other != "" {
				t.Errorf("%s %s and %s have the same operationId", e.method, e.path, other)
			}
			ids[id] = e.method + " " + e.path
			if (e.request != nil) != (e.method == "POST") || e.summary == "" || len(e.answers) == 0 {
				t.Errorf("%s %s is not described whole", e.method, e.path)
			}
		}
	}
}

// The page beside this is what the command prints now.
func TestAPIPageIsCurrent(t *testing.T) {
	status, out, errs := fusebox(t, "", "api", "--markdown")
	if status != 0 || out != mustRead(t, "API.md") {
		t.Errorf("status %d, %s: API.md is not what fusebox api --markdown prints; run make api", status, errs)
	}
	for _, args := range [][]string{{"api"}, {"api", "--operator"}} {
		if status, out, errs := fusebox(t, "", args...); status != 0 || !strings.Contains(out, `"openapi": "3.1.1"`) {
			t.Errorf("%v: status %d, %.100s%s", args, status, out, errs)
		}
	}
}

// A wrong method is told which one is right; an unknown path is told so.
func TestAPIMethods(t *testing.T) {
	r := inProcess(t, nil)
	if status, a := ask(t, "GET", r.agent+"/v1/admit", ""); status != 405 || text(a, "error", "code") != "method_not_allowed" {
		t.Errorf("GET /v1/admit: status %d, %v", status, a)
	}
	if status, a := ask(t, "POST", r.agent+"/v1/admits", "{}"); status != 404 || text(a, "error", "code") != "not_found" {
		t.Errorf("POST /v1/admits: status %d, %v", status, a)
	}
}
