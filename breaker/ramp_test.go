package breaker

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestRampWithoutRequestIDs (R-BRK-5): calls without a request id draw a lot
// each, or all of them would go or none, and the ramp of an unlucky circuit
// would see no success for ever. With one, the same call draws the same lot.
func TestRampWithoutRequestIDs(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Probe.Successes = 1
	lots := rand.New(rand.NewPCG(1, 2))
	draws := 0
	g := newRegistry(t, Options{Settings: []Setting{s}, Draw: func() PPM { draws++; return PPM(lots.Uint32N(uint32(One))) }})
	for i := range 20 {
		op := &taxonomy.Operation{Kind: "model", Provider: fmt.Sprint("p", i), Effect: taxonomy.ReadOnly}
		key, _ := g.Find(s.Name + ":" + op.Provider)
		if _, err := g.Signal(key, "down", "test", 0, second); err != nil {
			t.Fatal(err)
		}
		now := second.Add(s.Rule.Cooldown.Base)
		record(t, g, op, fine, now, success...)
		p, ask := g.Path(op, now), Ask{Operation: op}
		if i%2 == 1 {
			ask.Operation = nil // says nothing of itself at all
		}
		refused := 0
		for calls := 0; ; calls++ {
			c, _ := g.Circuit(key)
			if c.State == Closed {
				break
			}
			if calls == 1000 {
				t.Fatalf("circuit %d is %s at step %d after %d healthy calls, %d of them refused", i, c.State, c.Step, calls, refused)
			}
			now += second / 2
			tk, no := p.Admit(ask, now)
			if no != nil {
				refused++
				continue
			}
			p.Record(tk, success, fine, now)
		}
		if refused == 0 {
			t.Errorf("circuit %d let every call of its ramp go", i)
		}
	}
	op := &taxonomy.Operation{Kind: "model", Provider: "p0", RequestID: "r1"}
	if a, b := g.draw(op, 3), g.draw(op, 3); a != b {
		t.Errorf("one call of a request drew %d and then %d", a, b)
	}
	was := draws
	if g.draw(op, 3); draws != was {
		t.Error("a call of a request drew a lot that a replay cannot draw again")
	}
}
