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
	rules, wires := policies(t, "1h"), map[string]*tap{}
	for _, profile := range []string{"", "sdk", "strict"} {
		reject := ""
		if profile != "" {
			reject = fmt.Sprintf("[reject]\nprofile = %q\n\n", profile)
		}
		box := startFusebox(t, rules, reject+upstreams(u))
		wires[profile] = startTap(t, strings.TrimPrefix(box.agent, "http://"))
	}
	r := newReport(t)
	t.Run("each", func(t *testing.T) {
		for _, who := range contestants {
			t.Run(who.name, func(t *testing.T) {
				t.Parallel()
				c := who.start(t)
				for _, s := range scenarioList {
					t.Run(s.name, func(t *testing.T) {
						t.Parallel()
						s.play(t, who, c, u, wires[s.profile], r)
						if s.alone {
							s.playAlone(t, who, c, u, r)
						}
					})
				}
			})
		}
	})
	r.print(t)
}

func (s scenario) play(t *testing.T, who contestant, c client, u *upstream, wire *tap, r *report) {
	if s.without == who.name {
		t.Skip("this client waits too long between its tries")
	}
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
	if s.many > 0 {
		if most := consecutive - 1 + atOnce; remote < consecutive || remote > most {
			t.Errorf("%d attempts at the upstream, want %d to %d", remote, consecutive, most)
		}
		// Who met a failure of the upstream asks again, at most twice before it gives
		// up, and hears no on the way.
		if most := s.many + 2*remote; proxy < s.many || proxy > most {
			t.Errorf("%d requests at the proxy, want %d to %d", proxy, s.many, most)
		}
	} else if p, u := of(s.proxy, who.name), of(s.remote, who.name); proxy != p || remote != u {
		t.Errorf("%d requests at the proxy and %d attempts at the upstream, want %d and %d", proxy, remote, p, u)
	}
	for _, g := range all {
		s.check(t, g)
	}
	if s.again != nil {
		before := u.seen(at)
		g := c.call(t, a)
		s.again(t, g)
		if n := u.seen(at) - before; n != 0 {
			t.Errorf("%d attempts at the upstream for a second ask, want none", n)
		}
		all = append(all, g)
	}
	if t.Failed() {
		for _, g := range all {
			t.Logf("told: %+v, error %+v", g, g.Error)
		}
	}
}

// playAlone shows what the client makes of the same upstream by itself.
func (s scenario) playAlone(t *testing.T, who contestant, c client, u *upstream, r *report) {
	a := s.ask
	at := "/" + who.name + "/" + s.name
	a.Base, a.Model, a.Prompt = u.url+at, "scripted", "How is the weather in Oslo?"
	before := u.seen(at)
	g := c.call(t, a)
	r.addAlone(who.name, s.name, u.seen(at)-before, g)
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
