package mcpguard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// front puts a proxy in front of a handler.
func front(t testing.TB, g *Guard, upstream string, o ProxyOptions) *httptest.Server {
	t.Helper()
	at, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProxy([]Upstream{{Guard: g, URL: at}}, o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s
}

// streamable serves MCP servers over HTTP, and can forget its sessions.
type streamable struct {
	*httptest.Server
	real    *realServer
	o       *mcp.StreamableHTTPOptions
	handler atomic.Pointer[mcp.StreamableHTTPHandler]
	hellos  atomic.Int64
}

func newStreamable(t testing.TB, real *realServer, o *mcp.StreamableHTTPOptions) *streamable {
	s := &streamable{real: real, o: o}
	s.forget()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			b, _ := io.ReadAll(r.Body)
			if strings.Contains(string(b), `"initialize"`) {
				s.hellos.Add(1)
			}
			r.Body = io.NopCloser(strings.NewReader(string(b)))
		}
		s.handler.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// forget is what a restart of the server does to its sessions.
func (s *streamable) forget() {
	s.handler.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.real.Server }, s.o))
}

func dial(t testing.TB, endpoint string, h http.Header) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: &http.Client{Transport: withHeaders{h}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

type withHeaders struct{ h http.Header }

func (w withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range w.h {
		r.Header[k] = v
	}
	return http.DefaultTransport.RoundTrip(r)
}

// A real client and a real server over streamable HTTP notice nothing of the
// proxy, whether answers are streams or documents, with sessions or without.
func TestProxyBetweenRealPeers(t *testing.T) {
	for name, o := range map[string]*mcp.StreamableHTTPOptions{"streams": nil, "documents": {JSONResponse: true}, "stateless": {Stateless: true}} {
		t.Run(name, func(t *testing.T) {
			box := openBox(t, t.TempDir())
			up := newStreamable(t, newRealServer(nil), o)
			p := front(t, newGuard(t, box, Options{}), up.URL, ProxyOptions{})
			cs := dial(t, p.URL+"/mcp/demo", http.Header{"Fusebox-Tenant": {"acme"}, "Fusebox-Agent": {"a-1"}})
			if list, err := cs.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 5 {
				t.Fatalf("%v, %v", list, err)
			}
			if res := use(t, cs, "add", map[string]any{"a": 2, "b": 3}); res.IsError || !strings.Contains(textOfResult(res), `"sum":5`) {
				t.Errorf("add: %s", textOfResult(res))
			}
			if res := use(t, cs, "send", map[string]any{"to": "ann"}); res.IsError || up.real.sent.Load() != 1 {
				t.Errorf("send: %s", textOfResult(res))
			}
			if res := use(t, cs, "unlisted", map[string]any{}); !res.IsError || !strings.Contains(textOfResult(res), "approval") {
				t.Errorf("unlisted: %s", textOfResult(res))
			}
			if in := intents(t, box); len(in) != 1 || in[0].Action != "tool:demo/send/acme" || in[0].Result.Outcome != taxonomy.Succeeded {
				t.Errorf("intents: %+v", in)
			}
		})
	}
}

// What a server says by itself comes through the stream that GET opens.
func TestProxyPassesServerMessages(t *testing.T) {
	real := newRealServer(nil)
	up := newStreamable(t, real, nil)
	p := front(t, newGuard(t, openBox(t, t.TempDir()), Options{}), up.URL, ProxyOptions{})
	heard := make(chan struct{}, 8)
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { heard <- struct{}{} },
	})
	cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.URL + "/mcp/demo"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	for {
		real.RemoveTools("unlisted")
		mcp.AddTool(real.Server, &mcp.Tool{Name: "unlisted"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
		select { // the stream may not be open yet
		case <-heard:
			return
		case <-t.Context().Done():
			t.Fatal("nothing came")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Scenario 21 of the faults: a server that restarts loses all its sessions at one
// moment. Each is initialised again, once; the calls go through, each once; no
// circuit counts it.
func TestProxyInitialisesLostSessionsAgain(t *testing.T) {
	box := openBox(t, t.TempDir())
	up := newStreamable(t, newRealServer(nil), nil)
	p := front(t, newGuard(t, box, Options{}), up.URL, ProxyOptions{})
	const clients = 12
	all := make([]*mcp.ClientSession, clients)
	for i := range all {
		all[i] = dial(t, p.URL+"/mcp/demo", http.Header{"Fusebox-Tenant": {"acme"}, "Fusebox-Agent": {"a-1"}})
		use(t, all[i], "add", map[string]any{"a": i})
	}
	up.forget()
	var wg sync.WaitGroup
	for i, cs := range all {
		wg.Go(func() {
			res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "mail", Arguments: map[string]any{"to": fmt.Sprint("ann", i)}})
			if err != nil || res.IsError {
				t.Errorf("client %d: %v, %+v", i, err, res)
			}
		})
	}
	wg.Wait()
	if n := up.real.mailed.Load(); n != clients {
		t.Errorf("R-CALL-3: %d calls were made %d times", clients, n)
	}
	if n := up.hellos.Load(); n != 2*clients {
		t.Errorf("%d sessions were initialised %d times", clients, n)
	}
	if at, open := newGuard(t, box, Options{}).open("mail", Identity{Tenant: "acme", Agent: "a-1"}); open {
		t.Errorf("the tool's circuit is open until %v", at)
	}
	for _, in := range intents(t, box) {
		if in.Result.Outcome != taxonomy.Succeeded {
			t.Errorf("intent %+v", in)
		}
	}
}

// A session that cannot be initialised again here is the client's to renew.
func TestProxyPassesTheLossOfAnUnknownSession(t *testing.T) {
	box := openBox(t, t.TempDir())
	up := newStreamable(t, newRealServer(nil), nil)
	p := front(t, newGuard(t, box, Options{}), up.URL, ProxyOptions{})
	resp := post(t, p.URL+"/mcp/demo", callLine(1, "add", `{"a":1}`), http.Header{"Mcp-Session-Id": {"gone"}})
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("status %d: %s", resp.StatusCode, bodyOf(resp))
	}
}

func post(t testing.TB, url, body string, h http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range h {
		req.Header[k] = v
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func bodyOf(r *http.Response) string {
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

// R-CALL-3, R-FLT-13: over HTTP too, a non-repeatable tool that times out after
// its commit runs exactly once across a restart of the proxy, and its late answer
// settles it.
func TestProxyWriteThatTimesOutRunsOnce(t *testing.T) {
	data := t.TempDir()
	real := newRealServer(nil)
	real.hang = make(chan struct{})
	up := newStreamable(t, real, nil)
	who := http.Header{"Fusebox-Tenant": {"acme"}, "Fusebox-Agent": {"a-1"}}
	box := openBox(t, data)
	p := front(t, newGuard(t, box, Options{}), up.URL, ProxyOptions{})
	cs := dial(t, p.URL+"/mcp/demo", who)
	for _, want := range []string{"may have been carried out", "nobody knows"} {
		if res := use(t, cs, "stall", map[string]any{"to": "ann"}); !res.IsError || !strings.Contains(textOfResult(res), want) {
			t.Errorf("want %q: %s", want, textOfResult(res))
		}
	}
	closeBox(t, box)
	box = openBox(t, data)
	p = front(t, newGuard(t, box, Options{}), up.URL, ProxyOptions{})
	cs = dial(t, p.URL+"/mcp/demo", who)
	if res := use(t, cs, "stall", map[string]any{"to": "ann"}); !res.IsError || !strings.Contains(textOfResult(res), "nobody knows") {
		t.Errorf("after the restart: %s", textOfResult(res))
	}
	once(t, &real.stalled)
	if res := use(t, cs, "stall", map[string]any{"to": "bob"}); !res.IsError { // times out as well
		t.Fatalf("bob: %s", textOfResult(res))
	}
	close(real.hang)
	wait := func() bool {
		for _, in := range intents(t, box) {
			if in.State == state.Settled && in.Result.Outcome == taxonomy.Succeeded {
				return true
			}
		}
		return false
	}
	for !wait() && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// A server that cannot be reached was sent nothing: no intent stays behind.
func TestProxyServerThatIsNotThere(t *testing.T) {
	box := openBox(t, t.TempDir())
	gone := httptest.NewServer(nil)
	gone.Close()
	p := front(t, newGuard(t, box, Options{}), gone.URL, ProxyOptions{})
	got := read(t, bodyOf(post(t, p.URL+"/mcp/demo", callLine(1, "mail", `{"to":"ann"}`), nil)))
	if !got.Result.IsError || got.Result.StructuredContent.Fusebox["outcome"] != "FAILED_BEFORE_SEND" || !strings.Contains(got.text(), "Nothing happened") {
		t.Errorf("a call: %+v", got)
	}
	if in := intents(t, box); len(in) != 1 || in[0].Result.Outcome != taxonomy.FailedBeforeSend {
		t.Errorf("intents %+v", in)
	}
	if resp := post(t, p.URL+"/mcp/demo", `{"jsonrpc":"2.0","id":"x","method":"ping"}`, nil); resp.StatusCode != http.StatusBadGateway || !strings.Contains(bodyOf(resp), `"id":"x"`) {
		t.Errorf("a ping: status %d", resp.StatusCode)
	}
}

// A call that runs out of time while its session is renewed was not carried out,
// is told so, and is not sent afterwards.
func TestProxyCallThatWaitsForItsSession(t *testing.T) {
	box := openBox(t, t.TempDir())
	var hellos, calls atomic.Int64
	renewing := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch m, _ := parse(b); {
		case m.method == "initialize":
			if hellos.Add(1) > 1 {
				<-renewing
			}
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s-", hellos.Load()))
			writeJSON(w, 200, []byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}`))
		case m.method == "tools/call" && r.Header.Get("Mcp-Session-Id") == "s-1":
			w.WriteHeader(http.StatusNotFound)
		case m.method == "tools/call":
			calls.Add(1)
			writeJSON(w, 200, []byte(`{"jsonrpc":"2.0","id":`+string(m.id)+`,"result":{"content":[]}}`))
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	defer up.Close()
	p := front(t, newGuard(t, box, Options{}), up.URL, ProxyOptions{})
	hello := post(t, p.URL+"/mcp/demo", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, nil)
	in := http.Header{"Mcp-Session-Id": {hello.Header.Get("Mcp-Session-Id")}}
	got := read(t, bodyOf(post(t, p.URL+"/mcp/demo", callLine(2, "stall", `{"to":"ann"}`), in)))
	if d := got.Result.StructuredContent.Fusebox; !got.Result.IsError || d["outcome"] != "FAILED" || d["reason"] != "session_lost" {
		t.Errorf("the call: %+v", got)
	}
	close(renewing)
	got = read(t, bodyOf(post(t, p.URL+"/mcp/demo", callLine(3, "mail", `{"to":"ann"}`), in)))
	if got.Result.IsError || calls.Load() != 1 {
		t.Errorf("the next call: %+v; %d calls reached the server", got, calls.Load())
	}
}
