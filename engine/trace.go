package engine

import (
	"context"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Step is a part of a call's way that a trace shows.
type Step uint8

const (
	StepCall     Step = iota // a whole call of Do or DoWith, with all its attempts
	StepAdmit                // may it go?
	StepDispatch             // made durable, right before it is sent
	StepAttempt              // on the wire, until it is settled
	StepFallback             // the choice of what stands in
)

func (s Step) String() string {
	return [...]string{"call", "admit", "dispatch", "attempt", "fallback"}[min(int(s), 4)]
}

// A Tracer shows calls to whoever follows traces. The engine links no tracing
// library: package sdk/tracing has one for OpenTelemetry. No method may block,
// and none may fail a call.
type Tracer interface {
	// Start begins a step under the span that ctx carries.
	Start(ctx context.Context, step Step, op *taxonomy.Operation) (context.Context, Span)
	// Join continues the trace that a caller named in its W3C traceparent.
	Join(ctx context.Context, traceparent, tracestate string) context.Context
}

// A Span is one step under way.
type Span interface {
	In(ctx context.Context) context.Context // what is started in it belongs to the step
	Transition(c *breaker.Change)           // the step moved a circuit
	IDs() (trace, span string)              // hexadecimal, for receipts; "" where nobody keeps it
	Headers() (traceparent, state string)   // for what the step starts; "" without a trace
	End(SpanEnd)
}

// A SpanEnd is what a step came to. What is zero was not known in it. No text
// of a remote or a caller is among it but the names that operations have.
type SpanEnd struct {
	Rejection *Rejection // it was refused here
	Judged    bool
	Verdict   taxonomy.Verdict // when Judged
	Policy    taxonomy.PolicyVersion
	Receipt   string
	Sent      bool // something may have left the process
	Probe     bool
	Degraded  bool // it went on without the state store
	Attempts  int  // of a whole call
	Fallback  *Taken
	Usage     Usage
	Failed    bool // for another reason than those above
}

// start begins a step; a nil span where nobody follows traces.
func (e *Engine) start(ctx context.Context, step Step, op *taxonomy.Operation) (context.Context, Span) {
	if e.parts.Tracer == nil {
		return ctx, nil
	}
	return e.parts.Tracer.Start(ctx, step, op)
}

// Join continues the trace that a caller named in its headers, for servers that
// carry other people's calls.
func (e *Engine) Join(ctx context.Context, traceparent, tracestate string) context.Context {
	if e.parts.Tracer == nil || traceparent == "" {
		return ctx
	}
	return e.parts.Tracer.Join(ctx, traceparent, tracestate)
}

// Trace is what to send along with a dispatched operation, so that the remote's
// spans belong to this attempt's: W3C traceparent and tracestate, "" without a
// trace.
func (p *Permit) Trace() (traceparent, tracestate string) {
	if p.span == nil {
		return "", ""
	}
	return p.span.Headers()
}

// traced is do as one span of its own.
func (e *Engine) traced(ctx context.Context, op taxonomy.Operation, do func(context.Context) (Result, error)) (res Result, err error) {
	ctx, span := e.parts.Tracer.Start(ctx, StepCall, &op)
	defer func() {
		span.End(SpanEnd{Rejection: res.Rejection, Judged: res.Rejection == nil, Verdict: res.Verdict, Policy: res.Policy, Receipt: res.Receipt,
			Sent: res.Attempts > 0, Attempts: res.Attempts, Fallback: res.Fallback, Failed: err != nil})
	}()
	return do(ctx)
}

// endAdmit ends the step that decided.
func (p *Permit) endAdmit(rej *Rejection) {
	if p.span == nil {
		return
	}
	end := SpanEnd{Rejection: rej, Policy: p.policy.Version, Receipt: p.admission.String(), Probe: p.Probe()}
	p.span.End(end)
}

// endDispatch ends the step that made the dispatch durable, or did not.
func (p *Permit) endDispatch(rej *Rejection) {
	if p.span != nil {
		p.span.End(SpanEnd{Rejection: rej, Policy: p.policy.Version, Probe: p.Probe(), Degraded: p.failMode == receipts.StoreUnavailableOpen})
	}
}

// endAttempt ends the span of what was sent with what came of it.
func (p *Permit) endAttempt(v taxonomy.Verdict, changes []breaker.Change, r *receipts.Receipt, sent bool) {
	if p.span == nil || p.undeclared() { // what nobody declared has no step of its own
		return
	}
	for i := range changes {
		p.span.Transition(&changes[i])
	}
	end := SpanEnd{Judged: true, Verdict: v, Policy: p.policy.Version, Receipt: r.ID.String(), Sent: sent, Probe: p.Probe(), Degraded: p.failMode == receipts.StoreUnavailableOpen}
	if u := p.usage.Load(); u != nil {
		end.Usage = *u
	}
	p.span.End(end)
}

// trace names the step in a receipt, so that one leads to the other.
func (p *Permit) trace(r *receipts.Receipt) {
	if p.span != nil {
		r.TraceID, r.SpanID = p.span.IDs()
	}
}
