package breaker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// overflowing is a registry whose table is full of one provider's circuits, so
// that every other provider shares one circuit, which is open.
func overflowing(t testing.TB) (g *Registry, other *taxonomy.Operation) {
	t.Helper()
	g = scoped(t, 3)
	for range 5 {
		record(t, g, modelOp(), failed, second, feed(taxonomy.LayerProvider, "model", taxonomy.SignalFailure)...)
	}
	other = modelOp()
	other.Provider = "p2"
	for range 5 {
		record(t, g, other, failed, second, feed(taxonomy.LayerProvider, "model", taxonomy.SignalFailure)...)
	}
	if c, ok := g.Circuit("provider"); !ok || c.State != Open {
		t.Fatalf("the shared circuit is %s, there: %v", c.State, ok)
	}
	return g, other
}

// TestOverflowIsOperated (R-BRK-9): the circuit that keys without room share is
// named by its breaker alone, and people decide about it as about any other.
func TestOverflowIsOperated(t *testing.T) {
	g, other := overflowing(t)
	key, err := g.Find("provider")
	if err != nil || key != "provider" || Scope(key) != "provider" {
		t.Fatalf("%q %v", key, err)
	}
	if _, err = g.Override(key, Override{Kind: ForcedClosed, Until: 60 * second, By: "ann", Why: "checked"}, 2*second); err != nil {
		t.Fatal(err)
	}
	if no := denied(g, other, 3*second); no != nil {
		t.Fatalf("forced closed, and refused by %s", no.Scope)
	}
	if _, err = g.ClearOverride(key, "ann", "over", 4*second); err != nil {
		t.Fatal(err)
	}
	if no := denied(g, other, 5*second); no == nil || no.Scope != "provider" {
		t.Fatalf("%+v", no)
	}
	if l, err := g.Show(key, 5*second); err != nil || l.Breaker != "provider" || l.Circuit.State != Open {
		t.Fatalf("%+v %v", l, err)
	}
	// Proof about one of the keys that share it proves nothing about the others.
	of, _ := g.Find("provider:p2/eu/gpt-x")
	if _, _, err = g.Evidence(of, Reconciled, "ann", 5*second); !errors.Is(err, ErrUnknownCircuit) || !strings.Contains(err.Error(), "shares the circuit provider") {
		t.Fatal(err)
	}
	if _, _, err = g.Evidence(key, Reconciled, "ann", 5*second); err != nil {
		t.Fatal(err)
	}
}

// TestNoOverflowYet: while every key has a circuit of its own, the breaker's
// name alone names none: whoever closes "provider" must not think that he
// closed them all.
func TestNoOverflowYet(t *testing.T) {
	g := scoped(t, 100)
	g.Path(modelOp(), second)
	if _, err := g.Find("provider"); !errors.Is(err, ErrUnknownCircuit) || !strings.Contains(err.Error(), "write breaker:value/value") {
		t.Fatal(err)
	}
	if _, err := g.Override("provider", Override{Kind: ForcedOpen, Until: 60 * second, By: "ann", Why: "x"}, second); !errors.Is(err, ErrUnknownCircuit) {
		t.Fatal(err)
	}
	if _, _, err := g.Evidence("provider", Reconciled, "ann", second); !errors.Is(err, ErrUnknownCircuit) {
		t.Fatal(err)
	}
	if g.Len() != 3 {
		t.Fatalf("%d circuits", g.Len())
	}
}

// TestOverflowIsKept (R-BRK-2): an open circuit is not forgotten because it has
// no scope of its own: neither over a restart nor when there is room again.
func TestOverflowIsKept(t *testing.T) {
	g, other := overflowing(t)
	wall := time.Unix(1_000_000, 0)
	data := g.Snapshot(2*second, wall)
	for _, room := range []int{3, 100} {
		h := scoped(t, room)
		if n, err := h.Restore(data, 2*second, wall); err != nil || n != 2 {
			t.Fatalf("%d restored, %v", n, err)
		}
		if no := denied(h, other, 3*second); no == nil || no.Scope != "provider" || no.RetryAt != 31*second {
			t.Fatalf("room for %d: %+v", room, no)
		}
		if again := h.Snapshot(2*second, wall); string(again) != string(data) {
			t.Errorf("room for %d: the snapshot of what was restored is another one", room)
		}
		// Once it has recovered, whoever has room leaves it.
		for now := 31 * second; ; now += second {
			if c, _ := h.Circuit("provider"); c.State == Closed {
				break
			} else if now > 200*second {
				t.Fatalf("still %s", c.State)
			}
			other.RequestID = fmt.Sprint(now)
			if denied(h, other, now) == nil {
				record(t, h, other, fine, now, feed(taxonomy.LayerProvider, "model", taxonomy.SignalSuccess)...)
			}
		}
		if p := h.Path(other, 200*second); p.Shared != (room == 3) {
			t.Errorf("room for %d: shared is %v", room, p.Shared)
		}
	}
}

// TestOverflowAfterIdleOnes: what is as good as new takes no place when it is
// installed, or a key would get past the open circuit that it shares. Its
// version is kept, or the store's copy would look newer than what happens here.
func TestOverflowAfterIdleOnes(t *testing.T) {
	g, other := overflowing(t)
	h := scoped(t, 100)
	c, _ := g.Circuit("provider")
	own, _ := h.Find("provider:p2/eu/gpt-x")
	for _, x := range []struct {
		key string
		c   Circuit
	}{{"provider", c}, {own, Circuit{Version: 7}}} {
		if _, _, err := h.Install(x.key, x.c, 2*second); err != nil {
			t.Fatal(err)
		}
	}
	if no := denied(h, other, 3*second); no == nil || no.Scope != "provider" || h.Len() != 1 {
		t.Fatalf("%+v with %d circuits", no, h.Len())
	}
	h = scoped(t, 100)
	if _, _, err := h.Install(own, Circuit{Version: 7}, 2*second); err != nil {
		t.Fatal(err)
	}
	h.Path(other, 3*second)
	if c, _ := h.Circuit(own); c.Version != 7 {
		t.Fatalf("the circuit begins again at version %d", c.Version)
	}
	if _, _, err := h.Install("provider|model=1:x", Circuit{}, 3*second); !errors.Is(err, ErrUnknownCircuit) {
		t.Fatalf("a key of another scope: %v", err)
	}
}

// TestOverflowAcrossSwaps: other scopes end the shared circuit with the rest,
// and a call that was out at the time does not make two of it.
func TestOverflowAcrossSwaps(t *testing.T) {
	g, other := overflowing(t)
	p := g.Path(other, 2*second)
	was := g.Settings()
	narrow := was[0]
	narrow.Scope = narrow.Scope[:2]
	for _, set := range [][]Setting{{narrow}, was} {
		if _, err := g.Swap(set, 2*second); err != nil {
			t.Fatal(err)
		}
	}
	p.Record(Ticket{Sequence: g.Sequence()}, feed(taxonomy.LayerProvider, "model", taxonomy.SignalFailure), failed, 3*second)
	g.mu.Lock()
	k := g.conf.Load().byName["provider"]
	if k.full == nil || k.full != g.nodes["provider"] || len(k.nodes) != 1 {
		t.Errorf("%d circuits, the shared one is %v", len(k.nodes), k.full)
	}
	g.mu.Unlock()
}

// TestOpenOnesHaveRoom (R-BRK-2): a table that became smaller than what was
// stored takes every open circuit in all the same.
func TestOpenOnesHaveRoom(t *testing.T) {
	h := scoped(t, 3)
	for i := range 20 {
		key, _ := h.Find(fmt.Sprintf("provider:p%d/eu/m", i))
		c := Circuit{State: Open, Version: 1, Until: 60 * second}
		if i%2 == 1 {
			c = Circuit{Override: &Override{Kind: ForcedOpen, Until: 60 * second, By: "ann", Why: "x"}}
		}
		if ok, _, err := h.Install(key, c, second); !ok || err != nil {
			t.Fatalf("%d: %v %v", i, ok, err)
		}
		op := &taxonomy.Operation{Provider: fmt.Sprint("p", i), Region: "eu", Model: "m"}
		if no := denied(h, op, 2*second); no == nil || no.Key != key {
			t.Fatalf("%d: %+v", i, no)
		}
	}
	counts := Circuit{Row: 1, Window: Window{Used: true, Start: second, Last: second, Sum: Tally{Failed: 1}, Ring: [MaxBuckets]Tally{{Failed: 1}}}}
	if _, _, err := h.Install("provider|provider=1:q", counts, second); !errors.Is(err, ErrUnknownCircuit) || !strings.Contains(err.Error(), "so it shares provider") {
		t.Fatalf("a closed one in a full table: %v", err)
	}
}
