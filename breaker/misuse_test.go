package breaker

import (
	"errors"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestTicketOfAnotherPath (R-ADM-5): a ticket belongs to the path that gave it.
// Whatever path it is handed to, what is recorded, renewed and given back is its
// own; a path with fewer circuits, as after a change of settings, does not fail
// on it.
func TestTicketOfAnotherPath(t *testing.T) {
	wide := []Setting{enforced("tool", taxonomy.LayerTool, "tool", "action"),
		enforced("provider", taxonomy.LayerProvider, "provider", "region", "model")}
	wide[1].Rule.Ramp, wide[1].Rule.Probe.Successes = Ramp{}, 1
	op := modelOp()
	op.Tool, op.Action = "mail", "send"
	const key = "provider|provider=6:openai|region=2:eu|model=5:gpt-x"
	probing := func(t *testing.T) (*Registry, *Path, Ticket, Instant) {
		g := newRegistry(t, Options{Settings: wide})
		if _, err := g.Signal(key, "down", "test", 0, second); err != nil {
			t.Fatal(err)
		}
		now := second.Add(wide[1].Rule.Cooldown.Base)
		p, ask := g.Path(op, now), Ask{Operation: op}
		tk, no := p.Admit(ask, now)
		if no == nil {
			_, no = p.Lease(&tk, ask, now)
		}
		if no != nil || tk.Held == 0 {
			t.Fatalf("no lease: %+v", no)
		}
		if _, err := g.Swap(wide[1:], now); err != nil { // the path has fewer circuits now
			t.Fatal(err)
		}
		q := g.Path(op, now)
		if len(q.nodes) >= len(p.nodes) {
			t.Fatalf("%d circuits, %d before", len(q.nodes), len(p.nodes))
		}
		return g, q, tk, now
	}
	circuit := func(g *Registry) *Circuit { c, _ := g.Circuit(key); return &c }

	g, q, tk, now := probing(t)
	r := q.Record(tk, feed(taxonomy.LayerProvider, "model", taxonomy.SignalSuccess), fine, now)
	if c := circuit(g); r.Err() != nil || c.State != Closed {
		t.Errorf("the probe succeeded: %v, and the circuit is %s", r.Err(), c.State)
	}
	g, q, tk, now = probing(t)
	if q.Release(tk, now); circuit(g).live() != 0 {
		t.Error("the lease did not come back")
	}
	g, q, tk, now = probing(t)
	was := circuit(g).firstEnd()
	if q.Renew(tk, 0, now+second); circuit(g).firstEnd() != was+second {
		t.Error("the lease was not renewed")
	}
	if d := q.ShortestLease(tk); d != wide[1].Rule.Probe.Lease {
		t.Errorf("the shortest lease is %s", d)
	}
	tk.Held, tk.Token = 0, 0
	if needs := q.Leases(&tk, Ask{Operation: op}); len(needs) != 1 || needs[0].Key != key {
		t.Errorf("%+v", needs)
	}

	// One that nobody gave can only count for nothing.
	forged := Ticket{Sequence: g.Sequence(), Token: 7, Held: 1 << 63, Need: 1 << 62, Shadow: 1 << 61}
	q.Record(forged, feed(taxonomy.LayerProvider, "region", taxonomy.SignalFailure), failed, now)
	q.Renew(forged, 0, now)
	q.Release(forged, now)
	q.ShortestLease(forged)
	if changes, no := q.Lease(&forged, Ask{Operation: op}, now); len(changes) != 0 || no != nil || len(q.Leases(&forged, Ask{Operation: op})) != 0 {
		t.Errorf("%+v %+v", changes, no)
	}
}

// TestFeedsThatSayNothing: a signal that does not exist, and feeds that are not
// read, are errors; neither takes back what another feed said.
func TestFeedsThatSayNothing(t *testing.T) {
	g := newRegistry(t, Options{Settings: []Setting{enforced("provider", taxonomy.LayerProvider, "provider")}})
	bad := feed(taxonomy.LayerProvider, "provider", taxonomy.SignalFailure)[0]
	odd := bad
	odd.Signal = 250
	for _, feeds := range [][]taxonomy.Feed{{bad, odd}, {odd, bad}} {
		r := record(t, g, modelOp(), failed, second, feeds...)
		if !errors.Is(r.Err(), ErrUnknownSignal) || len(r.Touched()) != 1 || r.Touched()[0].Event.Outcome != Failed {
			t.Errorf("%v: %+v", r.Err(), r.Touched())
		}
	}
	many := make([]taxonomy.Feed, maxFeeds+3)
	for i := range many {
		many[i] = bad
	}
	if r := record(t, g, modelOp(), failed, second, many[:maxFeeds]...); r.Err() != nil {
		t.Error(r.Err())
	}
	r := record(t, g, modelOp(), failed, second, many...)
	if !errors.Is(r.Err(), ErrTooManyFeeds) || !strings.Contains(r.Err().Error(), "1027") || len(r.Touched()) != 1 {
		t.Errorf("%v", r.Err())
	}
}

// TestScopeOfADigest: "#" and 64 characters name the circuit of a long value
// only where they can be a digest; anything else would be a circuit that no
// call ever reaches.
func TestScopeOfADigest(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	g := newRegistry(t, Options{Settings: []Setting{s}})
	op := &taxonomy.Operation{Provider: strings.Repeat("x", 300)}
	scope := Scope(g.Path(op, second).nodes[0].key)
	if key, err := g.Find(scope); err != nil || key != g.Path(op, second).nodes[0].key {
		t.Fatalf("%q: %q, %v", scope, key, err)
	}
	digest := strings.TrimPrefix(scope, "provider:#")
	for _, wrong := range []string{strings.ToUpper(digest), strings.Repeat("z", 64), digest[:63] + "g"} {
		if key, err := g.Find("provider:#" + wrong); err == nil || !strings.Contains(err.Error(), "64 lower-case hexadecimal digits") {
			t.Errorf("%q became %q, %v", wrong, key, err)
		}
		if _, err := g.Override("provider|provider=#"+wrong, Override{Kind: ForcedOpen, Until: 9 * second, By: "ann", Why: "x"}, second); !errors.Is(err, ErrUnknownCircuit) {
			t.Errorf("key of %q: %v", wrong, err)
		}
	}
	// A value that only looks like one is written with its "#" escaped.
	op.Provider = "#" + strings.Repeat("z", 64)
	key := g.Path(op, second).nodes[0].key
	if back, err := g.Find(Scope(key)); err != nil || back != key {
		t.Errorf("%q: %q, %v", Scope(key), back, err)
	}
}
