package engine

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

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
		if op.ActionClass == "" {
			op.ActionClass = op.Action
		}
	}
	if t, ok := p.tool(op); ok && op.Kind != "model" {
		op.Effect = careful(op.Effect, t.Effect)
	}
	if op.Effect.Writes() && op.IdempotencyKey == "" {
		op.IdempotencyKey = "fusebox-" + op.RequestID
	}
	return check(op)
}

// careful joins the effect that a caller declared with the one that policy
// declares. A caller that declared none (the zero value) takes policy's word.
func careful(caller, policy taxonomy.Effect) taxonomy.Effect {
	if caller == taxonomy.NonRepeatable {
		return policy
	}
	return min(caller, policy)
}

// check refuses texts that no document could carry.
func check(op *taxonomy.Operation) error {
	switch op.Kind {
	case "model", "tool", "workflow":
	default:
		return &InputError{"kind", `must be "model", "tool" or "workflow"`}
	}
	for _, name := range taxonomy.PartNames() {
		part, _ := taxonomy.PartNamed(name)
		if err := checkText(name, part(op)); err != nil {
			return err
		}
	}
	for _, f := range [...]struct{ name, text string }{
		{"idempotency_key", op.IdempotencyKey}, {"request_id", op.RequestID}, {"parent_id", op.ParentID},
		{"args_fp", op.ArgsFP}, {"impact", op.Impact},
	} {
		if err := checkText(f.name, f.text); err != nil {
			return err
		}
	}
	return nil
}

func checkText(field, s string) error {
	switch {
	case len(s) > maxText:
		return &InputError{field, fmt.Sprintf("is %d bytes long; the most is %d", len(s), maxText)}
	case !utf8.ValidString(s):
		return &InputError{field, "is not valid UTF-8"}
	case strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return &InputError{field, "holds a control character"}
	}
	return nil
}

// newID returns a UUIDv7: unique, and in the order of time.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		// Only a machine without randomness comes here; an id that repeats would
		// let one call stand for another.
		panic("engine: no randomness for an id: " + err.Error())
	}
	return id.String()
}
