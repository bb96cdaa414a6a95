package clients

import (
	"fmt"
	"slices"
	"strings"
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
	name string
	ask  ask
	// before is done first, and not counted.
	before func(t *testing.T, c client, a ask)
	proxy  map[string]int // requests at the proxy, by client; "" is every other one
	remote int            // attempts at the upstream
	many   int            // asks, where it is not one; then proxy and remote are bounds that play knows
	check  func(t *testing.T, g got)
}

var scenarioList = []scenario{
	{name: "happy", proxy: map[string]int{"": 1}, remote: 1, check: heard},
	{name: "stream", ask: ask{Stream: true}, proxy: map[string]int{"": 1}, remote: 1, check: heard},
	{name: "tool", ask: ask{Tool: true}, proxy: map[string]int{"": 2}, remote: 2, check: func(t *testing.T, g got) {
		heard(t, g)
		if !slices.Equal(g.Tools, []string{"weather Oslo"}) {
			t.Errorf("tools called: %q, want the weather in Oslo, once", g.Tools)
		}
	}},
	// R-BRK-4, R-ADM-2: the circuit is open, and nothing is sent.
	{name: "dead", before: open, proxy: map[string]int{"": 1}, remote: 0, check: func(t *testing.T, g got) {
		refused(t, g, "circuit_open", "provider")
	}},
	{name: "dead-stream", ask: ask{Stream: true}, before: open, proxy: map[string]int{"": 1}, remote: 0, check: func(t *testing.T, g got) {
		refused(t, g, "circuit_open", "provider")
	}},
	{name: "budget", ask: ask{Model: "gold", Headers: map[string]string{"fusebox-tenant": "poor"}}, proxy: map[string]int{"": 1}, remote: 0,
		check: func(t *testing.T, g got) {
			refused(t, g, "budget_exhausted", "budget")
			status(t, g, 402)
		}},
	{name: "denied", ask: ask{Model: "forbidden"}, proxy: map[string]int{"": 1}, remote: 0, check: func(t *testing.T, g got) {
		refused(t, g, "denied", "authority")
		status(t, g, 403)
	}},
	// An application asks fifty times, eight runs at a time, each with the client's
	// own retries (R-FLT-18). The circuit stays open to the end, so no probe goes.
	{name: "storm", ask: ask{}, many: 50, check: broken},
	{name: "quota", proxy: map[string]int{"": 1, "vercel": 2}, remote: 1, check: broken},
	{name: "broken", ask: ask{Stream: true}, proxy: map[string]int{"": 1}, remote: 1, check: partial},
	{name: "cut", ask: ask{Stream: true}, proxy: map[string]int{"": 1}, remote: 1, check: partial},
	{name: "error-in-stream", ask: ask{Stream: true}, proxy: map[string]int{"": 1}, remote: 1, check: partial},
	{name: "error-in-200", proxy: map[string]int{"": 1}, remote: 1, check: broken},
}

func heard(t *testing.T, g got) {
	if !g.Clean || g.Text != spoken {
		t.Errorf("told %q, clean %t, error %+v; want the whole text and a clean end", g.Text, g.Clean, g.Error)
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
		t.Errorf("error %+v, want the code %s and the member fusebox", g.Error, code)
		return
	}
	if f.Layer != layer || f.Outcome != "FAILED_BEFORE_SEND" || f.Receipt == "" || f.Policy == "" || f.Scope == "" || f.Reason == "" || f.Retryable {
		t.Errorf("error.fusebox %+v, want layer %s, FAILED_BEFORE_SEND, with scope, reason, receipt and policy", f, layer)
	}
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

// upstreams is fusebox.toml's part for every client and scenario.
func upstreams(u *upstream) string {
	var b strings.Builder
	for _, c := range contestants {
		for _, s := range scenarioList {
			fmt.Fprintf(&b, "[[upstream]]\nname = %q\ndialect = %q\nurl = \"%s/%s/%s\"\n\n", c.name+"-"+s.name, c.dialect, u.url, c.name, s.name)
		}
	}
	return b.String()
}

// Every client meets every scenario. What is counted is counted on both wires
// (notes: attempts at the proxy, and at the upstream).
func TestClients(t *testing.T) {
	u := startUpstream(t)
	box := startFusebox(t, policies(t, "1h"), upstreams(u))
	wire := startTap(t, strings.TrimPrefix(box.agent, "http://"))
	r := newReport(t)
	t.Run("each", func(t *testing.T) {
		for _, who := range contestants {
			t.Run(who.name, func(t *testing.T) {
				t.Parallel()
				c := who.start(t)
				for _, s := range scenarioList {
					t.Run(s.name, func(t *testing.T) { s.play(t, who, c, u, wire, r) })
				}
			})
		}
	})
	r.print(t)
}

func (s scenario) play(t *testing.T, who contestant, c client, u *upstream, wire *tap, r *report) {
	a := s.ask
	name := who.name + "-" + s.name
	a.Base = wire.url + "/" + name
	a.Prompt = "How is the weather in Oslo?"
	if a.Model == "" {
		a.Model = "scripted"
	}
	if a.Headers["fusebox-tenant"] != "" { // a budget of its own
		a.Headers = map[string]string{"fusebox-tenant": a.Headers["fusebox-tenant"] + "-" + who.name}
	}
	if s.before != nil {
		s.before(t, c, a)
	}
	at := "/" + who.name + "/" + s.name
	proxy, remote := wire.count("/"+name+"/"), u.seen(at)
	all := asked(t, c, a, max(s.many, 1))
	proxy, remote = wire.count("/"+name+"/")-proxy, u.seen(at)-remote
	r.add(who.name, s.name, proxy, remote)
	want, own := s.proxy[who.name]
	if !own {
		want = s.proxy[""]
	}
	if s.many > 0 {
		if most := consecutive - 1 + atOnce; remote < consecutive || remote > most {
			t.Errorf("%d attempts at the upstream, want %d to %d", remote, consecutive, most)
		}
		// Each run has one answer, and those whose first one was a failure of the
		// upstream ask again: three times more where they are Anthropic's or OpenAI's.
		if most := s.many + 2*remote; proxy < s.many || proxy > most {
			t.Errorf("%d requests at the proxy, want %d to %d", proxy, s.many, most)
		}
	} else if proxy != want || remote != s.remote {
		t.Errorf("%d requests at the proxy and %d attempts at the upstream, want %d and %d", proxy, remote, want, s.remote)
	}
	for _, g := range all {
		s.check(t, g)
		if t.Failed() {
			t.Logf("told: %+v, error %+v", g, g.Error)
		}
	}
}

const (
	consecutive = 5 // failures in a row open the provider's circuit (policy.toml)
	atOnce      = 8 // runs of a storm that are under way at once
)

// asked asks n times.
func asked(t *testing.T, c client, a ask, n int) []got {
	out := make([]got, n)
	places := make(chan struct{}, atOnce)
	var runs sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		runs.Go(func() {
			defer func() { <-places }()
			out[i] = c.call(t, a)
		})
	}
	runs.Wait()
	return out
}
