package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// progress refuses a call that would go on with a loop (SPEC R-AGT-1), and any
// call of a run that was stopped. A loop belongs to its run: it feeds the
// workflow layer and never the health of the tool that is called over and over.
func (p *Permit) progress(ctx context.Context) *Rejection {
	e := p.e
	if p.op.RunID == "" {
		return nil
	}
	look, cancel := p.patience(ctx)
	history, stopped, err := e.runs.look(look, runOf(&p.op))
	cancel()
	if err != nil {
		e.meter.StoreError("run", err)
		p.flags = append(p.flags, "run_history_unavailable")
	}
	if stopped != "" {
		return &Rejection{Layer: taxonomy.LayerWorkflow, Breaker: "loop", Scope: "workflow:" + p.op.RunID,
			Reason: "run_stopped", Reasons: []string{stopped}, Class: taxonomy.PolicyDenial, Next: "stop"}
	}
	if p.shadow != nil {
		p.shadow.history = history
	}
	return p.loops(ctx, history)
}

// loops refuses a call that repeats what its run did before without new
// evidence.
func (p *Permit) loops(ctx context.Context, history []taxonomy.Call) *Rejection {
	if t, ok := p.policy.tool(&p.op); ok && t.Polls {
		return nil
	}
	repeats, reason := p.policy.Table.Loop(&p.op, history)
	p.repeats = repeats
	if reason == "" {
		return nil
	}
	v := taxonomy.Verdict{Outcome: taxonomy.FailedBeforeSend, Class: taxonomy.NoProgress, Reason: reason, By: "engine"}
	p.feedRefusal(ctx, v)
	return &Rejection{Layer: taxonomy.LayerWorkflow, Breaker: "loop", Scope: "workflow:" + p.op.RunID, Reason: reason,
		Class: taxonomy.NoProgress, Next: "ask",
		Reasons: []string{"the same step was repeated without new evidence; ask for what is missing instead of calling again"}}
}

// feedRefusal routes and records a local refusal that counts somewhere: a
// denial toward its authority circuit, a loop toward its run.
func (p *Permit) feedRefusal(ctx context.Context, v taxonomy.Verdict) {
	obs := taxonomy.Observation{Operation: p.op, Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedNo}}
	feeds, _ := p.route(ctx, v, &obs)
	rec, err := p.record(ctx, v, feeds, &obs)
	if err != nil {
		p.e.meter.StoreError("record", err)
	}
	p.arm.noteChanges(rec.changes, nil)
}

// StopRun ends a run of a tenant: every further call of it is refused. A revoked credential
// does this by itself.
func (e *Engine) StopRun(ctx context.Context, tenant, run, reason string) error {
	return e.runs.stop(ctx, runKey(tenant, run), reason)
}

// resultHash tells whether two answers of one run are the same, without
// keeping either. Errors are compared by their reason, because their words
// change. It stays in memory and in the run's state, never in receipts.
func resultHash(op *taxonomy.Operation, v taxonomy.Verdict, obs *taxonomy.Observation) string {
	if op.RunID == "" || v.Outcome != taxonomy.Succeeded || obs.Response == nil {
		return ""
	}
	h := sha256.New()
	h.Write([]byte(op.RunID)) // never fails; salts equal answers of different runs apart
	h.Write([]byte{0})
	h.Write([]byte(obs.Response.Body))
	return hex.EncodeToString(h.Sum(nil)[:16])
}
