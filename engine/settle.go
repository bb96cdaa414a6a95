package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Result is everything that one settled attempt, or one finished call, says.
type Result struct {
	Operation   taxonomy.Operation
	Observation taxonomy.Observation
	Verdict     taxonomy.Verdict
	Last        taxonomy.Verdict // of the last attempt, where the call ended for another reason
	Feeds       []receipts.Feed  // where it counted, with readable scopes
	Changes     []breaker.Change
	Attempts    int           // dispatched by this call
	Used        state.Amounts // of the budgets, by this attempt
	Exhausted   string        // why an otherwise repeatable call was not repeated
	Fallback    *Taken
	Rejection   *Rejection
	Next        string // "done", "retry", "reconcile", "stop"
	Policy      taxonomy.PolicyVersion
	Receipt     string
	Index       int64 // position in the log; -1 while not yet written
	Durable     bool  // the receipt is known to have reached the disk
	Flags       []string
}

// ErrSettled is the error of a second, different settlement.
var ErrSettled = errors.New("the permit is settled already")

// Settle judges the observation, routes it, records it and leaves a receipt. It
// joins errors instead of returning early: once a request was sent, evidence
// matters more than the first thing that went wrong. The Result is complete
// whatever the error.
func (p *Permit) Settle(ctx context.Context, obs taxonomy.Observation) (Result, error) {
	p.ending.Lock() // an expiry that is being carried through comes first, and the result is then a late one
	phase := p.phase.Load()
	late := phase == lapsed || phase == unused
	claimed := p.claim()
	p.ending.Unlock()
	if !claimed {
		return Result{}, fmt.Errorf("settle %s: %w", p.op.Name, ErrSettled)
	}
	if late {
		p.flags = append(p.flags, "late")
		if !p.resumed {
			p.comeBack() // its own policy was let go when it lapsed
		}
	}
	res, err := p.settle(ctx, obs)
	p.phase.Store(settled)
	p.free()
	return res, err
}

// claim moves the permit to settling, from dispatched or lapsed; a caller that
// sent without a dispatch is heard too, and its result is UNKNOWN.
func (p *Permit) claim() bool {
	if p.phase.CompareAndSwap(dispatched, settling) || p.phase.CompareAndSwap(lapsed, settling) {
		return true
	}
	if p.phase.CompareAndSwap(issued, settling) || p.phase.CompareAndSwap(unused, settling) {
		p.flags = append(p.flags, "undeclared_dispatch")
		return true
	}
	return false
}

func (p *Permit) undeclared() bool { return slices.Contains(p.flags, "undeclared_dispatch") }

func (p *Permit) settle(ctx context.Context, obs taxonomy.Observation) (Result, error) {
	e := p.e
	errs := e.hit("after-send-before-settle")
	obs.Operation = p.op
	history, _, err := e.runs.look(ctx, runOf(&p.op))
	errs = errors.Join(errs, err)
	obs.History = history
	if e.parts.Checker != nil && len(obs.Local) == 0 {
		obs.Local = e.parts.Checker.Check(&p.op, &obs)
	}
	start := e.clock.Mono()
	rated := p.evaluate(ctx, &obs)
	j := p.judge(ctx, &obs)
	j.asked = append(rated, j.asked...)
	e.meter.Stage("classify", time.Duration(e.clock.Mono()-start))
	if p.undeclared() && p.op.Effect.Writes() && obs.Transport.Dispatched != taxonomy.DispatchedNo {
		errs = errors.Join(errs, p.declare(ctx))
		j.verdict = p.undeclaredVerdict(&obs)
	}

	p.orphaned = orphan(&obs)
	feeds, ev := p.route(ctx, j.verdict, &obs)
	rec, err := p.record(ctx, j.verdict, feeds, &obs)
	errs = errors.Join(errs, err, e.hit("settle-after-record"))
	used := p.used(&obs)
	errs = errors.Join(errs, p.journal(ctx, j.verdict, &obs, used), e.hit("settle-before-receipt"))

	r := p.outcomeReceipt(j, &obs, used, rec.feeds)
	evaluated(r, ev)
	p.remember(r)
	index, durable, err := p.evidence(ctx, r)
	errs = errors.Join(errs, err)
	p.concluded(&obs, j.verdict, rec.feeds, r)
	p.arm.noteChanges(rec.changes, r)
	e.meter.Outcome(r.Layer, j.verdict, time.Duration(obs.ElapsedMS)*time.Millisecond)
	e.meter.Used(r.Layer, j.verdict, used)
	p.endAttempt(j.verdict, rec.changes, r, r.RemoteCallAttempted)
	if errs != nil {
		errs = fmt.Errorf("settle %s: %w", p.op.Name, errs)
	}
	res := Result{Operation: p.op, Observation: obs, Verdict: j.verdict, Feeds: rec.feeds, Changes: rec.changes,
		Used: used, Next: next(j.verdict), Policy: p.policy.Version, Receipt: r.ID.String(), Index: index, Durable: durable, Flags: r.Flags}
	spent(r)
	return res, errs
}

// undeclaredVerdict is what can be said of something that was sent without a
// dispatch: nothing durable vouches for it, so a write is UNKNOWN.
func (p *Permit) undeclaredVerdict(obs *taxonomy.Observation) taxonomy.Verdict {
	v := taxonomy.Verdict{Outcome: taxonomy.Unknown, Class: taxonomy.AmbiguousWrite, Reason: "undeclared_dispatch", By: "engine"}
	return taxonomy.Advise(&p.op, obs, v)
}

// evidence writes the outcome's receipt: awaited where it is a ledger receipt.
func (p *Permit) evidence(ctx context.Context, r *receipts.Receipt) (index int64, durable bool, err error) {
	if r.Class != receipts.Ledger {
		p.e.note(r)
		return -1, false, nil
	}
	ctx = context.WithoutCancel(ctx)
	index, err = p.e.await(ctx, p.e.begin(ctx, r))
	return index, err == nil, err
}

// journal settles the intent, the reservation and the run's history.
func (p *Permit) journal(ctx context.Context, v taxonomy.Verdict, obs *taxonomy.Observation, used state.Amounts) error {
	e := p.e
	if p.intent.IsZero() && !p.granted && p.op.RunID == "" {
		p.spend.Settle(used) // nothing of it is in the store
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.parts.StoreWait)
	defer cancel()
	var errs error
	if !p.intent.IsZero() {
		ended := state.Settlement{Outcome: v.Outcome, Class: v.Class, Reason: v.Reason, By: "engine", Receipt: p.intent.String(), At: e.StoreNow()}
		_, err := e.parts.Store.Settle(ctx, p.id, ended)
		e.pastCalls.add(pastCall{p.sent.Load(), ended, used})
		if v.Outcome == taxonomy.Unknown && errors.Is(err, state.ErrConflict) {
			err = nil // it was looked up meanwhile: whoever did so knows better
		}
		errs = errors.Join(errs, err)
	}
	errs = errors.Join(errs, p.settleGrant(ctx, used))
	errs = errors.Join(errs, e.runs.add(ctx, runOf(&p.op), p.op.RequestID, taxonomy.Call{
		Name: p.op.Name, ArgsHash: p.op.ArgsFP, Outcome: v.Outcome, Error: v.Reason, ResultHash: resultHash(&p.op, v, obs), Declared: p.declared(),
	}, !v.Retry.Automatic()))
	if errs != nil {
		e.meter.StoreError("settle", errs)
	}
	return errs
}

// used is what the attempt really used, as far as the answer tells.
func (p *Permit) used(obs *taxonomy.Observation) state.Amounts {
	want := p.policy.wants(&p.op)
	want.TimeMS = obs.ElapsedMS
	if obs.Transport.Dispatched == taxonomy.DispatchedNo {
		return state.Amounts{TimeMS: obs.ElapsedMS}
	}
	if u := p.usage.Load(); u != nil {
		want.Tokens = u.InputTokens + u.OutputTokens
		want.CostNanoUSD = u.CostNanoUSD
		if want.CostNanoUSD == 0 {
			want.CostNanoUSD = p.policy.cost(&p.op, *u)
		}
	}
	return want
}

// Used tells what the answer says it cost, before Settle; without it the
// estimate counts as used. A cost of 0 is computed from the declared price.
func (p *Permit) Used(u Usage) {
	u.InputTokens, u.CachedTokens = max(u.InputTokens, 0), max(u.CachedTokens, 0)
	u.OutputTokens, u.CostNanoUSD = max(u.OutputTokens, 0), max(u.CostNanoUSD, 0) // nothing is given back by a usage
	p.usage.Store(&u)
}

func (p *Permit) settleGrant(ctx context.Context, used state.Amounts) error {
	p.spend.Settle(used)
	if !p.granted {
		return nil
	}
	p.granted = false
	err := p.e.parts.Store.SettleGrant(ctx, p.id, used)
	if p.resumed && errors.Is(err, state.ErrNotFound) {
		return nil // its policy had no budget
	}
	return err
}

func (p *Permit) declared() string {
	if t, ok := p.policy.tool(&p.op); ok && t.Polls {
		return "poll"
	}
	return ""
}

func next(v taxonomy.Verdict) string {
	switch {
	case v.Outcome == taxonomy.Succeeded:
		return "done"
	case v.Retry == taxonomy.RetryReconcileFirst:
		return "reconcile"
	case v.Retry.Automatic():
		return "retry"
	}
	return "stop"
}

// Abandon gives back a permit that was not used. After a dispatch it is not for
// the caller to say that nothing happened: then the outcome is UNKNOWN for a
// write, and a freed probe for a read.
func (p *Permit) Abandon(ctx context.Context) error {
	if p.phase.CompareAndSwap(issued, released) {
		return p.release(ctx, "abandoned")
	}
	return p.lapse(ctx, "abandoned")
}

// release ends a permit that was never dispatched.
func (p *Permit) release(ctx context.Context, reason string) error {
	p.giveBack(ctx)
	if p.shadow != nil {
		p.shadow.withdrawn()
	}
	r := p.receipt(receipts.KindOutcome, receipts.Audit)
	r.Parent, r.Reason, r.ErrorCode = p.admission, reason, reason
	r.Outcome, r.ErrorClass = receipts.Some(taxonomy.FailedBeforeSend), taxonomy.Cancellation
	p.e.note(r)
	p.free()
	return nil
}

// lapse ends a dispatched permit whose result never came.
func (p *Permit) lapse(ctx context.Context, reason string) error {
	p.ending.Lock()
	defer p.ending.Unlock()
	if p.phase.CompareAndSwap(issued, unused) {
		p.e.permits.remember(p)
		return p.release(ctx, reason)
	}
	if !p.phase.CompareAndSwap(dispatched, settling) {
		return nil // somebody settles it right now
	}
	p.flags = append(p.flags, reason)
	// Nobody said how a read ended, so it counts toward nothing; its probe is
	// freed. A write that nobody reports on is UNKNOWN, and that counts.
	p.uncounted = !p.op.Effect.Writes()
	_, err := p.settle(ctx, taxonomy.Observation{Transport: taxonomy.Transport{ErrorKind: "deadline", Error: reason}})
	p.phase.Store(lapsed)
	p.free()
	return err
}

// expire carries through the end of every permit whose time has come.
func (e *Engine) expire(ctx context.Context) {
	for _, p := range e.permits.expired(e.clock.Mono()) {
		_ = p.lapse(ctx, "permit_expired") // metered; the intent is UNKNOWN in the store by its own expiry too
	}
}

// Permit finds a permit by its id: one that is out, or one of an earlier
// process whose intent the store still has. The latter can only be settled, and
// its result is marked late. state.ErrNotFound when there is neither.
func (e *Engine) Permit(ctx context.Context, id string) (*Permit, error) {
	if p, ok := e.permits.get(id); ok {
		return p, nil
	}
	in, err := e.parts.Store.Intent(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("permit %s: %w", id, err)
	}
	if in.State == state.Settled {
		return nil, fmt.Errorf("permit %s: %w", id, ErrSettled)
	}
	op, err := taxonomy.ParseOperation(in.Operation)
	if err != nil {
		return nil, fmt.Errorf("permit %s: read its operation: %w", id, err)
	}
	arm, policy := e.armFor(&op)
	p := &Permit{e: e, id: id, op: op, policy: policy, arm: arm, path: arm.registry.Path(&op, e.clock.Mono()), place: -1, granted: true}
	p.intent, _ = receipts.ParseID(in.Receipt) // the zero id where it is not known
	p.phase.Store(lapsed)
	p.resumed = true
	return p, nil
}
