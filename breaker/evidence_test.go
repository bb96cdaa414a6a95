package breaker

import "testing"

// TestLimitsEvidenceKept (R-BRK-6): what was proved while the circuit was open
// goes on counting when its cooldown is over. Only a new offence voids it: a
// hard signal, or a probe that failed.
func TestLimitsEvidenceKept(t *testing.T) {
	both := func(r *Rule) {
		r.Probe.Evidence, r.Probe.All, r.Probe.Successes = SafeCall|StateVerified, true, 2
		r.Ramp = Ramp{}
	}
	prove := func(g *rig) {
		t.Helper()
		if d, ts := g.do(Event{Kind: EvidenceSeen, Gives: StateVerified}); d.Fate != Applied || len(ts) != 0 {
			t.Fatalf("%+v %+v", d, ts)
		}
	}
	for name, halfOpen := range map[string]Event{
		"a call": {Kind: Admit, Gives: SafeCall, Token: 99}, "a tick": {Kind: Tick},
	} {
		g := newRig(t, both)
		g.open()
		prove(g)
		g.wait(g.r.Cooldown.Base)
		d, _ := g.do(halfOpen)
		if g.want(HalfOpen); g.c.Seen != StateVerified || g.c.ProbeOK != 1 {
			t.Fatalf("%s: %d proofs left, seen %s", name, g.c.ProbeOK, g.c.Seen)
		}
		s := sent{version: g.c.Version, token: d.Lease.Token}
		if s.token == 0 {
			s, _ = g.admit()
		}
		g.end(s, OK)
		g.want(Closed)
	}

	// A failed probe is a new offence, and so is a hard signal in between.
	g := newRig(t, both)
	g.open()
	prove(g)
	g.wait(g.r.Cooldown.Base)
	g.calls(1, Failed)
	if g.want(Open); g.c.Seen != 0 || g.c.ProbeOK != 0 {
		t.Fatalf("after a failed probe %d proofs are left, seen %s", g.c.ProbeOK, g.c.Seen)
	}
	prove(g)
	g.do(Event{Kind: HardSignal, Unbound: true})
	g.wait(g.r.Cooldown.Max)
	g.calls(5, OK)
	if g.want(HalfOpen); g.c.Seen != SafeCall {
		t.Fatalf("after a hard signal %s is seen", g.c.Seen)
	}
	g.do(Event{Kind: EvidenceSeen, Gives: StateVerified})
	g.want(Closed)
}
