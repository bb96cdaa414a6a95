package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The OpenAPI document is what the server does: every answer of a walk through
// the whole API fits the schema that the document gives for its status, every
// request that is accepted fits its schema, and one that is refused for an
// unknown member does not.
func TestOpenAPIDescribesTheAnswers(t *testing.T) {
	r := inProcess(t, nil)
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(get(t, r.agent+"/v1/openapi.json", nil)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	schema := func(pointer string) *jsonschema.Schema {
		t.Helper()
		s, err := c.Compile("openapi.json#" + pointer)
		if err != nil {
			t.Fatalf("%s: %v", pointer, err)
		}
		return s
	}
	covered := map[string]bool{}
	var last map[string]any
	call := func(method, template, path, body string, want int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, r.agent+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
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
		covered[fmt.Sprint(method, " ", template, " ", want)] = true
		if body != "" {
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema(at + "/requestBody/content/application~1json/schema").Validate(v); (err == nil) != (want < 300 || want == 409) {
				t.Errorf("%s %s: status %d, and the schema says %v", method, path, want, err)
			}
		}
		if len(text) == 0 {
			return
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema(fmt.Sprint(at, "/responses/", want, "/content/application~1json/schema")).Validate(v); err != nil {
			t.Errorf("%s %s, status %d: %v\n%s", method, path, want, err, text)
		}
		last = nil
		_ = json.Unmarshal(text, &last) // not every answer is an object
	}

	call("POST", "/v1/admit", "/v1/admit", `{"v":1,"operation":`+mailOperation+`}`, 200)
	id, token := text(last, "permit", "id"), text(last, "permit", "token")
	call("POST", "/v1/admit", "/v1/admit", `{"operation":{"kind":"tool","tool":"bank","action":"transfer","action_class":"payment","effect":"non_repeatable","amount":6000000,"agent":"a-1"}}`, 200)
	if last["rejection"] == nil {
		t.Fatalf("not a rejection: %v", last)
	}
	call("POST", "/v1/admit", "/v1/admit", `{"operation":{},"more":1}`, 400)
	call("POST", "/v1/permits/{id}/dispatch", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token), 204)
	call("POST", "/v1/permits/{id}/dispatch", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token), 409)
	call("POST", "/v1/permits/{id}/dispatch", "/v1/permits/"+id+"/dispatch", `{"tokens":"x"}`, 400)
	call("POST", "/v1/record", "/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,"stage":"sent","usage":{"input_tokens":3},%s}`, id, token, timedOut), 200)
	receipt := text(last, "receipt", "id")
	call("POST", "/v1/record", "/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,"observation":{}}`, id, token), 409)
	call("POST", "/v1/record", "/v1/record", `{"permit":"x","observation":{"transport":{"dispatched":"maybe"}}}`, 400)
	call("GET", "/v1/intents", "/v1/intents", "", 200)
	call("GET", "/v1/intents", "/v1/intents?state=LOST", "", 400)
	call("GET", "/v1/breakers", "/v1/breakers?layer=tool", "", 200)
	if l, _ := last["breakers"].([]any); len(l) == 0 {
		t.Fatalf("no circuits: %v", last)
	}
	call("GET", "/v1/breakers", "/v1/breakers?layer=soup", "", 400)
	call("POST", "/v1/reconcile", "/v1/reconcile", fmt.Sprintf(`{"permit":%q,"finding":"applied","by":"ann","evidence":"mail log"}`, id), 200)
	call("POST", "/v1/reconcile", "/v1/reconcile", `{"permit":"x","finding":"perhaps"}`, 400)
	call("GET", "/v1/receipts/{id}", "/v1/receipts/"+receipt, "", 200)
	call("GET", "/v1/receipts/{id}", "/v1/receipts/0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c", "", 404)
	call("GET", "/v1/openapi.json", "/v1/openapi.json", "", 200)
	for _, e := range r.server.endpoints() {
		if !covered[e.method+" "+e.path+" 200"] && !covered[e.method+" "+e.path+" 204"] {
			t.Errorf("%s %s is not tried here", e.method, e.path)
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
