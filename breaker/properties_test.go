package breaker

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The properties of the machine, by number. Those marked (walk) are judged at
// every step of TestWalk and of TestHistories by the oracle:
//
//	 1 live leases are at most the budget, and 0 outside HALF_OPEN (walk)
//	 2 nothing is admitted while OPEN before the end, unless forced (walk)
//	 3 a result of an older generation moves no state (walk)
//	 4 a result without a live lease moves no half-open state (walk)
//	 5 admit takes no live lease away (walk)
//	 6 the version never falls and counts the transitions (walk)
//	 7 only the listed transitions occur (walk)
//	 8 the end of OPEN never falls without a transition (walk)
//	 9 from every state a healthy remote closes the circuit (walk)
//	10 the sums of the window are a recount of what happened
//	11 excluded, cancelled and rejected events leave the counts alone (walk)
//	12 the order of outcomes within one bucket does not matter to the ratio
//	13 clocks that differ by a constant give the same transitions
//	14 a clock that runs backwards is a clock that stands still
//	15 base <= cooldown <= max*(1+jitter), rising with failed recoveries (walk)
//	16 Retry-After: open until then at least, up to the cap (walk)
//	17 after an override ends, the circuit is as it would be without it
//	18 under observe, Would is what an enforcing run allows
//	19 snapshot and restore at any point change nothing
//	20 forgetting an idle closed circuit changes nothing
//	21 a swap keeps counts of equal windows, and admits nothing both rules deny
//	22 Peek changes nothing (walk)
//	23 a refusal by a later layer leaves the earlier ones as they were
//	24 replaying the events gives the same bytes
//	25 counters saturate, never wrap, and keep their ratio
//	26 every transition is one event, in the order of the sequence (walk)
//	27 the whole fleet holds at most the budget of leases
//	28 the registry under concurrency is linearizable against Step

// A moment is an event and when it happens.
type moment struct {
	at Instant
	ev Event
}

// genRule draws a rule that validates.
func genRule(t *rapid.T) Rule {
	d := func(name string, lo, hi int64) time.Duration {
		return time.Duration(rapid.Int64Range(lo, hi).Draw(t, name)) * time.Millisecond
	}
	r := Rule{Mode: taxonomy.ModeEnforce, Forget: time.Second}
	if rapid.Bool().Draw(t, "by time") {
		r.Window = WindowRule{Kind: TimeWindow, Length: d("length", 5, 60), Buckets: uint8(rapid.IntRange(1, MaxBuckets).Draw(t, "buckets"))}
	} else {
		r.Window = CountOf(uint32(rapid.IntRange(3, 30).Draw(t, "size")), 1)
	}
	r.Window.MinSamples = uint32(rapid.IntRange(1, 3).Draw(t, "min"))
	ppm := func(name string, lo PPM) PPM { return PPM(rapid.Uint32Range(uint32(lo), uint32(One)).Draw(t, name)) }
	r.Trip = Trip{FailureRatio: ppm("failure", 1), Consecutive: uint32(rapid.IntRange(0, 4).Draw(t, "row"))}
	if rapid.Bool().Draw(t, "watches slow") {
		r.Trip.SlowOver, r.Trip.SlowRatio = time.Millisecond, ppm("slow", 1)
	}
	r.Trip.Unknown = uint32(rapid.IntRange(0, 2).Draw(t, "unknown"))
	r.Cooldown = Cooldown{Base: d("base", 1, 20), Growth: PPM(rapid.Uint32Range(1_000_000, 3_000_000).Draw(t, "growth")),
		Jitter: ppm("jitter", 0), RetryAfterMax: d("retry after", 1, 80)}
	r.Cooldown.Max = r.Cooldown.Base + d("max", 0, 40)
	r.Probe = Probe{Budget: uint8(rapid.IntRange(1, MaxProbes).Draw(t, "budget")), Lease: d("lease", 1, 20),
		Successes: uint8(rapid.IntRange(1, 3).Draw(t, "successes")), Gap: d("gap", 0, 5),
		LostMax: uint8(rapid.IntRange(0, 3).Draw(t, "lost")), Evidence: SafeCall}
	if rapid.Bool().Draw(t, "has evidence") {
		r.Probe.Evidence |= Reconciled
		r.Probe.All = rapid.Bool().Draw(t, "needs all")
	}
	if rapid.Bool().Draw(t, "has ramp") {
		r.Ramp = Ramp{Steps: [MaxSteps]PPM{One / 4, One}, Every: d("every", 0, 10), MinSuccesses: uint32(rapid.IntRange(1, 3).Draw(t, "climb")),
			Consecutive: uint32(rapid.IntRange(0, 2).Draw(t, "ramp row")), MinSamples: uint32(rapid.IntRange(0, 3).Draw(t, "ramp min"))}
	}
	if err := r.Validate(); err != nil {
		t.Fatalf("drew a rule that is refused: %v", err)
	}
	return r
}

// play draws a history: what happens next depends on which calls are out, as
// in life. Every step is judged.
func play(t *rapid.T, r *Rule, steps int) ([]moment, Circuit) {
	w := world{now: 1000 * ms, next: 1}
	var out []moment
	for i := range steps {
		edges := w.edges()
		e := rapid.SampledFrom(edges).Draw(t, fmt.Sprint("step ", i))
		e.wait += Instant(rapid.Int64Range(0, 4000).Draw(t, "wait")) * Instant(time.Microsecond)
		e.ev.Draw = PPM(rapid.Uint32Range(0, uint32(One)-1).Draw(t, "draw"))
		v, bad := w.take(r, e)
		if bad != "" {
			t.Fatalf("%s\nbefore %+v\nevent %+v\nafter %+v", bad, w.c, e.ev, v.c)
		}
		out = append(out, moment{v.now, e.ev})
		w = v
	}
	return out, w.c
}

// replay runs a history and returns what came of it.
func replay(r *Rule, c Circuit, history []moment) (Circuit, []Decision, []Transition) {
	var ds []Decision
	var ts []Transition
	for _, m := range history {
		var d Decision
		var t Transitions
		c, d, t = Step(r, c, m.ev, m.at)
		ds = append(ds, d)
		ts = append(ts, t.All()...)
	}
	return c, ds, ts
}

// same compares circuits by value, through pointers.
func same(a, b Circuit) string { return cmp.Diff(a, b) }

// TestHistories judges random histories under random rules (properties 1-8,
// 11, 15, 16, 22 and 26).
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		if rapid.Bool().Draw(t, "observes") {
			r.Mode = taxonomy.ModeObserve
		}
		play(t, &r, 60)
	})
}

// TestProperty09Liveness (R-BRK-5): wherever a history leads, a healthy remote
// closes the circuit again.
func TestProperty09Liveness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		h, c := play(t, &r, 30)
		w := world{c: c, now: h[len(h)-1].at, next: 5000}
		if w.recovers(&r) < 0 {
			t.Fatalf("still %s: %+v", c.State, c)
		}
	})
}

// TestProperty10Recount (R-BRK-3) (also fault 17): at any time the sums are what a recount of
// the log gives, for time windows within the resolution of their buckets.
func TestProperty10Recount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		r.Trip = Trip{} // counts only
		type entry struct {
			at Instant
			k  Kind
		}
		var log []entry
		var c Circuit
		now := Instant(1)
		for range rapid.IntRange(1, 120).Draw(t, "n") {
			now += Instant(rapid.Int64Range(0, 30_000).Draw(t, "wait")) * Instant(time.Microsecond)
			k := Kind(rapid.IntRange(int(OK), int(Unknown)).Draw(t, "kind"))
			c, _, _ = Step(&r, c, Event{Kind: Outcome, Outcome: k}, now)
			log = append(log, entry{now, k})
		}
		recount := func(keep func(i int, e entry) bool) (s Tally) {
			for i, e := range log {
				if keep(i, e) {
					s.add(e.k, 1)
				}
			}
			return s
		}
		got := c.Window.Sum
		if r.Window.Kind == CountWindow {
			held := int(got.Total())
			size, bucket := int(r.Window.Size), int(r.Window.Size)/int(r.Window.Buckets)
			if held > size || held < min(len(log), size-bucket+1) {
				t.Fatalf("the window holds %d of %d", held, size)
			}
			if want := recount(func(i int, _ entry) bool { return i >= len(log)-held }); got != want {
				t.Fatalf("sums %+v, recount of the last %d %+v", got, held, want)
			}
			return
		}
		bucket := r.Window.Length / time.Duration(r.Window.Buckets)
		least := recount(func(_ int, e entry) bool { return now.Sub(e.at) <= r.Window.Length-bucket-time.Microsecond })
		most := recount(func(_ int, e entry) bool { return now.Sub(e.at) <= r.Window.Length+time.Microsecond })
		for _, x := range [][3]uint32{{least.OK, got.OK, most.OK}, {least.Slow, got.Slow, most.Slow},
			{least.Failed, got.Failed, most.Failed}, {least.Unknown, got.Unknown, most.Unknown}} {
			if x[1] < x[0] || x[1] > x[2] {
				t.Fatalf("sums %+v, recount between %+v and %+v", got, least, most)
			}
		}
	})
}

// TestProperty12OrderInABucket: the ratio's figures do not depend on the order
// of outcomes that fall into one bucket.
func TestProperty12OrderInABucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		r.Window = TimeOf(time.Minute, 1)
		r.Trip = Trip{}
		kinds := rapid.SliceOfN(rapid.IntRange(int(Excluded), int(Unknown)), 1, 40).Draw(t, "kinds")
		other := rapid.Permutation(kinds).Draw(t, "other order")
		run := func(ks []int) Facts {
			var c Circuit
			for _, k := range ks {
				c, _, _ = Step(&r, c, Event{Kind: Outcome, Outcome: Kind(k)}, 5)
			}
			f := c.Facts(&r, 5)
			f.Row = 0 // failures in a row are about order
			return f
		}
		if a, b := run(kinds), run(other); a != b {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

// TestProperty13Origins (R-BRK-8): the origin of the clock means nothing.
func TestProperty13Origins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		h, _ := play(t, &r, 40)
		// Off the grid on which things happen: an instant of exactly 0 is "none".
		shift := Instant(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "shift"))*ms + 1
		moved := slices.Clone(h)
		for i := range moved {
			moved[i].at += shift
			if moved[i].ev.Until != 0 {
				moved[i].ev.Until += shift
			}
			if o := moved[i].ev.Override; o != nil {
				x := *o
				x.Until += shift
				moved[i].ev.Override = &x
			}
		}
		_, ds, ts := replay(&r, Circuit{}, h)
		_, ds2, ts2 := replay(&r, Circuit{}, moved)
		if len(ts) != len(ts2) {
			t.Fatalf("%d transitions, and %d on the other clock", len(ts), len(ts2))
		}
		for i := range ts {
			a, b := ts[i], ts2[i]
			if a.From != b.From || a.To != b.To || a.Reason != b.Reason || a.At+shift != b.At || a.Cooldown != b.Cooldown {
				t.Fatalf("transition %d: %+v and %+v", i, a, b)
			}
		}
		for i := range ds {
			if ds[i].Would != ds2[i].Would || ds[i].Reason != ds2[i].Reason || ds[i].Fate != ds2[i].Fate {
				t.Fatalf("decision %d: %+v and %+v", i, ds[i], ds2[i])
			}
		}
	})
}

// TestProperty14Backwards (R-BRK-8): a clock that runs backwards stands still.
func TestProperty14Backwards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		h, _ := play(t, &r, 40)
		still := slices.Clone(h)
		var high Instant
		for i := range h {
			if rapid.Bool().Draw(t, "back") {
				h[i].at -= Instant(rapid.Int64Range(0, 1_000).Draw(t, "by")) * ms
			}
			still[i].at = max(high, h[i].at)
			if h[i].ev.Kind != Peek { // a question moves nothing, not even the clock
				high = still[i].at
			}
		}
		a, da, ta := replay(&r, Circuit{}, h)
		b, db, tb := replay(&r, Circuit{}, still)
		if s := same(a, b) + cmp.Diff(da, db) + cmp.Diff(ta, tb); s != "" {
			t.Fatal(s)
		}
	})
}

// TestProperty15Cooldowns (R-BRK-4): between base and the cap with its jitter,
// and never shorter after one more failed recovery.
func TestProperty15Cooldowns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		draw := PPM(rapid.Uint32Range(0, uint32(One)-1).Draw(t, "draw"))
		var last time.Duration
		for n := range 256 {
			d := r.Cooldown.cooldown(uint8(n), draw)
			if d < last || d < r.Cooldown.Base || d > r.Cooldown.longest() || d > r.Cooldown.Max+r.Cooldown.Jitter.of(r.Cooldown.Max) {
				t.Fatalf("after %d: %s, before %s, rule %+v", n, d, last, r.Cooldown)
			}
			if want := growth(&r.Cooldown, uint8(n), draw); d != want {
				t.Fatalf("after %d: %s, want %s", n, d, want)
			}
			last = d
		}
	})
}

// TestProperty17Override (R-BRK-9): once an override has ended, the circuit is
// what it would be had it never been there, given the same evidence.
func TestProperty17Override(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		h, _ := play(t, &r, 40)
		kind := OverrideKind(rapid.IntRange(int(ForcedOpen), int(ForcedClosed)).Draw(t, "kind"))
		var without, with []moment
		for _, m := range h {
			switch m.ev.Kind {
			case SetOverride, ClearOverride, Admit, Tick:
				continue // the same evidence: calls that an override would change are left out
			}
			without = append(without, m)
		}
		if len(without) == 0 {
			return
		}
		from := rapid.IntRange(0, len(without)-1).Draw(t, "from")
		end := without[len(without)-1].at + ms
		with = slices.Insert(slices.Clone(without), from,
			moment{without[from].at, Event{Kind: SetOverride, Override: &Override{Kind: kind, Until: end, By: "ann", Why: "x"}}})
		after := moment{end, Event{Kind: Settle}}
		a, _, _ := replay(&r, Circuit{}, append(without, after))
		b, _, _ := replay(&r, Circuit{}, append(with, after))
		b.Decided = a.Decided // that there was a decision stays known
		if s := same(a, b); s != "" {
			t.Fatal(s)
		}
	})
}

// TestProperty18Observe (R-BRK-9): what an observing circuit would refuse is
// what an enforcing one refuses, fed with the results of the calls that an
// enforcing one lets go; the others go to the shadow counters.
func TestProperty18Observe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		watch := r
		watch.Mode = taxonomy.ModeObserve
		type out struct {
			version [2]uint64
			token   [2]uint64
			shadow  bool
		}
		var a, b Circuit
		var calls []out
		now := 1000 * ms
		for i := range 80 {
			now += Instant(rapid.Int64Range(0, 4000).Draw(t, "wait")) * Instant(time.Microsecond)
			if len(calls) == 0 || rapid.Bool().Draw(t, "admits") {
				ev := Event{Kind: Admit, Gives: SafeCall, Token: uint64(i + 1), Draw: PPM(rapid.Uint32Range(0, uint32(One)-1).Draw(t, "draw"))}
				var da, db Decision
				a, da, _ = Step(&r, a, ev, now)
				b, db, _ = Step(&watch, b, ev, now)
				if da.Allow != db.Would || !db.Allow || da.Reason != db.Reason || da.Lease != db.Lease {
					t.Fatalf("step %d: enforcing %+v, observing %+v", i, da, db)
				}
				calls = append(calls, out{[2]uint64{a.Version, b.Version}, [2]uint64{da.Lease.Token, db.Lease.Token}, !db.Would})
				continue
			}
			at := rapid.IntRange(0, len(calls)-1).Draw(t, "which")
			x := calls[at]
			calls = slices.Delete(calls, at, at+1)
			ev := Event{Kind: Outcome, Outcome: Kind(rapid.IntRange(int(OK), int(Unknown)).Draw(t, "outcome")),
				Draw: PPM(rapid.Uint32Range(0, uint32(One)-1).Draw(t, "draw")), Shadow: x.shadow}
			if x.shadow { // the enforcing one never sent this call
				a, _, _ = Step(&r, a, Event{Kind: Settle, Draw: ev.Draw}, now)
			} else {
				ev.Version, ev.Token = x.version[0], x.token[0]
				a, _, _ = Step(&r, a, ev, now)
			}
			ev.Version, ev.Token = x.version[1], x.token[1]
			var d Decision
			b, d, _ = Step(&watch, b, ev, now)
			if x.shadow && d.Fate != Shadowed && d.Fate != TooLate {
				t.Fatalf("step %d: a call that should not have gone was %s", i, d.Fate)
			}
			if a.State != b.State || a.Version != b.Version {
				t.Fatalf("step %d: enforcing is %s, observing %s", i, a.State, b.State)
			}
		}
	})
}

// TestProperty19SnapshotAnywhere: storing and reading a circuit at any point of
// a history changes nothing that comes after.
func TestProperty19SnapshotAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		h, _ := play(t, &r, 50)
		cut := rapid.IntRange(1, len(h)-1).Draw(t, "cut")
		c, _, _ := replay(&r, Circuit{}, h[:cut])
		wall := time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "wall"), 0)
		now := h[cut-1].at
		data := Encode(&c, now, wall)
		back, err := Decode(data, &r, now, wall)
		if err != nil {
			t.Fatal(err)
		}
		if again := Encode(&back, now, wall); !bytes.Equal(data, again) {
			t.Fatal("decode and encode are not the identity")
		}
		back.High = c.High // not stored: a process's own
		if s := same(c, back); s != "" {
			t.Fatal(s)
		}
		a, da, ta := replay(&r, c, h[cut:])
		b, db, tb := replay(&r, back, h[cut:])
		if s := same(a, b) + cmp.Diff(da, db) + cmp.Diff(ta, tb); s != "" {
			t.Fatal(s)
		}
	})
}

// TestProperty20Forgetting (R-BRK-2): a circuit that calls itself idle is as
// good as a new one, whatever comes.
func TestProperty20Forgetting(t *testing.T) {
	idle := 0
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		r.Forget = max(r.Window.Length, 50*time.Millisecond)
		_, c := play(t, &r, rapid.IntRange(1, 20).Draw(t, "steps"))
		now := c.High + Instant(rapid.Int64Range(0, 200).Draw(t, "rest"))*ms
		c, _, _ = Step(&r, c, Event{Kind: Settle}, now)
		if !c.Idle(&r, now) {
			return
		}
		idle++
		fresh := Circuit{Version: c.Version, High: c.High}
		for i := range 20 {
			ev := Event{Kind: Outcome, Outcome: Kind(rapid.IntRange(0, int(Unknown)).Draw(t, "kind")), Version: c.Version}
			if i%5 == 4 {
				ev = Event{Kind: Admit, Gives: SafeCall, Token: uint64(i)}
			}
			now += Instant(rapid.Int64Range(0, 9000).Draw(t, "wait")) * Instant(time.Microsecond)
			var d1, d2 Decision
			var t1, t2 Transitions
			c, d1, t1 = Step(&r, c, ev, now)
			fresh, d2, t2 = Step(&r, fresh, ev, now)
			if d1 != d2 || t1.N != t2.N || c.State != fresh.State || c.Window.Sum != fresh.Window.Sum || c.Row != fresh.Row {
				t.Fatalf("step %d: %+v\nand %+v", i, c, fresh)
			}
		}
	})
	if idle == 0 {
		t.Error("no circuit was ever idle")
	}
}

// TestProperty21Swap (R-BRK-10): a swap keeps the state, and the counts where
// the window has the same shape; it never admits what both rules deny.
func TestProperty21Swap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, s := genRule(t), genRule(t)
		if rapid.Bool().Draw(t, "same window") {
			s.Window = r.Window
		}
		h, _ := play(t, &r, 30)
		old, _, _ := replay(&r, Circuit{}, h)
		now := h[len(h)-1].at
		old, _, _ = Step(&r, old, Event{Kind: Settle}, now)
		c, _, ts := Step(&s, old, Event{Kind: RuleSwap, Old: &r}, now)
		if c.State != old.State && !(old.State == Ramping && s.Ramp.steps() == 0 && c.State == Closed) {
			// Time under the new rule may have ended a step of the ramp.
			if !(old.State == Ramping && c.State == Closed) && !(old.State == HalfOpen && c.State == Open) {
				t.Fatalf("a swap took the circuit from %s to %s", old.State, c.State)
			}
		}
		if c.State == old.State && r.Window.sameShape(s.Window) && c.Window.Sum != old.Window.Sum {
			t.Fatalf("counts %+v became %+v", old.Window.Sum, c.Window.Sum)
		}
		if c.State == old.State && !r.Window.sameShape(s.Window) && c.Window.Sum != (Tally{}) {
			t.Fatalf("counts of another window were kept: %+v", c.Window.Sum)
		}
		if old.State != Closed && ts.N == 0 {
			t.Fatal("a swap under a circuit that is not closed was no event")
		}
		// What both rules deny: under the old one the circuit as it was; under
		// the new one as if its longest deadline had been set at the opening.
		later := now + Instant(rapid.Int64Range(0, 50).Draw(t, "later"))*ms
		if old.State == Open && c.State == Open && old.Override == nil {
			denied := later < old.Until && later < old.Since.Add(s.Cooldown.longest())
			_, d, _ := Step(&s, c, Event{Kind: Admit, Gives: SafeCall, Token: 9}, later)
			if denied && d.Allow {
				t.Fatalf("admitted at %d: %+v", later, c)
			}
		}
	})
}

// TestProperty23LaterRefusal: when one circuit refuses its lease, all others are
// byte for byte as they were (also fault 9).
func TestProperty23LaterRefusal(t *testing.T) {
	prov := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	quota := enforced("quota", taxonomy.LayerProvider, "credential")
	auth := enforced("agents", taxonomy.LayerTool, "agent")
	g := newRegistry(t, Options{Settings: []Setting{prov, quota, auth}})
	op := modelOp()
	op.Credential, op.Agent = "k1", "a1"
	now := 100 * second
	p := g.Path(op, now)
	for _, scope := range []string{"provider:openai/gpt-x", "quota:k1", "agents:a1"} {
		key, err := g.Find(scope)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Signal(key, "down", "test", 0, now); err != nil {
			t.Fatal(err)
		}
	}
	now += 60 * second
	ask := Ask{Operation: op}
	first, no := p.Admit(ask, now)
	second, _ := p.Admit(ask, now)
	if no != nil || !first.Needs() {
		t.Fatalf("%+v", no)
	}
	// Somebody else takes the last circuit's only slot in between.
	other := *op
	other.Provider, other.Credential = "x", "k2"
	q := g.Path(&other, now)
	tk, _ := q.Admit(Ask{Operation: &other}, now)
	if _, no := q.Lease(&tk, Ask{Operation: &other}, now); no != nil || tk.Held == 0 {
		t.Fatalf("%+v", no)
	}
	before := g.Snapshot(now, time.Unix(9, 0))
	seq := g.Sequence()
	if _, no := p.Lease(&second, ask, now); no == nil || no.Breaker != "agents" || no.Reason != ProbeBusy {
		t.Fatalf("%+v", no)
	}
	if second.Held != 0 || g.Sequence() != seq || !bytes.Equal(before, g.Snapshot(now, time.Unix(9, 0))) {
		t.Fatal("a refused lease left something behind")
	}
}

// TestProperty24Replay (R-BRK-8): the same events give the same bytes.
func TestProperty24Replay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRule(t)
		h, end := play(t, &r, 40)
		a, _, ta := replay(&r, Circuit{}, h)
		b, _, tb := replay(&r, Circuit{}, h)
		wall := time.Unix(1, 0)
		if !bytes.Equal(Encode(&a, end.High, wall), Encode(&b, end.High, wall)) || cmp.Diff(ta, tb) != "" || same(a, end) != "" {
			t.Fatal("two runs of one history differ")
		}
	})
}

// TestProperty25Saturation: counters never wrap, and what is halved keeps its
// ratio.
func TestProperty25Saturation(t *testing.T) {
	for _, w := range []WindowRule{TimeOf(time.Hour, 2), {Kind: TimeWindow, Length: time.Hour, Buckets: 1, MinSamples: 2}} {
		r := walkRules()["calls"]
		r.Window, r.Forget = w, time.Hour
		r.Trip = Trip{FailureRatio: 900_000}
		var c Circuit
		for i := range 4000 {
			k := OK
			if i%4 == 3 {
				k = Failed
			}
			c, _, _ = Step(&r, c, Event{Kind: Outcome, Outcome: k, N: 1 << 20}, Instant(i)*ms)
			f := c.Facts(&r, Instant(i)*ms)
			if f.Samples > full || c.Window.Sum.Total() > full {
				t.Fatalf("after %d: %d samples", i, f.Samples)
			}
			if i > 100 && (f.Ratio < 240_000 || f.Ratio > 260_000) {
				t.Fatalf("after %d: ratio %d", i, f.Ratio)
			}
		}
		if c.State != Closed {
			t.Fatal("opened below its limit")
		}
		for range 3 {
			c, _, _ = Step(&r, c, Event{Kind: Outcome, Outcome: Excluded, N: 1<<32 - 1}, 4000*ms)
			c, _, _ = Step(&r, c, Event{Kind: Outcome, Outcome: OK, Token: 7, N: 1<<32 - 1}, 4000*ms)
		}
		if c.Window.Excluded[0] != 1<<32-1 || c.Window.Late != 1<<32-1 {
			t.Fatalf("excluded %d, late %d", c.Window.Excluded[0], c.Window.Late)
		}
	}
}
