package httpguard

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func answer(status int, kind, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	jsonType   = "application/json"
	completion = `{"id":"c1","object":"chat.completion","model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`
	overloaded = `{"error":{"message":"The server is overloaded","type":"server_error","code":"overloaded"}}`
)

// loop is what an official SDK does around its transport: up to three attempts,
// numbered, on an error and on 408, 409, 429 and 5xx, unless told otherwise.
func sdkLoop(t *testing.T, c *http.Client, address, body string, headers ...string) (last *http.Response, text string, attempts int) {
	t.Helper()
	for n := range 3 {
		attempts++
		resp, b, err := post(t, c, address, body, append(headers, "X-Stainless-Retry-Count", fmt.Sprint(n))...)
		if err != nil {
			continue
		}
		last, text = resp, b
		s := resp.StatusCode
		retry := s == 408 || s == 409 || s == 429 || s >= 500
		if v := resp.Header.Get("x-should-retry"); v != "" {
			retry = v == "true"
		}
		if !retry {
			return last, text, attempts
		}
	}
	return last, text, attempts
}

// The synthetic answer of an open circuit is a response and not an error, so
// that an SDK's own loop ends after one attempt and the remote sees none.
func TestTransportOpenCircuitIsAResponse(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(529, jsonType, overloaded))
	c := guard(h, OpenAI, nil)
	for range 3 {
		sdkLoop(t, c, u.URL+"/v1/chat/completions", chat)
	}
	opened := u.reached.Load()
	if opened != 5 {
		t.Fatalf("%d calls reached the remote before the circuit opened, want 5 (consecutive failures)", opened)
	}
	resp, body, attempts := sdkLoop(t, c, u.URL+"/v1/chat/completions", chat)
	if u.reached.Load() != opened {
		t.Errorf("the remote was called while its circuit was open")
	}
	if attempts != 1 || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "" {
		t.Errorf("attempts %d status %d retry-after %q", attempts, resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	for k, want := range map[string]string{"fusebox-decision": "rejected", "fusebox-layer": "provider", "fusebox-remote-called": "false",
		"fusebox-outcome": "FAILED_BEFORE_SEND", "x-should-retry": "false"} {
		if got := resp.Header.Get(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
	for _, k := range []string{"fusebox-scope", "fusebox-retry-at", "fusebox-policy", "fusebox-receipt", "fusebox-reason", "fusebox-next-action"} {
		if resp.Header.Get(k) == "" {
			t.Errorf("%s is missing", k)
		}
	}
	var e struct {
		Error struct {
			Message, Type, Code string
			Fusebox             struct {
				Outcome, Layer, Scope, State, Policy, Receipt string
				Retryable                                     bool
				V                                             int
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if e.Error.Code != "circuit_open" || e.Error.Fusebox.State != "OPEN" || e.Error.Fusebox.Layer != "provider" || e.Error.Fusebox.V != 1 ||
		!strings.Contains(e.Error.Message, "was not sent") {
		t.Errorf("body %s", body)
	}
}

func TestTransportAnthropicDialect(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(529, jsonType, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`))
	c := guard(h, Anthropic, nil)
	for range 6 {
		_, _, _ = post(t, c, u.URL+"/v1/messages", `{"model":"claude-x","max_tokens":10,"messages":[]}`)
	}
	resp, body, err := post(t, c, u.URL+"/v1/messages", `{"model":"claude-x","max_tokens":10,"messages":[]}`)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusForbidden || !strings.HasPrefix(body, `{"type":"error","error":{`) {
		t.Errorf("status %d body %s", resp.StatusCode, body)
	}
}

// The verdict travels in headers, and tells an SDK not to try again what cannot
// get better: three attempts at an exhausted quota are two too many.
func TestTransportStopsPointlessRetries(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(429, jsonType, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`))
	resp, _, attempts := sdkLoop(t, guard(h, OpenAI, nil), u.URL+"/v1/chat/completions", chat)
	if attempts != 1 || u.reached.Load() != 1 {
		t.Errorf("%d attempts, %d reached the remote", attempts, u.reached.Load())
	}
	if resp.StatusCode != 429 || resp.Header.Get("fusebox-class") != "budget" || resp.Header.Get("fusebox-reason") != "insufficient_quota" {
		t.Errorf("status %d headers %v", resp.StatusCode, resp.Header)
	}
}

// A passing overload stays retryable: nothing is added that would stop the SDK.
func TestTransportLeavesUsefulRetries(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(503, jsonType, overloaded))
	_, _, attempts := sdkLoop(t, guard(h, OpenAI, nil), u.URL+"/v1/chat/completions", chat)
	if attempts != 3 {
		t.Errorf("%d attempts", attempts)
	}
}

// R-TAX-6: an error inside a 200 is seen, and passed on under an honest status;
// two official SDKs take the 200 for a success.
func TestTransportErrorInsideA200(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(200, jsonType, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`))
	resp, body, err := post(t, guard(h, OpenAI, nil), u.URL+"/v1/chat/completions", chat)
	if err != nil {
		t.Fatal(err)
	}
	_, in := h.last(t)
	if in.Class != taxonomy.RateLimit || resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "Rate limit reached") {
		t.Errorf("class %s status %d body %s", in.Class, resp.StatusCode, body)
	}
}

func TestTransportSuccess(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		h := newHouse(t)
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			if !compressed {
				_, _ = io.WriteString(w, completion)
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(gzipped(completion))
		})
		resp, body, err := post(t, guard(h, OpenAI, nil), u.URL+"/v1/chat/completions", chat, "Accept-Encoding", "gzip", "Authorization", "Bearer sk-secret")
		if err != nil {
			t.Fatal(err)
		}
		if body != completion || resp.Header.Get("Content-Encoding") != "" || resp.Header.Get("fusebox-outcome") != "SUCCEEDED" {
			t.Errorf("compressed %v: %q %v", compressed, body, resp.Header)
		}
		obs, in := h.last(t)
		if in.Outcome != taxonomy.Succeeded || obs.Response.Body != completion {
			t.Errorf("outcome %s body %q", in.Outcome, obs.Response.Body)
		}
		op := h.operation(t)
		if op.Kind != "model" || op.Name != "chat.completions" || op.Model != "gpt-x" || op.Effect != taxonomy.ReadOnly ||
			op.Credential == "" || strings.Contains(op.Credential, "sk-") || op.ArgsFP == "" || op.Deadline == 0 || op.Estimate.OutputTokens != defaultOutput {
			t.Errorf("operation %+v", op)
		}
	}
}

func gzipped(s string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s)
	_ = z.Close()
	return b.Bytes()
}

// A budget settles by what the answer says, not by the estimate (R-AGT-3).
func TestTransportUsageSettlesTheBudget(t *testing.T) {
	stream := `data: {"choices":[{"delta":{"content":"Hi"}}]}` + "\n\n" +
		`data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}` + "\n\ndata: [DONE]\n\n"
	messages := "event: message_start\ndata: " + `{"type":"message_start","message":{"usage":{"input_tokens":4,"cache_read_input_tokens":5,"output_tokens":1}}}` + "\n\n" +
		"event: content_block_delta\ndata: " + `{"type":"content_block_delta","delta":{"text":"Hi"}}` + "\n\n" +
		"event: message_delta\ndata: " + `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}` + "\n\n" +
		"event: message_stop\ndata: " + `{"type":"message_stop"}` + "\n\n"
	for _, tt := range []struct {
		name    string
		dialect Dialect
		path    string
		kind    string
		body    string
	}{
		{"one answer", OpenAI, "/v1/chat/completions", jsonType, completion},
		{"stream", OpenAI, "/v1/chat/completions", "text/event-stream", stream},
		{"messages", Anthropic, "/v1/messages", "text/event-stream", messages},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			if err := h.Use(withBudget(h)); err != nil {
				t.Fatal(err)
			}
			u := newUpstream(t, answer(200, tt.kind, tt.body))
			if _, _, err := post(t, guard(h, tt.dialect, nil), u.URL+tt.path, chat, "Fusebox-Tenant", "acme"); err != nil {
				t.Fatal(err)
			}
			if err := h.Close(t.Context()); err != nil { // units taken for reads come back
				t.Fatal(err)
			}
			usage, err := h.Store.Usage(t.Context(), "tokens/4:acme")
			if err != nil {
				t.Fatal(err)
			}
			if len(usage) != 1 || usage[0].Used.Tokens != 12 || usage[0].Reserved.Tokens != 0 {
				t.Errorf("usage %+v, want 12 tokens used and none reserved", usage)
			}
		})
	}
}

func withBudget(h *house) *engine.Policy {
	old := h.Parts().Policy
	return &engine.Policy{Version: "test@sha256:1111", Rules: old.Rules, Table: old.Table, Breakers: old.Breakers,
		Budgets: []engine.Budget{{Name: "tokens", Scope: []string{"tenant"}, Limit: state.Amounts{Tokens: 10_000}}}}
}

// R-CALL-2, R-CALL-3: a write leaves a durable intent before it is sent, carries
// its key, and when its end is unknown the caller is told so in a way that no
// SDK retries.
func TestTransportUnknownWrite(t *testing.T) {
	h := newHouse(t)
	var intents counter
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		for range h.Intents(t, state.InFlight) {
			intents.add()
		}
		panic(http.ErrAbortHandler) // it was applied, and the answer is lost
	})
	c := guard(h, Plain, nil)
	resp, body, attempts := sdkLoop(t, c, u.URL+"/orders", `{"item":1}`, "Fusebox-Tenant", "acme")
	if u.reached.Load() != 1 || attempts != 1 {
		t.Fatalf("%d attempts, %d reached the remote", attempts, u.reached.Load())
	}
	if intents.n() != 1 {
		t.Errorf("%d intents were durable when the request arrived, want 1", intents.n())
	}
	if resp.StatusCode != http.StatusForbidden || resp.Header.Get("fusebox-outcome") != "UNKNOWN" || resp.Header.Get("fusebox-remote-called") != "true" ||
		!strings.Contains(body, "outcome_unknown") {
		t.Errorf("status %d headers %v body %s", resp.StatusCode, resp.Header, body)
	}
	if k := u.lastHead().Get("Idempotency-Key"); !strings.HasPrefix(k, "fusebox-") {
		t.Errorf("idempotency key %q", k)
	}
	if got := h.Intents(t, state.Unsettled); len(got) != 1 {
		t.Errorf("%d UNKNOWN intents, want 1", len(got))
	}
	// The next one of the same action meets the ambiguity circuit.
	resp, _, err := post(t, c, u.URL+"/orders", `{"item":1}`, "Fusebox-Tenant", "acme")
	if err != nil || resp.StatusCode != http.StatusForbidden || u.reached.Load() != 1 {
		t.Errorf("status %v error %v, %d reached the remote", resp, err, u.reached.Load())
	}
}

func TestTransportRejectionMatrix(t *testing.T) {
	circuit := &engine.Rejection{Layer: taxonomy.LayerProvider, Breaker: "provider", Reason: "circuit_open", State: "OPEN", RetryAt: time.Now().Add(30 * time.Second)}
	far := &engine.Rejection{Layer: taxonomy.LayerProvider, Reason: "circuit_open", State: "OPEN", RetryAt: time.Now().Add(time.Hour)}
	sdk := http.Header{"X-Stainless-Lang": {"js"}}
	vercel := http.Header{"User-Agent": {"ai/6.0.326 ai-sdk/openai/3.0"}}
	for _, tt := range []struct {
		name    string
		rej     *engine.Rejection
		profile Profile
		from    http.Header
		status  int
		code    string
		retry   bool
	}{
		{"circuit, official SDK", circuit, Auto, sdk, 429, "circuit_open", false},
		{"circuit, Vercel", circuit, Auto, vercel, 403, "circuit_open", false},
		{"circuit, nobody knows who", circuit, Auto, nil, 403, "circuit_open", false},
		{"circuit, sdk", circuit, SDK, vercel, 429, "circuit_open", false},
		{"circuit, strict", circuit, Strict, sdk, 403, "circuit_open", false},
		{"circuit, wait", circuit, Wait, vercel, 429, "circuit_open", true},
		{"circuit for an hour, wait", far, Wait, vercel, 429, "circuit_open", true},
		{"denied", &engine.Rejection{Layer: taxonomy.LayerAuthority, Reason: "denied_by_policy"}, Wait, sdk, 403, "denied", false},
		{"approval", &engine.Rejection{Decision: taxonomy.DecideApproval, Layer: taxonomy.LayerAuthority, Reason: "approval_required"}, SDK, sdk, 403, "approval_required", false},
		{"ambiguity", &engine.Rejection{Layer: taxonomy.LayerTool, Breaker: "ambiguity", Reason: "circuit_open", State: "OPEN"}, SDK, sdk, 403, "circuit_open", false},
		{"budget", &engine.Rejection{Layer: taxonomy.LayerBudget, Reason: "budget_exhausted", Class: taxonomy.Budget}, SDK, sdk, 402, "budget_exhausted", false},
		{"store gone", &engine.Rejection{Layer: taxonomy.LayerTool, Reason: "state_unavailable"}, Auto, sdk, 503, "state_unavailable", false},
		{"bulkhead", &engine.Rejection{Layer: taxonomy.LayerProvider, Reason: "bulkhead_full"}, Auto, sdk, 429, "bulkhead_full", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, _ := http.NewRequest(http.MethodPost, "http://x/", nil)
			c := &call{dialect: OpenAI, profile: tt.profile, client: clientOf(tt.from)}
			resp := refused(req, c, tt.rej)
			b, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || !bytes.Contains(b, []byte(`"code":"`+tt.code+`"`)) {
				t.Errorf("status %d, want %d; body %s", resp.StatusCode, tt.status, b)
			}
			stop, after := resp.Header.Get("x-should-retry"), resp.Header.Get("Retry-After")
			if tt.retry != (after != "") || tt.retry == (stop == "false") {
				t.Errorf("x-should-retry %q retry-after %q", stop, after)
			}
			if tt.retry {
				d, err := time.ParseDuration(after + "s")
				if err != nil || d < time.Second || d > longestWait+longestWait/4+time.Second {
					t.Errorf("retry-after %q", after)
				}
			}
			if !json.Valid(b) {
				t.Errorf("not JSON: %s", b)
			}
		})
	}
}

// What a caller says wrongly is one clear answer, and nothing is sent.
func TestTransportBadRequests(t *testing.T) {
	for _, tt := range []struct{ name, body, header, value, code string }{
		{"not JSON", `{"model":`, "", "", "invalid_json"},
		{"a list", `[]`, "", "", "invalid_json"},
		{"effect", chat, "Fusebox-Effect", "harmless", "invalid_header"},
		{"origin", chat, "Fusebox-Origin", "nowhere", "invalid_header"},
		{"priority", chat, "Fusebox-Priority", "high", "invalid_header"},
		{"deadline", chat, "Fusebox-Deadline", "tomorrow", "invalid_header"},
		{"compressed", chat, "Content-Encoding", "gzip", "encoded_body"},
		{"too long a tenant", chat, "Fusebox-Tenant", strings.Repeat("x", 5000), "invalid_operation"},
		{"too large", `{"model":"` + strings.Repeat("x", 2000) + `"}`, "", "", "body_too_large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			u := newUpstream(t, answer(200, jsonType, completion))
			c := guard(h, OpenAI, func(tr *Transport) { tr.Limits.Body = 1000 })
			var head []string
			if tt.header != "" {
				head = []string{tt.header, tt.value}
			}
			resp, body, err := post(t, c, u.URL+"/v1/chat/completions", tt.body, head...)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode < 400 || !strings.Contains(body, `"code":"`+tt.code+`"`) || u.reached.Load() != 0 {
				t.Errorf("status %d body %s, %d reached the remote", resp.StatusCode, body, u.reached.Load())
			}
		})
	}
}

// A panic of the transport below leaves no intent in flight for ever.
func TestTransportPanicBelow(t *testing.T) {
	h := newHouse(t)
	c := guard(h, Plain, func(tr *Transport) {
		tr.Base = roundTrip(func(*http.Request) (*http.Response, error) { panic("below") })
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _, _ = post(t, c, "http://127.0.0.1/orders", `{}`)
	}()
	if in := h.Intents(t, state.InFlight); len(in) != 0 {
		t.Errorf("%d intents in flight", len(in))
	}
	if un := h.Intents(t, state.Unsettled); len(un) != 1 {
		t.Errorf("%d UNKNOWN intents, want 1", len(un))
	}
}

// What the caller's Go code declares goes before what the request says.
func TestTransportWithOperation(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(200, jsonType, `{"ok":true}`))
	ctx := WithOperation(t.Context(), taxonomy.Operation{Tool: "crm", Action: "contact.read", ActionClass: "read", Effect: taxonomy.ReadOnly,
		Tenant: "acme", Agent: "a-1", RunID: "run-1", Attributes: taxonomy.Attributes{"vip": true}})
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, u.URL+"/search/12345", strings.NewReader("{}"))
	resp, err := guard(h, Plain, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	op := h.operation(t)
	if op.Tool != "crm" || op.Action != "contact.read" || op.Tenant != "acme" || op.RunID != "run-1" || op.Attributes["vip"] != true {
		t.Errorf("operation %+v", op)
	}
	if op.Name != "post/search/{id}" {
		t.Errorf("name %q", op.Name)
	}
}

// An answer that is larger than what is kept passes whole, and counts as what
// its status says.
func TestTransportLargeAnswer(t *testing.T) {
	h := newHouse(t)
	big := `{"object":"list","data":[` + strings.Repeat(`{"embedding":[0.1,0.2]},`, 20_000) + `{}],"model":"m"}`
	u := newUpstream(t, answer(200, jsonType, big))
	c := guard(h, OpenAI, func(tr *Transport) { tr.Limits.Kept = 10_000 })
	resp, body, err := post(t, c, u.URL+"/v1/embeddings", `{"model":"m","input":"x"}`)
	if err != nil || body != big || resp.StatusCode != 200 {
		t.Fatalf("status %v error %v, %d of %d bytes", resp, err, len(body), len(big))
	}
	obs, in := h.last(t)
	if in.Outcome != taxonomy.Succeeded || len(obs.Response.Body) > 100 {
		t.Errorf("outcome %s (%s), kept %d bytes", in.Outcome, in.Reason, len(obs.Response.Body))
	}
}

func TestCallError(t *testing.T) {
	cause := timeoutError{}
	e := &CallError{Err: cause, Result: engine.Result{Operation: taxonomy.Operation{Name: "x"}}}
	if !errors.Is(e, error(cause)) || !e.Timeout() || e.Temporary() || !strings.Contains(e.Error(), "UNKNOWN") {
		t.Errorf("%v", e)
	}
}
