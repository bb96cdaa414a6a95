package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Every bad request names the member that is wrong and what would be right.
func TestBadRequestsNameTheField(t *testing.T) {
	admit := func(body string) error { _, _, err := parseAdmit([]byte(body)); return err }
	record := func(body string) error { _, err := parseRecord([]byte(body)); return err }
	reconcile := func(body string) error { _, err := parseReconcile([]byte(body)); return err }
	for _, c := range []struct {
		name         string
		err          error
		field, words string
	}{
		{"no object", admit(`[]`), "", "one JSON object"},
		{"empty", admit(``), "", "one JSON object"},
		{"cut off", admit(`{"v":1,"operation":{"kind":"tool"`), "", "end of the text"},
		{"trailing text", admit(`{"operation":{}} x`), "", "not valid JSON"},
		{"another version", admit(`{"v":2,"operation":{}}`), "v", "must be 1"},
		{"an unknown member", admit(`{"v":1,"op":{}}`), "op", "known are v, operation, shadow"},
		{"a repeated member", admit(`{"operation":{},"operation":{}}`), "operation", "twice"},
		{"no operation", admit(`{"v":1}`), "operation", "missing"},
		{"an effect that is none", admit(`{"operation":{"effect":"harmless"}}`), "operation.effect", "expected"},
		{"an unknown field", admit(`{"operation":{"efect":"read_only"}}`), "operation", "efect"},
		{"a repeated field", admit(`{"operation":{"tool":"a","tool":"b"}}`), "operation.tool", ""},
		{"shadow as text", admit(`{"operation":{},"shadow":"yes"}`), "shadow", "true or false"},
		{"no permit", record(`{"observation":{}}`), "permit", "missing"},
		{"no observation", record(`{"permit":"x"}`), "observation", "missing"},
		{"a bad kind of fact", record(`{"permit":"x","observation":{"transport":{"dispatched":"maybe"}}}`), "observation.transport.dispatched", ""},
		{"a stage that is none", record(`{"permit":"x","stage":"late","observation":{}}`), "stage", "before_send"},
		{"a stage against the facts", record(`{"permit":"x","stage":"before_send","observation":{"response":{"status":200,"headers":{},"body":""}}}`), "stage", "contradicts"},
		{"sent against the facts", record(`{"permit":"x","stage":"sent","observation":{"transport":{"dispatched":"no"}}}`), "stage", "contradicts"},
		{"negative usage", record(`{"permit":"x","usage":{"input_tokens":-1},"observation":{}}`), "usage", "negative"},
		{"an unknown usage", record(`{"permit":"x","usage":{"tokens":1},"observation":{}}`), "usage", "tokens"},
		{"no finding", reconcile(`{"permit":"x"}`), "finding", "applied"},
		{"no evidence", reconcile(`{"permit":"x","finding":"applied"}`), "evidence", "who looked"},
		{"two names", reconcile(`{"permit":"x","request_id":"y","finding":"applied","evidence":"z"}`), "permit", "or by its request_id"},
		{"two lines", reconcile(`{"permit":"x","finding":"applied","evidence":"a\nb"}`), "evidence", "one line"},
	} {
		if c.err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		p := badRequest(c.err)
		if p.Field != c.field || !strings.Contains(p.Message, c.words) {
			t.Errorf("%s: got field %q, %q; want field %q and %q", c.name, p.Field, p.Message, c.field, c.words)
		}
	}
}

func TestRecordStageCompletesTheFacts(t *testing.T) {
	for stage, want := range map[string]taxonomy.Dispatched{"": taxonomy.DispatchedUnknown, "before_send": taxonomy.DispatchedNo, "sent": taxonomy.DispatchedYes, "first_output": taxonomy.DispatchedYes} {
		req, err := parseRecord([]byte(`{"permit":"x","stage":"` + stage + `","observation":{"elapsed_ms":3}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := req.observation.Transport.Dispatched; got != want {
			t.Errorf("stage %q: dispatched %v, want %v", stage, got, want)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	got := oneLine(errors.New("open policy x: 2 problems:\n  a.rego:3: bad\r\n  b.rego:1: worse\n"))
	if want := "open policy x: 2 problems:; a.rego:3: bad; b.rego:1: worse"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
