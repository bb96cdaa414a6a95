package httpguard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// identityHeaders are the headers by which a caller says who it is and what it
// is doing. None of them is passed on.
var identityHeaders = map[string]func(*taxonomy.Operation) *string{
	"Fusebox-Tenant":           func(o *taxonomy.Operation) *string { return &o.Tenant },
	"Fusebox-User":             func(o *taxonomy.Operation) *string { return &o.User },
	"Fusebox-Agent":            func(o *taxonomy.Operation) *string { return &o.Agent },
	"Fusebox-Run":              func(o *taxonomy.Operation) *string { return &o.RunID },
	"Fusebox-Request":          func(o *taxonomy.Operation) *string { return &o.RequestID },
	"Fusebox-Parent":           func(o *taxonomy.Operation) *string { return &o.ParentID },
	"Fusebox-Workflow":         func(o *taxonomy.Operation) *string { return &o.Workflow },
	"Fusebox-Workflow-Version": func(o *taxonomy.Operation) *string { return &o.WorkflowVersion },
	"Fusebox-Task":             func(o *taxonomy.Operation) *string { return &o.TaskClass },
	"Fusebox-Prompt-Version":   func(o *taxonomy.Operation) *string { return &o.PromptVersion },
	"Fusebox-Schema":           func(o *taxonomy.Operation) *string { return &o.Schema },
	"Fusebox-Action-Class":     func(o *taxonomy.Operation) *string { return &o.ActionClass },
	"Fusebox-Impact":           func(o *taxonomy.Operation) *string { return &o.Impact },
	"Idempotency-Key":          func(o *taxonomy.Operation) *string { return &o.IdempotencyKey },
}

// identify fills in what the headers say. A header that cannot be understood is
// an error: a caller that believes it declared something must not be wrong.
func identify(op *taxonomy.Operation, h http.Header) error {
	for name, values := range h { // most requests carry fewer headers than there are to know
		if at := identityHeaders[name]; at != nil && len(values) > 0 && values[0] != "" {
			*at(op) = values[0]
		}
	}
	if v := h.Get("Fusebox-Effect"); v != "" {
		if err := op.Effect.UnmarshalText([]byte(v)); err != nil {
			return fmt.Errorf("header fusebox-effect: %q is none of read_only, idempotent_write, conditionally_repeatable, non_repeatable", v)
		}
	}
	if v := h.Get("Fusebox-Origin"); v != "" {
		if err := op.Origin.UnmarshalText([]byte(v)); err != nil {
			return fmt.Errorf("header fusebox-origin: %q is none of first, retry, fallback, background, callback, schedule, queue, replay, subagent", v)
		}
	}
	if v := h.Get("Fusebox-Priority"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return fmt.Errorf("header fusebox-priority: %q is not a whole number", v)
		}
		op.Priority = n
	}
	if v := h.Get("Fusebox-Deadline"); v != "" {
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return fmt.Errorf("header fusebox-deadline: %q is not a time such as 2026-11-30T12:00:00Z", v)
		}
		op.Deadline = t.UnixMilli()
	}
	return nil
}

// attemptOf reads the counter by which official SDKs number their own tries.
func attemptOf(op *taxonomy.Operation, h http.Header) {
	text := h.Get("X-Stainless-Retry-Count")
	if text == "" {
		return
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return
	}
	op.Attempt = n + 1
	if n > 0 && op.Origin == taxonomy.OriginFirst {
		op.Origin = taxonomy.OriginRetry
	}
}

// patienceOf is how long the caller says it waits for an answer.
func patienceOf(h http.Header) time.Duration {
	text := h.Get("X-Stainless-Timeout")
	if text == "" {
		return 0
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || s <= 0 || s > 1e6 {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// credentialOf is the text of the credential that a request carries, for its
// keyed fingerprint and nothing else.
func credentialOf(h http.Header) string {
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		if v := h.Get(name); v != "" {
			return strings.TrimPrefix(strings.TrimPrefix(v, "Bearer "), "bearer ")
		}
	}
	return ""
}

type operationKey struct{}

// WithOperation returns a context whose requests through [Transport] belong to
// op: its tenant, agent, run, effect and whatever else it sets goes before what
// the request itself says.
func WithOperation(ctx context.Context, op taxonomy.Operation) context.Context {
	return context.WithValue(ctx, operationKey{}, op)
}

// operationOf finds the operation that a context carries.
func operationOf(ctx context.Context) (taxonomy.Operation, bool) {
	op, ok := ctx.Value(operationKey{}).(taxonomy.Operation)
	return op, ok
}

// adopt lets every field that the caller set in Go win over what was read from
// the request. The effect is always the caller's once it gives an operation
// with one: its zero value is the careful one, and stays so for what is no
// model call.
func adopt(op *taxonomy.Operation, own taxonomy.Operation) {
	texts := []struct{ to, from *string }{
		{&op.Kind, &own.Kind}, {&op.Name, &own.Name}, {&op.Provider, &own.Provider}, {&op.Model, &own.Model},
		{&op.Region, &own.Region}, {&op.Credential, &own.Credential}, {&op.Tool, &own.Tool}, {&op.Action, &own.Action},
		{&op.ActionClass, &own.ActionClass}, {&op.Tenant, &own.Tenant}, {&op.User, &own.User}, {&op.Agent, &own.Agent},
		{&op.Workflow, &own.Workflow}, {&op.WorkflowVersion, &own.WorkflowVersion}, {&op.TaskClass, &own.TaskClass},
		{&op.PromptVersion, &own.PromptVersion}, {&op.Schema, &own.Schema}, {&op.Impact, &own.Impact},
		{&op.IdempotencyKey, &own.IdempotencyKey}, {&op.RunID, &own.RunID}, {&op.RequestID, &own.RequestID},
		{&op.ParentID, &own.ParentID}, {&op.ArgsFP, &own.ArgsFP},
	}
	for _, t := range texts {
		if *t.from != "" {
			*t.to = *t.from
		}
	}
	if own.Effect != taxonomy.NonRepeatable {
		op.Effect = own.Effect
	}
	if own.Attempt > 0 {
		op.Attempt = own.Attempt
	}
	if own.Origin != taxonomy.OriginFirst {
		op.Origin = own.Origin
	}
	if own.Priority != 0 {
		op.Priority = own.Priority
	}
	if own.Deadline != 0 {
		op.Deadline = own.Deadline
	}
	if own.Estimate != (taxonomy.Estimate{}) {
		op.Estimate = own.Estimate
	}
	if own.Amount != 0 {
		op.Amount = own.Amount
	}
	if own.Attributes != nil {
		op.Attributes = own.Attributes
	}
	if own.DependsOn != nil {
		op.DependsOn = own.DependsOn
	}
	op.PriorUnknown = op.PriorUnknown || own.PriorUnknown
}
