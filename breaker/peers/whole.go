package main

import (
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// whole is the shipped policy's circuits over one model call.
type whole struct {
	reg                         *breaker.Registry
	key                         string // of the unrelated circuit
	path                        *breaker.Path
	ask                         breaker.Ask
	feeds                       []taxonomy.Feed
	breakers, circuits, touched int
}

func newWhole() *whole {
	bundle, err := policies.Embedded()
	if err != nil {
		panic(err)
	}
	w := &whole{}
	var settings []breaker.Setting
	for _, b := range bundle.Settings.Breakers {
		settings = append(settings, b.Setting)
	}
	g, err := breaker.NewRegistry(breaker.Options{Settings: settings})
	if err != nil {
		panic(err)
	}
	op := &taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "gpt-x", Region: "eu",
		Credential: "k1", Tenant: "acme", Agent: "a1", Action: "chat", ActionClass: "read", Workflow: "refunds", WorkflowVersion: "3",
		TaskClass: "triage", PromptVersion: "7", Schema: "refund", RunID: "run-1", RequestID: "r1", Effect: taxonomy.ReadOnly}
	other := *op
	other.Provider = "elsewhere"
	w.reg = g
	w.path, w.ask = g.Path(op, 1), breaker.Ask{Operation: op}
	g.Path(&other, 1)
	key, err := g.Find(settings[0].Name + ":elsewhere")
	if err != nil {
		panic(err)
	}
	w.key = key
	if _, err := g.Signal(key, "down", "bench", 0, 1); err != nil {
		panic(err)
	}
	// A success feeds the health of what was called, at its narrowest level.
	for _, s := range settings {
		w.breakers++
		w.circuits += len(s.Scope)
		if s.Layer == taxonomy.LayerProvider || s.Layer == taxonomy.LayerSemantic {
			w.feeds = append(w.feeds, taxonomy.Feed{Layer: s.Layer, Breaker: s.Name, Level: s.Scope[len(s.Scope)-1], Signal: taxonomy.SignalSuccess})
		}
	}
	t, no := w.path.Admit(w.ask, 2)
	if no != nil {
		panic("refused")
	}
	rec := w.path.Record(t, w.feeds, breaker.Result{Outcome: taxonomy.Succeeded}, 2)
	if rec.Err() != nil {
		panic(rec.Err())
	}
	w.touched = len(rec.Touched())
	return w
}

func (w *whole) admit() contender {
	return contender{"fusebox, admit", func(n int) {
		for range n {
			if _, no := w.path.Admit(w.ask, 3); no != nil {
				panic("refused")
			}
		}
	}}
}

// admitAfterChange is the worst case of admit: some circuit of the process has
// changed since the last call, so every circuit of the path is looked at again.
// The change itself is in the figure.
func (w *whole) admitAfterChange() contender {
	until := breaker.Instant(40e9) // past the cooldown, below retry_after_max: each is a change
	return contender{"fusebox, admit after any change", func(n int) {
		for range n {
			until++
			if _, err := w.reg.Signal(w.key, "down", "bench", until, 2); err != nil {
				panic(err)
			}
			if _, no := w.path.Admit(w.ask, 3); no != nil {
				panic("refused")
			}
		}
	}}
}

func (w *whole) admitRecord() contender {
	now := breaker.Instant(3)
	var rec breaker.Recorded
	ok := breaker.Result{Outcome: taxonomy.Succeeded}
	return contender{"fusebox, admit and record", func(n int) {
		for range n {
			now += 1000
			t, _ := w.path.Admit(w.ask, now)
			w.path.RecordInto(&rec, &t, w.feeds, ok, now)
		}
	}}
}

// oursAfterFailure is one circuit that cannot take the short way, because a
// failure is in its window.
func oursAfterFailure() contender {
	s := breaker.Defaults("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Mode, s.Fallback = taxonomy.ModeEnforce, "refuse"
	s.Rule.Window = breaker.CountOf(1<<20, 20)
	g, err := breaker.NewRegistry(breaker.Options{Settings: []breaker.Setting{s}})
	if err != nil {
		panic(err)
	}
	op := &taxonomy.Operation{Kind: "model", Provider: "openai", Effect: taxonomy.ReadOnly}
	p, ask := g.Path(op, 1), breaker.Ask{Operation: op}
	feeds := []taxonomy.Feed{{Layer: taxonomy.LayerProvider, Level: "provider", Signal: taxonomy.SignalFailure}}
	t, _ := p.Admit(ask, 1)
	p.Record(t, feeds, breaker.Result{Outcome: taxonomy.Failed}, 1)
	feeds[0].Signal = taxonomy.SignalSuccess
	ok := breaker.Result{Outcome: taxonomy.Succeeded}
	now := breaker.Instant(1)
	var rec breaker.Recorded
	return contender{"fusebox, a failure in the window", func(n int) {
		for range n {
			now += 1000
			t, _ := p.Admit(ask, now)
			p.RecordInto(&rec, &t, feeds, ok, now)
		}
	}}
}

const manyKeys, manyLayers = 10_000, 6

func oursMany() any {
	var set []breaker.Setting
	var feeds []taxonomy.Feed
	for i := range manyLayers {
		s := breaker.Defaults("b"+strconv.Itoa(i), taxonomy.LayerProvider, "model")
		set = append(set, s)
		feeds = append(feeds, taxonomy.Feed{Layer: s.Layer, Breaker: s.Name, Level: "model", Signal: taxonomy.SignalFailure})
	}
	g, err := breaker.NewRegistry(breaker.Options{Settings: set, MaxCircuits: manyKeys})
	if err != nil {
		panic(err)
	}
	for i := range manyKeys {
		op := &taxonomy.Operation{Kind: "model", Model: "model-" + strconv.Itoa(100_000+i)}
		p := g.Path(op, 1)
		t, _ := p.Admit(breaker.Ask{Operation: op}, 1)
		p.Record(t, feeds, breaker.Result{Outcome: taxonomy.Failed}, 1)
	}
	if g.Len() != manyKeys*manyLayers {
		panic("not all circuits are there")
	}
	return g
}

func goBreakersMany() any {
	all := &sync.Map{}
	for i := range manyKeys {
		for j := range manyLayers {
			cb := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{Interval: 10 * time.Second, BucketPeriod: time.Second})
			_, _ = cb.Execute(func() (int, error) { return 0, errCall })
			all.Store("b"+strconv.Itoa(j)+"/model-"+strconv.Itoa(100_000+i), cb)
		}
	}
	return all
}

// memoryOf is the heap that stays in use for what build returns.
func memoryOf(build func() any) float64 {
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	kept := build()
	used := heap() - before
	runtime.KeepAlive(kept)
	return used
}
