package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Send performs one attempt and reports what came back as facts. It must not
// retry by itself: a retry that the engine does not see is a call that nobody
// counted.
type Send func(ctx context.Context, call Call) taxonomy.Observation

// A Call is one attempt, as Send sees it.
type Call struct {
	Operation *taxonomy.Operation // with attempt number and idempotency key
	PermitID  string
	Budget    *ExecutionBudget // pass it on to whatever the call starts
}

// Failed is the error of a call that did not succeed although it was admitted.
type Failed struct{ Result Result }

func (f *Failed) Error() string {
	v := f.Result.Verdict
	return fmt.Sprintf("call %s: %s %s (%s) after %d dispatched attempts",
		f.Result.Operation.Name, v.Outcome, v.Reason, v.Class, f.Result.Attempts)
}

// Do carries one operation to its end: as many attempts as its budget, its
// deadline and the retry advice allow, each walking the whole path. It returns
// an error for every outcome but SUCCEEDED: a *Rejection when nothing was sent,
// a *Failed otherwise. The Result is meaningful in both cases.
func (e *Engine) Do(ctx context.Context, op taxonomy.Operation, send Send) (Result, error) {
	if e.parts.Tracer == nil {
		return e.do(ctx, op, send, hold{})
	}
	return e.traced(ctx, op, func(ctx context.Context) (Result, error) { return e.do(ctx, op, send, hold{}) })
}

// A hold is what a call must leave for what may follow it.
type hold struct {
	attempts int  // of the budget, for a fallback
	repair   bool // an answer that fails its checks is asked for once more before it counts
}

func (e *Engine) do(ctx context.Context, op taxonomy.Operation, send Send, h hold) (Result, error) {
	l := &loop{e: e, send: send, start: e.clock.Now(), hold: h}
	return l.run(ctx, op)
}

// loop is one call's way through its attempts.
type loop struct {
	e     *Engine
	send  Send
	start time.Time
	hold  hold

	declared int64 // the caller's own deadline; the loop works with the nearest one
	budget   *ExecutionBudget
	profile  RetryProfile
	attempts int  // that passed admission and were sent
	left     bool // bytes of some attempt may have left
	unknown  bool // an attempt of a write stays UNKNOWN
	errs     error
}

func (l *loop) run(ctx context.Context, op taxonomy.Operation) (Result, error) {
	e := l.e
	if l.send == nil {
		return l.end(Result{Operation: op}, errNoSend)
	}
	_, policy := e.armFor(&op)
	if err := e.prepare(policy, &op); err != nil {
		_ = policy.release()
		return l.end(Result{Operation: op}, err)
	}
	l.profile = policy.retry(&op)
	if t, ok := policy.tool(&op); ok && t.Timeout > 0 && op.Kind != "model" {
		l.profile.PerAttempt = t.Timeout
	}
	tokens := policy.RetryTokens
	_ = policy.release()

	ctx, cancel := l.ownBudget(ctx, &op)
	defer cancel()
	for {
		if !l.budget.take(op.Estimate) {
			return l.exhausted(op, "attempt_budget_exhausted", Result{})
		}
		res, err := l.attempt(ctx, op)
		if err != nil || res.Verdict.Outcome == taxonomy.Succeeded {
			if l.attempts == 1 && err == nil {
				e.tokens.succeeded(op.Provider, tokens, e.clock.Mono())
			}
			return l.end(res, err)
		}
		wait, reason := l.next(&op, res)
		if reason != "" {
			return l.exhausted(op, reason, res)
		}
		if wait < 0 {
			return l.end(res, nil)
		}
		done, ok := e.tokens.take(op.Provider, tokens, e.clock.Mono())
		if !ok {
			return l.exhausted(op, "retry_budget_exhausted", res)
		}
		slept := e.clock.Sleep(wait, ctx.Done())
		done()
		if !slept {
			return l.exhausted(op, "deadline_exhausted", res)
		}
		op.Attempt++
		op.Origin = taxonomy.OriginRetry
	}
}

// ownBudget finds the caller's execution budget or makes this call's own.
func (l *loop) ownBudget(ctx context.Context, op *taxonomy.Operation) (context.Context, context.CancelFunc) {
	l.declared = op.Deadline
	deadline := l.start.Add(l.profile.Deadline)
	if d, ok := ctx.Deadline(); ok {
		// The context counts on the machine's clock; only its distance is ours.
		if rest := time.Until(d); l.start.Add(rest).Before(deadline) {
			deadline = l.start.Add(rest)
		}
	}
	if op.Deadline > 0 {
		if d := time.UnixMilli(op.Deadline); d.Before(deadline) {
			deadline = d
		}
	}
	l.budget = ExecutionBudgetOf(ctx)
	if l.budget == nil {
		l.budget = NewExecutionBudget(Spending{Attempts: l.profile.Attempts, Deadline: deadline})
		ctx = WithExecutionBudget(ctx, l.budget)
	}
	if d := l.budget.Deadline(); !d.IsZero() && d.Before(deadline) {
		deadline = d
	}
	op.Deadline = deadline.UnixMilli()
	return l.e.clock.Until(ctx, deadline)
}

// attempt walks the whole path once. A panic in send is settled as what it is,
// an attempt whose end nobody saw, and goes on to the caller.
func (l *loop) attempt(ctx context.Context, op taxonomy.Operation) (Result, error) {
	permit, err := l.e.admit(ctx, op, true)
	if err != nil {
		return Result{Operation: op}, err
	}
	permit.repairs = l.hold.repair
	obs, err := permit.Dispatch(ctx, func(ctx context.Context, c Call) taxonomy.Observation {
		c.Budget = l.budget
		if l.profile.PerAttempt > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, l.profile.PerAttempt)
			defer cancel()
		}
		return l.send(ctx, c)
	})
	if err != nil {
		return Result{Operation: op}, err
	}
	l.attempts++
	// The result is journalled even when the caller has gone away.
	res, err := permit.Settle(context.WithoutCancel(ctx), obs)
	l.errs = errors.Join(l.errs, err)
	l.budget.Spend(Spending{Tokens: res.Used.Tokens, CostNanoUSD: res.Used.CostNanoUSD})
	l.left = l.left || obs.Transport.Dispatched != taxonomy.DispatchedNo
	l.unknown = l.unknown || res.Verdict.Outcome == taxonomy.Unknown && op.Effect.Writes()
	return res, nil
}

// next decides about another attempt: a wait, -1 for no, or the reason why the
// call is exhausted although another attempt might help.
func (l *loop) next(op *taxonomy.Operation, res Result) (wait time.Duration, exhausted string) {
	v := res.Verdict
	if !v.Retry.Automatic() || v.Outcome == taxonomy.Succeeded {
		return -1, ""
	}
	// The engine's own invariant, whatever table, module or rule said (R-CALL-3).
	if v.Outcome == taxonomy.Unknown && !op.Effect.Repeatable() {
		return -1, ""
	}
	if l.budget.Left() <= l.hold.attempts {
		return 0, "attempt_budget_exhausted"
	}
	wait = l.profile.wait(l.attempts, v.RetryAfter, l.e.draw())
	// Never start a sleep that cannot be finished.
	if l.e.clock.Now().Add(wait).UnixMilli() >= op.Deadline {
		return 0, "deadline_exhausted"
	}
	return wait, ""
}

// exhausted ends a call that ran out of attempts or time (SPEC R-CALL-1): FAILED
// when an attempt was dispatched, FAILED_BEFORE_SEND only when nothing left, and
// UNKNOWN while a write is unresolved. The class stays that of the last attempt.
func (l *loop) exhausted(op taxonomy.Operation, reason string, last Result) (Result, error) {
	l.e.meter.Unretried(reason)
	last.Operation = op
	last.Last = last.Verdict
	v := taxonomy.Verdict{Class: last.Last.Class, Reason: reason, By: "engine"}
	switch {
	case l.unknown:
		v = last.Verdict
	case l.left:
		v.Outcome = taxonomy.Failed
	default:
		v.Outcome = taxonomy.FailedBeforeSend
	}
	if v.Class == taxonomy.NoClass {
		v.Class = taxonomy.Budget // the budget was gone before the first attempt
	}
	last.Verdict = v
	last.Exhausted = reason
	return l.end(last, nil)
}

func (l *loop) end(res Result, err error) (Result, error) {
	if rerr := l.e.runs.end(context.Background(), runOf(&res.Operation), res.Operation.RequestID); rerr != nil {
		l.e.meter.StoreError("run", rerr)
	}
	res.Attempts = l.attempts
	res.Operation.Deadline = l.declared
	defer func() { l.e.armOf(&res.Operation).tally.Load().ended(&res, l.hold.repair) }()
	if rej, ok := errors.AsType[*Rejection](err); ok {
		res.Rejection = rej
		res.Verdict = l.rejected(rej)
		return res, errors.Join(err, l.errs)
	}
	if unsent(err) {
		res.Verdict = l.notSent(err) // no gate refused it, and it was not sent either
	}
	if err == nil && res.Verdict.Outcome != taxonomy.Succeeded {
		err = &Failed{res}
	}
	return res, errors.Join(err, l.errs)
}

// notSent is the verdict of a call that ended before its attempt was sent, by
// nobody's decision: it cannot be judged, or its time was over.
func (l *loop) notSent(err error) taxonomy.Verdict {
	r := &Rejection{Class: taxonomy.ClientInput, Reason: "invalid_operation"}
	if errors.Is(err, ErrPermitExpired) {
		r.Class, r.Reason = taxonomy.Budget, "deadline_exhausted"
	}
	return l.rejected(r)
}

// unsent reports an error that says by itself that the attempt was not sent.
func unsent(err error) bool {
	_, input := errors.AsType[*InputError](err)
	return input || errors.Is(err, errNoSend) || errors.Is(err, ErrPermitExpired)
}

var errNoSend = errors.New("do: there is no Send; give the closure that makes one attempt")

// rejected is the verdict of a call that ended at admission. What earlier
// attempts of the same call did decides whether it is FAILED or UNKNOWN.
func (l *loop) rejected(r *Rejection) taxonomy.Verdict {
	v := taxonomy.Verdict{Outcome: taxonomy.FailedBeforeSend, Class: r.Class, Reason: r.Reason, By: "engine"}
	switch {
	case l.unknown:
		v.Outcome, v.Class = taxonomy.Unknown, taxonomy.AmbiguousWrite
	case l.left:
		v.Outcome = taxonomy.Failed
	}
	return v
}
