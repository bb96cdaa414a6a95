package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"go.opentelemetry.io/otel/attribute"
)

// Options say where spans go.
type Options struct {
	Endpoint string  // of OTLP over HTTP: "http://127.0.0.1:4318"; without a path it is /v1/traces
	Share    float64 // of traces that are kept, 0 to 1
	Service  string  // service.name; OTEL_RESOURCE_ATTRIBUTES adds to it
	Version  string
	Log      *slog.Logger // hears once a minute that spans are lost; nil hears nothing
}

// An Exporter is a [Tracer] that sends its spans by itself. Spans wait in a
// bounded queue; when it is full, or nobody takes them, they are lost and calls
// go on as if nothing was.
type Exporter struct {
	*Tracer
	provider *trace.TracerProvider
	out      *patient
}

// Bounds of what waits, and for how long.
const (
	queued        = 4096
	every         = time.Second
	exportTimeout = 5 * time.Second
	longestValue  = 256 // bytes of one attribute
)

// Open starts an exporter. It does not wait for the endpoint to be there.
// Headers, such as an API key of a collector, come from
// OTEL_EXPORTER_OTLP_HEADERS, so that no secret stands in a file.
func Open(ctx context.Context, o Options) (*Exporter, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("trace endpoint %q: write a URL such as http://127.0.0.1:4318", o.Endpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	otlp, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil {
		return nil, fmt.Errorf("trace endpoint %s: %w", o.Endpoint, err)
	}
	about, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", o.Service), attribute.String("service.version", o.Version)))
	if err != nil {
		return nil, fmt.Errorf("trace resource: %w", err)
	}
	limits := trace.NewSpanLimits()
	limits.AttributeValueLengthLimit = longestValue
	out := &patient{SpanExporter: otlp, log: o.Log, endpoint: u.Redacted()}
	p := trace.NewTracerProvider(
		trace.WithResource(about), trace.WithRawSpanLimits(limits), trace.WithSampler(sampler(o.Share)),
		trace.WithBatcher(out, trace.WithMaxQueueSize(queued), trace.WithBatchTimeout(every), trace.WithExportTimeout(exportTimeout)),
	)
	return &Exporter{Of(p), p, out}, nil
}

// sampler keeps a share of all traces, by their id: every process keeps the same
// ones. A caller can ask for less, and never for more than the share.
func sampler(share float64) trace.Sampler {
	byID := trace.TraceIDRatioBased(share)
	return trace.ParentBased(byID, trace.WithRemoteParentSampled(byID))
}

// Lost is how many spans the endpoint did not take.
func (e *Exporter) Lost() int64 { return e.out.lost.Load() }

// Flush sends what waits, until ctx ends.
func (e *Exporter) Flush(ctx context.Context) error { return e.provider.ForceFlush(ctx) }

// Close sends what waits, until ctx ends, and stops. An endpoint that does not
// answer is no error of the program's.
func (e *Exporter) Close(ctx context.Context) error {
	err := e.provider.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// patient keeps an endpoint's troubles to itself: it counts what was lost and
// says so once a minute.
type patient struct {
	trace.SpanExporter
	log      *slog.Logger
	endpoint string
	lost     atomic.Int64
	told     atomic.Int64 // Unix seconds
}

// ExportSpans implements [trace.SpanExporter].
func (p *patient) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	err := p.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	n := p.lost.Add(int64(len(spans)))
	now := time.Now().Unix()
	if last := p.told.Load(); p.log != nil && now-last >= 60 && p.told.CompareAndSwap(last, now) {
		p.log.Warn("spans are lost; calls go on without them", "endpoint", p.endpoint, "lost", n, "error", err)
	}
	return nil
}
