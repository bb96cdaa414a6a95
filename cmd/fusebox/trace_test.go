package main

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fusebox-dev/fusebox/sdk"
)

// A spanCollector takes spans over OTLP/HTTP, as any collector does.
type spanCollector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*v1.Span
	raw   bytes.Buffer
}

func newSpanCollector(t *testing.T) *spanCollector {
	c := &spanCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		var req collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(b, &req)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(b)
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func spanText(s *v1.Span, key string) string {
	for _, kv := range s.Attributes {
		if kv.Key == key {
			return kv.Value.GetStringValue()
		}
	}
	return ""
}

// R-OPS-3: a server shows its calls to a collector. A caller's trace goes on
// through the proxy to the provider; a circuit that opens is an event; and
// neither prompts nor keys leave with the spans.
func TestTracesOfAServer(t *testing.T) {
	const trace, parent, prompt, key = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "my PIN is 4711", "sk-very-secret"
	var told []string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told = append(told, r.Header.Get("traceparent")+" "+r.Header.Get("tracestate"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(503)
		_, _ = io.WriteString(w, `{"error":{"message":"`+prompt+`"}}`)
	}))
	defer provider.Close()
	c := newSpanCollector(t)
	r := inProcess(t, func(o *startOptions) {
		o.Config.Trace = sdk.TraceConfig{Endpoint: c.URL}
		o.Config.Upstreams = []sdk.Upstream{{Name: "openai", Dialect: "openai", URL: provider.URL}}
	})
	for range 6 {
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.agent+"/openai/v1/chat/completions",
			strings.NewReader(`{"model":"gpt-x","messages":[{"role":"user","content":"`+prompt+`"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("traceparent", "00-"+trace+"-"+parent+"-01")
		req.Header.Set("tracestate", "vendor=1")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err := r.spans.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	byID, opened, refused := map[string]*v1.Span{}, false, false
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) != trace || hex.EncodeToString(s.ParentSpanId) != parent {
			t.Errorf("span %s is not the caller's: trace %x, parent %x", s.Name, s.TraceId, s.ParentSpanId)
		}
		byID[hex.EncodeToString(s.SpanId)] = s
		for _, e := range s.Events {
			opened = opened || e.Name == "fusebox.transition"
		}
		if s.Name == "fusebox.admit" && spanText(s, "fusebox.decision") == "reject" {
			refused = spanText(s, "fusebox.breaker.name") == "provider" && spanText(s, "fusebox.breaker.state") == "OPEN" && spanText(s, "fusebox.reason") == "circuit_open"
		}
	}
	if len(told) == 0 {
		t.Fatal("the provider was not reached")
	}
	for _, header := range told {
		parts := strings.Split(header, "-")
		s := byID[parts[2]]
		if parts[1] != trace || s == nil || s.Name != "chat gpt-x" || s.Kind != v1.Span_SPAN_KIND_CLIENT || !strings.HasSuffix(header, " vendor=1") {
			t.Errorf("the provider was told %q, which is no attempt of ours", header)
		}
	}
	if !opened || !refused {
		t.Errorf("the circuit opened: %v, and refused a call: %v", opened, refused)
	}
	for _, secret := range []string{prompt, key} {
		if bytes.Contains(c.raw.Bytes(), []byte(secret)) {
			t.Errorf("spans tell %q", secret)
		}
	}
}
