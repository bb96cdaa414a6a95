package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/tracing"
)

// spans are the traces of a server. A nil one sends none.
type spans struct{ *tracing.Exporter }

// newSpans starts what [trace] of fusebox.toml asks for.
func newSpans(ctx context.Context, c sdk.TraceConfig, log *slog.Logger) (*spans, error) {
	if c.Endpoint == "" {
		return nil, nil
	}
	share := c.Share
	if share == 0 {
		share = 1 // as the configuration completes it
	}
	e, err := tracing.Open(ctx, tracing.Options{Endpoint: c.Endpoint, Share: share, Service: "fusebox", Version: version, Log: log})
	if err != nil {
		return nil, err
	}
	return &spans{e}, nil
}

// tracer is what the engine shows its calls to.
func (s *spans) tracer() engine.Tracer {
	if s == nil {
		return nil
	}
	return s.Exporter
}

// lost is how many spans nobody took.
func (s *spans) lost() int64 {
	if s == nil {
		return 0
	}
	return s.Lost()
}

// close sends what waits, for a moment: nobody waits for spans.
func (s *spans) close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return s.Close(ctx)
}

// joined lets the calls of a request belong to the trace that its caller names
// in the headers of W3C Trace Context.
func joined(e *engine.Engine, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := e.Join(r.Context(), r.Header.Get("traceparent"), r.Header.Get("tracestate"))
		if ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
