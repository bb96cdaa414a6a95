package breaker

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestClockBelowZero (R-BRK-8): the origin of the clock means nothing, so a
// circuit lives the same life while the clock shows less than nothing.
func TestClockBelowZero(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Probe.Successes, s.Rule.Probe.LostMax = 2, 0
	s.Rule.Ramp = Ramp{Steps: [MaxSteps]PPM{One}, Every: time.Second, MinSuccesses: 1}
	g := newRegistry(t, Options{Settings: []Setting{s}})
	now := -1_000_000*second + 1
	op := modelOp()
	p, ask := g.Path(op, now), Ask{Operation: op}
	key, _ := g.Find("provider:openai")
	state := func(want State) {
		t.Helper()
		if c, _ := g.Circuit(key); c.State != want {
			t.Fatalf("%s, want %s", c.State, want)
		}
	}
	refused := func(why Reason, until Instant) {
		t.Helper()
		if _, no := p.Admit(ask, now); no == nil || no.Reason != why || no.RetryAt != until {
			t.Fatalf("want %s until %d, got %+v", why, until, no)
		}
	}
	probe := func(deadline Instant) Ticket {
		t.Helper()
		ask := Ask{Operation: op, Deadline: deadline}
		tk, no := p.Admit(ask, now)
		if no == nil {
			_, no = p.Lease(&tk, ask, now)
		}
		if no != nil || tk.Held == 0 {
			t.Fatalf("no lease: %+v", no)
		}
		return tk
	}
	for range 5 {
		record(t, g, op, failed, now, failure...)
	}
	state(Open)
	end := now.Add(s.Rule.Cooldown.Base)
	now = end - 1
	refused(CircuitOpen, end)
	now = end
	p.Record(probe(0), success, fine, now)
	state(HalfOpen)
	lost := now + second
	probe(lost) // its owner dies, and the deadline bounds its lease
	refused(ProbeBusy, lost)
	now = lost
	refused(ProbeGap, lost.Add(s.Rule.Probe.Gap))
	now = lost.Add(s.Rule.Probe.Gap)
	p.Record(probe(0), success, fine, now)
	state(Ramping)
	p.Record(Ticket{Sequence: g.Sequence()}, success, fine, now)
	now += second
	g.Tick(now)
	state(Closed)
	if _, err := g.Signal(key, "down", "test", 0, now); err != nil {
		t.Fatal(err)
	}
	if c, _ := g.Circuit(key); c.Until != now.Add(s.Rule.Cooldown.Base) {
		t.Fatalf("a signal without a deadline opened it for %s", c.Until.Sub(now))
	}
}

// TestClockFarAhead: how far apart two instants are cannot wrap, so nobody's
// override lasts longer than it may.
func TestClockFarAhead(t *testing.T) {
	for _, x := range []struct {
		a, b Instant
		want time.Duration
	}{{3, 1, 2}, {1, 3, -2}, {math.MaxInt64, -1, math.MaxInt64}, {math.MinInt64, 1, math.MinInt64}, {math.MinInt64, math.MinInt64, 0}, {0, math.MinInt64, math.MaxInt64}} {
		if got := x.a.Sub(x.b); got != x.want {
			t.Errorf("%d - %d is %d", x.a, x.b, got)
		}
	}
	if got := Instant(math.MinInt64 + 1).Add(-2); got != math.MinInt64 {
		t.Errorf("the earliest instant and two before it: %d", got)
	}
	g := newRegistry(t, Options{Settings: []Setting{enforced("provider", taxonomy.LayerProvider, "provider")}})
	for _, now := range []Instant{-second, second} {
		o := Override{Kind: ForcedOpen, Until: math.MaxInt64, By: "ann", Why: "x"}
		if _, err := g.Override("provider|provider=1:a", o, now); !errors.Is(err, ErrBadOverride) {
			t.Errorf("at %d an override without an end in sight: %v", now, err)
		}
	}
}

// TestFirstSequence: a sequence that is about to wrap is refused: after it,
// what is open would look like what was never seen.
func TestFirstSequence(t *testing.T) {
	for first, ok := range map[uint64]bool{0: true, 1 << 40: true, 1<<63 - 1: true, 1 << 63: false, math.MaxUint64: false} {
		if _, err := NewRegistry(Options{FirstSequence: first}); (err == nil) != ok {
			t.Errorf("%d: %v", first, err)
		}
	}
}
