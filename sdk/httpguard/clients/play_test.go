package clients

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

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
	t.Parallel()
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
		t.Log(all[len(all)-1]) // of a storm one is enough
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
