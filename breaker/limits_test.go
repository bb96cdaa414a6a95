package breaker

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Each TestLimits… pins one figure of the rule to the exact event or instant at
// which it binds.

func TestLimitsLostProbes(t *testing.T) {
	g := newRig(t)
	lose := func() {
		t.Helper()
		g.want(HalfOpen)
		if s, ok := g.admit(); !ok || s.token == 0 {
			t.Fatal("no probe")
		}
		g.wait(g.r.Probe.Lease)
		if d, _ := g.do(Event{Kind: Peek, Gives: ModelCall}); d.Reason != ProbeGap || d.RetryAt != g.now.Add(g.r.Probe.Gap) {
			t.Fatalf("after a lost probe: %+v", d)
		}
		g.do(Event{Kind: Settle})
		g.wait(g.r.Probe.Gap)
	}
	g.end(g.probe(), Excluded)
	g.wait(g.r.Probe.Gap)
	lose()
	lose()
	g.calls(1, OK) // the row of lost ones ends
	lose()
	lose()
	g.want(HalfOpen)
	s, _ := g.admit()
	g.wait(g.r.Probe.Lease)
	_, ts := g.do(Event{Kind: Settle})
	if g.want(Open); len(ts) != 1 || ts[0].Reason != ByProbesLost || g.c.Reopened != 1 || s.token == 0 {
		t.Fatalf("%+v", ts)
	}
}

func TestLimitsRampShares(t *testing.T) {
	g := newRig(t)
	s := g.probe()
	for range g.r.Probe.Successes {
		g.end(s, OK)
		if g.c.State == HalfOpen {
			s, _ = g.admit()
		}
	}
	g.want(Ramping)
	for step, share := range []PPM{100_000, 500_000} {
		ask := func(draw PPM) Decision {
			d, _ := g.do(Event{Kind: Peek, Draw: draw})
			return d
		}
		if d := ask(share - 1); !d.Allow {
			t.Fatalf("step %d refuses a draw of %d", step, share-1)
		}
		if d := ask(share); d.Allow || d.Reason != RampShare || d.RetryAt != g.now.Add(g.r.Ramp.Every) {
			t.Fatalf("step %d: %+v", step, d)
		}
		for range g.r.Ramp.MinSuccesses {
			g.do(Event{Kind: Outcome, Outcome: OK, Version: g.c.Version})
		}
		g.want(Ramping)
		g.wait(g.r.Ramp.Every)
		g.do(Event{Kind: Settle})
	}
	g.want(Closed)
}

// TestLimitsRampNeedsBoth: neither time alone nor successes alone end a step.
func TestLimitsRampNeedsBoth(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Probe.Successes = 1; r.Ramp.Steps = [MaxSteps]PPM{One / 2} })
	g.end(g.probe(), OK)
	g.wait(100 * g.r.Ramp.Every)
	g.do(Event{Kind: Tick})
	g.want(Ramping)
	for range g.r.Ramp.MinSuccesses - 1 {
		g.do(Event{Kind: Outcome, Outcome: OK, Version: g.c.Version})
	}
	g.want(Ramping)
	_, ts := g.do(Event{Kind: Outcome, Outcome: Slow, Version: g.c.Version})
	if g.want(Closed); len(ts) != 1 || ts[0].Reason != ByRampPassed {
		t.Fatalf("%+v", ts)
	}
}

// TestLimitsRampFails: two failures in a row reopen, and the next cooldown is
// longer.
func TestLimitsRampFails(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Probe.Successes = 1 })
	g.end(g.probe(), OK)
	bad := func() []Transition {
		_, ts := g.do(Event{Kind: Outcome, Outcome: Failed, Version: g.c.Version})
		return ts
	}
	bad()
	g.want(Ramping)
	ts := bad()
	if g.want(Open); ts[0].Reason != ByRampFailed || ts[0].Cooldown != g.r.Cooldown.Base*3/2 {
		t.Fatalf("%+v", ts)
	}
}

func TestLimitsRelease(t *testing.T) {
	g := newRig(t)
	g.do(Event{Kind: Release, Token: g.probe().token})
	if s, ok := g.admit(); !ok || s.token == 0 {
		t.Fatal("a lease that came back unused is not free at once")
	}
}

// TestLimitsRenew (R-BRK-5): a lease is held longer while its attempt lives, up
// to the call's deadline; one that ran out is not revived.
func TestLimitsRenew(t *testing.T) {
	g := newRig(t)
	s := g.probe()
	deadline := g.now.Add(50 * time.Second)
	for range 4 {
		g.wait(10 * time.Second)
		g.do(Event{Kind: Renew, Token: s.token, Until: deadline})
	}
	if l := g.c.held(s.token); l == nil || l.Until != deadline {
		t.Fatalf("%+v", l)
	}
	g.wait(10 * time.Second)
	if d, _ := g.do(Event{Kind: Renew, Token: s.token}); d.Fate != Ignored || g.c.live() != 0 {
		t.Fatal("a lease was revived")
	}
}

// TestLimitsForget: what is older than forget counts for nothing, in a row or
// in a count window.
func TestLimitsForget(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Window = CountOf(20, 5); r.Trip = Trip{Consecutive: 5, FailureRatio: 1} })
	g.calls(4, Failed)
	g.wait(g.r.Forget)
	g.calls(4, Failed)
	g.want(Closed)
	if g.c.Row != 4 || g.c.Window.Sum.Failed != 4 {
		t.Fatalf("%d in a row, %+v", g.c.Row, g.c.Window.Sum)
	}
	g.wait(g.r.Forget - 1)
	g.calls(1, Failed)
	g.want(Open)

	// What is set apart does not make old failures look fresh.
	g = newRig(t, func(r *Rule) { r.Trip = Trip{Consecutive: 5} })
	g.calls(4, Failed)
	g.wait(g.r.Forget)
	g.calls(1, Excluded)
	g.calls(4, Failed)
	g.want(Closed)
}

// TestLimitsRow: any success ends a run of failures, a slow one too; an UNKNOWN
// with a limit of its own neither adds to it nor ends it.
func TestLimitsRow(t *testing.T) {
	only := func(r *Rule) { r.Trip = Trip{Consecutive: 5, Unknown: 3}; r.Window.MinSamples = 1000 }
	for _, k := range []Kind{OK, Slow} {
		g := newRig(t, only)
		g.calls(4, Failed)
		g.calls(1, k)
		g.calls(4, Failed)
		if g.want(Closed); g.c.Row != 4 {
			t.Fatalf("%s: %d in a row", k, g.c.Row)
		}
		g.calls(1, Failed)
		g.want(Open)
	}
	g := newRig(t, only)
	g.calls(4, Failed)
	g.calls(2, Unknown)
	if g.want(Closed); g.c.Row != 4 {
		t.Fatalf("%d in a row", g.c.Row)
	}
	g.calls(1, Unknown)
	if g.want(Open); g.c.Reason != ByUnknown {
		t.Fatal(g.c.Reason)
	}
}

// TestLimitsSamples: the ratio binds at the minimum sample, also when a success
// completes it, and not one before.
func TestLimitsSamples(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Trip = Trip{FailureRatio: One / 2} })
	for range 9 {
		g.calls(1, Failed)
		g.calls(1, OK)
	}
	g.calls(1, Failed)
	g.want(Closed)
	g.calls(1, OK)
	if g.want(Open); g.c.Reason != ByFailureRatio {
		t.Fatal(g.c.Reason)
	}
	f := g.c.Facts(&g.r, g.now)
	if f.Samples != 20 || f.Failures != 10 || f.Ratio != One/2 {
		t.Fatalf("%+v", f)
	}
}

// TestLimitsAgeing: an outcome leaves the window with its own bucket, a window's
// length after it; younger ones stay.
func TestLimitsAgeing(t *testing.T) {
	g := newRig(t, func(r *Rule) { r.Trip = Trip{FailureRatio: One} })
	bucket := g.r.Window.Length / time.Duration(g.r.Window.Buckets)
	sum := func() Tally { return g.c.Window.At(&g.r.Window, g.now).Sum }
	g.calls(3, Failed)
	g.wait(bucket - 1)
	g.calls(1, OK) // the same bucket's last instant
	g.wait(1)
	g.calls(5, OK)
	g.wait(g.r.Window.Length - bucket - 1)
	if want := (Tally{OK: 6, Failed: 3}); sum() != want {
		t.Fatalf("before the window is over: %+v", sum())
	}
	g.calls(2, OK)
	g.wait(1)
	if want := (Tally{OK: 7}); sum() != want {
		t.Fatalf("the first bucket is a window old: %+v", sum())
	}
	g.wait(bucket)
	if want := (Tally{OK: 2}); sum() != want {
		t.Fatalf("the second bucket is a window old: %+v", sum())
	}
}

// TestLimitsUnknownRatio: UNKNOWN with a limit of its own is no failure for the
// ratio; without one it is.
func TestLimitsUnknownRatio(t *testing.T) {
	for limit, want := range map[uint32]State{15: Closed, 0: Open} {
		g := newRig(t, func(r *Rule) { r.Trip = Trip{FailureRatio: One / 2, Unknown: limit} })
		g.calls(10, OK)
		g.calls(10, Unknown)
		if g.want(want); g.c.Facts(&g.r, g.now).Samples == 0 && want == Closed {
			t.Fatal("nothing was counted")
		}
	}
}

// TestLimitsUnknownProbe: UNKNOWN and slow are no proof of health.
func TestLimitsUnknownProbe(t *testing.T) {
	for _, k := range []Kind{Unknown, Slow, Failed} {
		g := newRig(t)
		g.end(g.probe(), k)
		g.want(Open)
	}
}

// TestLimitsOverride (R-BRK-9): an override ends at its end, not an instant
// later, and below it the circuit went on.
func TestLimitsOverride(t *testing.T) {
	g := newRig(t)
	end := g.now.Add(time.Minute)
	g.do(Event{Kind: SetOverride, Override: &Override{Kind: ForcedClosed, Until: end, By: "ann", Why: "x"}})
	g.calls(5, Failed)
	g.want(Open)
	if _, ok := g.admit(); !ok {
		t.Fatal("forced closed refuses")
	}
	g.now = end - 1
	if d, _ := g.do(Event{Kind: Peek}); !d.Allow {
		t.Fatal("ended early")
	}
	g.now = end
	_, ts := g.do(Event{Kind: Settle})
	if len(ts) != 1 || ts[0].Reason != ByOverrideExpired || ts[0].By != "ann" {
		t.Fatalf("%+v", ts)
	}
	d, _ := g.do(Event{Kind: Peek})
	if d.Allow {
		t.Fatal("lasts an instant too long")
	}
	g.do(Event{Kind: SetOverride, Override: &Override{Kind: ForcedOpen, Until: g.now.Add(time.Hour), By: "ann", Why: "x"}})
	if _, ts = g.do(Event{Kind: ClearOverride, By: "bob", Detail: "over"}); len(ts) != 1 || ts[0].By != "bob" || g.c.Override != nil {
		t.Fatalf("%+v", ts)
	}
}

// TestLimitsExcludedWithTime: what was set apart is counted by class until the
// window is empty again.
func TestLimitsExcludedWithTime(t *testing.T) {
	g := newRig(t)
	cancel := Event{Kind: Outcome, Outcome: Excluded, Class: taxonomy.Cancellation}
	g.do(cancel)
	g.wait(g.r.Window.Length - 1)
	g.do(cancel)
	if n := g.c.Facts(&g.r, g.now).Excluded[taxonomy.Cancellation]; n != 2 {
		t.Fatalf("%d set apart", n)
	}
	g.wait(2 * g.r.Window.Length)
	if n := g.c.Facts(&g.r, g.now).Excluded[taxonomy.Cancellation]; n != 0 {
		t.Fatalf("%d set apart long ago", n)
	}
}
