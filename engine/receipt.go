package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// newReceipt starts a receipt of this process; its id is known from here on,
// so that an answer can name it before it is written.
func (e *Engine) newReceipt(kind receipts.Kind, class receipts.Delivery) *receipts.Receipt {
	r := blanks.Get().(*receipts.Receipt)
	r.ID, r.TimeUS = receipts.NewID(), e.clock.Now().UnixMicro()
	r.Kind, r.Class = kind, class
	r.Engine, r.ConfigDigest = e.parts.Build, e.parts.ConfigDigest
	if p := e.home.policy.Load(); p != nil {
		r.PolicyVersion = p.Version
	}
	return r
}

// blanks are receipts to be filled in. A receipt is large, and the log copies
// what it is given: the two of every call are written into used ones.
var blanks = sync.Pool{New: func() any { return new(receipts.Receipt) }}

// spent gives a receipt back that was handed over and that nobody looks at again.
func spent(r *receipts.Receipt) {
	*r = receipts.Receipt{}
	blanks.Put(r)
}

// receiptFor starts a receipt about an operation under the policy that judges it.
func (e *Engine) receiptFor(kind receipts.Kind, class receipts.Delivery, p *Policy, op *taxonomy.Operation) *receipts.Receipt {
	r := e.newReceipt(kind, class)
	r.PolicyVersion = p.Version
	r.RequestID, r.RunID, r.Tenant, r.Agent = op.RequestID, op.RunID, op.Tenant, op.Agent
	r.Attempt = op.Attempt
	r.Origin = receipts.Some(op.Origin)
	r.Operation = op.Name
	r.Effect = receipts.Some(op.Effect)
	r.ArgsFP = op.ArgsFP
	r.Mode = receipts.Some(p.mode())
	if op.Workflow != "" {
		r.Workflow = op.Workflow + "@" + op.WorkflowVersion
	}
	if e.parts.Fingerprint != nil && op.IdempotencyKey != "" {
		r.Idempotency = e.parts.Fingerprint(op.Tenant, op.IdempotencyKey)
	}
	return r
}

// receipt starts a receipt about a permit's operation.
func (p *Permit) receipt(kind receipts.Kind, class receipts.Delivery) *receipts.Receipt {
	r := p.e.receiptFor(kind, class, p.policy, &p.op)
	p.arm.label(r)
	p.trace(r)
	return r
}

// note hands a receipt to the log without waiting for the disk. A log that
// refuses is metered and shows in Evidence health: the decision itself stands.
func (e *Engine) note(r *receipts.Receipt) receipts.ID {
	if _, err := e.parts.Log.Submit(r); err != nil {
		e.meter.ReceiptError(err)
	}
	return r.ID
}

// evaluated adds what is known of a policy answer.
func evaluated(r *receipts.Receipt, ev taxonomy.Evaluation) {
	r.EvalError = ev.Error
	r.Rules = ev.Rules
	r.EvalUS += ev.Took.Microseconds()
}

// rejectionReceipt is the evidence of a local no.
func (e *Engine) rejectionReceipt(p *Policy, op *taxonomy.Operation, rej *Rejection) *receipts.Receipt {
	r := e.receiptFor(receipts.KindAdmission, receipts.Audit, p, op)
	r.Decision = receipts.Some(rej.Decision)
	r.Layer, r.Breaker, r.Scope, r.Reason = rej.Layer, rej.Breaker, rej.Scope, rej.Reason
	r.Outcome = receipts.Some(taxonomy.FailedBeforeSend)
	r.ErrorClass = rej.Class
	r.ErrorCode = rej.Reason
	r.StateVersion = int64(rej.StateVersion)
	r.Fallback = rej.Fallback
	r.State, _ = receipts.ParseState(rej.State) // "" where no circuit is meant
	if !rej.RetryAt.IsZero() {
		r.ReopenAtUS = rej.RetryAt.UnixMicro()
	}
	return r
}

// outcomeReceipt is the evidence of one attempt's end.
func (p *Permit) outcomeReceipt(j judged, obs *taxonomy.Observation, used state.Amounts, feeds []receipts.Feed) *receipts.Receipt {
	v := j.verdict
	class := receipts.Audit
	switch {
	case v.Outcome == taxonomy.Succeeded && !p.op.Effect.Writes():
		class = receipts.Sample
	case v.Outcome == taxonomy.Unknown && p.op.Effect.Writes():
		class = receipts.Ledger
	}
	r := p.receipt(receipts.KindOutcome, class)
	r.Parent = p.admission
	if !p.intent.IsZero() {
		r.Parent = p.intent
	}
	r.RemoteCallAttempted = obs.Transport.Dispatched != taxonomy.DispatchedNo
	r.Outcome, r.ErrorClass, r.ErrorCode = receipts.Some(v.Outcome), v.Class, v.Reason
	r.Reason = v.Reason
	r.ClassifiedBy = v.By
	r.Retry = receipts.Some(v.Retry)
	r.RetryAfterMS = v.RetryAfter.Milliseconds()
	r.ElapsedMS = obs.ElapsedMS
	r.Feeds = feeds
	if i := slices.IndexFunc(feeds, func(f receipts.Feed) bool { return f.Signal != taxonomy.SignalExcluded }); i >= 0 {
		f := feeds[i]
		r.Layer, r.Breaker, r.Scope, r.Signal = f.Layer, f.Breaker, f.Scope, receipts.Some(f.Signal)
	}
	r.Flags = append(r.Flags, p.flags...)
	if p.Probe() {
		r.Flags = append(r.Flags, "probe")
	}
	r.Budget = appendUsed(r.Budget, "used_cost_nano_usd", used.CostNanoUSD)
	r.Budget = appendUsed(r.Budget, "used_tokens", used.Tokens)
	p.informs(r)
	j.module(r)
	return r
}

// appendUsed says what an attempt used, for the cost of what it brought.
func appendUsed(list []receipts.Count, name string, n int64) []receipts.Count {
	if n <= 0 {
		return list
	}
	return append(list, receipts.Count{Name: name, N: min(n, 1<<53-1)})
}

// module notes one module that was asked: what it was given, said and cost.
func (j judged) module(r *receipts.Receipt) {
	for _, q := range j.asked {
		if q.module.Plugin {
			continue
		}
		r.WasmUS += q.account.Took.Microseconds()
	}
	q, ok := telling(j.asked)
	if j.refused != "" && j.by.Name != "" { // what the floor refuses is visible before anything else
		q, ok = j.asked[len(j.asked)-1], true
	}
	if ok {
		q.note(r)
	}
	if q.err != nil && j.by.Name == "" {
		r.FailMode = receipts.ModuleTrapDefault
	}
	if j.refused != "" {
		r.Module.Error = "floor:" + j.refused
		r.Flags = append(r.Flags, "floor")
	}
}

// transitionReceipt is the evidence of a circuit that changed, under the
// settings in force: circuits outlive the permits of older policies.
func (e *Engine) transitionReceipt(c *breaker.Change) *receipts.Receipt {
	r := e.newReceipt(receipts.KindTransition, receipts.Audit)
	r.Layer, r.Breaker, r.Scope = c.Layer, c.Breaker, c.Scope
	r.PrevState, r.State = stateOf(c.From), stateOf(c.To)
	r.StateVersion = int64(c.Version)
	r.Reason = c.Reason.String()
	if c.Rule != nil {
		r.Mode = receipts.Some(c.Rule.Mode)
		limits(r, c.Rule)
	}
	figures(r, c)
	r.CooldownMS = c.Cooldown.Milliseconds()
	if c.To == breaker.Open && (c.Rule == nil || c.Rule.Timed()) {
		r.ReopenAtUS = e.at(c.Until).UnixMicro()
	}
	if c.Override != breaker.NoOverride {
		r.State = receipts.StateForcedClosed
		if c.Override == breaker.ForcedOpen {
			r.State = receipts.StateForcedOpen
		}
	}
	if c.Lease != 0 {
		r.ProbeLease = strconv.FormatUint(c.Lease, 16)
	}
	if c.Capped {
		r.Flags = append(r.Flags, "capped")
	}
	return r
}

// stateOf is a circuit's state as receipts spell it.
func stateOf(s breaker.State) receipts.State {
	v, _ := receipts.ParseState(s.String()) // the zero state for one that receipts do not know
	return v
}

// limits are the thresholds in force.
func limits(r *receipts.Receipt, rule *breaker.Rule) {
	add := func(name string, n int64) {
		if n > 0 {
			r.Limits = append(r.Limits, receipts.Count{Name: name, N: n})
		}
	}
	add("consecutive", int64(rule.Trip.Consecutive))
	add("min_samples", int64(rule.Window.MinSamples))
	add("open_ppm", int64(rule.Trip.FailureRatio))
	add("slow_ppm", int64(rule.Trip.SlowRatio))
	add("unknown", int64(rule.Trip.Unknown))
	r.Window.Kind = receipts.TimeWindow
	r.Window.MS = rule.Window.Length.Milliseconds()
	if rule.Window.Kind == breaker.CountWindow {
		r.Window.Kind = receipts.CountWindow
	}
}

// figures are the counts behind a change.
func figures(r *receipts.Receipt, c *breaker.Change) {
	f := &c.Facts
	r.Window.SampleSize, r.Window.Failures = int64(f.Samples), int64(f.Failures)
	r.Window.Successes = int64(f.Samples) - int64(f.Failures)
	r.Window.RatioPPM, r.Window.Consecutive = int64(f.Ratio), int64(f.Row)
	for class, n := range f.Excluded {
		if n == 0 {
			continue
		}
		r.Window.Excluded += int64(n)
		r.Window.ExcludedBy = append(r.Window.ExcludedBy, receipts.Count{Name: taxonomy.Class(class).String(), N: int64(n)})
	}
}

// overrideReceipt is the evidence of a human decision.
func (e *Engine) overrideReceipt(s *partition, key string, o breaker.Override) *receipts.Receipt {
	r := e.newReceipt(receipts.KindOverride, receipts.Audit)
	s.stamp(r)
	r.Scope = breaker.Scope(key)
	r.Breaker, _, _ = strings.Cut(key, "|")
	for _, b := range s.policy.Load().Breakers {
		if b.Name == r.Breaker {
			r.Layer = b.Layer
		}
	}
	r.Reason, r.By = o.Kind.String(), o.By
	if o.Kind == breaker.NoOverride {
		r.Reason = "released"
	}
	r.Override = &receipts.OverrideNote{By: o.By, Reason: r.Reason, Ticket: o.Why}
	if o.Until != 0 {
		r.Override.ExpiresUS = e.at(o.Until).UnixMicro()
	}
	return r
}

// policyReceipt is the evidence of a policy that came into force.
func (e *Engine) policyReceipt(p, old *Policy) *receipts.Receipt {
	r := e.newReceipt(receipts.KindPolicyLoad, receipts.Audit)
	r.PolicyVersion = p.Version
	r.Reason = "first"
	if old != nil {
		r.Reason = "replaced"
	}
	r.Mode = receipts.Some(p.mode())
	return r
}

// mode is the stage that the whole policy is in.
func (p *Policy) mode() taxonomy.Mode {
	if p.Observe {
		return taxonomy.ModeObserve
	}
	return taxonomy.ModeEnforce
}

// A promise is a ledger receipt on its way to the disk.
type promise struct {
	pending *receipts.Pending
	err     error
}

// begin hands over a ledger receipt, to be awaited beside another commit.
func (e *Engine) begin(ctx context.Context, r *receipts.Receipt) promise {
	p, err := e.parts.Log.Begin(ctx, r)
	return promise{p, err}
}

// await returns when the receipt is durable, with its place in the log.
func (e *Engine) await(ctx context.Context, p promise) (index int64, err error) {
	err = p.err
	if err == nil {
		var ref receipts.Ref
		ctx, cancel := context.WithTimeout(ctx, e.parts.LogWait)
		defer cancel()
		ref, err = p.pending.Wait(ctx)
		index = ref.Index
	}
	if err != nil {
		e.meter.ReceiptError(err)
		return -1, err
	}
	return index, nil
}

// at turns an instant of the monotonic clock into wall time, for people.
func (e *Engine) at(i breaker.Instant) time.Time {
	if i == 0 {
		return zeroTime
	}
	return e.clock.Now().Add(time.Duration(i - e.clock.Mono()))
}
