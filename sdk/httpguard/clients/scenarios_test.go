package clients

import (
	"slices"
	"sync"
	"testing"
)

// A contestant is one client with its defaults.
type contestant struct {
	name    string
	dialect string
	start   func(t *testing.T) client
}

func node(name string) func(t *testing.T) client {
	return func(t *testing.T) client { return startNode(t, name) }
}

var contestants = []contestant{
	{name: "openai", dialect: "openai", start: node("openai")},
	{name: "anthropic", dialect: "anthropic", start: node("anthropic")},
	{name: "vercel", dialect: "openai", start: node("vercel")},
	{name: "langchain", dialect: "openai", start: node("langchain")},
	{name: "agents", dialect: "openai", start: node("agents")},
	{name: "openai-go", dialect: "openai", start: func(*testing.T) client { return openaiGo{} }},
	{name: "anthropic-go", dialect: "anthropic", start: func(*testing.T) client { return anthropicGo{} }},
}

// A scenario is one thing that happens to a client, and what must come of it.
type scenario struct {
	name    string
	ask     ask
	profile string // of [reject]; "" is auto
	// before is done first, and not counted.
	before  func(t *testing.T, c client, a ask)
	proxy   map[string]int // requests at the proxy, by client; "" is every other one
	remote  map[string]int // attempts at the upstream, likewise
	many    int            // asks, where it is not one; then proxy and remote have bounds that play knows
	without string         // a client that would wait for most of a minute between its tries
	check   func(t *testing.T, g got)
	again   func(t *testing.T, g got) // checks a second ask, of which nothing may reach the upstream
	alone   bool                      // it is played without fusebox too, to compare
}

var (
	never = map[string]int{}
	once  = map[string]int{"": 1}
	twice = map[string]int{"": 2}
)

// of is what a client is to do.
func of(n map[string]int, client string) int {
	if own, ok := n[client]; ok {
		return own
	}
	return n[""]
}

var scenarioList = []scenario{
	{name: "happy", proxy: once, remote: once, check: heard},
	{name: "stream", ask: ask{Stream: true}, proxy: once, remote: once, check: heard},
	{name: "tool", ask: ask{Tool: true}, proxy: twice, remote: twice, check: func(t *testing.T, g got) {
		heard(t, g)
		if !slices.Equal(g.Tools, []string{"weather Oslo"}) {
			t.Errorf("tools called: %q, want the weather in Oslo, once", g.Tools)
		}
	}},
	{name: "gzip", proxy: once, remote: once, check: heard},
	{name: "gzip-stream", ask: ask{Stream: true}, proxy: once, remote: once, check: heard},
	{name: "limited", proxy: twice, remote: twice, check: heard},
	// R-BRK-4, R-ADM-2: the circuit is open, and nothing is sent.
	{name: "dead", before: open, proxy: once, remote: never, check: func(t *testing.T, g got) {
		refused(t, g, "circuit_open", "provider")
	}},
	{name: "dead-stream", ask: ask{Stream: true}, before: open, proxy: once, remote: never, check: func(t *testing.T, g got) {
		refused(t, g, "circuit_open", "provider")
	}},
	// The same under other profiles of [reject]: 429 for everybody, which Vercel's
	// client does not take for an answer, and 403 for everybody.
	{name: "dead-sdk", profile: "sdk", before: open, proxy: map[string]int{"": 1, "vercel": 3}, remote: never, check: func(t *testing.T, g got) {
		refused(t, g, "circuit_open", "provider")
		status(t, g, 429)
	}},
	{name: "dead-strict", profile: "strict", before: open, proxy: once, remote: never, check: func(t *testing.T, g got) {
		refused(t, g, "circuit_open", "provider")
		status(t, g, 403)
	}},
	{name: "budget", ask: ask{Model: "gold", Headers: map[string]string{"fusebox-tenant": "poor"}}, proxy: once, remote: never,
		check: func(t *testing.T, g got) {
			refused(t, g, "budget_exhausted", "budget")
			status(t, g, 402)
		}},
	{name: "denied", ask: ask{Model: "forbidden"}, proxy: once, remote: never, check: func(t *testing.T, g got) {
		refused(t, g, "denied", "authority")
		status(t, g, 403)
	}},
	// An application asks fifty times, eight runs at a time, each with the client's
	// own retries (R-FLT-18). The circuit stays open to the end, so no probe goes.
	{name: "storm", ask: ask{}, many: 50, check: broken},
	{name: "quota", proxy: map[string]int{"": 1, "vercel": 2}, remote: once, check: broken, again: noCredit, alone: true},
	{name: "broken", ask: ask{Stream: true}, proxy: once, remote: once, check: partial, alone: true},
	{name: "cut", ask: ask{Stream: true}, proxy: once, remote: once, check: partial, alone: true},
	{name: "error-in-stream", ask: ask{Stream: true}, proxy: once, remote: once, check: partial, alone: true},
	// Vercel's client retries a stream that brought nothing but an error.
	{name: "error-first", ask: ask{Stream: true}, proxy: map[string]int{"": 1, "vercel": 3}, remote: map[string]int{"": 1, "vercel": 3}, check: broken},
	{name: "quota-first", ask: ask{Stream: true}, proxy: once, remote: once, check: broken, again: noCredit, alone: true},
	// A model call may be made again, and every client is told so.
	{name: "broken-body", proxy: map[string]int{"": 3}, remote: map[string]int{"": 3}, check: broken, without: "langchain"},
	{name: "error-in-200", proxy: once, remote: once, check: broken, alone: true},
}

func heard(t *testing.T, g got) {
	if !g.Clean || g.Text != spoken {
		t.Errorf("%v; want the whole text and a clean end", g)
	}
}

// broken is an end that the caller cannot take for a good one.
func broken(t *testing.T, g got) {
	if g.Clean || g.Error == nil {
		t.Errorf("the call ended as if all was well, with the text %q", g.Text)
	}
}

// partial is a stream that broke: what came is the caller's, and that it is not
// all is told (R-FBK-1).
func partial(t *testing.T, g got) {
	broken(t, g)
	if g.Text != spoken {
		t.Errorf("told %q, want all that came: %q", g.Text, spoken)
	}
}

// refused is a call that was not sent, and whose caller can read why.
func refused(t *testing.T, g got, code, layer string) {
	broken(t, g)
	if g.Error == nil {
		return
	}
	f := g.Error.Fusebox
	if g.Error.Code != code || f == nil {
		t.Errorf("%v; want the code %s and the member fusebox", g, code)
		return
	}
	if f.Layer != layer || f.Outcome != "FAILED_BEFORE_SEND" || f.Receipt == "" || f.Policy == "" || f.Scope == "" || f.Reason == "" || f.Retryable {
		t.Errorf("error.fusebox %+v, want layer %s, FAILED_BEFORE_SEND, with scope, reason, receipt and policy", f, layer)
	}
}

// noCredit is a call for an account whose credit is known to be used up.
func noCredit(t *testing.T, g got) {
	refused(t, g, "budget_exhausted", "budget")
	status(t, g, 402)
}

func status(t *testing.T, g got, want int) {
	if g.Error != nil && g.Error.Status != want {
		t.Errorf("status %d, want %d", g.Error.Status, want)
	}
}

// open asks until the circuit is open: side by side, because a client that waits
// between its own tries would take a minute for it.
func open(t *testing.T, c client, a ask) {
	a.Stream = false
	for range 4 {
		var asks sync.WaitGroup
		for range 5 {
			asks.Go(func() { c.call(t, a) })
		}
		asks.Wait()
		if g := c.call(t, a); g.Error != nil && g.Error.Code == "circuit_open" {
			return
		}
	}
	t.Fatal("the circuit did not open")
}
