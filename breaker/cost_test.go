package breaker

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestNoAllocations: admit, record and refuse cost no memory, in a circuit with
// and without failures, and on a path of many circuits.
func TestNoAllocations(t *testing.T) {
	_, p, ask := oneProvider(t, Options{}, func(s *Setting) { s.Rule.Trip = Trip{FailureRatio: One} })
	var rec Recorded
	now := second
	check := func(name string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	check("admit and record a success", func() {
		now += 10 * ms
		tk, _ := p.Admit(ask, now)
		p.RecordInto(&rec, &tk, success, fine, now)
	})
	check("admit and record a failure", func() {
		now += 10 * ms
		tk, _ := p.Admit(ask, now)
		p.RecordInto(&rec, &tk, failure, failed, now)
	})
	check("Record by value", func() {
		tk, _ := p.Admit(ask, now)
		_ = p.Record(tk, success, fine, now)
	})
	g, op := shop(t)
	wide := g.Path(op, now)
	many := []taxonomy.Feed{
		{Layer: taxonomy.LayerProvider, Breaker: "provider", Level: "model", Signal: taxonomy.SignalSuccess},
		{Layer: taxonomy.LayerProvider, Breaker: "quota", Level: "model", Signal: taxonomy.SignalSuccess},
		{Layer: taxonomy.LayerTool, Breaker: "tool", Level: "action", Signal: taxonomy.SignalSuccess},
		{Layer: taxonomy.LayerBudget, Level: "tenant", Signal: taxonomy.SignalSuccess},
	}
	wideAsk := Ask{Operation: op}
	check("a path of many circuits", func() {
		now += 10 * ms
		tk, _ := wide.Admit(wideAsk, now)
		wide.RecordInto(&rec, &tk, many, fine, now)
	})
	check("find the path again", func() { g.Path(op, now) })
	key, _ := g.Find("provider:openai")
	if _, err := g.Signal(key, "down", "test", 0, now); err != nil {
		t.Fatal(err)
	}
	check("refuse", func() {
		if _, no := wide.Admit(wideAsk, now); no == nil {
			t.Error("admitted")
		}
	})
}

// TestMemory: 60,000 circuits, all with outcomes in their windows, cost at most
// 40 MB, keys, tables and the paths of 10,000 operations included.
func TestMemory(t *testing.T) {
	const operations, breakers, bound = 10_000, 6, 40e6
	var set []Setting
	for i := range breakers {
		set = append(set, enforced("b"+strconv.Itoa(i), taxonomy.LayerProvider, "model"))
	}
	var feeds []taxonomy.Feed
	for _, s := range set {
		feeds = append(feeds, taxonomy.Feed{Layer: s.Layer, Breaker: s.Name, Level: "model", Signal: taxonomy.SignalFailure})
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	g := newRegistry(t, Options{Settings: set, MaxCircuits: operations})
	op := &taxonomy.Operation{Kind: "model", Effect: taxonomy.ReadOnly}
	for i := range operations {
		op.Model = fmt.Sprintf("model-%06d", i)
		p := g.Path(op, second)
		tk, _ := p.Admit(Ask{Operation: op}, second)
		p.Record(tk, feeds, failed, second)
	}
	used := heap() - before
	if g.Len() != operations*breakers {
		t.Fatalf("%d circuits", g.Len())
	}
	t.Logf("%d circuits: %.1f MB, %d bytes each", g.Len(), float64(used)/1e6, used/uint64(g.Len()))
	if used > bound {
		t.Errorf("%.1f MB, the bound is %.0f", float64(used)/1e6, bound/1e6)
	}
	runtime.KeepAlive(g)
}

func BenchmarkAdmit(b *testing.B) {
	_, p, ask := oneProvider(b, Options{})
	b.ReportAllocs()
	for b.Loop() {
		p.Admit(ask, second)
	}
}

func BenchmarkAdmitRecordSuccess(b *testing.B) {
	_, p, ask := oneProvider(b, Options{})
	var rec Recorded
	now := second
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		tk, _ := p.Admit(ask, now)
		p.RecordInto(&rec, &tk, success, fine, now)
	}
}

func BenchmarkAdmitRecordSuccessAfterFailure(b *testing.B) {
	_, p, ask := oneProvider(b, Options{}, func(s *Setting) { s.Rule.Trip = Trip{FailureRatio: One}; s.Rule.Window = CountOf(1000, 100) })
	var rec Recorded
	now := second
	tk, _ := p.Admit(ask, now)
	p.Record(tk, failure, failed, now)
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		tk, _ := p.Admit(ask, now)
		p.RecordInto(&rec, &tk, success, fine, now)
	}
}

func BenchmarkAdmitRecordParallel(b *testing.B) {
	_, p, ask := oneProvider(b, Options{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var rec Recorded
		for pb.Next() {
			tk, _ := p.Admit(ask, second)
			p.RecordInto(&rec, &tk, success, fine, second)
		}
	})
}

func BenchmarkRefuse(b *testing.B) {
	g, p, ask := oneProvider(b, Options{})
	key, _ := g.Find("provider:openai")
	if _, err := g.Signal(key, "down", "bench", 0, second); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Admit(ask, second)
	}
}

func BenchmarkStepByValue(b *testing.B) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	var c Circuit
	now := second
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		c, _, _ = Step(&s.Rule, c, Event{Kind: Outcome, Outcome: OK}, now)
	}
}

func BenchmarkPath(b *testing.B) {
	g, op := shop(b)
	b.ReportAllocs()
	for b.Loop() {
		g.Path(op, second)
	}
}
