package extension_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/plugins"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// example builds a worked example and starts it as fusebox would.
func example(t *testing.T, name, kind string, env ...string) *plugins.Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", file, "./examples/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	c, err := plugins.Open(t.Context(), plugins.Config{Name: name, Kind: kind, SHA256: hex.EncodeToString(sum[:]), Command: file, Env: env,
		Deadline: time.Minute, Start: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// say asks, and reads the answer as fusebox would.
func say[T any](t *testing.T, c *plugins.Client, document []byte, read func([]byte) (T, error)) (v T, ok bool) {
	t.Helper()
	err := c.Ask(context.Background(), document, func(b []byte) (err error) {
		if ok = len(b) > 0; ok {
			v, err = read(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return v, ok
}

func remote(t *testing.T, body *string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(*body)) }))
	t.Cleanup(s.Close)
	return s.URL
}

func TestStatuspage(t *testing.T) {
	body := `{"status":{"indicator":"maintenance"}}`
	c := example(t, "statuspage", plugins.Classifier, "STATUS_URL="+remote(t, &body))
	obs := taxonomy.Observation{Operation: taxonomy.Operation{Kind: "model", Effect: taxonomy.ReadOnly},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes}, Response: &taxonomy.Response{Status: 503}}
	builtin := taxonomy.Verdict{Outcome: taxonomy.Failed, Class: taxonomy.TransientTransport, Reason: "http_503"}
	v, ok := say(t, c, taxonomy.AppendClassifyInput(nil, &obs, &builtin), taxonomy.ParseClassifyAnswer)
	if !ok || v.Reason != "planned_maintenance" || v.RetryAfter != 10*time.Minute {
		t.Errorf("%v %+v", ok, v)
	}
	obs.Response.Status = 404
	if v, ok := say(t, c, taxonomy.AppendClassifyInput(nil, &obs, &builtin), taxonomy.ParseClassifyAnswer); ok {
		t.Errorf("an opinion on a 404: %+v", v)
	}
}

func TestLedger(t *testing.T) {
	var body string
	c := example(t, "ledger", plugins.Reconciler, "LEDGER_URL="+remote(t, &body))
	for _, tt := range []struct {
		body string
		age  time.Duration
		want taxonomy.Found
	}{
		{`{"payments":[{"reference":"k1"}]}`, 0, taxonomy.FoundApplied},
		{`{"payments":[{"reference":"k10"}]}`, time.Hour, taxonomy.FoundNotApplied},
		{`{"payments":[]}`, time.Second, taxonomy.FoundNothing},
	} {
		body = tt.body
		q := taxonomy.ReconcileQuestion{Intent: "i1", Operation: taxonomy.Operation{Tool: "pay", IdempotencyKey: "k1"}, Created: time.Now().Add(-tt.age)}
		if got, ok := say(t, c, taxonomy.AppendReconcileQuestion(nil, &q), taxonomy.ParseReconcileAnswer); !ok || got != tt.want {
			t.Errorf("%s after %s: %s", tt.body, tt.age, got)
		}
	}
	body = `{"error":"try later"}`
	q := taxonomy.ReconcileQuestion{Operation: taxonomy.Operation{IdempotencyKey: "k1"}}
	if err := c.Ask(t.Context(), taxonomy.AppendReconcileQuestion(nil, &q), func([]byte) error { return nil }); err == nil {
		t.Error("an answer without a list was taken for none found")
	}
}

func TestTicket(t *testing.T) {
	dir := t.TempDir()
	c := example(t, "ticket", plugins.Approver, "APPROVALS="+dir)
	for name, text := range map[string]string{"r1": `{"approve":true,"by":"ann","ticket":"4711"}`, "r2": `{"approve":false,"by":"ann","ticket":"4712"}`, "r3": `{"approve":true,"by":"bot"}`} {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for request, want := range map[string]taxonomy.Ruling{"r1": taxonomy.RuleApprove, "r2": taxonomy.RuleDeny, "r3": taxonomy.RulePending, "r4": taxonomy.RulePending, "../r1": taxonomy.RulePending} {
		q := taxonomy.ApproveQuestion{Operation: taxonomy.Operation{RequestID: request, Agent: "bot"}}
		a, ok := say(t, c, taxonomy.AppendApproveQuestion(nil, &q), taxonomy.ParseApproveAnswer)
		if !ok || a.Ruling != want {
			t.Errorf("%s: %s", request, a.Ruling)
		}
	}
}

func TestCitations(t *testing.T) {
	c := example(t, "citations", plugins.Evaluator)
	for text, want := range map[string]string{
		`The moon is far [1].\n[1] https://example.com`:    "true",
		`The moon is cheese [2].\n[1] https://example.com`: "false",
		`No sources at all.`:                               "true",
	} {
		obs := taxonomy.Observation{Response: &taxonomy.Response{Status: 200, Body: `{"choices":[{"message":{"content":"` + text + `"}}]}`}}
		a, ok := say(t, c, taxonomy.AppendEvaluateQuestion(nil, &obs), taxonomy.ParseEvaluateAnswer)
		if !ok || a.Accepted != (want == "true") {
			t.Errorf("%s: %+v", text, a)
		}
	}
	if _, ok := say(t, c, taxonomy.AppendEvaluateQuestion(nil, &taxonomy.Observation{Response: &taxonomy.Response{Body: "<html>"}}), taxonomy.ParseEvaluateAnswer); ok {
		t.Error("an opinion on a page")
	}
}

func TestJSONL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "receipts.jsonl")
	batch := taxonomy.ReceiptBatch{Log: "log", Missed: 3, Receipts: []taxonomy.ReceiptEntry{{Index: 7, Receipt: taxonomy.Raw(`{"kind":"outcome"}`)}, {Index: 8, Receipt: taxonomy.Raw(`{"kind":"intent"}`)}}}
	for range 2 { // another life, and the same batch again
		c := example(t, "jsonl", plugins.Receipts, "JSONL_FILE="+file)
		for range 2 {
			if err := c.Ask(t.Context(), taxonomy.AppendReceiptBatch(nil, &batch), func([]byte) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"log":"log","index":7,"missed":3,"receipt":{"kind":"outcome"}}` + "\n" + `{"log":"log","index":8,"receipt":{"kind":"intent"}}` + "\n"
	if string(b) != want {
		t.Errorf("%s", strings.TrimSpace(string(b)))
	}
}
