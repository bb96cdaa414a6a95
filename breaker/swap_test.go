package breaker

import (
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestSwapWhileProbing (R-BRK-10): the settings change while a probe is out. Its
// lease and its result stand, the new budget binds those that come, and settings
// that are refused change nothing.
func TestSwapWhileProbing(t *testing.T) {
	probing := func(t *testing.T) (*Registry, Setting, *Path, Ticket, Instant) {
		s := enforced("provider", taxonomy.LayerProvider, "provider")
		s.Rule.Probe.Budget, s.Rule.Probe.Successes, s.Rule.Probe.Gap, s.Rule.Ramp = 2, 2, 0, Ramp{}
		g := newRegistry(t, Options{Settings: []Setting{s}})
		key, _ := g.Find("provider:openai")
		if _, err := g.Signal(key, "", "test", 0, second); err != nil {
			t.Fatal(err)
		}
		now := second + Instant(s.Rule.Cooldown.longest())
		p := g.Path(modelOp(), now)
		tk, no := p.Admit(Ask{Operation: modelOp()}, now)
		if no == nil {
			_, no = p.Lease(&tk, Ask{Operation: modelOp()}, now)
		}
		if no != nil || tk.Held == 0 {
			t.Fatalf("no probe: %+v", no)
		}
		return g, s, p, tk, now
	}
	state := func(g *Registry) Circuit { key, _ := g.Find("provider:openai"); c, _ := g.Circuit(key); return c }

	g, s, p, tk, now := probing(t)
	s.Rule.Probe.Budget, s.Rule.Probe.Successes, s.Rule.Trip.Consecutive = 1, 1, 9
	if _, err := g.Swap([]Setting{s}, now); err != nil {
		t.Fatal(err)
	}
	if c := state(g); c.State != HalfOpen || c.live() != 1 {
		t.Fatalf("after the swap: %s with %d leases", c.State, c.live())
	}
	if no := denied(g, modelOp(), now); no == nil || no.Reason != ProbeBusy {
		t.Errorf("a second probe beside a budget of one: %+v", no)
	}
	p.Record(tk, feed(taxonomy.LayerProvider, "provider", taxonomy.SignalSuccess), fine, now)
	if c := state(g); c.State != Closed {
		t.Errorf("one success of one needed, and the circuit is %s", c.State)
	}

	// What a probe cannot prove is refused before anything changes.
	g, s, _, _, now = probing(t)
	s.Rule.Probe.Evidence = CredentialRestored
	if _, err := g.Swap([]Setting{s}, now); err == nil {
		t.Error("a provider circuit that waits for a credential was accepted")
	}
	if c := state(g); c.State != HalfOpen || c.live() != 1 {
		t.Errorf("a refused swap left %s with %d leases", c.State, c.live())
	}
}
