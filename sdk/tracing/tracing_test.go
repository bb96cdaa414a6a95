package tracing

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

const theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// R-OPS-3: spans follow the conventions for generative AI, say how often a call
// was tried again and whether its failure was permanent, and tell nothing that a
// caller or a remote wrote.
func TestSpansOfACall(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(kept))
	c, err := sdk.Open(t.Context(), sdk.Config{Data: t.TempDir()}, sdk.Parts{Tracer: Of(provider), Clock: enginetest.NewClock(), Still: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	const secret = "the patient's name"
	tries := 0
	op := taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "gpt-x", Tenant: "acme", User: "mary",
		Effect: taxonomy.ReadOnly, RequestID: "r-1", RunID: "run-1", Attributes: taxonomy.Attributes{"prompt": secret}}
	_, err = c.Do(t.Context(), op, func(context.Context, engine.Call) taxonomy.Observation {
		tries++
		status, text := 503, secret
		if tries > 1 {
			status, text = 200, ""
		}
		return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, Error: text},
			Response: &taxonomy.Response{Status: status, Headers: map[string]string{"content-type": "application/json"}, Body: `{"choices":[{"message":{"content":"` + secret + `"},"finish_reason":"stop"}]}`}}
	})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, s := range kept.GetSpans() {
		at := map[string]string{}
		for _, kv := range s.Attributes {
			at[string(kv.Key)] = kv.Value.Emit()
		}
		if all := fmt.Sprint(s.Name, at, s.Events, s.Status); strings.Contains(all, secret) || strings.Contains(all, "mary") {
			t.Errorf("a span tells what it must not: %s", all)
		}
		if at["gen_ai.provider.name"] != "openai" || at["gen_ai.request.model"] != "gpt-x" || at["gen_ai.conversation.id"] != "run-1" || at["fusebox.policy.version"] == "" {
			t.Errorf("%s says %v", s.Name, at)
		}
		lines = append(lines, strings.Join([]string{s.Name, s.SpanKind.String(), at["gen_ai.operation.name"], "retry " + at["fusebox.retry_count"],
			at["fusebox.decision"], at["fusebox.outcome"], at["error.type"], at["fusebox.error.permanence"], at["fusebox.fallback.used"]}, " | "))
	}
	want := []string{
		"fusebox.admit | internal |  | retry 0 | allow |  |  |  | ",
		"fusebox.dispatch | internal |  | retry 0 |  |  |  |  | ",
		"chat gpt-x | client | chat | retry 0 |  | FAILED | transient_transport | transient | ",
		"fusebox.admit | internal |  | retry 1 | allow |  |  |  | ",
		"fusebox.dispatch | internal |  | retry 1 |  |  |  |  | ",
		"chat gpt-x | client | chat | retry 1 |  | SUCCEEDED |  |  | ",
		"chat gpt-x | internal | chat | retry 1 |  | SUCCEEDED |  |  | false",
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("spans:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// An endpoint that never answers, or that refuses, delays and fails nothing: the
// test ends, which it would not if a span waited for it.
func TestEndpointInTrouble(t *testing.T) {
	var asked atomic.Int64
	release := make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1); <-release }))
	defer hung.Close()
	defer close(release)
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.WriteHeader(500) }))
	defer refuses.Close()
	for _, at := range []string{hung.URL, refuses.URL, "http://127.0.0.1:1"} {
		e, err := Open(t.Context(), Options{Endpoint: at, Share: 1, Service: "fusebox"})
		if err != nil {
			t.Fatal(err)
		}
		op := taxonomy.Operation{Kind: "tool", Name: "mail.send"}
		for range 3 * queued {
			_, span := e.Start(t.Context(), engine.StepAttempt, &op)
			span.End(engine.SpanEnd{Judged: true, Verdict: taxonomy.Verdict{Outcome: taxonomy.Succeeded}})
		}
		if at != hung.URL {
			if err := e.Flush(t.Context()); err != nil || e.Lost() == 0 {
				t.Errorf("%s: flush: %v, %d spans lost", at, err, e.Lost())
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Close(gone); err != nil {
			t.Errorf("%s: close: %v", at, err)
		}
	}
	if asked.Load() == 0 {
		t.Error("nobody was asked to take a span")
	}
}

// A share keeps that share of traces, whatever a caller's header asks for; a
// caller that keeps nothing is followed in that.
func TestShare(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	tracer := Of(trace.NewTracerProvider(trace.WithSyncer(kept), trace.WithSampler(sampler(0.25))))
	op := taxonomy.Operation{Kind: "model", Name: "chat", Model: "m"}
	begin := func(parent string) {
		_, span := tracer.Start(tracer.Join(context.Background(), parent, ""), engine.StepAdmit, &op)
		span.End(engine.SpanEnd{})
	}
	const n = 2000
	for i := range n {
		// Ids that lie evenly: the share is exact, and no luck is in the test.
		id := fmt.Sprintf("%016x%016x", 7, uint64(i)<<53)
		begin("00-" + id + "-b7ad6b7169203331-01")
	}
	if got := len(kept.GetSpans()); got < n/5 || got > n/3 {
		t.Errorf("a quarter of %d traces is %d", n, got)
	}
	kept.Reset()
	for i := range 100 {
		begin(fmt.Sprintf("00-%032x-b7ad6b7169203331-00", i+1))
	}
	if got := len(kept.GetSpans()); got != 0 {
		t.Errorf("%d spans of traces that their callers do not keep", got)
	}
}

// A span that the program has already is nearer than a header, and a header that
// is none begins no trace.
func TestJoin(t *testing.T) {
	tracer := Of(trace.NewTracerProvider())
	ctx := tracer.Join(t.Context(), theirs, "")
	if got := oteltrace.SpanContextFromContext(ctx); got.TraceID().String() != theirs[3:35] || !got.IsRemote() {
		t.Errorf("joined %v", got)
	}
	if again := tracer.Join(ctx, "00-11111111111111111111111111111111-b7ad6b7169203331-01", ""); again != ctx {
		t.Error("a header replaced the program's own span")
	}
	for _, bad := range []string{"", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		if oteltrace.SpanContextFromContext(tracer.Join(t.Context(), bad, "")).IsValid() {
			t.Errorf("%q began a trace", bad)
		}
	}
}
