package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Errors of a permit's life.
var (
	ErrPermitUsed    = errors.New("the permit was already used: one permit sends one operation once")
	ErrPermitExpired = errors.New("the permit expired before it was used; admit again")
)

// Dispatch makes durable what must be, then sends. When it returns an error,
// nothing was sent; a *Rejection says why. Otherwise the observation goes to
// Settle, also when the caller's context has ended.
func (p *Permit) Dispatch(ctx context.Context, send Send) (taxonomy.Observation, error) {
	if err := p.Mark(ctx); err != nil {
		return taxonomy.Observation{}, err
	}
	if p.span != nil {
		ctx = p.span.In(ctx)
	}
	start := p.e.clock.Mono()
	obs := p.send(ctx, send)
	obs.Operation = p.op
	if obs.ElapsedMS == 0 {
		obs.ElapsedMS = p.e.clock.Mono().Sub(start).Milliseconds()
	}
	return obs, nil
}

// send calls the closure. A panic in it is settled as an attempt whose end
// nobody saw, and then goes on: the intent must not stay in flight for ever.
func (p *Permit) send(ctx context.Context, send Send) (obs taxonomy.Observation) {
	defer func() {
		if r := recover(); r != nil {
			seen := taxonomy.Observation{Operation: p.op, Transport: taxonomy.Transport{ErrorKind: "unknown", Error: "panic in send"}}
			_, _ = p.Settle(context.WithoutCancel(ctx), seen) // its errors are metered; the panic is the news
			panic(r)
		}
	}()
	return send(ctx, Call{Operation: &p.op, PermitID: p.id})
}

// Mark makes the dispatch durable without sending: for callers that send by
// themselves. For a write, reservation, probe lease and intent become durable
// in one transaction, and the intent's receipt beside it; both are awaited. A
// read reserves its budget and takes its probe lease, and leaves no intent.
func (p *Permit) Mark(ctx context.Context) error {
	if !p.phase.CompareAndSwap(issued, dispatching) {
		return p.usedError()
	}
	if p.e.clock.Mono() >= p.end {
		p.phase.Store(issued) // the expiry that is on its way releases it
		return fmt.Errorf("dispatch %s: %w", p.op.Name, ErrPermitExpired)
	}
	_, p.span = p.e.start(ctx, StepDispatch, &p.op)
	rej := p.mark(ctx)
	p.endDispatch(rej)
	if rej != nil {
		p.phase.Store(released)
		p.giveBack(ctx)
		p.free()
		return p.refuse(rej)
	}
	_, p.span = p.e.start(ctx, StepAttempt, &p.op)
	p.phase.Store(dispatched)
	p.e.permits.extend(p, p.lifetime())
	return p.e.hit("after-intent-before-send")
}

// giveBack returns what was taken for a call that was never sent: its part of a
// budget block and its probe leases.
func (p *Permit) giveBack(ctx context.Context) {
	p.spend.Settle(state.Amounts{})
	rec := p.path.Release(p.ticket, p.e.clock.Mono())
	p.probed(&rec)
	p.arm.leased(ctx, "release", rec)
}

func (p *Permit) usedError() error {
	switch p.phase.Load() {
	case lapsed, unused:
		return fmt.Errorf("dispatch %s: %w", p.op.Name, ErrPermitExpired)
	default:
		return fmt.Errorf("dispatch %s: %w", p.op.Name, ErrPermitUsed)
	}
}

// lifetime is when a dispatched permit counts as abandoned: its deadline and
// the grace, or the permit's own length where there is no deadline.
func (p *Permit) lifetime() breaker.Instant {
	now := p.e.clock.Mono()
	left := p.e.parts.PermitTTL
	if p.op.Deadline > 0 {
		left = time.UnixMilli(p.op.Deadline).Sub(p.e.clock.Now())
	}
	return now + breaker.Instant(max(left, 0)+p.e.parts.Grace)
}

// mark commits the dispatch, or says why not. Nothing was sent either way.
func (p *Permit) mark(ctx context.Context) *Rejection {
	e := p.e
	if err := e.hit("dispatch-before-commit"); err != nil {
		return p.unavailable("state_unavailable", err)
	}
	if rej := p.takenBack(ctx); rej != nil {
		return rej
	}
	if rej := p.forced(ctx); rej != nil {
		return rej
	}
	leases, granted := p.leases(ctx)
	d := state.Dispatch{Leases: leases, UseApproval: p.approval}
	lines := p.reserves(e.StoreNow())
	if len(lines) > 0 && !p.op.Effect.Writes() {
		if rej := p.takeBlock(ctx, lines); rej != nil {
			return rej
		}
	} else if len(lines) > 0 {
		d.Reservation = &state.Reservation{ID: p.id, Lines: lines, Expires: e.storeAt(max(p.lifetime(), e.clock.Mono().Add(p.policy.Reserve)))}
		p.granted = true
	}
	var evidence promise
	if p.policy.journals(&p.op) {
		r := p.intentReceipt()
		d.Intent = p.intentRecord(r)
		p.intent = r.ID
		evidence = e.begin(ctx, r)
	} else if len(d.Leases) == 0 && d.UseApproval == "" {
		return nil
	}
	rej := p.commit(ctx, d, granted)
	if rej == nil {
		if err := e.hit("dispatch-after-state"); err != nil {
			rej = p.withoutEvidence(ctx, err)
		}
	}
	if d.Intent == nil {
		return rej
	}
	_, err := e.await(ctx, evidence)
	if rej == nil && err == nil {
		// Asked again now that our own intent is durable: of two that send the
		// same request at one moment, at least one sees the other.
		if rej = p.unresolved(ctx); rej == nil {
			rej = p.forced(ctx)
		}
		if rej != nil {
			p.settleUnsent(ctx, rej.Reason)
		}
	}
	switch {
	case rej != nil && err == nil:
		p.void(rej)
	case rej == nil && err != nil:
		rej = p.withoutEvidence(ctx, err)
	}
	return rej
}

// commit runs the one transaction. Its errors say which part refused.
func (p *Permit) commit(ctx context.Context, d state.Dispatch, granted func()) *Rejection {
	e := p.e
	ctx, cancel := context.WithTimeout(ctx, e.parts.StoreWait)
	defer cancel()
	start := e.clock.Mono()
	_, err := e.parts.Store.Dispatch(ctx, d)
	e.meter.Stage("state", time.Duration(e.clock.Mono()-start))
	if err == nil {
		granted()
		if d.Intent != nil {
			p.sent.Store(&state.Dispatch{Reservation: d.Reservation, Intent: d.Intent, UseApproval: d.UseApproval})
		}
		return nil
	}
	p.granted = false
	if x, ok := errors.AsType[*state.Exhausted](err); ok {
		return p.spent(ctx, x)
	}
	switch {
	case errors.Is(err, state.ErrRefused):
		return p.probeBusy(d.Leases, err)
	case errors.Is(err, state.ErrConflict) && d.UseApproval != "":
		return &Rejection{Decision: taxonomy.DecideApproval, Layer: taxonomy.LayerAuthority, Reason: "approval_used", Next: "ask", Cause: err}
	}
	e.meter.StoreError("dispatch", err)
	if !e.caps.Shared && d.Intent == nil && d.UseApproval == "" && !p.policy.highImpact(&p.op) && p.policy.readsOpen(&p.op) {
		// A read whose rule says so goes on with the local copy, and says so. Where
		// others share the circuit nobody may: only the store knows who probes it.
		p.storeRule, p.failMode = ruleLocal, receipts.StoreUnavailableOpen
		return p.leaseLocally()
	}
	p.failMode = receipts.StoreUnavailableClosed
	if d.Intent != nil && errors.Is(err, state.ErrUnknown) {
		p.settleUnsent(ctx, "state_unavailable")
	}
	return p.unavailable("state_unavailable", err)
}

// probeBusy is the rejection of a call that would have been a probe, and of whose
// circuit the store gave no lease: another process has it.
func (p *Permit) probeBusy(leases []state.LeaseUpdate, cause error) *Rejection {
	for _, l := range leases {
		p.e.meter.Probe(breakerOf(strings.TrimPrefix(l.Key, p.arm.prefix)), probeBusy)
	}
	rej := &Rejection{Layer: p.layer(), Scope: target(&p.op), Reason: "probe_busy", Next: "wait", Class: taxonomy.PersistentDependency, Cause: cause}
	if len(leases) == 1 { // of several it is not known which one was refused
		key := strings.TrimPrefix(leases[0].Key, p.arm.prefix)
		rej.Breaker, _, _ = strings.Cut(key, "|")
		rej.Scope = breaker.Scope(key)
		for i := range p.policy.Breakers {
			if b := &p.policy.Breakers[i]; b.Name == rej.Breaker {
				rej.Layer, rej.Fallback = b.Layer, b.Fallback
			}
		}
	}
	return rej
}

// withoutEvidence takes back a dispatch whose receipt did not become durable:
// the intent ends FAILED_BEFORE_SEND, or stays UNKNOWN where even that fails
// (DESIGN decision 16). Nothing was sent.
func (p *Permit) withoutEvidence(ctx context.Context, cause error) *Rejection {
	p.settleUnsent(ctx, "evidence_unavailable")
	return p.unavailable("evidence_unavailable", cause)
}

// settleUnsent ends a durable intent that was never sent.
func (p *Permit) settleUnsent(ctx context.Context, reason string) {
	e := p.e
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.parts.StoreWait)
	defer cancel()
	if p.policy.journals(&p.op) {
		_, err := e.parts.Store.Settle(ctx, p.id, state.Settlement{
			Outcome: taxonomy.FailedBeforeSend, Class: taxonomy.PersistentDependency, Reason: reason, By: "engine", At: e.StoreNow(),
		})
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			e.meter.StoreError("settle", err) // the intent expires into UNKNOWN and is looked up
		}
	}
	if err := p.settleGrant(ctx, state.Amounts{}); err != nil {
		e.meter.StoreError("settle", err) // until it expires, the reservation counts as used
	}
}

// declare writes down a write that was sent without a dispatch, so that it is
// visible and waits for reconciliation like any other.
func (p *Permit) declare(ctx context.Context) error {
	r := p.intentReceipt()
	r.Flags = append(r.Flags, "undeclared_dispatch")
	intent := p.intentRecord(r)
	p.intent = r.ID
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.e.parts.StoreWait)
	defer cancel()
	evidence := p.e.begin(ctx, r)
	_, err := p.e.parts.Store.Dispatch(ctx, state.Dispatch{Intent: intent})
	_, everr := p.e.await(ctx, evidence)
	return errors.Join(err, everr)
}

// void answers an intent receipt whose dispatch was not begun after all, so
// that verification finds an answer to it.
func (p *Permit) void(rej *Rejection) {
	r := p.receipt(receipts.KindIntentVoid, receipts.Audit)
	r.Parent = p.intent
	r.Reason = rej.Reason
	p.e.note(r)
}

// intentReceipt is the evidence that is durable before the first byte leaves.
func (p *Permit) intentReceipt() *receipts.Receipt {
	r := p.receipt(receipts.KindIntent, receipts.Ledger)
	r.Parent = p.admission
	r.Decision = receipts.Some(taxonomy.DecideAllow)
	r.Approval = p.approval
	r.Layer = p.layer()
	return r
}

func (p *Permit) intentRecord(r *receipts.Receipt) *state.Intent {
	e := p.e
	return &state.Intent{
		ID: p.id, RequestID: p.op.RequestID, Attempt: p.op.Attempt, Owner: e.parts.Owner, Tenant: p.op.Tenant,
		Action: action(&p.op), Effect: p.op.Effect, IdempotencyKey: p.op.IdempotencyKey,
		Operation: taxonomy.AppendOperation(nil, &p.op), Policy: p.policy.Version, Receipt: r.ID.String(),
		Created: e.StoreNow(), Expires: e.storeAt(p.lifetime()),
	}
}

// action is the readable scope of an operation's ambiguity.
func action(op *taxonomy.Operation) string {
	return "tool:" + op.Tool + "/" + op.Action + "/" + op.Tenant
}

// target is what an operation goes to, in readable form.
func target(op *taxonomy.Operation) string {
	if op.Kind == "model" {
		return "provider:" + op.Provider + "/" + cmp.Or(op.Region, "-") + "/" + cmp.Or(op.Model, "-")
	}
	return action(op)
}

func (p *Permit) unavailable(reason string, cause error) *Rejection {
	return &Rejection{
		Decision: taxonomy.DecideReject, Layer: p.layer(), Reason: reason, Class: taxonomy.PersistentDependency,
		Scope: target(&p.op), Next: "wait", Cause: cause,
	}
}

// exhausted says what a used-up budget leaves to the caller: to finish with what
// there is, to wait in the queue for the next window, or to ask a person for more.
func (p *Permit) exhausted(x *state.Exhausted) *Rejection {
	rej := &Rejection{
		Decision: taxonomy.DecideReject, Layer: taxonomy.LayerBudget, Breaker: "budget", Scope: x.Account,
		Reason: "budget_exhausted", Class: taxonomy.Budget, Reasons: []string{x.Unit}, Next: "stop", Cause: x,
	}
	switch wait := p.policy.Queue.Expires; {
	case p.policy.Exhausted == "approval":
		rej.Decision, rej.Next = taxonomy.DecideApproval, "ask"
	case p.policy.Exhausted == "defer" && wait > 0:
		rej.Decision, rej.Next, rej.ExpiresIn = taxonomy.DecideQueue, "queue", wait
	}
	return rej
}

// readsOpen reports whether policy lets a read of this action class go on while
// the state store cannot be read.
func (p *Policy) readsOpen(op *taxonomy.Operation) bool {
	open := false
	for _, r := range p.StoreLoss {
		if r.ActionClass == op.ActionClass {
			return r.ReadsOpen
		}
		if r.ActionClass == "" {
			open = r.ReadsOpen
		}
	}
	return open
}
