package breaker

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// scoped is a registry of one breaker, three parts deep, with room for so many
// circuits.
func scoped(t testing.TB, room int) *Registry {
	t.Helper()
	s := enforced("provider", taxonomy.LayerProvider, "provider", "region", "model")
	s.MaxCircuits = room
	return newRegistry(t, Options{Settings: []Setting{s}})
}

// TestPathsOfATinyTable: however small the table is, a path that was just
// resolved names living circuits, each below its parent, so that whoever asks
// it does not have to ask again without end.
func TestPathsOfATinyTable(t *testing.T) {
	for _, room := range []int{3, 4, 5, 17, 1000} {
		t.Run(strconv.Itoa(room), func(t *testing.T) {
			g := scoped(t, room)
			for i := range 3000 {
				op := &taxonomy.Operation{Provider: fmt.Sprint("p", i%7), Region: fmt.Sprint("r", i%31), Model: fmt.Sprint("m", i)}
				p := g.Path(op, second)
				if _, no := p.Admit(Ask{Operation: op}, second); no != nil || !p.Current() {
					t.Fatalf("scope %d: refused %v, current %v", i, no, p.Current())
				}
				for j, n := range p.nodes {
					if n.word.Load()&wordDead != 0 || g.nodes[n.key] != n {
						t.Fatalf("scope %d: %s is on the path and was evicted", i, Scope(n.key))
					}
					if j > 0 && (n.parent != p.nodes[j-1] || !has(*n.parent.kids, n)) {
						t.Fatalf("scope %d: %s is no child of %s", i, Scope(n.key), Scope(p.nodes[j-1].key))
					}
				}
			}
			if n := g.Len(); n > room {
				t.Fatalf("%d circuits in a table for %d", n, room)
			}
		})
	}
}

func has(kids []*node, n *node) bool {
	for _, k := range kids {
		if k == n {
			return true
		}
	}
	return false
}

// TestEvictedWhileAsking: another caller may evict what a path names between its
// resolving and its asking. The answer stands all the same: only other settings
// would make it join two versions.
func TestEvictedWhileAsking(t *testing.T) {
	g := scoped(t, 3)
	a, b := modelOp(), modelOp()
	b.Provider = "other"
	p := g.Path(a, second)
	g.Path(b, second)
	if _, no := p.Admit(Ask{Operation: a}, second); no != nil || !p.InForce() || p.Current() {
		t.Fatalf("refused %v, in force %v, current %v", no, p.InForce(), p.Current())
	}
	if _, err := g.Swap(g.Settings(), second); err != nil || p.InForce() {
		t.Fatalf("%v; in force after a change of settings: %v", err, p.InForce())
	}
}

// TestRoomForOnePath: a table that could not hold the circuits of one call is
// refused, whoever sets its bound, and says what to write.
func TestRoomForOnePath(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider", "region", "model")
	for _, room := range []int{1, 2} {
		own := s
		own.MaxCircuits = room
		_, err := NewRegistry(Options{Settings: []Setting{own}})
		want := fmt.Sprintf("max_circuits must be at least 3, one for each part of the scope, got %d", room)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("max_circuits = %d: %v", room, err)
		}
		if _, err = NewRegistry(Options{Settings: []Setting{s}, MaxCircuits: room}); err == nil || !strings.Contains(err.Error(), `breaker "provider": max_circuits`) {
			t.Errorf("the registry's %d: %v", room, err)
		}
		g := newRegistry(t, Options{Settings: []Setting{enforced("provider", taxonomy.LayerProvider, "provider")}, MaxCircuits: room})
		if _, err = g.Swap([]Setting{s}, second); err == nil {
			t.Errorf("the registry's %d: a deeper scope was put in force", room)
		}
	}
}

// TestRollupOfATinyTable (R-BRK-2): children that took the place of evicted ones
// still count in their parent's roll-up.
func TestRollupOfATinyTable(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	s.Rollup, s.MaxCircuits = Rollup{Children: 2, Share: One / 2}, 3
	g := newRegistry(t, Options{Settings: []Setting{s}})
	op := modelOp()
	for i := range 50 { // each takes the place of an earlier one
		op.Provider, op.Model = fmt.Sprint("p", i), fmt.Sprint("m", i)
		g.Path(op, second)
	}
	for i := range 2 {
		op.Model = fmt.Sprint("ill", i)
		record(t, g, op, failed, second, feed(taxonomy.LayerProvider, "model", taxonomy.SignalOpenNow)...)
	}
	if c, _ := g.Circuit("provider|provider=3:p49"); c.State != Open || c.Reason != ByRollup {
		t.Fatalf("both children are open, the parent is %s", c.State)
	}
}
