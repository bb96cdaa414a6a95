package httpguard

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A house is an engine on the machine's clock that remembers every observation
// and verdict, so that a test can look at what the wire told.
type house struct {
	*enginetest.House
	mu      sync.Mutex
	seen    []taxonomy.Observation
	routed  []taxonomy.RouteInput
	granted []taxonomy.Operation
}

// Check keeps the observation and says nothing of it.
func (h *house) Check(_ *taxonomy.Operation, obs *taxonomy.Observation) taxonomy.Raw {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, *obs)
	return nil
}

func newHouse(t testing.TB) *house {
	h := &house{}
	h.House = enginetest.New(t, func(p *engine.Parts) {
		p.Clock = engine.RealClock()
		p.Checker = h
		p.Policy.Tools = []engine.Tool{{Tool: "crm", Effect: taxonomy.NonRepeatable}}
	})
	plain := &enginetest.Rules{}
	h.Rules.OnRoute = func(in *taxonomy.RouteInput) taxonomy.RouteAnswer {
		h.mu.Lock()
		h.routed = append(h.routed, *in)
		h.mu.Unlock()
		return plain.Route(context.Background(), in)
	}
	h.Rules.OnAuthorize = func(in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
		h.mu.Lock()
		h.granted = append(h.granted, *in.Operation)
		h.mu.Unlock()
		if in.Operation.ActionClass == "forbidden" {
			return taxonomy.AuthorityAnswer{Decision: taxonomy.Deny, Reasons: []string{"no"}}
		}
		return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow}
	}
	return h
}

// last is the newest observation and what was made of it.
func (h *house) last(t testing.TB) (taxonomy.Observation, taxonomy.RouteInput) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.seen) == 0 || len(h.routed) == 0 {
		t.Fatal("nothing was settled")
	}
	return h.seen[len(h.seen)-1], h.routed[len(h.routed)-1]
}

func (h *house) settledCalls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen)
}

func (h *house) operation(t testing.TB) taxonomy.Operation {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.granted) == 0 {
		t.Fatal("nothing was admitted")
	}
	return h.granted[len(h.granted)-1]
}

// print stands for a keyed fingerprint: it shows neither the text nor its length.
func print(tenant, text string) string {
	var h uint32 = 2166136261
	for _, c := range []byte(tenant + "\x00" + text) {
		h = (h ^ uint32(c)) * 16777619
	}
	return "kt:" + strings.Repeat(string("0123456789abcdef"[h%16]), 4) + string("0123456789abcdef"[h>>8%16])
}

// upstream counts what reached it.
type upstream struct {
	*httptest.Server
	reached atomic.Int64
	mu      sync.Mutex
	heads   []http.Header
	paths   []string
	bodies  []string
}

func newUpstream(t testing.TB, f http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.reached.Add(1)
		b, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.heads = append(u.heads, r.Header.Clone())
		u.paths = append(u.paths, r.URL.RequestURI())
		u.bodies = append(u.bodies, string(b))
		u.mu.Unlock()
		f(w, r)
	}))
	t.Cleanup(u.Server.Close)
	return u
}

func (u *upstream) lastHead() http.Header {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.heads[len(u.heads)-1]
}

// guard is an HTTP client in front of an upstream that speaks a dialect.
func guard(h *house, d Dialect, change func(*Transport)) *http.Client {
	t := &Transport{Engine: h.Engine, Base: &http.Transport{}, Fingerprint: print,
		Dialect: func(*http.Request) Dialect { return d }, Provider: func(*http.Request) string { return d.String() }}
	if change != nil {
		change(t)
	}
	return &http.Client{Transport: t}
}

const chat = `{"model":"gpt-x","messages":[{"role":"user","content":"Say hello"}]}`

func post(t testing.TB, c *http.Client, address, body string, headers ...string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// proxyTo starts a proxy in front of one upstream per dialect.
func proxyTo(t testing.TB, h *house, change func(*ProxyOptions), ups ...Upstream) *httptest.Server {
	t.Helper()
	o := ProxyOptions{Engine: h.Engine, Fingerprint: print, Upstreams: ups}
	if change != nil {
		change(&o)
	}
	p, err := NewProxy(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s
}

func upstreamAt(t testing.TB, name string, d Dialect, address string) Upstream {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return Upstream{Name: name, Dialect: d, URL: u, Provider: d.String()}
}

// eventually waits for something that another goroutine does.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

type urlURL = url.URL

func parseURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

type counter struct{ v atomic.Int64 }

func (c *counter) add()     { c.v.Add(1) }
func (c *counter) n() int64 { return c.v.Load() }
