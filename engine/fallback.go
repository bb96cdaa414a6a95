package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Means are how a caller can carry out a declared fallback. What is nil cannot
// be chosen; a candidate that needs no means (draft, queued, human, refuse) is
// told to the caller, who acts on it.
type Means struct {
	// Alternate prepares a candidate as an operation of its own.
	Alternate func(c taxonomy.Candidate, op taxonomy.Operation) (taxonomy.Operation, Send, bool)
	// Carry carries a candidate out by itself, for a caller that streams: it takes
	// the operation it is given through Admit, Mark and Settle, and says whether
	// somebody answered. With it Alternate is not asked.
	Carry func(c taxonomy.Candidate, op taxonomy.Operation) bool
	// Kinds are those that the caller can act upon; empty is all.
	Kinds []string
	// Cached finds an earlier answer and its age.
	Cached func(c taxonomy.Candidate, op taxonomy.Operation) (body string, age time.Duration, ok bool)
	// Repair prepares one more attempt after an answer that failed its checks:
	// the same task, with what was wrong said. It is used once, and only when it
	// fails too does the answer count toward the semantic circuit.
	Repair func(res Result) (taxonomy.Operation, Send, bool)
	// Within is how long the caller waits for an answer. After it, the declared
	// degraded answer is given; the call itself goes on and is settled as it
	// ends. 0 is what the contract declares.
	Within time.Duration
	// Payload is kept for the person who decides a human case: what was to be
	// sent, sealed by the caller where it must be.
	Payload []byte
}

// Taken is a fallback that was taken, as the caller is told of it.
type Taken struct {
	Contract   string
	Candidate  taxonomy.Candidate
	Reason     string
	Losses     []string
	Prohibited []string
	Saved      string        // what was kept
	Then       string        // what the caller may do: "retry", "wait" or "review"
	Reviewers  string        // who decides a human case
	Case       string        // id of the human case among the dead letters
	ExpiresIn  time.Duration // how long queued work may wait
	Body       string        // of a cached answer
	Age        time.Duration // of a cached answer
	Result     *Result       // of an alternate: its own way through the path
	Receipt    string
}

// DoWith is Do with fallbacks: where the call was refused before it was sent, or
// a model call failed before its first content, the contract of the open
// breaker says what may stand in. A fallback is an execution path of its own:
// an alternate passes admission, its own circuits and the same budget. Two
// answers are never joined.
func (e *Engine) DoWith(ctx context.Context, op taxonomy.Operation, send Send, m Means) (Result, error) {
	if e.parts.Tracer == nil {
		return e.doWith(ctx, op, send, m)
	}
	return e.traced(ctx, op, func(ctx context.Context) (Result, error) { return e.doWith(ctx, op, send, m) })
}

func (e *Engine) doWith(ctx context.Context, op taxonomy.Operation, send Send, m Means) (Result, error) {
	budget := ExecutionBudgetOf(ctx)
	_, policy := e.armFor(&op)
	_ = e.prepare(policy, &op) // Do says what is wrong with it
	p := policy.retry(&op)
	if m.Within <= 0 && !op.Effect.Writes() {
		m.Within = policy.within(&op)
	}
	_ = policy.release()
	if budget == nil {
		budget = NewExecutionBudget(Spending{Attempts: p.Attempts, Deadline: e.clock.Now().Add(p.Deadline)})
		ctx = WithExecutionBudget(ctx, budget)
	}
	res, err := e.doInTime(ctx, op, send, m)
	if err == nil || !mayFallBack(&res) {
		return res, err
	}
	taken, terr := e.fallBack(ctx, &res, m)
	if taken == nil {
		return res, errors.Join(err, terr)
	}
	res.Fallback = taken
	if taken.Result != nil || taken.Candidate.Kind == "cached" {
		return res, terr // the caller has an answer, and is told which
	}
	return res, errors.Join(err, terr)
}

// FallBack finds what may stand in for a call that its caller made with a permit
// of its own: one that was refused, or a model call that failed before its
// first content. nil says that nothing may.
func (e *Engine) FallBack(ctx context.Context, res *Result, m Means) (*Taken, error) {
	if !mayFallBack(res) {
		return nil, nil
	}
	return e.fallBack(ctx, res, m)
}

// doInTime is the call itself with its one repair, for as long as the caller
// waits.
func (e *Engine) doInTime(ctx context.Context, op taxonomy.Operation, send Send, m Means) (Result, error) {
	if m.Within <= 0 {
		return e.doRepaired(ctx, op, send, m)
	}
	type end struct {
		res Result
		err error
	}
	done := make(chan end, 1)
	gone := make(chan struct{})
	go func() {
		res, err := e.doRepaired(ctx, op, send, m)
		done <- end{res, err}
		close(gone)
	}()
	if e.clock.Sleep(m.Within, gone) {
		select {
		case x := <-done:
			return x.res, x.err
		default:
		}
		res := Result{Operation: op, Verdict: taxonomy.Verdict{Class: taxonomy.TransientTransport, Reason: "latency_budget", By: "engine"}}
		return res, &Failed{res}
	}
	x := <-done
	return x.res, x.err
}

// doRepaired makes one repair after an answer that failed its checks.
func (e *Engine) doRepaired(ctx context.Context, op taxonomy.Operation, send Send, m Means) (Result, error) {
	h := hold{repair: m.Repair != nil && !op.Effect.Writes()}
	if m.Alternate != nil || h.repair {
		h.attempts = 1 // or retries would leave nothing for what stands in
	}
	res, err := e.do(ctx, op, send, h)
	if c := res.Verdict.Class; !h.repair || err == nil || c != taxonomy.Validation && c != taxonomy.SemanticQuality {
		return res, err
	}
	again, resend, ok := m.Repair(res)
	if !ok {
		return res, err
	}
	again.ParentID, again.Origin, again.RequestID = res.Operation.RequestID, taxonomy.OriginRetry, ""
	return e.Do(ctx, again, resend)
}

// mayFallBack holds the rules that no contract can loosen: nothing may stand in
// for a denial, for a write whose outcome is UNKNOWN, or once content reached
// the caller.
func mayFallBack(res *Result) bool {
	if res.Verdict.Reason == "latency_budget" {
		return !res.Operation.Effect.Writes()
	}
	if res.Observation.Stream.Started || res.Verdict.Outcome == taxonomy.Unknown && res.Operation.Effect.Writes() {
		return false
	}
	switch res.Verdict.Class {
	case taxonomy.PolicyDenial, taxonomy.Authorization, taxonomy.Authentication, taxonomy.Cancellation,
		taxonomy.ClientInput, taxonomy.NoProgress:
		return false
	}
	return res.Rejection != nil || res.Operation.Kind == "model"
}

// fallBack chooses among the declared candidates and carries the choice out.
func (e *Engine) fallBack(ctx context.Context, res *Result, m Means) (taken *Taken, err error) {
	arm, policy := e.armFor(&res.Operation)
	defer policy.release() //nolint:errcheck // a module that does not close cleanly is the sandbox's to report
	name := contractOf(policy, res)
	i := slices.IndexFunc(policy.Fallbacks, func(f Fallback) bool { return f.Name == name })
	if name == "" || i < 0 {
		return nil, nil
	}
	ctx, span := e.start(ctx, StepFallback, &res.Operation)
	if span != nil {
		defer func() { span.End(SpanEnd{Policy: policy.Version, Fallback: taken, Failed: taken == nil || err != nil}) }()
	}
	in := &taxonomy.FallbackInput{Operation: &res.Operation, Rejection: res.Rejection, Candidates: possible(policy.Fallbacks[i].Candidates, &res.Operation, m)}
	if in.Rejection == nil {
		in.Rejection = &Rejection{Reason: res.Verdict.Reason, Class: res.Verdict.Class, Policy: policy.Version}
	}
	contract := &policy.Fallbacks[i]
	answer := policy.Rules.Fallback(ctx, in)
	asked := e.ask(nil, nil, answer.Evaluation, &answer)
	if answer.Evaluation.Error != "" {
		answer.Order = policy.declaredOrder(in)
	}
	order, modules := e.chosen(ctx, policy, in, answer.Order)
	var first receipts.ID // of this choice: the question lies with it
	for _, choice := range order {
		j := slices.IndexFunc(in.Candidates, func(c taxonomy.Candidate) bool { return c.ID == choice.ID })
		if j < 0 {
			continue // only declared candidates may be chosen
		}
		t := contract.taken(in.Candidates[j], choice.Reason)
		ok, err := e.take(ctx, contract, t, res, m)
		first = e.fallbackReceipt(arm, policy, res, t, ok, asked, modules, first)
		arm.tally.Load().fellBack(t, ok)
		e.meter.Fallback(fellFrom(res), t, ok)
		asked, modules = nil, nil
		if ok {
			return t, err
		}
	}
	return nil, nil
}

// fellFrom is the layer that a fallback stands in for.
func fellFrom(res *Result) taxonomy.Layer {
	if res.Rejection != nil {
		return res.Rejection.Layer
	}
	return layerOf(&res.Operation)
}

// declaredOrder stands in where the rules cannot be evaluated: nothing for a
// write, and for a read what its policy declares, in the order of its author.
func (p *Policy) declaredOrder(in *taxonomy.FallbackInput) []taxonomy.Choice {
	if !p.OnError.ReadsProceed || in.Operation.Effect.Writes() {
		return nil
	}
	out := make([]taxonomy.Choice, len(in.Candidates))
	for i, c := range in.Candidates {
		out[i] = taxonomy.Choice{ID: c.ID, Reason: "policy_error"}
	}
	return out
}

// taken is a candidate as the caller is told of it.
func (f *Fallback) taken(c taxonomy.Candidate, reason string) *Taken {
	t := &Taken{Contract: f.Name, Candidate: c, Reason: reason, Losses: c.Losses, Prohibited: c.Prohibited, Saved: f.Saved, Then: f.Then}
	if c.Kind == "queued" {
		t.ExpiresIn = f.ExpiresIn[c.ID]
	}
	return t
}

// contractOf is the contract of the breaker that refused, or of the one that
// the failure fed.
func contractOf(p *Policy, res *Result) string {
	if res.Rejection != nil {
		return res.Rejection.Fallback
	}
	if res.Verdict.Reason == "latency_budget" {
		return p.slowContract(&res.Operation)
	}
	for _, f := range res.Feeds {
		if f.Signal != taxonomy.SignalFailure && f.Signal != taxonomy.SignalOpenNow {
			continue
		}
		for i := range p.Breakers {
			if b := &p.Breakers[i]; b.Layer == f.Layer && b.Name == f.Breaker {
				return b.Fallback
			}
		}
	}
	return ""
}

// within is how long the contract lets a caller wait for the real answer.
func (p *Policy) within(op *taxonomy.Operation) time.Duration {
	name := p.slowContract(op)
	for i := range p.Fallbacks {
		if p.Fallbacks[i].Name == name {
			return p.Fallbacks[i].Within
		}
	}
	return 0
}

// slowContract is the contract of the breaker that a late answer would count
// toward.
func (p *Policy) slowContract(op *taxonomy.Operation) string {
	layer := layerOf(op)
	for i := range p.Breakers {
		if b := &p.Breakers[i]; b.Layer == layer && b.Fallback != "" && !b.Ambiguity() {
			return b.Fallback
		}
	}
	return ""
}

// possible leaves the candidates that could be carried out, and that guarantee
// at least as much as the operation needs: a write never falls back to
// something that declares a loss.
func possible(all []taxonomy.Candidate, op *taxonomy.Operation, m Means) []taxonomy.Candidate {
	var out []taxonomy.Candidate
	for _, c := range all {
		switch {
		case len(m.Kinds) > 0 && !slices.Contains(m.Kinds, c.Kind):
		case c.Kind == "alternate" && (m.Alternate == nil && m.Carry == nil || c.Provider == op.Provider && (c.Model == op.Model || c.Model == "")):
		case (c.Kind == "cached" || c.Kind == "reduced") && (op.Effect.Writes() || c.Kind == "cached" && m.Cached == nil):
		case c.Kind == "alternate" && op.Effect.Writes() && (len(c.Losses) > 0 || !op.Effect.Repeatable()):
		default:
			out = append(out, c)
		}
	}
	return out
}

// chosen lets a team's module reorder what the rules allow; it can add nothing.
func (e *Engine) chosen(ctx context.Context, p *Policy, in *taxonomy.FallbackInput, order []taxonomy.Choice) ([]taxonomy.Choice, []inquiry) {
	var asked []inquiry
	defer func() { e.countFaults(asked) }()
	for _, ch := range p.Choosers {
		if !ch.Selects(in.Operation) {
			continue
		}
		c, q := askChooser(ctx, ch, in)
		asked = append(asked, q)
		if i := slices.IndexFunc(order, func(o taxonomy.Choice) bool { return o.ID == c.ID }); q.ok && i >= 0 {
			first := taxonomy.Choice{ID: c.ID, Reason: c.Reason}
			return append([]taxonomy.Choice{first}, slices.Delete(slices.Clone(order), i, i+1)...), asked
		}
	}
	return order, asked
}

// take carries one candidate out; false tries the next.
func (e *Engine) take(ctx context.Context, f *Fallback, t *Taken, res *Result, m Means) (bool, error) {
	switch t.Candidate.Kind {
	case "alternate":
		if m.Carry != nil {
			op := res.Operation
			op.Origin, op.ParentID, op.RequestID, op.Attempt = taxonomy.OriginFallback, res.Operation.RequestID, "", 0
			return m.Carry(t.Candidate, op), nil
		}
		op, send, ok := m.Alternate(t.Candidate, res.Operation)
		if !ok {
			return false, nil
		}
		op.Origin, op.ParentID, op.RequestID = taxonomy.OriginFallback, res.Operation.RequestID, ""
		alt, err := e.Do(ctx, op, send)
		t.Result = &alt
		return err == nil, err
	case "cached":
		body, age, ok := m.Cached(t.Candidate, res.Operation)
		if most := f.MaxAge[t.Candidate.ID]; most > 0 && age > most {
			return false, nil // too old to be shown, however much it is wanted
		}
		t.Body, t.Age = body, age
		return ok, nil
	case "human":
		return e.openCase(ctx, f, t, res, m.Payload)
	default:
		return true, nil
	}
}

// fallbackReceipt is the evidence of one candidate that was tried. The first of a
// choice holds the question; the others name it as their parent.
func (e *Engine) fallbackReceipt(a *arm, p *Policy, res *Result, t *Taken, used bool, asked []byte, modules []inquiry, first receipts.ID) receipts.ID {
	r := e.receiptFor(receipts.KindFallback, receipts.Audit, p, &res.Operation)
	a.label(r)
	r.Decision = receipts.Some(taxonomy.DecideFallback)
	r.Fallback = t.Contract + ":" + t.Candidate.ID
	r.FallbackResult, r.Reason = receipts.FallbackUsed, "chosen"
	if !used {
		r.FallbackResult, r.Reason = receipts.FallbackFailed, "not_available"
	}
	r.FallbackLoss = t.Losses
	r.RemoteCallAttempted = t.Result != nil && t.Result.Attempts > 0
	if res.Rejection != nil {
		r.Layer, r.Breaker, r.Scope = res.Rejection.Layer, res.Rejection.Breaker, res.Rejection.Scope
	}
	if q, ok := telling(modules); ok {
		q.note(r)
	}
	e.remember(r, asked)
	r.Parent = first
	t.Receipt = e.note(r).String()
	if first.IsZero() {
		first = r.ID
	}
	return first
}
