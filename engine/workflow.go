package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Workflow remembers which of its writes took effect, so that a workflow that
// cannot be finished takes them back instead of pretending (SPEC R-CALL-7).
type Workflow struct {
	e  *Engine
	mu sync.Mutex
	at []step
}

// A step is one write of the workflow.
type step struct {
	op      taxonomy.Operation
	outcome taxonomy.Outcome
	back    string // the declared compensation, "tool.action"
}

// Undo prepares the compensation of a step: the operation and how to send it.
// compensate is what policy declares for the step's tool, "tool.action".
type Undo func(done taxonomy.Operation, compensate string) (taxonomy.Operation, Send, error)

// Workflow begins a workflow.
func (e *Engine) Workflow() *Workflow { return &Workflow{e: e} }

// Do is Engine.Do, and notes a write that took effect or may have.
func (w *Workflow) Do(ctx context.Context, op taxonomy.Operation, send Send) (Result, error) {
	res, err := w.e.Do(ctx, op, send)
	v := res.Verdict
	if res.Operation.Effect.Writes() && (v.Outcome == taxonomy.Succeeded || v.Outcome == taxonomy.Unknown) {
		policy := w.e.current()
		t, _ := policy.tool(&res.Operation)
		_ = policy.release()
		w.mu.Lock()
		w.at = append(w.at, step{res.Operation, v.Outcome, t.Compensate})
		w.mu.Unlock()
	}
	return res, err
}

// Left is a write that could not be taken back, and why.
type Left struct {
	Operation taxonomy.Operation
	Reason    string // "no_compensation", "outcome_unknown", or what the compensation ended with
}

// Compensate takes the workflow's writes back, the latest first, each through
// admission like any other call. It goes on past a step that cannot be taken
// back, and lists those: an UNKNOWN one has to be reconciled first, because
// taking back what never happened is a side effect of its own.
func (w *Workflow) Compensate(ctx context.Context, undo Undo) ([]Left, error) {
	w.mu.Lock()
	steps := slices.Clone(w.at)
	w.at = nil
	w.mu.Unlock()
	var left []Left
	var errs error
	for _, s := range slices.Backward(steps) {
		reason, err := w.compensate(ctx, s, undo)
		errs = errors.Join(errs, err)
		w.e.compensationReceipt(s, reason)
		if reason != "" {
			left = append(left, Left{s.op, reason})
		}
	}
	return left, errs
}

// compensate takes one step back; the reason is "" when it was.
func (w *Workflow) compensate(ctx context.Context, s step, undo Undo) (reason string, err error) {
	switch {
	case s.outcome == taxonomy.Unknown:
		return "outcome_unknown", nil
	case s.back == "":
		return "no_compensation", nil
	}
	op, send, err := undo(s.op, s.back)
	if err != nil {
		return "not_prepared", fmt.Errorf("compensate %s: %w", s.op.Name, err)
	}
	op.ParentID, op.Origin = s.op.RequestID, taxonomy.OriginCallback
	res, err := w.e.Do(ctx, op, send)
	if err != nil {
		return res.Verdict.Reason, fmt.Errorf("compensate %s: %w", s.op.Name, err)
	}
	return "", nil
}

func (e *Engine) compensationReceipt(s step, reason string) {
	policy := e.current()
	defer func() { _ = policy.release() }()
	r := e.receiptFor(receipts.KindFallback, receipts.Audit, policy, &s.op)
	r.Fallback = "compensate:" + s.back
	r.Reason, r.FallbackResult = "compensated", receipts.FallbackUsed
	if reason != "" {
		r.Reason, r.FallbackResult = reason, receipts.FallbackFailed
	}
	e.note(r)
}
