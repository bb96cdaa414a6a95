package taxonomy

import (
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// The questions that only extensions in a process of their own are asked: they
// may look things up, which a module in the sandbox cannot.

// Names of their documents, as the "schema" member carries them.
const (
	ReconcileSchema = "fusebox.reconcile/v1"
	ApproveSchema   = "fusebox.approve/v1"
	EvaluateSchema  = "fusebox.evaluate/v1"
	ReceiptsSchema  = "fusebox.receipts/v1"
)

// A ReconcileQuestion asks whether a write whose outcome is UNKNOWN was applied.
// The operation carries the text of its idempotency key, because that is what
// the write is looked up by.
type ReconcileQuestion struct {
	Intent    string // the permit's id
	Operation Operation
	Created   time.Time // when it was about to be sent
	Tries     int64     // lookups so far
}

// Found is the answer to it. The zero value is still unknown.
type Found uint8

const (
	FoundNothing Found = iota
	FoundApplied
	FoundNotApplied
)

var foundNames = []string{"still_unknown", "applied", "not_applied"}

func (f Found) String() string { return name(foundNames, uint8(f)) }

// An ApproveQuestion asks for the leave that the rules want for an operation.
type ApproveQuestion struct {
	Operation Operation
	Reasons   []string // what the rules said
}

// Ruling is the answer to it. The zero value leaves the question open, for a
// person or for later.
type Ruling uint8

const (
	RulePending Ruling = iota
	RuleApprove
	RuleDeny
)

var rulingNames = []string{"pending", "approve", "deny"}

func (r Ruling) String() string { return name(rulingNames, uint8(r)) }

// An ApproveAnswer is a ruling with its reason. An approval is for this one
// request, and for one call.
type ApproveAnswer struct {
	Ruling Ruling
	Reason string // who and why, for people: "ann, ticket 4711"
}

// An EvaluateAnswer says whether a result that arrived is good enough. It can
// only find fault: what it accepts is judged as if nobody had been asked.
type EvaluateAnswer struct {
	Accepted bool
	Failed   []string // checks that failed, from the declared vocabulary
}

var reconcileTable lazy[ReconcileQuestion]

func reconcileFields() fields[ReconcileQuestion] {
	return reconcileTable.get(func() fields[ReconcileQuestion] {
		return fields[ReconcileQuestion]{
			moment("created", "when it was about to be sent", func(q *ReconcileQuestion) *time.Time { return &q.Created }),
			text("intent", "the permit's id", func(q *ReconcileQuestion) *string { return &q.Intent }),
			part("operation", "what was attempted, with its idempotency key", operationFields, func(q *ReconcileQuestion) *Operation { return &q.Operation }),
			schemaField[ReconcileQuestion](ReconcileSchema),
			whole("tries", "lookups so far", func(q *ReconcileQuestion) *int64 { return &q.Tries }),
		}
	})
}

var foundTable lazy[Found]

func foundFields() fields[Found] {
	return foundTable.get(func() fields[Found] {
		return fields[Found]{
			choice("finding", "what the look-up shows", foundNames, func(f *Found) *Found { return f }),
		}
	})
}

var approveTable lazy[ApproveQuestion]

func approveFields() fields[ApproveQuestion] {
	return approveTable.get(func() fields[ApproveQuestion] {
		return fields[ApproveQuestion]{
			part("operation", "what wants leave, redacted", operationFields, func(q *ApproveQuestion) *Operation { return &q.Operation }),
			texts("reasons", "what the rules said", func(q *ApproveQuestion) *[]string { return &q.Reasons }),
			schemaField[ApproveQuestion](ApproveSchema),
		}
	})
}

var approveAnswerTable lazy[ApproveAnswer]

func approveAnswerFields() fields[ApproveAnswer] {
	return approveAnswerTable.get(func() fields[ApproveAnswer] {
		return fields[ApproveAnswer]{
			short("reason", "who and why, for people", maxReason, func(a *ApproveAnswer) *string { return &a.Reason }),
			choice("ruling", "whether this one request may go", rulingNames, func(a *ApproveAnswer) *Ruling { return &a.Ruling }),
		}
	})
}

var evaluateTable lazy[Observation]

func evaluateFields() fields[Observation] {
	return evaluateTable.get(func() fields[Observation] {
		return fields[Observation]{
			part("observation", "what came back, redacted", observationFields, func(o *Observation) *Observation { return o }),
			schemaField[Observation](EvaluateSchema),
		}
	})
}

var evaluateAnswerTable lazy[EvaluateAnswer]

func evaluateAnswerFields() fields[EvaluateAnswer] {
	return evaluateAnswerTable.get(func() fields[EvaluateAnswer] {
		return fields[EvaluateAnswer]{
			flag("accepted", "whether the result is good enough", func(a *EvaluateAnswer) *bool { return &a.Accepted }),
			texts("failed_checks", "checks that failed, from the declared vocabulary", func(a *EvaluateAnswer) *[]string { return &a.Failed }),
		}
	})
}

// AppendReconcileQuestion appends the fusebox.reconcile/v1 document.
func AppendReconcileQuestion(b []byte, q *ReconcileQuestion) []byte {
	shown := *q
	shown.Operation = redactOperation(&q.Operation)
	shown.Operation.IdempotencyKey = cut(q.Operation.IdempotencyKey, 8*maxClassifyText)
	return reconcileFields().write(b, &shown)
}

// ParseReconcileQuestion reads it.
func ParseReconcileQuestion(b []byte) (q ReconcileQuestion, err error) {
	r := newReader("reconcile question", string(b), maxDeep)
	reconcileFields().read(&r, &q)
	return q, r.finish()
}

// ParseReconcileAnswer reads what a reconciler answered, strictly.
func ParseReconcileAnswer(b []byte) (f Found, err error) {
	if err = parseAnswer("reconcile answer", b, foundFields(), &f, "finding"); err != nil {
		return FoundNothing, err
	}
	return f, nil
}

// AppendReconcileAnswer appends what a reconciler answers.
func AppendReconcileAnswer(b []byte, f Found) []byte { return foundFields().write(b, &f) }

// AppendApproveQuestion appends the fusebox.approve/v1 document.
func AppendApproveQuestion(b []byte, q *ApproveQuestion) []byte {
	shown := ApproveQuestion{Operation: redactOperation(&q.Operation), Reasons: cutAll(q.Reasons, 16)}
	return approveFields().write(b, &shown)
}

// ParseApproveQuestion reads it.
func ParseApproveQuestion(b []byte) (q ApproveQuestion, err error) {
	r := newReader("approve question", string(b), maxDeep)
	approveFields().read(&r, &q)
	return q, r.finish()
}

// ParseApproveAnswer reads what an approver answered, strictly. Its reason goes
// to people, so it may not do more than be read.
func ParseApproveAnswer(b []byte) (a ApproveAnswer, err error) {
	err = parseAnswer("approve answer", b, approveAnswerFields(), &a, "ruling")
	if err == nil && Printable(a.Reason, len(a.Reason)) != a.Reason {
		err = &FieldError{"approve answer", "reason", "a line of text", "characters that cannot be printed"}
	}
	if err != nil {
		return ApproveAnswer{}, err
	}
	return a, nil
}

// AppendApproveAnswer appends what an approver answers.
func AppendApproveAnswer(b []byte, a *ApproveAnswer) []byte { return approveAnswerFields().write(b, a) }

// AppendEvaluateQuestion appends the fusebox.evaluate/v1 document.
func AppendEvaluateQuestion(b []byte, o *Observation) []byte {
	shown := Redact(o)
	return evaluateFields().write(b, &shown)
}

// ParseEvaluateQuestion reads it.
func ParseEvaluateQuestion(b []byte) (o Observation, err error) {
	r := newReader("evaluate question", string(b), maxDeep)
	evaluateFields().read(&r, &o)
	return o, r.finish()
}

// ParseEvaluateAnswer reads what an evaluator answered, strictly: a result is
// accepted, or says which checks failed, and never both.
func ParseEvaluateAnswer(b []byte) (a EvaluateAnswer, err error) {
	const document = "evaluate answer"
	err = parseAnswer(document, b, evaluateAnswerFields(), &a, "accepted")
	if err == nil && a.Accepted && len(a.Failed) > 0 {
		err = &FieldError{document, "failed_checks", "none of an accepted result", "some"}
	}
	if err != nil {
		return EvaluateAnswer{}, err
	}
	return a, nil
}

// AppendEvaluateAnswer appends what an evaluator answers.
func AppendEvaluateAnswer(b []byte, a *EvaluateAnswer) []byte {
	return evaluateAnswerFields().write(b, a)
}

// parseAnswer reads an answer strictly, with a member that it must have.
func parseAnswer[T any](document string, b []byte, fs fields[T], v *T, required string) error {
	r, err := answerReader(document, b)
	if err != nil {
		return err
	}
	had := readRequired(&r, fs, v)
	if err := r.finish(); err != nil {
		return err
	}
	if !had[required] {
		return &FieldError{document, required, "a value", "nothing"}
	}
	return nil
}

// AppendRejected adds to local facts, a JSON object or nothing, what an evaluator
// found: the facts that an evaluator or a check of our own would give.
func AppendRejected(local Raw, a *EvaluateAnswer) Raw {
	b := appendObject(nil, local)
	b = b[:len(b)-1]
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `"evaluator":{"accepted":false},"failed_checks":[`...)
	for i, name := range a.Failed {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendString(b, name)
	}
	return append(b, "]}"...)
}
