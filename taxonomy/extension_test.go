package taxonomy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What an extension is asked says what it needs, and leaves out what it must not
// see; only a reconciler is told the text of the key.
func TestExtensionQuestions(t *testing.T) {
	op := Operation{Kind: "tool", Name: "pay.create", Tool: "pay", Tenant: "acme", User: "ann", Credential: "fp", IdempotencyKey: "k-1", RequestID: "r1"}
	q := ReconcileQuestion{Intent: "i1", Operation: op, Created: time.Unix(1700000000, 0).UTC(), Tries: 2}
	text := AppendReconcileQuestion(nil, &q)
	got, err := ParseReconcileQuestion(text)
	want := q
	want.Operation.User, want.Operation.Credential = "", ""
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b Attributes) bool { return len(a) == len(b) })); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	a, err := ParseApproveQuestion(AppendApproveQuestion(nil, &ApproveQuestion{Operation: op, Reasons: []string{"high_impact"}}))
	if err != nil || a.Operation.User != "" || a.Operation.IdempotencyKey == "k-1" || a.Operation.RequestID != "r1" || len(a.Reasons) != 1 {
		t.Errorf("%v %+v", err, a)
	}
	o, err := ParseEvaluateQuestion(AppendEvaluateQuestion(nil, &Observation{Operation: op, Response: &Response{Status: 200, Body: "text"}}))
	if err != nil || o.Response == nil || o.Response.Body != "text" || o.Operation.Credential != "" {
		t.Errorf("%v %+v", err, o)
	}
	b, err := ParseReceiptBatch(AppendReceiptBatch(nil, &ReceiptBatch{Log: "l", Missed: 2, Receipts: []ReceiptEntry{{Index: 3, Receipt: Raw(`{"a":1}`)}}}))
	if err != nil || b.Missed != 2 || len(b.Receipts) != 1 || string(b.Receipts[0].Receipt) != `{"a":1}` {
		t.Errorf("%v %+v", err, b)
	}
}

// Answers are read strictly, and the zero value of each is the careful one.
func TestExtensionAnswers(t *testing.T) {
	if f, err := ParseReconcileAnswer(AppendReconcileAnswer(nil, FoundApplied)); err != nil || f != FoundApplied {
		t.Errorf("%v %s", err, f)
	}
	if a, err := ParseApproveAnswer(AppendApproveAnswer(nil, &ApproveAnswer{RuleDeny, "no"})); err != nil || a.Ruling != RuleDeny || a.Reason != "no" {
		t.Errorf("%v %+v", err, a)
	}
	if a, err := ParseEvaluateAnswer(AppendEvaluateAnswer(nil, &EvaluateAnswer{Failed: []string{"x"}})); err != nil || a.Accepted || len(a.Failed) != 1 {
		t.Errorf("%v %+v", err, a)
	}
	var found Found
	var ruling Ruling
	if found.String() != "still_unknown" || ruling.String() != "pending" {
		t.Errorf("%s %s", found, ruling)
	}
	for _, text := range []string{``, `{}`, `null`, `[]`, `{"finding":"maybe"}`, `{"finding":"applied","finding":"applied"}`, `{"finding":"applied","x":1}`,
		`{"finding":null}`, `{"finding":"applied"} x`, `{"finding":"` + strings.Repeat("a", MaxAnswer) + `"}`} {
		if f, err := ParseReconcileAnswer([]byte(text)); err == nil || f != FoundNothing {
			t.Errorf("%.40s: %s", text, f)
		}
	}
	for _, text := range []string{`{}`, `{"ruling":"yes"}`, `{"ruling":"approve","reason":"a\u0007b"}`, `{"ruling":"approve","reason":"` + strings.Repeat("a", 300) + `"}`, `{"ruling":"approve","scope":"payment"}`} {
		if a, err := ParseApproveAnswer([]byte(text)); err == nil || a.Ruling != RulePending {
			t.Errorf("%.40s: %s", text, a.Ruling)
		}
	}
	for _, text := range []string{`{}`, `{"accepted":"yes"}`, `{"accepted":true,"failed_checks":["a"]}`, `{"accepted":false,"outcome":"FAILED"}`} {
		if a, err := ParseEvaluateAnswer([]byte(text)); err == nil || a.Accepted {
			t.Errorf("%.40s: %+v", text, a)
		}
	}
}

// What an evaluator finds joins what is known already.
func TestAppendRejected(t *testing.T) {
	for local, want := range map[string]string{
		``:                      `{"evaluator":{"accepted":false},"failed_checks":["a"]}`,
		`{"schema_valid":true}`: `{"schema_valid":true,"evaluator":{"accepted":false},"failed_checks":["a"]}`,
	} {
		if got := AppendRejected(Raw(local), &EvaluateAnswer{Failed: []string{"a"}}); string(got) != want {
			t.Errorf("%s: %s", local, got)
		}
	}
}
