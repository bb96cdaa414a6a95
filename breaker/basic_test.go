package breaker

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

const second = Instant(time.Second)

// enforced is a setting that binds, without jitter and with small figures.
func enforced(name string, layer taxonomy.Layer, scope ...string) Setting {
	s := Defaults(name, layer, scope...)
	s.Rule.Mode = taxonomy.ModeEnforce
	s.Rule.Cooldown.Jitter = 0
	s.Fallback = "refuse"
	return s
}

func modelOp() *taxonomy.Operation {
	return &taxonomy.Operation{Kind: "model", Name: "chat", Provider: "openai", Region: "eu", Model: "gpt-x",
		Effect: taxonomy.ReadOnly, RequestID: "r1", Attempt: 1}
}

func newRegistry(t testing.TB, o Options) *Registry {
	t.Helper()
	g, err := NewRegistry(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func feed(layer taxonomy.Layer, level string, s taxonomy.Signal) []taxonomy.Feed {
	return []taxonomy.Feed{{Layer: layer, Level: level, Signal: s}}
}

// TestLifeOfACircuit walks once through every state (R-BRK-3, R-BRK-4, R-BRK-5).
func TestLifeOfACircuit(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider", "region", "model")
	g := newRegistry(t, Options{Settings: []Setting{s}})
	op := modelOp()
	now := 100 * second
	p := g.Path(op, now)
	ask := Ask{Operation: op}
	fail := Result{Outcome: taxonomy.Failed, Class: taxonomy.TransientTransport}
	key, err := g.Find("provider:openai/eu/gpt-x")
	if err != nil {
		t.Fatal(err)
	}
	state := func(want State) {
		t.Helper()
		if c, _ := g.Circuit(key); c.State != want {
			t.Fatalf("state %v, want %v", c.State, want)
		}
	}
	for i := range 5 {
		tk, no := p.Admit(ask, now)
		if no != nil {
			t.Fatalf("call %d refused: %+v", i, no)
		}
		r := p.Record(tk, feed(taxonomy.LayerProvider, "model", taxonomy.SignalFailure), fail, now)
		if r.Err() != nil || (len(r.Changes) == 1) != (i == 4) {
			t.Fatalf("call %d: %v %+v", i, r.Err(), r.Changes)
		}
	}
	state(Open)
	_, no := p.Admit(ask, now)
	if no == nil || no.Reason != CircuitOpen || no.RetryAt != now+30*second || no.Scope != "provider:openai/eu/gpt-x" || no.Facts.Row != 5 {
		t.Fatalf("denial %+v", no)
	}
	now += 30 * second
	for range 3 {
		tk, no := p.Admit(ask, now)
		if no != nil || !tk.Needs() {
			t.Fatalf("probe refused: %+v", no)
		}
		if _, no := p.Lease(&tk, ask, now); no != nil {
			t.Fatal(no)
		}
		state(HalfOpen)
		if _, no := p.Admit(ask, now); no == nil || no.Reason != ProbeBusy {
			t.Fatalf("second probe: %+v", no)
		}
		p.Record(tk, feed(taxonomy.LayerProvider, "model", taxonomy.SignalSuccess), Result{Outcome: taxonomy.Succeeded}, now)
	}
	state(Ramping)
	for step := range 2 {
		for ok := 0; ok < 3; {
			op.Attempt++
			tk, no := p.Admit(ask, now)
			if no != nil {
				if no.Reason != RampShare {
					t.Fatalf("step %d: %+v", step, no)
				}
				continue
			}
			ok++
			p.Record(tk, feed(taxonomy.LayerProvider, "model", taxonomy.SignalSuccess), Result{Outcome: taxonomy.Succeeded}, now)
		}
		now += 10 * second
		g.Tick(now)
	}
	state(Closed)
	if l := g.List(false, now); len(l) != 2 { // the wider two have counted successes
		t.Fatalf("list %+v", l)
	}
}

// TestLevels: a success counts at its level and every wider one, a failure only
// at the level named (R-BRK-2).
func TestLevels(t *testing.T) {
	g := newRegistry(t, Options{Settings: []Setting{enforced("provider", taxonomy.LayerProvider, "provider", "region", "model")}})
	p := g.Path(modelOp(), 1)
	tk, _ := p.Admit(Ask{Operation: modelOp()}, 1)
	p.Record(tk, feed(taxonomy.LayerProvider, "region", taxonomy.SignalSuccess), Result{Outcome: taxonomy.Succeeded}, 1)
	r := p.Record(tk, feed(taxonomy.LayerProvider, "region", taxonomy.SignalFailure), Result{Outcome: taxonomy.Failed, Class: taxonomy.RateLimit}, 1)
	if n := len(r.Touched()); n != 1 {
		t.Fatalf("a failure touched %d circuits", n)
	}
	want := map[string]Tally{"provider:openai": {OK: 1}, "provider:openai/eu": {OK: 1, Failed: 1}, "provider:openai/eu/gpt-x": {}}
	for _, l := range g.List(true, 1) {
		if l.Facts.Tally != want[l.Scope] {
			t.Errorf("%s: %+v, want %+v", l.Scope, l.Facts.Tally, want[l.Scope])
		}
	}
	bad := p.Record(tk, []taxonomy.Feed{
		{Layer: taxonomy.LayerTool, Level: "tool", Signal: taxonomy.SignalFailure},
		{Layer: taxonomy.LayerProvider, Level: "tenant", Signal: taxonomy.SignalFailure},
		{Layer: taxonomy.LayerProvider, Level: "model", Signal: taxonomy.SignalFailure},
		{Layer: taxonomy.LayerProvider, Level: "model", Signal: taxonomy.SignalSuccess},
	}, Result{Outcome: taxonomy.Failed}, 1)
	for _, want := range []error{ErrUnknownBreaker, ErrUnknownLevel, ErrContradiction} {
		if !errors.Is(bad.Err(), want) {
			t.Errorf("no %v in %v", want, bad.Err())
		}
	}
}

// TestEncodeAcrossClocks: a record means the same to a process whose clock has
// another origin (DESIGN decision 12).
func TestEncodeAcrossClocks(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	r := &s.Rule
	c, _, _ := Step(r, Circuit{}, Event{Kind: HardSignal, Unbound: true, Detail: "told"}, 100*second)
	wall := time.Unix(1_000_000, 0)
	data := Encode(&c, 100*second, wall)
	got, err := Decode(data, r, 7*second, wall.Add(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if left := got.Until.Sub(7 * second); left != 20*time.Second {
		t.Errorf("%s left of the cooldown, want 20s", left)
	}
	if got.State != Open || got.Version != 1 || got.Detail != "told" {
		t.Errorf("decoded %+v", got)
	}
	if _, err := Decode(nil, r, 7*second, wall); !errors.Is(err, ErrNoRecord) {
		t.Errorf("no record: %v", err)
	}
	for n := range data {
		if _, err := Decode(data[:n], r, 7*second, wall); err == nil {
			t.Errorf("a record cut at %d was read", n)
		}
	}
}

// TestNamesAreUnforgeable: no value can imitate another scope.
func TestNamesAreUnforgeable(t *testing.T) {
	s := enforced("tool", taxonomy.LayerTool, "tool", "tenant")
	g := newRegistry(t, Options{Settings: []Setting{s}})
	seen := map[string][2]string{}
	for _, v := range [][2]string{{"-", ""}, {"", "-"}, {"a", "b"}, {"a/b", ""}, {"a|tenant=1:b", ""}, {"a%2Fb", ""},
		{"a\x00b", ""}, {"#", ""}, {"%2D", "x"}, {"-", "x"}, {string(make([]byte, 300)), "x"}} {
		op := &taxonomy.Operation{Tool: v[0], Tenant: v[1]}
		p := g.Path(op, 1)
		key := p.nodes[len(p.nodes)-1].key
		if was, twice := seen[key]; twice {
			t.Errorf("%q and %q share %s", was, v, key)
		}
		seen[key] = v
		back, err := g.Find(Scope(key))
		if err != nil || back != key {
			t.Errorf("%q: scope %q leads to %q, %v", v, Scope(key), back, err)
		}
	}
}

// TestSettingsRefused: impossible values are named in the user's words, and a
// circuit that could never close again does not load (R-BRK-5).
func TestSettingsRefused(t *testing.T) {
	good := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Setting){
		"no name":            func(s *Setting) { s.Name = "" },
		"no layer":           func(s *Setting) { s.Layer = 0 },
		"no scope":           func(s *Setting) { s.Scope = nil },
		"unknown field":      func(s *Setting) { s.Scope = []string{"colour"} },
		"field twice":        func(s *Setting) { s.Scope = []string{"model", "model"} },
		"no evidence":        func(s *Setting) { s.Rule.Probe.Evidence = 0 },
		"foreign evidence":   func(s *Setting) { s.Rule.Probe.Evidence = Replenished },
		"ratio above one":    func(s *Setting) { s.Rule.Trip.FailureRatio = One + 1 },
		"no lease":           func(s *Setting) { s.Rule.Probe.Lease = 0 },
		"five probes":        func(s *Setting) { s.Rule.Probe.Budget = 5 },
		"max below base":     func(s *Setting) { s.Rule.Cooldown.Max = time.Second },
		"shrinking cooldown": func(s *Setting) { s.Rule.Cooldown.Growth = One / 2 },
		"falling ramp":       func(s *Setting) { s.Rule.Ramp.Steps = [MaxSteps]PPM{500_000, 100_000} },
		"ramp by time only":  func(s *Setting) { s.Rule.Ramp.MinSuccesses = 0 },
		"counted, excluded":  func(s *Setting) { s.Counts = []taxonomy.Class{1}; s.Excludes = []taxonomy.Class{1} },
		"lonely rollup":      func(s *Setting) { s.Rollup = Rollup{Children: 1, Share: One} },
		"no contract":        func(s *Setting) { s.Fallback = "" },
		"slow without share": func(s *Setting) { s.Rule.Trip.SlowOver = time.Second },
		"window too small":   func(s *Setting) { s.Rule.Window = CountOf(10, 20) },
		"open authority":     func(s *Setting) { *s = Defaults("a", taxonomy.LayerAuthority, "agent"); s.OnStoreLoss = LossAllow },
	} {
		s := good
		spoil(&s)
		if err := s.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for l := taxonomy.LayerProvider; int(l) < taxonomy.Layers; l++ {
		s := Defaults("x", l, "tenant")
		if err := s.Validate(); err != nil {
			t.Errorf("defaults of %s: %v", l, err)
		}
	}
	if _, err := Share(math.NaN()); err == nil {
		t.Error("NaN is a share")
	}
	for f, want := range map[float64]PPM{0: 0, 0.0000007: 1, 0.000001: 1, 0.5: One / 2} {
		if p, err := Share(f); err != nil || p != want {
			t.Errorf("%v is %d ppm, %v", f, p, err)
		}
	}
	if _, err := Share(0.0000004); err == nil {
		t.Error("a share that is not nothing became nothing")
	}
}

// TestOverrideEnds: who, why and an end that needs nobody (R-BRK-9).
func TestOverrideEnds(t *testing.T) {
	g := newRegistry(t, Options{Settings: []Setting{enforced("provider", taxonomy.LayerProvider, "provider")}})
	key, _ := g.Find("provider:openai")
	now := 5 * second
	if _, err := g.Override(key, Override{Kind: ForcedOpen, Until: now + second, By: "ann"}, now); !errors.Is(err, ErrBadOverride) {
		t.Fatalf("without a reason: %v", err)
	}
	ch, err := g.Override(key, Override{Kind: ForcedOpen, Until: now + 10*second, By: "ann", Why: "incident 7"}, now)
	if err != nil || len(ch) != 1 || ch[0].By != "ann" {
		t.Fatalf("%v %+v", err, ch)
	}
	p := g.Path(modelOp(), now)
	if _, no := p.Admit(Ask{Operation: modelOp()}, now+9*second); no == nil || no.Reason != ForceOpened || no.Override.Why != "incident 7" {
		t.Fatalf("denial %+v", no)
	}
	if _, no := p.Admit(Ask{Operation: modelOp()}, now+10*second); no != nil {
		t.Fatalf("after its end: %+v", no)
	}
}
