// Package tracing shows calls as OpenTelemetry spans, by the conventions for
// generative AI.
//
// A program that has a tracer provider hands it to [Of]; [Open] exports over
// OTLP/HTTP by itself. Either goes into sdk.Parts.Tracer. Only who imports this
// package links OpenTelemetry.
//
// No prompt, argument, result or credential is ever in a span. What a span says
// is an enum, a name that policy or the operation has, or a number.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Tracer is an [engine.Tracer] over a tracer provider.
type Tracer struct{ tracer trace.Tracer }

var _ engine.Tracer = (*Tracer)(nil)

// Of makes spans with a provider that the program has already. How they are
// sampled and where they go is the provider's affair.
func Of(p trace.TracerProvider) *Tracer {
	return &Tracer{p.Tracer("github.com/fusebox-dev/fusebox", trace.WithSchemaURL(SchemaURL))}
}

var w3c propagation.TraceContext

// Join implements [engine.Tracer]. A span that the context carries already is
// nearer than a header.
func (t *Tracer) Join(ctx context.Context, traceparent, tracestate string) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return w3c.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate})
}

// Start implements [engine.Tracer].
func (t *Tracer) Start(ctx context.Context, s engine.Step, op *taxonomy.Operation) (context.Context, engine.Span) {
	parent := trace.SpanContextFromContext(ctx)
	name, kind := "fusebox."+s.String(), trace.SpanKindInternal
	if s == engine.StepCall || s == engine.StepAttempt {
		name = spanName(op)
	}
	if s == engine.StepAttempt && op.Kind == "model" {
		kind = trace.SpanKindClient
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	if span.IsRecording() {
		span.SetAttributes(asked(s, op)...)
	}
	return ctx, &spanOf{span: span, remote: parent.IsRemote(), step: s}
}

// spanName is "chat gpt-x" or "execute_tool mail.send".
func spanName(op *taxonomy.Operation) string {
	what := op.Model
	if op.Kind != "model" {
		what = op.Name
	}
	if what == "" {
		return operationName(op)
	}
	return operationName(op) + " " + what
}

// asked is what is known of an operation before it is decided about.
func asked(s engine.Step, op *taxonomy.Operation) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, 24)
	text := func(k attribute.Key, v string) {
		if v != "" {
			out = append(out, k.String(v))
		}
	}
	text(step, s.String())
	if s == engine.StepCall || s == engine.StepAttempt { // or a viewer would count one call four times
		text(genAIOperation, operationName(op))
	}
	text(genAIProvider, op.Provider)
	text(genAIModel, op.Model)
	if op.Kind == "tool" {
		text(genAITool, op.Name)
	}
	text(genAIAgent, op.Agent)
	text(genAIConversation, op.RunID)
	text(requestID, op.RequestID)
	text(effect, op.Effect.String())
	text(origin, op.Origin.String())
	if s != engine.StepCall {
		out = append(out, retryCount.Int64(max(op.Attempt-1, 0)))
	}
	return out
}

// spanOf is one step under way.
type spanOf struct {
	span   trace.Span
	remote bool // the trace is a caller's
	step   engine.Step
}

func (s *spanOf) In(ctx context.Context) context.Context { return trace.ContextWithSpan(ctx, s.span) }

func (s *spanOf) IDs() (string, string) {
	c := s.span.SpanContext()
	if !c.IsValid() || !c.IsSampled() && !s.remote {
		return "", ""
	}
	return c.TraceID().String(), c.SpanID().String()
}

func (s *spanOf) Headers() (traceparent, tracestate string) {
	m := propagation.MapCarrier{}
	w3c.Inject(trace.ContextWithSpan(context.Background(), s.span), m)
	return m["traceparent"], m["tracestate"]
}

func (s *spanOf) Transition(c *breaker.Change) {
	if !s.span.IsRecording() || !c.Moved() {
		return
	}
	s.span.AddEvent(transition, trace.WithAttributes(
		layer.String(c.Layer.String()), breakerName.String(c.Breaker), breakerScope.String(c.Scope),
		from.String(c.From.String()), to.String(c.To.String()), reason.String(c.Reason.String()),
		samples.Int64(int64(c.Facts.Samples)), failures.Int64(int64(c.Facts.Failures)),
	))
}

// End implements [engine.Span].
func (s *spanOf) End(e engine.SpanEnd) {
	defer s.span.End()
	if !s.span.IsRecording() {
		return
	}
	s.span.SetAttributes(s.said(&e)...)
	switch {
	case e.Rejection != nil:
		s.span.SetStatus(codes.Error, e.Rejection.Reason)
	case e.Judged && e.Verdict.Outcome != taxonomy.Succeeded:
		s.span.SetStatus(codes.Error, e.Verdict.Reason)
	case e.Failed:
		s.span.SetStatus(codes.Error, "")
	}
}

// said is what a step came to.
func (s *spanOf) said(e *engine.SpanEnd) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, 16)
	text := func(k attribute.Key, v string) {
		if v != "" {
			out = append(out, k.String(v))
		}
	}
	text(policyVersion, string(e.Policy))
	text(receiptID, e.Receipt)
	if rej := e.Rejection; rej != nil {
		text(decision, rej.Decision.String())
		text(layer, rej.Layer.String())
		text(breakerName, rej.Breaker)
		text(breakerState, rej.State)
		text(breakerScope, rej.Scope)
		text(reason, rej.Reason)
		out = failed(out, rej.Class, rej.Next == "wait" || rej.Next == "queue")
	} else if s.step == engine.StepAdmit {
		text(decision, taxonomy.DecideAllow.String())
	}
	if e.Judged {
		text(outcome, e.Verdict.Outcome.String())
		text(reason, e.Verdict.Reason)
		if e.Verdict.Outcome != taxonomy.Succeeded {
			out = failed(out, e.Verdict.Class, e.Verdict.Retry.Automatic())
		}
	}
	if s.step == engine.StepAttempt || s.step == engine.StepCall {
		out = append(out, remoteCalled.Bool(e.Sent))
	}
	if s.step == engine.StepCall {
		out = append(out, retryCount.Int(max(e.Attempts-1, 0)), fallbackUsed.Bool(e.Fallback != nil))
	}
	if f := e.Fallback; f != nil {
		out = append(out, fallbackName.String(f.Contract+":"+f.Candidate.ID), fallbackKind.String(f.Candidate.Kind), fallbackLosses.StringSlice(f.Losses))
	}
	if e.Probe {
		out = append(out, probe.Bool(true))
	}
	if e.Degraded {
		out = append(out, degraded.Bool(true))
	}
	if u := e.Usage; u.InputTokens != 0 || u.OutputTokens != 0 {
		out = append(out, genAIInputTokens.Int64(u.InputTokens), genAIOutputTokens.Int64(u.OutputTokens))
	}
	return out
}

// failed says what kind of failure it was, and whether it may pass by itself.
func failed(out []attribute.KeyValue, class taxonomy.Class, passes bool) []attribute.KeyValue {
	kind := "permanent"
	if passes {
		kind = "transient"
	}
	return append(out, errorType.String(class.String()), errorClass.String(class.String()), permanence.String(kind))
}
