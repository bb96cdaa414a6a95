package mcpguard

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Servers that answer badly over HTTP: a stream that is cut, an event that is too
// large, an HTTP error, a page, an answer to something else.
func TestProxyHostileServers(t *testing.T) {
	big := strings.Repeat("x", 64<<10)
	for name, c := range map[string]struct {
		answer  func(w http.ResponseWriter)
		outcome taxonomy.Outcome
		say     string
	}{
		"cut before the answer": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": hello\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\ndata: {\"jsonrpc\"")
		}, taxonomy.Unknown, "may have been carried out"},
		"an event without end": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: "+big)
		}, taxonomy.Unknown, "may have been carried out"},
		"429": {func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		}, taxonomy.Failed, "within 30s"},
		"500": {func(w http.ResponseWriter) { w.WriteHeader(500) }, taxonomy.Unknown, "may have been carried out"},
		"a page": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
		}, taxonomy.Unknown, "may have been carried out"},
		"an answer to another id": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, okLine(99, "other"))
		}, taxonomy.Unknown, "may have been carried out"},
		"nothing": {func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }, taxonomy.Unknown, "may have been carried out"},
		"multi-line data": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: 7\r\nretry: 10\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\r\ndata: \"result\":{\"content\":[]}}\r\n\r\n")
		}, taxonomy.Succeeded, "\"result\""},
	} {
		t.Run(name, func(t *testing.T) {
			box := openBox(t, t.TempDir())
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); c.answer(w) }))
			defer up.Close()
			p := front(t, newGuard(t, box, Options{Message: 32 << 10}), up.URL, ProxyOptions{})
			got := bodyOf(post(t, p.URL+"/mcp/demo", callLine(1, "mail", `{"to":"ann"}`), nil))
			if !strings.Contains(got, c.say) {
				t.Errorf("the client got %s", got)
			}
			in := intents(t, box)
			if len(in) != 1 || in[0].Result.Outcome != c.outcome {
				t.Errorf("intents %+v", in)
			}
		})
	}
}

// Requests that are not passed on, each with its reason.
func TestProxyRefuses(t *testing.T) {
	var reached atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer up.Close()
	callers := func(r *http.Request) (Caller, error) {
		if r.Header.Get("Fusebox-Token") == "" {
			return Caller{}, errors.New("send a valid token in the header fusebox-token")
		}
		return Caller{Tenant: r.Header.Get("Fusebox-Token")}, nil
	}
	p := front(t, newGuard(t, openBox(t, t.TempDir()), Options{Message: 1 << 10}), up.URL, ProxyOptions{Callers: callers})
	at, call := p.URL+"/mcp/demo", callLine(1, "add", `{"a":1}`)
	for name, c := range map[string]struct {
		url, body string
		h         http.Header
		status    int
	}{
		"no token":        {at, call, http.Header{}, 401},
		"another path":    {p.URL + "/mcp/demo/x", call, http.Header{"Fusebox-Token": {"a"}}, 404},
		"an effect":       {at, call, http.Header{"Fusebox-Token": {"a"}, "Fusebox-Effect": {"read_only"}}, 400},
		"compressed":      {at, call, http.Header{"Fusebox-Token": {"a"}, "Content-Encoding": {"gzip"}}, 415},
		"too large":       {at, call + strings.Repeat(" ", 2<<10), http.Header{"Fusebox-Token": {"a"}}, 413},
		"another method":  {at, call, http.Header{"Fusebox-Token": {"a"}, "Mcp-Method": {"tools/list"}}, 400},
		"another tool":    {at, call, http.Header{"Fusebox-Token": {"a"}, "Mcp-Name": {"drop"}}, 400},
		"no JSON":         {at, `{`, http.Header{"Fusebox-Token": {"a"}}, 400},
		"a batch of call": {at, `[` + call + `]`, http.Header{"Fusebox-Token": {"a"}}, 400},
	} {
		resp := post(t, c.url, c.body, c.h)
		if got := bodyOf(resp); resp.StatusCode != c.status || !strings.Contains(got, `"error"`) {
			t.Errorf("%s: status %d, want %d: %s", name, resp.StatusCode, c.status, got)
		}
	}
	if reached.Load() != 0 {
		t.Errorf("the server was reached %d times", reached.Load())
	}
	// R-OPS-9: a session is its tenant's own.
	post(t, at, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, http.Header{"Fusebox-Token": {"a"}, "Mcp-Session-Id": {"s-1"}})
	if resp := post(t, at, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, http.Header{"Fusebox-Token": {"b"}, "Mcp-Session-Id": {"s-1"}}); resp.StatusCode != 404 {
		t.Errorf("another tenant's session: status %d", resp.StatusCode)
	}
}

// What was meant for us, and what belongs to one connection, is not passed on;
// credentials and resumption are.
func TestProxyHeaders(t *testing.T) {
	got := make(chan http.Header, 1)
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	defer up.Close()
	p := front(t, newGuard(t, openBox(t, t.TempDir()), Options{}), up.URL, ProxyOptions{})
	post(t, p.URL+"/mcp/demo", `{"jsonrpc":"2.0","method":"notifications/x"}`, http.Header{"Fusebox-Tenant": {"acme"}, "Authorization": {"Bearer t"},
		"Last-Event-Id": {"e-1"}, "Mcp-Protocol-Version": {"2025-11-25"}, "Origin": {"http://localhost"}, "X-Drop": {"1"}, "Connection": {"X-Drop"}})
	h := <-got
	for k, want := range map[string]string{"Authorization": "Bearer t", "Last-Event-Id": "e-1", "Mcp-Protocol-Version": "2025-11-25",
		"Fusebox-Tenant": "", "Origin": "", "X-Drop": ""} {
		if h.Get(k) != want {
			t.Errorf("%s: %q, want %q", k, h.Get(k), want)
		}
	}
}
