package sdk

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

const invoice = `{"type":"object","required":["total","currency"],"properties":{
	"total":{"type":"integer","minimum":0},"currency":{"enum":["EUR","USD"]},"lines":{"type":"array","items":{"type":"object","required":["sku"]}}}}`

func TestSchemas(t *testing.T) {
	s, err := newSchemas(map[string][]byte{"invoice": []byte(invoice)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	chat := func(content string) string {
		b, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": content}}, map[string]any{"message": map[string]any{"content": "second"}}}})
		return string(b)
	}
	messages := `{"content":[{"type":"text","text":"{\"total\":12,"},{"type":"text","text":"\"currency\":\"EUR\"}"}]}`
	responses := `{"output":[{"type":"message","content":[{"type":"output_text","text":"{\"total\":12,\"currency\":\"USD\"}"}]}]}`
	for _, tt := range []struct{ name, kind, body, want string }{
		{"fits", "model", chat(`{"total":12,"currency":"EUR"}`), `{"schema_id":"invoice","schema_valid":true}`},
		{"fits, messages", "model", messages, `{"schema_id":"invoice","schema_valid":true}`},
		{"fits, responses", "model", responses, `{"schema_id":"invoice","schema_valid":true}`},
		{"a tool's result", "tool", `{"total":12,"currency":"EUR"}`, `{"schema_id":"invoice","schema_valid":true}`},
		{"wrong enum", "model", chat(`{"total":12,"currency":"secret value"}`), `{"schema_id":"invoice","schema_valid":false,"errors":["/currency: enum"]}`},
		{"missing", "model", chat(`{"total":12}`), `{"schema_id":"invoice","schema_valid":false,"errors":["/: required"]}`},
		{"deep", "model", chat(`{"total":1,"currency":"EUR","lines":[{"sku":1},{}]}`), `{"schema_id":"invoice","schema_valid":false,"errors":["/lines/1: required"]}`},
		{"not JSON", "model", chat("Sure! Here is your invoice."), `{"schema_id":"invoice","schema_valid":false,"errors":["/: not JSON"]}`},
		{"no answer at all", "model", `{"error":{"message":"x"}}`, ``},
		{"nothing", "tool", ``, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			obs := answered(200, tt.body)
			got := s.Check(&taxonomy.Operation{Kind: tt.kind, Schema: "invoice"}, &obs)
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if len(got) > 0 && !json.Valid(got) {
				t.Error("not JSON")
			}
			if strings.Contains(string(got), "secret value") {
				t.Error("the facts repeat the output")
			}
		})
	}
	failed := answered(500, `{"total":12}`)
	if got := s.Check(&taxonomy.Operation{Kind: "tool", Schema: "invoice"}, &failed); got != nil {
		t.Errorf("an error answer was judged: %s", got)
	}
	other := answered(200, `{}`)
	if got := s.Check(&taxonomy.Operation{Kind: "tool", Schema: "nobody"}, &other); got != nil {
		t.Errorf("an unknown schema was judged: %s", got)
	}
}

// R-TAX-6, R-AGT-2: an output that does not fit its schema is a failed answer of
// the model, and no sign of the provider's health.
func TestSchemaFailureIsTheModels(t *testing.T) {
	c := open(t, Config{}, Parts{Schemas: map[string][]byte{"invoice": []byte(invoice)}})
	op := model("r1")
	op.Schema = "invoice"
	res, err := c.Do(t.Context(), op, func(context.Context, engine.Call) taxonomy.Observation {
		return answered(200, `{"choices":[{"message":{"role":"assistant","content":"{\"total\":-1}"},"finish_reason":"stop"}]}`)
	})
	if err == nil || res.Last.Class != taxonomy.Validation && res.Verdict.Class != taxonomy.Validation {
		t.Errorf("verdict %+v last %+v", res.Verdict, res.Last)
	}
	for _, f := range res.Feeds {
		if f.Layer == taxonomy.LayerProvider && (f.Signal == taxonomy.SignalFailure || f.Signal == taxonomy.SignalOpenNow) {
			t.Errorf("the provider was charged: %+v", f)
		}
	}
}

// Schemas are complete in themselves: judging waits for no network.
func TestSchemaReachesNowhere(t *testing.T) {
	_, err := newSchemas(map[string][]byte{"x": []byte(`{"$ref":"https://example.com/other.json"}`)}, nil)
	if err == nil || !strings.Contains(err.Error(), "$defs") {
		t.Errorf("got %v", err)
	}
}
