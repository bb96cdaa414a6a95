package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
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
		_, policy := w.e.armFor(&res.Operation)
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

// TakeBack puts what policy declares to undo a dead letter's operation in the
// queue: a worker prepares it, and it passes admission like any other call. What
// never succeeded and cannot have been applied has nothing to take back, and
// what is UNKNOWN is looked up first.
func (e *Engine) TakeBack(ctx context.Context, dead state.Item) (state.Item, error) {
	op, err := taxonomy.ParseOperation(dead.Operation)
	if err != nil {
		return state.Item{}, fmt.Errorf("compensate %s: read its operation: %w", dead.ID, err)
	}
	_, policy := e.armFor(&op)
	defer func() { _ = policy.release() }()
	t, _ := policy.tool(&op)
	tool, action, ok := strings.Cut(t.Compensate, "/")
	switch {
	case dead.State != state.Dead:
		return state.Item{}, fmt.Errorf("compensate %s: it is %s, and only a dead letter is compensated", dead.ID, dead.State)
	case !ok:
		return state.Item{}, fmt.Errorf("compensate %s: policy declares nothing that takes %s/%s back; declare compensate in its [[tool]], or discard it", dead.ID, op.Tool, op.Action)
	}
	back := taxonomy.Operation{Kind: "tool", Name: tool + "." + action, Provider: op.Provider, Tool: tool, Action: action, Tenant: op.Tenant, User: op.User,
		Agent: op.Agent, Workflow: op.Workflow, WorkflowVersion: op.WorkflowVersion, ParentID: op.RequestID, RequestID: "compensate-" + op.RequestID,
		Origin: taxonomy.OriginCallback, Priority: op.Priority}
	now := e.StoreNow()
	it := state.Item{ID: back.RequestID, RequestID: back.RequestID, Created: now, Expires: now.Add(takeBackWithin), Priority: op.Priority,
		Dependency: dead.Dependency, Replay: "revalidate", Tenant: op.Tenant, Operation: taxonomy.AppendOperation(nil, &back), Payload: dead.Payload}
	if err := e.parts.Store.Put(ctx, it); err != nil {
		return state.Item{}, fmt.Errorf("compensate %s: %w", dead.ID, err)
	}
	e.note(e.queueReceipt(policy, it, "compensation_queued"))
	return it, nil
}

// takeBackWithin is how long a compensation waits for a worker.
const takeBackWithin = 24 * time.Hour

func (e *Engine) compensationReceipt(s step, reason string) {
	arm, policy := e.armFor(&s.op)
	defer func() { _ = policy.release() }()
	r := e.receiptFor(receipts.KindFallback, receipts.Audit, policy, &s.op)
	arm.label(r)
	r.Fallback = "compensate:" + s.back
	r.Reason, r.FallbackResult = "compensated", receipts.FallbackUsed
	if reason != "" {
		r.Reason, r.FallbackResult = reason, receipts.FallbackFailed
	}
	e.note(r)
}
