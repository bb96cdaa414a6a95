package breaker

import (
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestRollupAfterALostProbe (R-BRK-2): a child that opens again because its
// probe was lost counts in its parent's roll-up, whatever it was that noticed:
// time, a lease that came back or was renewed, one that was asked for, a change
// of settings.
func TestRollupAfterALostProbe(t *testing.T) {
	set := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	set.Rollup = Rollup{Children: 2, Share: One / 2}
	set.Rule.Probe.LostMax, set.Rule.Probe.Gap = 1, 0
	set.Rule.Mode = taxonomy.ModeObserve // so that whoever asks for a lease commits what it finds
	set.Rule.Probe.Budget = 2
	const parent = "provider|provider=6:openai"
	for name, notice := range map[string]func(*Registry, *Path, Ticket, Ticket, Instant) []Change{
		"tick": func(g *Registry, p *Path, out, asks Ticket, now Instant) []Change { return g.Tick(now) },
		"release": func(g *Registry, p *Path, out, asks Ticket, now Instant) []Change {
			return p.Release(out, now).Changes
		},
		"renew": func(g *Registry, p *Path, out, asks Ticket, now Instant) []Change {
			return p.Renew(out, 0, now).Changes
		},
		"lease": func(g *Registry, p *Path, out, asks Ticket, now Instant) []Change {
			changes, no := p.Lease(&asks, Ask{Operation: modelOp()}, now)
			if no != nil {
				t.Errorf("refused by %s", no.Scope)
			}
			return changes
		},
		"swap": func(g *Registry, p *Path, out, asks Ticket, now Instant) []Change {
			s, err := g.Swap(g.Settings(), now)
			if err != nil {
				t.Error(err)
			}
			return s.Changes
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRegistry(t, Options{Settings: []Setting{set}})
			op := modelOp()
			p := g.Path(op, second)
			a, b := p.nodes[1].key, "provider|provider=6:openai|model=5:other"
			open := func(key string, now Instant) {
				if _, err := g.Signal(key, "down", "test", 0, now); err != nil {
					t.Fatal(err)
				}
			}
			open(a, second)
			now := second.Add(set.Rule.Cooldown.Base)
			ask := Ask{Operation: op}
			out, _ := p.Admit(ask, now)
			if _, no := p.Lease(&out, ask, now); no != nil || out.Held == 0 {
				t.Fatalf("no lease: %+v", no)
			}
			asks, _ := p.Admit(ask, now)
			open(b, now.Add(set.Rule.Probe.Lease/2)) // its own cooldown lasts longer than the lease
			if c, _ := g.Circuit(parent); c.State != Closed || !asks.Needs() {
				t.Fatalf("the parent is %s, a second lease is needed: %v", c.State, asks.Needs())
			}
			changes := notice(g, p, out, asks, now.Add(set.Rule.Probe.Lease))
			if c, _ := g.Circuit(a); c.State != Open || c.Reason != ByProbesLost {
				t.Fatalf("the child is %s by %s", c.State, c.Reason)
			}
			if c, _ := g.Circuit(parent); c.State != Open || c.Reason != ByRollup {
				t.Fatalf("both children are open, the parent is %s", c.State)
			}
			if last := changes[len(changes)-1]; last.Key != parent || last.To != Open {
				t.Fatalf("not reported: %+v", changes)
			}
		})
	}
}
