package schemas_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/schemas"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write the schemas from the field tables")

// TestPublishedSchemasAgreeWithTheTables also proves R-POL-2's published
// schemas of the documents that start here.
func TestPublishedSchemasAgreeWithTheTables(t *testing.T) {
	var names []string
	for _, d := range taxonomy.Documents() {
		want := d.AppendSchema(nil)
		names = append(names, d.Name+".json")
		if *update {
			if err := os.WriteFile(d.Name+".json", want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := schemas.Get(d.Name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from the field table (%v); run: go test ./taxonomy/schemas -update", d.Name, err)
		}
	}
	files, err := schemas.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(names, f.Name()) {
			t.Errorf("%s belongs to no document", f.Name())
		}
	}
}

func compile(t *testing.T, document string) *jsonschema.Schema {
	t.Helper()
	text, err := schemas.Get(document)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(document, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(document)
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s.Validate(doc)
}

func corpus(t *testing.T) []json.RawMessage {
	t.Helper()
	var out []json.RawMessage
	for _, file := range []string{"handed", "further"} {
		b, err := os.ReadFile("../builtin/testdata/" + file + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var r struct{ Observation json.RawMessage }
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			out = append(out, r.Observation)
		}
	}
	return out
}

func TestCorpusDocumentsAreValid(t *testing.T) {
	read, written, classify := compile(t, "observation.v1"), compile(t, "observation.v1.canonical"), compile(t, "classify.v1")
	operation, verdict := compile(t, "operation.v1"), compile(t, "verdict.v1")
	n := 0
	for _, raw := range corpus(t) {
		n++
		if err := valid(t, read, raw); err != nil {
			t.Errorf("as handed: %s\n%v", raw, err)
		}
		o, err := taxonomy.ParseObservation(raw)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			schema *jsonschema.Schema
			text   []byte
		}{
			"canonical": {written, taxonomy.AppendObservation(nil, &o)},
			"reread":    {read, taxonomy.AppendObservation(nil, &o)},
			"classify":  {classify, taxonomy.AppendClassifyInput(nil, &o, &taxonomy.Verdict{Class: taxonomy.Budget, Facts: []taxonomy.Fact{{Name: "a", Value: "b"}}})},
			"operation": {operation, taxonomy.AppendOperation(nil, &o.Operation)},
			"verdict":   {verdict, taxonomy.AppendVerdict(nil, &taxonomy.Verdict{Outcome: taxonomy.Failed, Class: taxonomy.Budget})},
		} {
			if err := valid(t, c.schema, c.text); err != nil {
				t.Errorf("%s: %s\n%v", name, c.text, err)
			}
		}
	}
	if n < 600 {
		t.Fatalf("only %d records", n)
	}
}

func TestFallbackDocumentsAreValid(t *testing.T) {
	doc := taxonomy.AppendFallbackInput(nil, &taxonomy.Operation{Kind: "model"}, &taxonomy.Rejection{Index: -1, Reasons: []string{"x"}},
		[]taxonomy.Candidate{{ID: "a", Losses: []string{"freshness"}}})
	if err := valid(t, compile(t, "fallback.v1"), doc); err != nil {
		t.Error(err)
	}
	if err := valid(t, compile(t, "rejection.v1"), taxonomy.AppendRejection(nil, &taxonomy.Rejection{})); err != nil {
		t.Error(err)
	}
}

// TestSchemaAndParserAgree: what one refuses the other refuses, for documents
// that differ from a good one in one place.
func TestSchemaAndParserAgree(t *testing.T) {
	answer, fallback := compile(t, "classify.v1.answer"), compile(t, "fallback.v1.answer")
	observation := compile(t, "observation.v1")
	for _, c := range []struct {
		text   string
		schema *jsonschema.Schema
		parse  func([]byte) error
	}{
		{`{"outcome":"FAILED","class":"budget"}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":"budget","reason":"r","retry_after_ms":5,"facts":{"a":"b"}}`, answer, parseAnswer},
		{`{"outcome":"","class":"budget"}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":"broke"}`, answer, parseAnswer},
		{`{"outcome":"FAILED"}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":null}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":"budget","retry_after_ms":-1}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":"budget","retry_after_ms":1.5}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":"budget","facts":{"a":1}}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":"budget","facts":[]}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":"budget","reason":"` + strings.Repeat("é", 201) + `"}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":"budget","reason":"` + strings.Repeat("é", 200) + `"}`, answer, parseAnswer},
		{`{"outcome":"FAILED","class":"budget","retry":"backoff"}`, answer, parseAnswer},
		{`{"choose":"a"}`, fallback, parseFallback},
		{`{"choose":"a","reason":null}`, fallback, parseFallback},
		{`{"reason":"x"}`, fallback, parseFallback},
		{`{"choose":"a","other":1}`, fallback, parseFallback},
		{`{}`, observation, parseObservation},
		{`{"schema":"fusebox.observation/v1"}`, observation, parseObservation},
		{`{"schema":"fusebox.observation/v9"}`, observation, parseObservation},
		{`{"operation":{"idempotency_key":true}}`, observation, parseObservation},
		{`{"operation":{"idempotency_key":7}}`, observation, parseObservation},
		{`{"operation":{"effect":"maybe"}}`, observation, parseObservation},
		{`{"operation":{"effect":null,"attributes":{"a":1,"b":"x","c":true}}}`, observation, parseObservation},
		{`{"operation":{"attributes":{"a":{}}}}`, observation, parseObservation},
		{`{"response":null,"stream":null}`, observation, parseObservation},
		{`{"response":{"status":null,"headers":{"a":"b"},"body":"x"}}`, observation, parseObservation},
		{`{"response":{"headers":{"a":1}}}`, observation, parseObservation},
		{`{"history":[{"name":"x","outcome":"OK"}]}`, observation, parseObservation},
		{`{"local":[]}`, observation, parseObservation},
		{`{"nonsense":1}`, observation, parseObservation},
	} {
		bySchema, byParser := valid(t, c.schema, []byte(c.text)) == nil, c.parse([]byte(c.text)) == nil
		if bySchema != byParser {
			t.Errorf("%s: the schema says %v, the parser %v (%v)", c.text, bySchema, byParser, c.parse([]byte(c.text)))
		}
	}
}

func parseAnswer(b []byte) error      { _, err := taxonomy.ParseClassifyAnswer(b); return err }
func parseFallback(b []byte) error    { _, err := taxonomy.ParseFallbackAnswer(b); return err }
func parseObservation(b []byte) error { _, err := taxonomy.ParseObservation(b); return err }
