package breaker

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Each TestFaultNN is a fault that somebody's circuit breaker had, turned into
// given, when, then. The numbers are those of the list in README.md, which says
// where each was found and which are shown in other rooms.

// rig is one circuit with the calls that went through it.
type rig struct {
	t     *testing.T
	r     Rule
	c     Circuit
	now   Instant
	token uint64
}

type sent struct {
	version, token uint64
	shadow         bool
}

func newRig(t *testing.T, change ...func(*Rule)) *rig {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	for _, f := range change {
		f(&s.Rule)
	}
	if err := s.Rule.Validate(); err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, r: s.Rule, now: 1000 * second}
}

// do takes one step and lets the oracle judge it.
func (g *rig) do(ev Event) (Decision, []Transition) {
	g.t.Helper()
	after, d, ts := Step(&g.r, g.c, ev, g.now)
	if bad := broken(&g.r, g.c, ev, g.now, after, d, ts); bad != "" {
		g.t.Fatalf("%s\nbefore %+v\nevent %+v\nafter %+v", bad, g.c, ev, after)
	}
	g.c = after
	return d, ts.All()
}

// admit asks for a model call; ok is whether it may go.
func (g *rig) admit() (sent, bool) {
	g.t.Helper()
	g.token++
	d, _ := g.do(Event{Kind: Admit, Gives: ModelCall | SafeCall, Token: g.token})
	return sent{g.c.Version, d.Lease.Token, !d.Would}, d.Allow
}

func (g *rig) end(s sent, k Kind) []Transition {
	g.t.Helper()
	_, ts := g.do(Event{Kind: Outcome, Outcome: k, Version: s.version, Token: s.token, Shadow: s.shadow})
	return ts
}

// calls sends n calls that all end alike.
func (g *rig) calls(n int, k Kind) {
	g.t.Helper()
	for range n {
		s, ok := g.admit()
		if !ok {
			g.t.Fatalf("refused in %s", g.c.State)
		}
		g.end(s, k)
	}
}

func (g *rig) wait(d time.Duration) { g.now = g.now.Add(d) }

func (g *rig) want(s State) {
	g.t.Helper()
	if g.c.State != s {
		g.t.Fatalf("state %s, want %s: %+v", g.c.State, s, g.c)
	}
}

// open trips the circuit and lets its cooldown pass.
func (g *rig) open() {
	g.t.Helper()
	g.calls(int(g.r.Trip.Consecutive), Failed)
	g.want(Open)
}

// probe opens it, lets the cooldown pass and sends the first probe.
func (g *rig) probe() sent {
	g.t.Helper()
	g.open()
	g.wait(g.r.Cooldown.Base)
	s, ok := g.admit()
	if !ok || s.token == 0 {
		g.t.Fatal("no probe after the cooldown")
	}
	g.want(HalfOpen)
	return s
}

// TestFault01 (R-BRK-5): the only probe's owner dies; the lease runs out, is
// recorded as lost, and the next call gets a new one.
func TestFault01(t *testing.T) {
	g := newRig(t)
	g.probe()
	g.wait(g.r.Probe.Lease + g.r.Probe.Gap)
	if s, ok := g.admit(); !ok || s.token == 0 {
		t.Fatal("stuck half-open")
	}
	if g.c.Lost != 1 || g.c.live() != 1 {
		t.Fatalf("lost %d, live %d", g.c.Lost, g.c.live())
	}
}

// TestFault02 (R-BRK-5): by whatever way a probe's caller returns, the circuit
// is never half-open without a live lease and without a way on.
func TestFault02(t *testing.T) {
	for name, leave := range map[string]func(*rig, sent){
		"excluded": func(g *rig, s sent) { g.end(s, Excluded) },
		"released": func(g *rig, s sent) { g.do(Event{Kind: Release, Token: s.token}) },
		"failed":   func(g *rig, s sent) { g.end(s, Failed) },
		"unknown":  func(g *rig, s sent) { g.end(s, Unknown) },
		"died":     func(g *rig, s sent) { g.wait(g.r.Probe.Lease) },
	} {
		g := newRig(t)
		leave(g, g.probe())
		g.wait(g.r.Cooldown.longest())
		if s, ok := g.admit(); !ok || s.token == 0 {
			t.Errorf("%s: no way on from %+v", name, g.c)
		}
	}
}

// TestFault03: a failed probe reopens, and the time to try again lies ahead.
func TestFault03(t *testing.T) {
	g := newRig(t)
	g.end(g.probe(), Failed)
	g.want(Open)
	d, _ := g.do(Event{Kind: Peek, Gives: ModelCall})
	if d.Allow || d.RetryAt <= g.now {
		t.Fatalf("%+v", d)
	}
}

// TestFault04: the last permitted probe ends excluded; its permit comes back and
// a later probe can still close the circuit.
func TestFault04(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Ramp = Ramp{} })
	g.end(g.probe(), Excluded)
	g.want(HalfOpen)
	g.wait(g.r.Probe.Gap)
	g.calls(int(g.r.Probe.Successes), OK)
	g.want(Closed)
}

// TestFault05: a probe ends with something the rule ignores; the next one is
// allowed after the gap, and not before it.
func TestFault05(t *testing.T) {
	g := newRig(t)
	g.end(g.probe(), Excluded)
	if _, ok := g.admit(); ok {
		t.Fatal("no gap: excluded probes could go on without end")
	}
	g.wait(g.r.Probe.Gap)
	if _, ok := g.admit(); !ok {
		t.Fatal("no probe after the gap")
	}
}

// TestFault06: one slow probe is out; 1,000 more calls are all refused here.
func TestFault06(t *testing.T) {
	g := newRig(t)
	g.probe()
	for range 1000 {
		if _, ok := g.admit(); ok {
			t.Fatal("admitted beside the probe")
		}
	}
}

// TestFault07 (R-BRK-7): a call of the closed state succeeds when the circuit is
// half-open: nothing moves, and it is recorded as late.
func TestFault07(t *testing.T) {
	g := newRig(t)
	old, _ := g.admit()
	g.probe()
	before := g.c.Window.Late
	g.end(old, OK)
	g.want(HalfOpen)
	if g.c.ProbeOK != 0 || g.c.Window.Late != before+1 {
		t.Fatalf("%+v", g.c)
	}
}

// TestFault08 (R-BRK-7): 50 failures of older calls open nothing twice and
// lengthen no cooldown.
func TestFault08(t *testing.T) {
	g := newRig(t)
	var old []sent
	for range 50 {
		s, _ := g.admit()
		old = append(old, s)
	}
	g.open()
	until := g.c.Until
	for _, s := range old {
		g.wait(time.Millisecond)
		if ts := g.end(s, Failed); len(ts) != 0 {
			t.Fatalf("%+v", ts)
		}
	}
	if g.c.Until != until {
		t.Fatal("the cooldown was lengthened")
	}
}

// TestFault12: asking whether a call would go takes no lease.
func TestFault12(t *testing.T) {
	g := newRig(t)
	g.open()
	g.wait(g.r.Cooldown.Base)
	for range 10 {
		if d, _ := g.do(Event{Kind: Peek, Gives: ModelCall, Token: 77}); !d.Allow || !d.Leases || d.Lease.Token != 0 {
			t.Fatalf("%+v", d)
		}
	}
	g.want(Open)
}

// TestFault16: a window of one bucket counts across its rotation.
func TestFault16(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Window.Buckets = 1; r.Trip = Trip{FailureRatio: One} })
	for i := range 300 {
		g.calls(1, OK)
		g.wait(g.r.Window.Length / 6)
		if n := g.c.Window.Sum.OK; n != uint32(i%6+1) {
			t.Fatalf("after %d: %d", i, n)
		}
	}
}

// TestFault18: slow probes that are further apart than the window still add up
// to a verdict.
func TestFault18(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Ramp = Ramp{} })
	s := g.probe()
	for range g.r.Probe.Successes {
		g.end(s, OK)
		g.wait(2 * g.r.Window.Length)
		s, _ = g.admit()
	}
	g.want(Closed)
}

// TestFault19: one failed probe reopens, whatever the minimum sample.
func TestFault19(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Window.MinSamples = 1000 })
	g.end(g.probe(), Failed)
	g.want(Open)
}

// TestFault20: the ratio has long aged away when a probe fails: it reopens.
func TestFault20(t *testing.T) {
	g := newRig(t)
	g.open()
	g.wait(10 * g.r.Window.Length)
	s, _ := g.admit()
	g.end(s, Failed)
	g.want(Open)
}

// TestFault21: refusals change no counter of health.
func TestFault21(t *testing.T) {
	g := newRig(t)
	g.open()
	before := g.c
	for range 100 {
		g.admit()
	}
	before.High = g.c.High
	if s := same(before, g.c); s != "" {
		t.Fatal(s)
	}
}

// TestFault22 (R-BRK-3): 1,000 cancelled calls move nothing, and the counter of
// their class says 1,000.
func TestFault22(t *testing.T) {
	g := newRig(t)
	for range 1000 {
		s, _ := g.admit()
		g.do(Event{Kind: Outcome, Outcome: Excluded, Class: taxonomy.Cancellation, Version: s.version})
		g.wait(time.Millisecond)
	}
	g.want(Closed)
	f := g.c.Facts(&g.r, g.now)
	if f.Excluded[taxonomy.Cancellation] != 1000 || f.Samples != 0 || g.c.Version != 0 {
		t.Fatalf("%+v", f)
	}
}

// TestFault26 (R-BRK-3): five failures in a row open however far apart they
// are, further than a bucket or the whole window.
func TestFault26(t *testing.T) {
	for _, apart := range []time.Duration{0, 7 * time.Second, 70 * time.Second} {
		g := newRig(t)
		for range 5 {
			g.want(Closed)
			g.calls(1, Failed)
			g.wait(apart)
		}
		g.want(Open)
	}
}

// TestFault27: failures that are each followed by a success are never "in a
// row".
func TestFault27(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Trip.FailureRatio = 0; r.Trip.Consecutive = 2 })
	for range 1000 {
		g.calls(1, Failed)
		g.calls(1, OK)
	}
	g.want(Closed)
}

// TestFault30: 100 calls are out and five fail: it opens once, the other 95
// results are late. (A bound on calls in flight is the engine's bulkhead.)
func TestFault30(t *testing.T) {
	g := newRig(t)
	var out []sent
	for range 100 {
		s, _ := g.admit()
		out = append(out, s)
	}
	opened := 0
	for _, s := range out {
		opened += len(g.end(s, Failed))
	}
	if opened != 1 || g.c.Window.Late != 95 {
		t.Fatalf("opened %d times, %d late", opened, g.c.Window.Late)
	}
}

// TestFault34 (R-BRK-4): 200 circuits open in one millisecond; their cooldowns
// end over at least the jitter's share, and none early.
func TestFault34(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Cooldown.Jitter = 200_000
	draws := uint32(0)
	g := newRegistry(t, Options{Settings: []Setting{s}, Draw: func() PPM { draws += 7919; return PPM(draws * 97 % uint32(One)) }})
	first, last := Instant(1<<62), Instant(0)
	for i := range 200 {
		key, _ := g.Find("provider:p" + string(rune('A'+i%26)) + string(rune('a'+i/26)))
		ch, err := g.Signal(key, "down", "test", 0, second)
		if err != nil {
			t.Fatal(err)
		}
		first, last = min(first, ch[0].Until), max(last, ch[0].Until)
	}
	base := s.Rule.Cooldown.Base
	if first < second.Add(base) {
		t.Errorf("one ended %s early", (second.Add(base)).Sub(first))
	}
	if spread := last.Sub(first); spread < time.Duration(float64(base)*0.2*0.9) {
		t.Errorf("the ends spread over %s only", spread)
	}
}

// TestFault36: of two deadlines the later one stands.
func TestFault36(t *testing.T) {
	g := newRig(t)
	at := func(d time.Duration) []Transition {
		_, ts := g.do(Event{Kind: RetryAfter, Unbound: true, Until: g.now.Add(d)})
		return ts
	}
	at(100 * time.Second)
	was := g.c.Until
	if ts := at(200 * time.Second); len(ts) != 1 || g.c.Until != g.now.Add(200*time.Second) || ts[0].Moved() {
		t.Fatalf("not lengthened: %+v", ts)
	}
	if ts := at(50 * time.Second); len(ts) != 0 || g.c.Until <= was {
		t.Fatal("shortened")
	}
}

// TestFault37: whatever deadline arrives, the wait is in [0, cap] and never
// wraps. (Reading the header is the classifier's.)
func TestFault37(t *testing.T) {
	for _, ms := range []int64{-1 << 63, -5, 0, 1, 9_999_999_999_000, 1<<63 - 1} {
		if d := waiting(ms); ms > 0 && d <= 0 {
			t.Errorf("%d ms wrapped to %s", ms, d)
		}
		g := newRig(t)
		g.do(Event{Kind: RetryAfter, Unbound: true, Until: g.now.Add(waiting(ms))})
		g.want(Open)
		if left := g.c.Until.Sub(g.now); left < g.r.Cooldown.Base || left > g.r.Cooldown.RetryAfterMax {
			t.Errorf("%d ms: open for %s", ms, left)
		}
	}
}

// TestFault38: a server asks for eleven days; the circuit waits for the cap and
// says that it was capped.
func TestFault38(t *testing.T) {
	g := newRig(t)
	_, ts := g.do(Event{Kind: RetryAfter, Unbound: true, Until: g.now.Add(999_999 * time.Second)})
	if len(ts) != 1 || !ts[0].Capped || ts[0].Cooldown != g.r.Cooldown.RetryAfterMax || g.c.Until != g.now.Add(g.r.Cooldown.RetryAfterMax) {
		t.Fatalf("%+v", ts)
	}
}

// TestFault41: a lease ran out and somebody else holds one; the old holder's
// success moves nothing.
func TestFault41(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Probe.Successes = 1 })
	old := g.probe()
	g.wait(g.r.Probe.Lease + g.r.Probe.Gap)
	young, ok := g.admit()
	if !ok {
		t.Fatal("no second probe")
	}
	g.end(old, OK)
	g.want(HalfOpen)
	if g.c.ProbeOK != 0 || g.c.held(young.token) == nil {
		t.Fatalf("%+v", g.c)
	}
}

// TestFault46 (R-BRK-4): failed probes make the cooldown base, 1.5 base, … up
// to the cap.
func TestFault46(t *testing.T) {
	g := newRig(t)
	g.end(g.probe(), Failed)
	for _, want := range []time.Duration{45, 67_500 * time.Millisecond / time.Second, 101, 120, 120} {
		got := g.c.Until.Sub(g.now)
		if got.Truncate(time.Second) != want*time.Second {
			t.Fatalf("cooldown %s, want %ds", got, want)
		}
		g.wait(got)
		s, ok := g.admit()
		if !ok {
			t.Fatal("no probe")
		}
		g.end(s, Failed)
	}
}

// TestFault47: once fully closed, the next trip starts from the base again.
func TestFault47(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Ramp = Ramp{} })
	g.end(g.probe(), Failed)
	g.wait(g.r.Cooldown.Max)
	g.calls(int(g.r.Probe.Successes), OK)
	g.want(Closed)
	g.open()
	if left := g.c.Until.Sub(g.now); left != g.r.Cooldown.Base {
		t.Fatalf("cooldown %s", left)
	}
}

// TestFault48: something in the background fails all the time; when the
// cooldown ends a probe is allowed all the same.
func TestFault48(t *testing.T) {
	g := newRig(t)
	g.open()
	end := g.c.Until
	for g.now < end {
		g.do(Event{Kind: Outcome, Outcome: Failed, Version: g.c.Version})
		g.wait(time.Second)
	}
	if _, ok := g.admit(); !ok {
		t.Fatalf("still refused: %+v", g.c)
	}
}

// TestFault49: the call that ends the cooldown is probe 1 of N.
func TestFault49(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Ramp = Ramp{}; r.Probe.Successes = 2 })
	g.end(g.probe(), OK)
	g.want(HalfOpen)
	g.calls(1, OK)
	g.want(Closed)
}

// TestFault53: a router skips whatever is open, so nobody asks; time alone
// makes the circuit half-open, and a router that looks finds it.
func TestFault53(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	g := newRegistry(t, Options{Settings: []Setting{s}})
	key, _ := g.Find("provider:openai")
	now := second
	if _, err := g.Signal(key, "down", "test", 0, now); err != nil {
		t.Fatal(err)
	}
	if ch := g.Tick(now + second); len(ch) != 0 {
		t.Fatalf("%+v", ch)
	}
	ch := g.Tick(now.Add(s.Rule.Cooldown.Base))
	if len(ch) != 1 || ch[0].To != HalfOpen {
		t.Fatalf("%+v", ch)
	}
	p := g.Path(modelOp(), now)
	if tk, no := p.Admit(Ask{Operation: modelOp()}, now.Add(s.Rule.Cooldown.Base)); no != nil || !tk.Needs() {
		t.Fatalf("%+v", no)
	}
}

// TestFault60 (R-BRK-3): 499,999 failures of 1,000,000 are not one half.
func TestFault60(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Trip = Trip{FailureRatio: One / 2}; r.Window.MinSamples = 1_000_000 })
	g.do(Event{Kind: Outcome, Outcome: OK, N: 500_000})
	g.do(Event{Kind: Outcome, Outcome: Failed, N: 499_999})
	g.want(Closed)
	g.do(Event{Kind: Outcome, Outcome: OK, N: 1})
	g.want(Closed)
	g.do(Event{Kind: Outcome, Outcome: Failed, N: 2})
	g.want(Open)
}

// TestFault61: a refused call that "returns" leaves the next state's window
// empty.
func TestFault61(t *testing.T) {
	g := newRig(t)
	g.open()
	refused := sent{version: g.c.Version}
	g.end(refused, Failed)
	g.wait(g.r.Cooldown.Base)
	g.admit()
	if g.c.State != HalfOpen || g.c.Window.Sum != (Tally{}) {
		t.Fatalf("%+v", g.c.Window)
	}
}
