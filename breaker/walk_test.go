package breaker

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

const ms = Instant(time.Millisecond)

// walkRules are small machines that between them use every part of a rule.
func walkRules() map[string]Rule {
	calls := Rule{
		Mode:   taxonomy.ModeEnforce,
		Window: WindowRule{Kind: TimeWindow, Length: 6 * time.Millisecond, Buckets: 2, MinSamples: 2},
		Trip:   Trip{FailureRatio: One / 2, Consecutive: 2, SlowOver: time.Millisecond, SlowRatio: One},
		Cooldown: Cooldown{Base: 4 * time.Millisecond, Growth: 1_500_000, Max: 9 * time.Millisecond, Jitter: One / 4,
			RetryAfterMax: 12 * time.Millisecond},
		Probe: Probe{Budget: 2, Lease: 3 * time.Millisecond, Successes: 2, Gap: time.Millisecond, LostMax: 2, Evidence: SafeCall},
		Ramp: Ramp{Steps: [MaxSteps]PPM{One / 4, One / 2}, Every: 2 * time.Millisecond, MinSuccesses: 1, Consecutive: 2,
			MinSamples: 2},
		Forget: 20 * time.Millisecond,
	}
	evidence := calls
	evidence.Window = CountOf(4, 2)
	evidence.Trip = Trip{FailureRatio: One / 2, Unknown: 1}
	evidence.Probe = Probe{Successes: 2, Evidence: ApprovalGranted | StateVerified, All: true}
	evidence.Ramp = Ramp{}
	mixed := calls
	mixed.Mode = taxonomy.ModeObserve
	mixed.Probe.Evidence = SafeCall | Reconciled
	whole := mixed
	whole.Ramp = Ramp{}
	both := whole
	both.Mode, both.Probe.All = taxonomy.ModeEnforce, true
	return map[string]Rule{"calls": calls, "evidence": evidence, "mixed": mixed, "whole": whole, "both": both}
}

// A world is a circuit with the calls that are out, each as its ticket knows it.
type world struct {
	c     Circuit
	now   Instant
	calls [2]outCall
	next  uint64 // token
}

type outCall struct {
	out     bool
	version uint64
	token   uint64
	shadow  bool
}

// key is the same for worlds that cannot be told apart: times count from now,
// versions from the current one, tokens from their slots, and counters that no
// decision reads are left out.
func (w *world) key() string {
	c := w.c
	b := make([]byte, 0, 8)
	for _, x := range w.calls {
		mark := byte(0)
		if x.out {
			mark = 1 | byte(min(c.Version-x.version, 3))<<1
			if x.shadow {
				mark |= 8
			}
			if x.token != 0 {
				mark |= 16
				for i, l := range c.Leases {
					if l.Token == x.token {
						mark |= byte(i+1) << 5
					}
				}
			}
		}
		b = append(b, mark)
	}
	for i := range c.Leases {
		if c.Leases[i].Token != 0 {
			c.Leases[i].Token = uint64(i + 1)
		}
	}
	c.Version, c.Since, c.Reason, c.Detail = 1, w.now, 0, ""
	c.Reopened = min(c.Reopened, 4)
	c.Lost = 0
	c.Window.Late, c.Window.ShadowOK, c.Window.ShadowFailed = 0, 0, 0
	c.Window.Excluded = [taxonomy.Classes]uint32{}
	c.Row = min(c.Row, 4)
	return string(append(b, Encode(&c, w.now, time.Unix(0, 0))...))
}

// An edge is one thing that can happen next.
type edge struct {
	wait Instant
	ev   Event
	call int // of an outcome, a release, …; -1 otherwise
	ends bool
}

var (
	walkOpen   = map[Instant]*Override{}
	walkClosed = map[Instant]*Override{}
)

// forced keeps one override for each end, so that equal circuits stay equal.
func forced(kind OverrideKind, until Instant) *Override {
	m := walkOpen
	if kind == ForcedClosed {
		m = walkClosed
	}
	if m[until] == nil {
		m[until] = &Override{Kind: kind, Until: until, By: "ann", Why: "test"}
	}
	return m[until]
}

// edges lists what can happen in a world.
func (w *world) edges() []edge {
	out := []edge{
		{call: -1, ev: Event{Kind: Peek, Gives: SafeCall}},
		{call: -1, ev: Event{Kind: Admit, Gives: SafeCall, Token: w.next}},
		{call: -1, ev: Event{Kind: Admit, Gives: SafeCall, Token: w.next, Draw: One / 3, Until: w.now + 2*ms}},
		{call: -1, ev: Event{Kind: Admit, Token: w.next}},
		{call: -1, ev: Event{Kind: HardSignal, Unbound: true}},
		{call: -1, ev: Event{Kind: RetryAfter, Unbound: true, Until: w.now + 6*ms}},
		{call: -1, ev: Event{Kind: EvidenceSeen, Gives: ApprovalGranted}},
		{call: -1, ev: Event{Kind: EvidenceSeen, Gives: StateVerified}},
		{call: -1, ev: Event{Kind: EvidenceSeen, Gives: Reconciled}},
		{call: -1, ev: Event{Kind: EvidenceSeen, Gives: SafeCall}},
		{call: -1, ev: Event{Kind: Settle}, wait: ms},
		{call: -1, ev: Event{Kind: Tick}, wait: 3 * ms},
		{call: -1, ev: Event{Kind: Settle}, wait: 7 * ms},
		{call: -1, ev: Event{Kind: SetOverride, Override: forced(ForcedOpen, w.now+2*ms)}},
		{call: -1, ev: Event{Kind: SetOverride, Override: forced(ForcedClosed, w.now+2*ms)}},
		{call: -1, ev: Event{Kind: ClearOverride}},
	}
	for i, x := range w.calls {
		if !x.out {
			continue
		}
		for k := Excluded; k <= Unknown; k++ {
			out = append(out, edge{call: i, ends: true, ev: Event{Kind: Outcome, Outcome: k, Class: taxonomy.Cancellation,
				Version: x.version, Token: x.token, Shadow: x.shadow, Draw: One / 2}})
		}
		out = append(out,
			edge{call: i, ends: true, ev: Event{Kind: Release, Token: x.token}},
			edge{call: i, ev: Event{Kind: Renew, Token: x.token, Until: w.now + 5*ms}},
			edge{call: i, ends: true, ev: Event{Kind: HardSignal, Version: x.version, Token: x.token}},
			edge{call: i, ends: true, ev: Event{Kind: RetryAfter, Version: x.version, Token: x.token, Until: w.now + 20*ms}},
			edge{call: i, ends: true, ev: Event{Kind: Peek}}, // its owner died
		)
	}
	return out
}

// take goes along an edge and judges the step.
func (w world) take(r *Rule, e edge) (world, string) {
	w.now += e.wait
	after, d, ts := Step(r, w.c, e.ev, w.now)
	if s := broken(r, w.c, e.ev, w.now, after, d, ts); s != "" {
		return w, s
	}
	w.c = after
	if e.ends {
		w.calls[e.call] = outCall{}
	}
	if e.ev.Kind == Admit && d.Allow {
		for i := range w.calls {
			if !w.calls[i].out {
				w.calls[i] = outCall{out: true, version: after.Version, token: d.Lease.Token, shadow: !d.Would}
				break
			}
		}
		w.next++
	}
	return w, ""
}

// recovers plays a healthy remote without overrides and reports how long the
// circuit takes to close; -1 is never within the bound.
func (w world) recovers(r *Rule) Instant {
	c := w.c
	if c.Override != nil {
		c.Override = nil // as if it ended now
	}
	start := w.now
	bound := Instant(r.Cooldown.longest() + r.Probe.Lease + r.Probe.Gap*3)
	for range r.Probe.Successes + 2 {
		bound += ms
	}
	bound += Instant(r.Ramp.Every)*Instant(r.Ramp.steps()+1) + 10*ms
	token := w.next + 1000
	for now := start; now <= start+bound; now += ms / 2 {
		if c.State == Closed {
			return now - start
		}
		for _, k := range (r.Probe.Evidence &^ Calls).Kinds() {
			if c.State == Open || c.State == HalfOpen {
				c, _, _ = Step(r, c, Event{Kind: EvidenceSeen, Gives: k}, now)
			}
		}
		token++
		var d Decision
		c, d, _ = Step(r, c, Event{Kind: Admit, Gives: SafeCall, Token: token}, now)
		if d.Would {
			c, _, _ = Step(r, c, Event{Kind: Outcome, Outcome: OK, Token: d.Lease.Token, Version: c.Version}, now+ms/4)
		}
	}
	return -1
}

// starts are worlds in every state: from CLOSED alone a bounded walk sees next
// to nothing of the ramp.
func starts(r *Rule) map[string]world {
	w := world{now: 100 * ms, next: 1}
	out := map[string]world{"CLOSED": w}
	do := func(wait Instant, ev Event) {
		w.now += wait
		var d Decision
		w.c, d, _ = Step(r, w.c, ev, w.now)
		if ev.Kind == Admit && d.Allow {
			w.calls[0] = outCall{out: true, version: w.c.Version, token: d.Lease.Token}
			w.next++
		}
	}
	do(0, Event{Kind: Outcome, Outcome: OK})
	w.now += Instant(r.Forget) // a window by count still holds what no longer counts
	out["FORGOTTEN"] = w
	w = out["CLOSED"]
	do(0, Event{Kind: HardSignal, Unbound: true})
	out["OPEN"] = w
	if !r.Probe.byCalls() {
		return out
	}
	do(9*ms, Event{Kind: Admit, Gives: SafeCall, Token: w.next})
	out["HALF_OPEN"] = w
	for range r.Probe.Successes {
		do(0, Event{Kind: Outcome, Outcome: OK, Token: w.calls[0].token})
		w.calls[0] = outCall{}
		if w.c.State == HalfOpen {
			do(0, Event{Kind: Admit, Gives: SafeCall, Token: w.next})
		}
	}
	if w.c.State == Ramping {
		out["RAMP"] = w
	}
	return out
}

// walkLimit is how many worlds a walk expands from each start.
func walkLimit() int {
	if n, err := strconv.Atoi(os.Getenv("FUSEBOX_WALK")); err == nil && n > 0 {
		return n
	}
	return shortWalk
}

const shortWalk = 1_500

// TestWalk goes through every reachable world, breadth first from every state,
// as far as FUSEBOX_WALK says (worlds for each start; the short default is for
// the ordinary run), and judges every step (properties 1-8, 10, 11, 15-18, 22,
// 26; R-BRK-8). From every 8th world it plays a healthy remote and expects the
// circuit to close (property 9).
func TestWalk(t *testing.T) {
	seen := map[Move]bool{}
	for name, r := range walkRules() {
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		for from, w := range starts(&r) {
			worlds, edges, depth := walk(t, name+"/"+from, &r, w, seen)
			t.Logf("%-18s %7d worlds %8d steps, depth %d", name+"/"+from, worlds, edges, depth)
		}
	}
	for _, m := range moves {
		m.When = ""
		if walkLimit() >= shortWalk && !seen[m] && m.Reason != ByRollup && m.Reason != ByRuleSwap && m.Reason != BySlowRatio && m.Reason != ByFailureRatio {
			t.Errorf("the walk never went %s to %s by %s", m.From, m.To, m.Reason)
		}
	}
}

func walk(t *testing.T, name string, r *Rule, start world, moved map[Move]bool) (worlds, edges, depth int) {
	limit := walkLimit()
	seen := map[string]bool{start.key(): true}
	level := []world{start}
	for len(level) > 0 && worlds < limit {
		var next []world
		for _, w := range level {
			if worlds++; worlds > limit {
				break
			}
			if worlds%8 == 0 && w.recovers(r) < 0 {
				t.Fatalf("%s: 9: a healthy remote does not close %+v", name, w.c)
			}
			for _, e := range w.edges() {
				edges++
				v, bad := w.take(r, e)
				if bad != "" {
					t.Fatalf("%s: %s\nbefore %+v\nevent %+v at +%v\nafter %+v", name, bad, w.c, e.ev, time.Duration(e.wait), v.c)
				}
				if v.c.State != w.c.State {
					moved[Move{From: w.c.State, To: v.c.State, Reason: v.c.Reason}] = true
				}
				if k := v.key(); !seen[k] {
					seen[k] = true
					next = append(next, v)
				}
			}
		}
		level = next
		depth++
	}
	return worlds, edges, depth
}
