package breaker

import (
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestInstallBesideAHigherFloor (R-BRK-2, R-BRK-8): the version that new circuits
// begin with comes from other keys, so it hides nothing that is stored: neither
// after a restart, where a circuit that recovered is read before those that are
// open, nor from a process that opened a circuit which is in use here.
func TestInstallBesideAHigherFloor(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	for _, used := range []bool{false, true} {
		g := newRegistry(t, Options{Settings: []Setting{s}, Shared: true})
		recovered, _ := g.Find("provider:a")
		if _, _, err := g.Install(recovered, Circuit{Version: 8, Reason: ByRampPassed}, second); err != nil {
			t.Fatal(err)
		}
		key, _ := g.Find("provider:openai")
		if used {
			op := modelOp()
			p := g.Path(op, second)
			tk, _ := p.Admit(Ask{Operation: op}, second)
			p.Record(tk, []taxonomy.Feed{{Layer: taxonomy.LayerProvider, Breaker: "provider", Level: "provider", Signal: taxonomy.SignalFailure}}, Result{Outcome: taxonomy.Failed, Class: taxonomy.TransientTransport}, second)
			if c, ok := g.Circuit(key); !ok || c.Row != 1 {
				t.Fatalf("the call did not count: %+v", c)
			}
		}
		open := Circuit{State: Open, Version: 1, Reason: ByConsecutive, Since: second, Until: 90 * second, Override: &Override{Kind: ForcedOpen, Until: 600 * second, By: "ann", Why: "x"}, Decided: 1}
		if ok, _, err := g.Install(key, open, second); err != nil || !ok {
			t.Errorf("used %t: an open circuit is not taken in: %v", used, err)
		}
		if _, no := g.Path(modelOp(), second).Admit(Ask{Operation: modelOp()}, second); no == nil {
			t.Errorf("used %t: a call goes through an open circuit", used)
		}
		// What moved here, or was taken in, goes forward only.
		if ok, _, _ := g.Install(key, Circuit{Version: 0}, second); ok {
			t.Errorf("used %t: an older copy was taken in", used)
		}
	}
}
