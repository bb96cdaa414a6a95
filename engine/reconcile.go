package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Reconcile records what a status lookup, or a person, found out about an
// UNKNOWN intent. Applied settles it SUCCEEDED, NotApplied settles it FAILED and
// so allows another attempt; still unknown leaves it and is counted. Only here
// does an UNKNOWN become anything else.
func (e *Engine) Reconcile(ctx context.Context, intentID string, f Finding, by string) (state.Intent, error) {
	return e.reconcile(ctx, intentID, f, by, nil)
}

// reconcile is Reconcile; looked is the look-up that found it out, if one did.
func (e *Engine) reconcile(ctx context.Context, intentID string, f Finding, by string, looked *inquiry) (state.Intent, error) {
	in, err := e.parts.Store.Intent(ctx, intentID)
	if err != nil {
		return state.Intent{}, fmt.Errorf("reconcile %s: %w", intentID, err)
	}
	if in.State == state.InFlight {
		return in, fmt.Errorf("reconcile %s: its call is still in flight; it can be reconciled once it is UNKNOWN", intentID)
	}
	e.corrected(in, f)
	r := e.reconcileReceipt(in, f, by)
	if looked != nil {
		looked.note(r)
	}
	switch f {
	case Applied:
		in, err = e.settleUnknown(ctx, in, state.Settlement{Outcome: taxonomy.Succeeded, Reason: "reconciled_applied", By: by, Receipt: r.ID.String(), At: e.StoreNow()})
	case NotApplied:
		in, err = e.settleUnknown(ctx, in, state.Settlement{Outcome: taxonomy.Failed, Class: taxonomy.TransientTransport, Reason: "reconciled_not_applied", By: by, Receipt: r.ID.String(), At: e.StoreNow()})
	default:
		in, err = e.parts.Store.Postpone(ctx, intentID, e.StoreNow().Add(e.lookupOf(in).pause(in.Tries)), "")
	}
	e.note(r)
	if err != nil {
		return in, fmt.Errorf("reconcile %s: %w", intentID, err)
	}
	return in, nil
}

// lookupOf is the pace that policy declares for an intent's tool.
func (e *Engine) lookupOf(in state.Intent) Lookup {
	op, _ := taxonomy.ParseOperation(in.Operation) // an unreadable one keeps the default pace
	_, policy := e.armFor(&op)
	defer func() { _ = policy.release() }()
	t, _ := policy.tool(&op)
	return t.Lookup.filled()
}

// settleUnknown settles an intent and tells the ambiguity circuit of its action
// once nothing of that action is UNKNOWN any more: it closes on reconciliation,
// never on a latency probe.
func (e *Engine) settleUnknown(ctx context.Context, in state.Intent, s state.Settlement) (state.Intent, error) {
	in, err := e.parts.Store.Settle(ctx, in.ID, s)
	if err != nil {
		return in, err
	}
	for other, err := range e.parts.Store.Find(ctx, state.IntentQuery{States: []state.IntentState{state.Unsettled}, Tenant: in.Tenant}) {
		if err != nil {
			return in, err
		}
		if other.Action == in.Action {
			return in, nil // another one of this action waits still
		}
	}
	op, err := taxonomy.ParseOperation(in.Operation)
	if err != nil {
		return in, err
	}
	return in, e.evidenceFor(ctx, &op, breaker.Reconciled, s.By)
}

// pause is the time before the next lookup: doubling, at most five minutes.
func (l Lookup) pause(tries int64) time.Duration {
	d := l.Every
	for range min(tries, 10) {
		d = min(2*d, 5*time.Minute)
	}
	return d
}

// LookUpDue asks the declared reconcilers about every UNKNOWN intent whose time
// has come, a few at once. What stays UNKNOWN after its last try becomes a case
// for a person, who finds it by fusebox intents.
func (e *Engine) LookUpDue(ctx context.Context) error {
	now := e.StoreNow()
	var due []state.Intent
	for in, err := range e.parts.Store.Find(ctx, state.IntentQuery{States: []state.IntentState{state.Unsettled}, Due: now, Limit: 16}) {
		if err != nil {
			e.meter.StoreError("intents", err)
			return err
		}
		due = append(due, in)
	}
	var errs error
	for _, in := range due {
		errs = errors.Join(errs, e.lookUpOne(ctx, in, now))
	}
	return errs
}

func (e *Engine) lookUpOne(ctx context.Context, in state.Intent, now time.Time) error {
	op, err := taxonomy.ParseOperation(in.Operation)
	if err != nil {
		return fmt.Errorf("reconcile %s: read its operation: %w", in.ID, err)
	}
	_, policy := e.armFor(&op)
	t, _ := policy.tool(&op)
	known := e.reconciler(policy, t.Reconcile) != nil
	_ = policy.release()
	pace := t.Lookup.filled()
	if first := in.Result.At.Add(pace.After); now.Before(first) {
		_, err = e.parts.Store.Postpone(ctx, in.ID, first, "")
		return err
	}
	if in.Case != "" || !known || in.Tries >= pace.Tries {
		return e.handOver(ctx, in)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	_, err = e.Lookup(ctx, in)
	return err
}

// lookupWait is the most that one lookup may take.
const lookupWait = 10 * time.Second

// handOver makes an UNKNOWN intent a case for a person, once.
func (e *Engine) handOver(ctx context.Context, in state.Intent) error {
	const never = 10 * 365 * 24 * time.Hour
	if in.Case == "" {
		r := e.reconcileReceipt(in, StillUnknown, "engine")
		r.Reason = "handed_to_person"
		e.note(r)
	}
	_, err := e.parts.Store.Postpone(ctx, in.ID, e.StoreNow().Add(never), "case-"+in.ID)
	return err
}

// Lookup asks the declared reconciler of an intent's tool once, and records
// what it found.
func (e *Engine) Lookup(ctx context.Context, in state.Intent) (Finding, error) {
	op, err := taxonomy.ParseOperation(in.Operation)
	if err != nil {
		return StillUnknown, fmt.Errorf("reconcile %s: read its operation: %w", in.ID, err)
	}
	_, policy := e.armFor(&op)
	defer func() { _ = policy.release() }() // it keeps its reconcilers open
	t, _ := policy.tool(&op)
	rec := e.reconciler(policy, t.Reconcile)
	if rec == nil {
		return StillUnknown, fmt.Errorf("reconcile %s: policy declares no reconciler for %s.%s that is configured here; look it up by hand and record it with fusebox intents reconcile", in.ID, op.Tool, op.Action)
	}
	f, err := rec.Reconcile(ctx, in)
	if err != nil {
		f = StillUnknown
	}
	var looked *inquiry
	if who, ok := rec.(Identified); ok {
		looked = &inquiry{module: who.Identity(), ok: err == nil, err: err}
		e.countFaults([]inquiry{*looked})
	}
	_, rerr := e.reconcile(ctx, in.ID, f, "reconcile:"+t.Reconcile, looked)
	return f, errors.Join(err, rerr)
}

// reconciler finds one by the name that a tool's declaration uses: one that the
// policy brings, or one of the wiring.
func (e *Engine) reconciler(p *Policy, name string) Reconciler {
	if r := p.Reconcilers[name]; r != nil {
		return r
	}
	return e.parts.Reconcilers[name]
}

func (e *Engine) reconcileReceipt(in state.Intent, f Finding, by string) *receipts.Receipt {
	r := e.newReceipt(receipts.KindReconcile, receipts.Ledger)
	r.Parent, _ = receipts.ParseID(in.Receipt) // the zero id where the intent's receipt is not known
	r.RequestID, r.Attempt, r.Tenant = in.RequestID, in.Attempt, in.Tenant
	r.Layer, r.Breaker, r.Scope = taxonomy.LayerTool, "ambiguity", in.Action
	r.Effect = receipts.Some(in.Effect)
	r.Reason, r.By = f.String(), by
	switch f {
	case Applied:
		r.Finding = receipts.FindingApplied
	case NotApplied:
		r.Finding = receipts.FindingNotApplied
	default:
		r.Finding = receipts.FindingStillUnknown
	}
	return r
}

// condemn declares UNKNOWN what an earlier process of this slot left in flight,
// and what expired under anybody. Each leaves a receipt and feeds the ambiguity
// of its action. What another living process has in flight is not touched.
func (e *Engine) condemn(ctx context.Context, by string) error {
	moved, err := e.parts.Store.Condemn(ctx, e.parts.Owner, by)
	if err != nil {
		e.meter.StoreError("condemn", err)
		return err
	}
	var errs error
	for _, in := range moved {
		if _, out := e.permits.get(in.ID); out {
			continue // our own, on its way to lapse; its receipt comes from there
		}
		errs = errors.Join(errs, e.condemned(ctx, in, by))
	}
	return errs
}

func (e *Engine) condemned(ctx context.Context, in state.Intent, by string) error {
	op, err := taxonomy.ParseOperation(in.Operation)
	if err != nil {
		return fmt.Errorf("intent %s: read its operation: %w", in.ID, err)
	}
	arm, policy := e.armFor(&op)
	p := &Permit{e: e, id: in.ID, op: op, policy: policy, arm: arm, path: arm.registry.Path(&op, e.clock.Mono()), place: -1}
	p.ticket.Sequence = arm.registry.Sequence()
	defer p.free()
	p.intent, _ = receipts.ParseID(in.Receipt) // the zero id where it is not known
	p.flags = []string{by}
	obs := taxonomy.Observation{Operation: op, Transport: taxonomy.Transport{ErrorKind: "unknown", Error: by}}
	j := p.judge(ctx, &obs)
	if j.verdict.Outcome != taxonomy.Unknown {
		// Nothing came back and nobody is left to say: no table can know better.
		j.verdict.Outcome, j.verdict.Class = taxonomy.Unknown, taxonomy.AmbiguousWrite
		if !op.Effect.Writes() {
			j.verdict.Class = taxonomy.TransientTransport
		}
	}
	j.verdict.Reason = by
	feeds, ev := p.route(ctx, j.verdict, &obs)
	rec, rerr := p.record(ctx, j.verdict, feeds, &obs)
	r := p.outcomeReceipt(j, &obs, p.used(&obs), rec.feeds)
	evaluated(r, ev)
	p.remember(r)
	if in.Policy != policy.Version {
		r.Flags = append(r.Flags, "other_policy")
	}
	_, _, eerr := p.evidence(ctx, r)
	p.arm.noteChanges(rec.changes, r)
	return errors.Join(rerr, eerr)
}
