package httpguard

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func TestProxyPassesThrough(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(200, jsonType, completion, "X-Request-Id", "r1"))
	s := proxyTo(t, h, nil, upstreamAt(t, "openai", OpenAI, u.URL+"/base"))
	resp, body, err := post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions?x=1&y=%20", chat,
		"Authorization", "Bearer sk-secret", "Fusebox-Tenant", "acme", "Fusebox-Agent", "a1", "Fusebox-Run", "run1", "Fusebox-Workflow", "triage",
		"User-Agent", "OpenAI/JS 6.49.0", "X-Stainless-Retry-Count", "0", "X-Forwarded-For", "10.0.0.1", "Fusebox-Token", "t")
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || body != completion || resp.Header.Get("X-Request-Id") != "r1" || resp.Header.Get("fusebox-receipt") == "" {
		t.Errorf("status %d body %q headers %v", resp.StatusCode, body, resp.Header)
	}
	u.mu.Lock()
	path, head, sent := u.paths[0], u.heads[0], u.bodies[0]
	u.mu.Unlock()
	if path != "/base/v1/chat/completions?x=1&y=%20" || sent != chat {
		t.Errorf("the upstream got %s with %s", path, sent)
	}
	if head.Get("Authorization") != "Bearer sk-secret" || head.Get("User-Agent") != "OpenAI/JS 6.49.0" || head.Get("X-Stainless-Retry-Count") != "0" {
		t.Errorf("headers changed: %v", head)
	}
	for k := range head {
		if strings.HasPrefix(k, "Fusebox-") || k == "X-Forwarded-For" {
			t.Errorf("%s was passed on", k)
		}
	}
	op := h.operation(t)
	if op.Tenant != "acme" || op.Agent != "a1" || op.RunID != "run1" || op.Workflow != "triage" || op.Provider != "openai" || op.Attempt != 1 {
		t.Errorf("operation %+v", op)
	}
}

// R-RCP-5: no credential and no text of a conversation is in any receipt, or in
// anything that is kept.
func TestProxyKeepsNoSecrets(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(401, jsonType, `{"error":{"message":"Incorrect API key provided: sk-verysecretverysecret","code":"invalid_api_key"}}`))
	s := proxyTo(t, h, nil, upstreamAt(t, "openai", OpenAI, u.URL), upstreamAt(t, "anthropic", Anthropic, u.URL))
	_, _, _ = post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", strings.Replace(chat, "Say hello", "the launch code is 0000", 1), "Authorization", "Bearer sk-verysecretverysecret")
	_, _, _ = post(t, http.DefaultClient, s.URL+"/anthropic/v1/messages", chat, "X-Api-Key", "sk-verysecretverysecret")
	n := 0
	for _, r := range h.Receipts(t) {
		n++
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"verysecret", "launch code", "Say hello"} {
			if strings.Contains(string(b), secret) {
				t.Errorf("receipt %s holds %q: %s", r.Kind, secret, b)
			}
		}
	}
	if n < 4 {
		t.Errorf("%d receipts, want an admission and an outcome for both calls", n)
	}
	if op := h.operation(t); op.Credential == "" {
		t.Error("no fingerprint of the credential")
	}
}

// Before the first byte everything is refused in the dialect; nothing that an
// upstream might read differently is passed on.
func TestProxyRefuses(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(200, jsonType, completion))
	s := proxyTo(t, h, nil, upstreamAt(t, "openai", OpenAI, u.URL), upstreamAt(t, "anthropic", Anthropic, u.URL))
	for _, tt := range []struct {
		name, target string
		head         [2]string
		status       int
		code         string
	}{
		{"no upstream", "/nobody/v1/models", [2]string{}, 404, "no_such_upstream"},
		{"the root", "/", [2]string{}, 404, "no_such_upstream"},
		{"dots", "/openai/v1/../../anthropic/v1/messages", [2]string{}, 400, "ambiguous_path"},
		{"escaped dots", "/openai/v1/%2e%2e/x", [2]string{}, 400, "ambiguous_path"},
		{"escaped slash", "/openai/v1%2fmodels", [2]string{}, 400, "ambiguous_path"},
		{"backslash", "/openai/v1%5cmodels", [2]string{}, 400, "ambiguous_path"},
		{"two slashes", "/openai//v1/models", [2]string{}, 400, "ambiguous_path"},
		{"a session", "/openai/v1/realtime", [2]string{"Upgrade", "websocket"}, 501, "upgrade"},
		{"anthropic", "/anthropic/v1/%2e/messages", [2]string{}, 400, "ambiguous_path"},
		{"denied", "/openai/v1/models", [2]string{"Fusebox-Action-Class", "forbidden"}, 403, "denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// A client of our own: net/http would clean some of these paths.
			req := httptest.NewRequest(http.MethodGet, s.URL, nil)
			req.RequestURI = ""
			req.URL.Opaque = tt.target
			if tt.head[0] != "" {
				req.Header.Set(tt.head[0], tt.head[1])
				if tt.head[0] == "Upgrade" {
					req.Header.Set("Connection", "Upgrade")
				}
			}
			resp, err := (&http.Transport{}).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || !strings.Contains(string(b), `"code":"`+tt.code+`"`) || resp.Header.Get("fusebox-remote-called") != "false" {
				t.Errorf("status %d body %s", resp.StatusCode, b)
			}
			if strings.HasPrefix(tt.target, "/anthropic") != strings.HasPrefix(string(b), `{"type":"error"`) {
				t.Errorf("dialect: %s", b)
			}
		})
	}
	if n := u.reached.Load(); n != 0 {
		t.Errorf("%d requests reached the upstream", n)
	}
}

// R-OPS-9: the tenant is the one that was proven, whatever the headers say.
func TestProxyCallers(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(200, jsonType, completion))
	s := proxyTo(t, h, func(o *ProxyOptions) {
		o.Callers = func(r *http.Request) (Caller, error) {
			if r.Header.Get("Fusebox-Token") != "good" {
				return Caller{}, ErrCaller
			}
			return Caller{Name: "bot", Tenant: "acme"}, nil
		}
	}, upstreamAt(t, "openai", OpenAI, u.URL))
	resp, body, _ := post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat, "Fusebox-Token", "bad")
	if resp.StatusCode != 401 || !strings.Contains(body, "unknown_caller") || u.reached.Load() != 0 {
		t.Errorf("status %d body %s", resp.StatusCode, body)
	}
	if _, _, err := post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat, "Fusebox-Token", "good", "Fusebox-Tenant", "other", "Fusebox-Agent", "a1"); err != nil {
		t.Fatal(err)
	}
	if op := h.operation(t); op.Tenant != "acme" || op.Agent != "a1" {
		t.Errorf("tenant %q agent %q", op.Tenant, op.Agent)
	}
}

// An upstream that cannot be reached gives one answer in the dialect.
func TestProxyUpstreamGone(t *testing.T) {
	h := newHouse(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	s := proxyTo(t, h, nil, upstreamAt(t, "openai", OpenAI, gone.URL))
	resp, body, err := post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusBadGateway || resp.Header.Get("fusebox-outcome") != "FAILED_BEFORE_SEND" ||
		resp.Header.Get("fusebox-remote-called") != "false" || !strings.Contains(body, `"code":"connect`) {
		t.Errorf("status %d headers %v body %s", resp.StatusCode, resp.Header, body)
	}
}

// Of an SDK's numbered tries one request is made; so of a blind repetition of
// what failed; a repetition of what worked is a new wish.
func TestProxyRecognisesRetries(t *testing.T) {
	h := newHouse(t)
	var fail atomic.Bool
	fail.Store(true)
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if fail.Load() {
			answer(503, jsonType, overloaded)(w, r)
			return
		}
		answer(200, jsonType, completion)(w, r)
	})
	s := proxyTo(t, h, nil, upstreamAt(t, "openai", OpenAI, u.URL))
	try := func(body string, head ...string) taxonomy.Operation {
		if _, _, err := post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", body, head...); err != nil {
			t.Fatal(err)
		}
		return h.operation(t)
	}
	a := try(chat, "X-Stainless-Retry-Count", "0")
	b := try(chat, "X-Stainless-Retry-Count", "1")
	fail.Store(false)
	c := try(chat, "X-Stainless-Retry-Count", "2")
	if a.RequestID != b.RequestID || b.RequestID != c.RequestID || b.Attempt != 2 || c.Attempt != 3 || c.Origin != taxonomy.OriginRetry {
		t.Errorf("tries %s/%d %s/%d %s/%d", a.RequestID, a.Attempt, b.RequestID, b.Attempt, c.RequestID, c.Attempt)
	}
	if d := try(chat); d.RequestID == c.RequestID || d.Attempt != 1 || d.Origin != taxonomy.OriginFirst {
		t.Errorf("a repetition of what worked: %s/%d %s", d.RequestID, d.Attempt, d.Origin)
	}
	other := strings.Replace(chat, "hello", "goodbye", 1)
	fail.Store(true)
	e := try(other)
	f := try(other)
	if f.RequestID != e.RequestID || f.Attempt != 2 || f.Origin != taxonomy.OriginRetry {
		t.Errorf("a repetition of what failed: %s/%d, %s/%d", e.RequestID, e.Attempt, f.RequestID, f.Attempt)
	}
	if g := try(other, "Fusebox-Tenant", "another"); g.RequestID == e.RequestID {
		t.Error("another tenant's request was taken for the same")
	}
}

// R-ADM-6 at the door: what is too much is refused at once.
func TestProxyInFlight(t *testing.T) {
	h := newHouse(t)
	hold := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) { <-hold; answer(200, jsonType, completion)(w, r) })
	s := proxyTo(t, h, func(o *ProxyOptions) { o.InFlight = 2 }, upstreamAt(t, "openai", OpenAI, u.URL))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _, _, _ = post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat) })
	}
	eventually(t, "two requests at the upstream", func() bool { return u.reached.Load() == 2 })
	resp, body, _ := post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat)
	if resp.StatusCode != 503 || !strings.Contains(body, "too_many_in_flight") {
		t.Errorf("status %d body %s", resp.StatusCode, body)
	}
	close(hold)
	wg.Wait()
}

func TestProxyOwnKey(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(200, jsonType, completion))
	a, b := upstreamAt(t, "openai", OpenAI, u.URL), upstreamAt(t, "anthropic", Anthropic, u.URL)
	a.Key, b.Key = func() string { return "ours" }, func() string { return "ours" }
	s := proxyTo(t, h, nil, a, b)
	_, _, _ = post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat, "Authorization", "Bearer theirs")
	if got := u.lastHead().Get("Authorization"); got != "Bearer ours" {
		t.Errorf("authorization %q", got)
	}
	_, _, _ = post(t, http.DefaultClient, s.URL+"/anthropic/v1/messages", chat, "X-Api-Key", "theirs", "Authorization", "Bearer theirs")
	if got := u.lastHead(); got.Get("X-Api-Key") != "ours" || got.Get("Authorization") != "" {
		t.Errorf("headers %v", got)
	}
}

// Other paths are judged by their method.
func TestProxyOtherPaths(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(200, jsonType, `{"data":[]}`))
	s := proxyTo(t, h, nil, upstreamAt(t, "openai", OpenAI, u.URL))
	resp, err := http.Get(s.URL + "/openai/v1/files/file-abc123")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	op := h.operation(t)
	if op.Kind != "tool" || op.Effect != taxonomy.ReadOnly || op.Action != "get/v1/files/{id}" || op.ActionClass != "read" {
		t.Errorf("GET: %+v", op)
	}
	if _, _, err := post(t, http.DefaultClient, s.URL+"/openai/v1/fine_tuning/jobs", `{}`); err != nil {
		t.Fatal(err)
	}
	op = h.operation(t)
	if op.Kind != "tool" || op.Effect != taxonomy.NonRepeatable || op.ActionClass != "write" {
		t.Errorf("POST: %+v", op)
	}
	if got := h.Intents(t, state.Settled); len(got) != 1 {
		t.Errorf("%d settled intents, want the POST's", len(got))
	}
	if u.lastHead().Get("Idempotency-Key") == "" {
		t.Error("a write left without an idempotency key")
	}
}

// Every request is accounted for: an admission and an outcome, or a rejection.
func TestProxyAccountsForEveryRequest(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Mode") {
		case "0":
			answer(200, jsonType, completion)(w, r)
		case "1":
			parts(chunkOne, chunkStop, chunkDone)(w, r)
		case "2":
			parts(chunkOne, "CUT")(w, r)
		default:
			answer(500, jsonType, overloaded)(w, r)
		}
	})
	s := proxyTo(t, h, nil, upstreamAt(t, "openai", OpenAI, u.URL))
	const callers, calls = 8, 25
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := range calls {
				_, _, _ = post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat, "Mode", fmt.Sprint(n%4), "Fusebox-Request", fmt.Sprintf("r-%d-%d", i, n))
			}
		})
	}
	wg.Wait()
	eventually(t, "every permit came back", func() bool { return u.reached.Load() == int64(h.settledCalls()) })
	ends := map[string]int{}
	for _, r := range h.Receipts(t) {
		if r.Kind == receipts.KindOutcome || r.Kind == receipts.KindAdmission && r.Reason != "admitted" {
			ends[r.RequestID]++
		}
	}
	for i := range callers {
		for n := range calls {
			if id := fmt.Sprintf("r-%d-%d", i, n); ends[id] != 1 {
				t.Errorf("request %s has %d ends in the receipts", id, ends[id])
			}
		}
	}
}

func TestNewProxyComplains(t *testing.T) {
	h := newHouse(t)
	ok := upstreamAt(t, "openai", OpenAI, "http://a")
	for _, tt := range []struct {
		o    ProxyOptions
		want string
	}{
		{ProxyOptions{Upstreams: []Upstream{ok}}, "Engine is missing"},
		{ProxyOptions{Engine: h.Engine}, "Upstreams is empty"},
		{ProxyOptions{Engine: h.Engine, Upstreams: []Upstream{ok, ok}}, "a second one"},
		{ProxyOptions{Engine: h.Engine, Upstreams: []Upstream{{Name: "A b", URL: ok.URL}}}, "lower-case"},
		{ProxyOptions{Engine: h.Engine, Upstreams: []Upstream{{Name: "a"}}}, "URL is missing"},
	} {
		if _, err := NewProxy(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}

// A body that trickles in does not hold a place for ever.
func TestProxySlowBody(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, answer(200, jsonType, completion))
	s := proxyTo(t, h, func(o *ProxyOptions) { o.Limits.Upload = 50 * time.Millisecond }, upstreamAt(t, "openai", OpenAI, u.URL))
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"model\":")
	b, err := io.ReadAll(c)
	if err != nil && !strings.Contains(string(b), "408") {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(b), "HTTP/1.1 408") || !strings.Contains(string(b), "body_too_slow") || u.reached.Load() != 0 {
		t.Errorf("answer %q", b)
	}
}
