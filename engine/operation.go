package engine

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// maxText bounds every text of an operation, in bytes.
const maxText = 4096

// An InputError names the field of an operation that cannot be accepted.
type InputError struct {
	Field  string
	Reason string
}

func (e *InputError) Error() string {
	return fmt.Sprintf("operation.%s %s; the request was not sent", e.Field, e.Reason)
}

// prepare completes an operation and refuses one that cannot be judged. What
// policy declares of a tool fills gaps; where both speak, the more careful
// effect stands.
func (e *Engine) prepare(p *Policy, op *taxonomy.Operation) error {
	if op.RequestID == "" {
		op.RequestID = newID()
	}
	if op.Attempt < 0 {
		return &InputError{"attempt", "must be 1 or more; 0 is the first"}
	}
	op.Attempt = max(op.Attempt, 1)
	if op.Kind == "" {
		op.Kind = "tool"
		if op.Model != "" {
			op.Kind = "model"
		}
	}
	if op.Kind == "tool" {
		if op.Tool == "" {
			op.Tool = op.Provider
		}
		if op.Action == "" {
			op.Action = op.Name
		}
	}
	if op.Kind != "model" {
		p.declare(op)
	}
	if op.Kind == "tool" && op.ActionClass == "" {
		op.ActionClass = op.Action
	}
	if op.Effect.Writes() && op.IdempotencyKey == "" {
		op.IdempotencyKey = minted(op)
	}
	return check(op)
}

// minted is the key of a write whose caller gave none: the same on every attempt
// of one request.
func minted(op *taxonomy.Operation) string { return "fusebox-" + op.RequestID }

// check refuses texts that no document could carry.
func check(op *taxonomy.Operation) error {
	switch op.Kind {
	case "model", "tool", "workflow":
	default:
		return &InputError{"kind", `must be "model", "tool" or "workflow"`}
	}
	if est := op.Estimate; est.InputTokens < 0 || est.OutputTokens < 0 || est.CostNanoUSD < 0 {
		return &InputError{"estimate", "must not be negative"}
	}
	if op.Deadline < 0 {
		return &InputError{"deadline", "must be Unix milliseconds; 0 is none"}
	}
	for i := range texts {
		if err := checkText(texts[i].name, texts[i].read(op)); err != nil {
			return err
		}
	}
	return nil
}

// texts are the text fields of an operation.
var texts = append(slices.Clone(parts),
	part{"idempotency_key", func(o *taxonomy.Operation) string { return o.IdempotencyKey }},
	part{"request_id", func(o *taxonomy.Operation) string { return o.RequestID }},
	part{"parent_id", func(o *taxonomy.Operation) string { return o.ParentID }},
	part{"args_fp", func(o *taxonomy.Operation) string { return o.ArgsFP }},
	part{"impact", func(o *taxonomy.Operation) string { return o.Impact }},
)

func checkText(field, s string) error {
	if len(s) > maxText {
		return &InputError{field, fmt.Sprintf("is %d bytes long; the most is %d", len(s), maxText)}
	}
	ascii := true
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] == 0x7f {
			return &InputError{field, "holds a control character"}
		}
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	if !ascii && !utf8.ValidString(s) {
		return &InputError{field, "is not valid UTF-8"}
	}
	return nil
}

// newID returns a UUIDv7: unique, and in the order of time.
func newID() string { return receipts.NewID().String() }
