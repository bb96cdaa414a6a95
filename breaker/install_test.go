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
		// Counts that another process kept move nothing: a call that is out is not late.
		p := g.Path(modelOp(), second)
		tk, _ := p.Admit(Ask{Operation: modelOp()}, second)
		counted := Circuit{Version: 1, Row: 1, High: second, Window: Window{Start: second, Last: second, Used: true, Sum: Tally{Failed: 1}, Ring: [MaxBuckets]Tally{{Failed: 1}}}}
		if _, changes, err := g.Install(key, counted, second); err != nil || len(changes) > 0 {
			t.Errorf("used %t: counts are taken for a change: %v, %v", used, changes, err)
		}
		p.Record(tk, []taxonomy.Feed{{Layer: taxonomy.LayerProvider, Breaker: "provider", Level: "provider", Signal: taxonomy.SignalFailure}}, Result{Outcome: taxonomy.Failed, Class: taxonomy.TransientTransport}, second)
		if c, _ := g.Circuit(key); c.Row != 2 {
			t.Errorf("used %t: %d failures in a row, want 2", used, c.Row)
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
