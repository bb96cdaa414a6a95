package breaker

import (
	"fmt"
	"math/big"
	"time"
)

// broken judges one step from outside: it knows what must hold and nothing of
// how Step gets there. The numbers are those of the properties in
// properties_test.go; "" is no complaint. before must be as Step received it.
func broken(r *Rule, before Circuit, ev Event, now Instant, after Circuit, d Decision, ts Transitions) string {
	o := oracle{r: r, before: before, ev: ev, now: max(now, before.High), after: after, d: d, ts: ts.All()}
	// What time alone makes of the circuit: the event is judged against this.
	o.idle, _, _ = Step(r, before, Event{Kind: Settle, Draw: ev.Draw}, now)
	for _, check := range []func() string{o.peek, o.leases, o.admission, o.late, o.evidence, o.leaseOps, o.versions, o.openings, o.window, o.ramp, o.probes, o.overrides, o.verdict} {
		if s := check(); s != "" {
			return s
		}
	}
	return ""
}

type oracle struct {
	r                   *Rule
	before, idle, after Circuit
	ev                  Event
	now                 Instant
	d                   Decision
	ts                  []Transition
}

// moved reports whether the event itself changed the state.
func (o *oracle) moved() bool { return o.after.Version != o.idle.Version }

func (o *oracle) peek() string {
	if o.ev.Kind == Peek && (o.after != o.before || len(o.ts) > 0) {
		return "22: Peek changed the circuit"
	}
	return ""
}

func (o *oracle) leases() string {
	a := &o.after
	if o.ev.Kind == Peek {
		return ""
	}
	n := a.live()
	if n > o.r.Probe.Budget {
		return fmt.Sprintf("1: %d live leases of %d", n, o.r.Probe.Budget)
	}
	if a.State != HalfOpen && n > 0 {
		return "1: a lease outside HALF_OPEN"
	}
	for i, l := range a.Leases {
		if l.Token != 0 && l.Until <= o.now {
			return "1: a lease outlived its end"
		}
		for _, m := range a.Leases[:i] {
			if l.Token != 0 && m.Token == l.Token {
				return "1: one token holds two slots"
			}
		}
	}
	if o.ev.Kind == Admit && !o.moved() && o.idle.State == HalfOpen {
		for _, l := range o.idle.Leases {
			if l.Token != 0 && a.held(l.Token) == nil {
				return "5: admit took a live lease away"
			}
		}
	}
	if l := o.d.Lease; l.Token != 0 && o.ev.Kind == Admit {
		old := o.idle.held(l.Token)
		switch {
		case old != nil && *old == l:
		case l.Until > o.now.Add(o.r.Probe.Lease) || o.ev.Until > 0 && l.Until > o.ev.Until:
			return "1: a lease longer than the rule or the call's deadline"
		case o.ev.Gives&Calls&o.r.Probe.Evidence == 0:
			return "1: a lease for a call that proves nothing"
		case o.idle.State == HalfOpen && o.now < o.idle.Until:
			return "1: a lease inside the gap"
		}
	}
	return ""
}

func (o *oracle) admission() string {
	if o.ev.Kind != Admit && o.ev.Kind != Peek {
		return ""
	}
	i := &o.idle
	free := i.forced() == ForcedClosed
	if i.State == Open && o.now < i.Until && !free && o.d.Would {
		return "2: admitted before the cooldown's end"
	}
	if i.forced() == ForcedOpen && (o.d.Allow || o.d.Would || o.d.Lease.Token != 0 || o.ev.Kind == Admit && o.moved()) {
		return "17: a forced-open circuit admitted, leased or moved"
	}
	if free && (!o.d.Allow || o.d.Lease.Token != 0) {
		return "17: a forced-closed circuit refused or leased"
	}
	if o.r.Mode == enforce && o.d.Allow != o.d.Would {
		return "18: allow and would differ under enforce"
	}
	if o.r.Mode != enforce && !o.d.Allow && i.forced() != ForcedOpen {
		return "18: observe refused"
	}
	if i.State == Closed && !o.d.Would && i.forced() == NoOverride {
		return "2: a closed circuit refused"
	}
	if o.d.Would && o.ev.Kind == Admit && o.after.State == HalfOpen && !free && o.ev.Token != 0 && o.after.held(o.ev.Token) == nil {
		return "2: a call went to a half-open circuit without a lease"
	}
	if !o.d.Would && i.forced() == NoOverride && o.d.Reason == NoReason {
		return "2: a refusal without a reason"
	}
	if o.d.RetryAt != 0 && o.d.RetryAt <= o.now {
		// A ramp whose time is over waits for successes, not for time.
		if o.d.Reason != RampShare {
			return "2: retry-at is not in the future"
		}
	}
	return ""
}

// late: results of an older generation, or without a live lease, move nothing.
func (o *oracle) late() string {
	switch o.ev.Kind {
	case Outcome, HardSignal, RetryAfter:
	default:
		return ""
	}
	if o.ev.Kind != Outcome && o.ev.Unbound {
		return ""
	}
	if o.idle.State == HalfOpen && o.idle.held(o.ev.Token) != nil {
		return ""
	}
	old := o.ev.Version < o.idle.Version
	if old && o.moved() {
		return "3: a result of an older generation moved the state"
	}
	if o.ev.Kind == Outcome && o.idle.State == HalfOpen && o.moved() {
		return "4: a result without a lease moved a half-open circuit"
	}
	if o.ev.Kind == Outcome && (old || o.idle.State == HalfOpen || o.idle.State == Open || o.ev.Shadow) {
		a, b := o.after, o.idle
		if a.Window.Sum != b.Window.Sum || a.ProbeOK != b.ProbeOK || a.Row != b.Row || a.RampOK != b.RampOK || a.Until != b.Until {
			return "3: a late or shadow result was counted"
		}
	}
	return ""
}

// evidence: only the kinds that the rule names, and that no call gives, count.
func (o *oracle) evidence() string {
	a, i := &o.after, &o.idle
	if o.ev.Kind == Peek {
		return ""
	}
	if a.State == HalfOpen && i.State == Open && (a.Seen != i.Seen || a.ProbeOK != i.ProbeOK) {
		return "evidence: the cooldown's end voided or made a proof"
	}
	if o.moved() && a.State != HalfOpen && (a.Seen != 0 || a.ProbeOK != 0) {
		return "evidence: a proof outlived the recovery or the next offence"
	}
	if o.ev.Kind != EvidenceSeen || o.ev.Gives&^Calls&o.r.Probe.Evidence != 0 {
		return ""
	}
	if o.moved() || a.Seen != i.Seen || a.ProbeOK != i.ProbeOK || o.d.Fate != Ignored {
		return "evidence: a kind that the rule does not name counted"
	}
	return ""
}

// leaseOps: a released lease is free at once, a renewed one ends no earlier.
func (o *oracle) leaseOps() string {
	was := o.idle.held(o.ev.Token)
	if was == nil {
		return ""
	}
	now := o.after.held(o.ev.Token)
	switch o.ev.Kind {
	case Release:
		if now != nil || o.after.Until != o.idle.Until {
			return "2: a released lease stays out, or starts a gap"
		}
	case Renew:
		want := o.now.Add(o.r.Probe.Lease)
		if o.ev.Until > 0 {
			want = min(want, o.ev.Until)
		}
		if now == nil || now.Until != max(was.Until, want) {
			return "1: a renewed lease does not end when it should"
		}
	}
	return ""
}

func (o *oracle) versions() string {
	if o.ev.Kind == Peek {
		return ""
	}
	state, version := o.before.State, o.before.Version
	for i := range o.ts {
		t := &o.ts[i]
		if t.From != state {
			return "26: transitions do not follow each other"
		}
		if t.Moved() {
			version++
			if !listed(t) {
				return fmt.Sprintf("7: %s to %s by %s is not in the table", t.From, t.To, t.Reason)
			}
		}
		if t.Version != version {
			return "26: a transition carries another version"
		}
		state = t.To
	}
	if state != o.after.State || version != o.after.Version {
		return "6: the state or version changed without a transition"
	}
	return ""
}

func listed(t *Transition) bool {
	for _, m := range moves {
		if m.From == t.From && m.To == t.To && m.Reason == t.Reason {
			return true
		}
	}
	return false
}

func (o *oracle) openings() string {
	a, b := &o.after, &o.idle
	cd := &o.r.Cooldown
	if o.ev.Kind != RuleSwap && o.ev.Kind != Restore && b.State == Open && a.State == Open && !o.moved() {
		if a.Until < b.Until {
			return "8: an open circuit's end fell"
		}
		if a.Until != b.Until && (len(o.ts) == 0 || o.ts[len(o.ts)-1].Until != a.Until) {
			return "8: an open circuit's end changed without a transition"
		}
		if a.Until != b.Until && o.ev.Kind == Outcome {
			return "8: an outcome lengthened an open circuit"
		}
	}
	for i := range o.ts {
		t := &o.ts[i]
		if !t.Moved() || t.To != Open {
			continue
		}
		wait := t.Until.Sub(o.now)
		if wait != t.Cooldown {
			return "15: the cooldown shown is not the one in force"
		}
		if wait < cd.Base || wait > max(cd.longest(), cd.Base) {
			return fmt.Sprintf("15: cooldown %s outside [%s, %s]", wait, cd.Base, cd.longest())
		}
		reopened := o.before.Reopened
		if t.From != Closed {
			reopened = inc(reopened)
		}
		if got := t.Facts.Reopened; a.State == Open && i == len(o.ts)-1 && a.Reopened != reopened {
			return fmt.Sprintf("46: reopened %d, want %d (facts %d)", a.Reopened, reopened, got)
		}
		if o.ev.Kind != RetryAfter && o.ev.Kind != HardSignal {
			if want := growth(cd, reopened, o.ev.Draw); wait != want {
				return fmt.Sprintf("15: cooldown %s, want %s", wait, want)
			}
		}
	}
	if (o.ev.Kind == RetryAfter || o.ev.Kind == HardSignal && o.ev.Until > 0) && o.d.Fate != TooLate {
		asked := min(o.ev.Until, o.now.Add(cd.RetryAfterMax))
		if a.State != Open || a.Until < asked {
			return "16: open for less than the server asked"
		}
	}
	if o.ev.Kind == HardSignal && o.d.Fate != TooLate {
		if a.State != Open {
			return "16: a hard signal did not open"
		}
		if a.ProbeOK != 0 || a.Seen != 0 {
			return "16: evidence outlived a hard signal"
		}
	}
	if a.State == Closed && a.Reopened != 0 {
		return "47: growth outlived the closing"
	}
	return ""
}

// growth works a cooldown out with big numbers, rounding down at every step.
func growth(c *Cooldown, reopened uint8, draw PPM) time.Duration {
	part := func(d *big.Int, p PPM) *big.Int {
		x := new(big.Int).Mul(d, big.NewInt(int64(p)))
		return x.Quo(x, big.NewInt(int64(One)))
	}
	d, most := big.NewInt(int64(c.Base)), big.NewInt(int64(c.Max))
	for range reopened {
		if d.Cmp(most) < 0 {
			d = part(d, c.Growth)
		}
	}
	if d.Cmp(most) > 0 {
		d = most
	}
	return time.Duration(new(big.Int).Add(d, part(part(d, draw), c.Jitter)).Int64())
}

func (o *oracle) window() string {
	w := &o.after.Window
	var sum Tally
	for i, b := range w.Ring {
		if i >= int(o.r.Window.Buckets) && b != (Tally{}) {
			return "10: a bucket beyond the ring is in use"
		}
		sum = Tally{sum.OK + b.OK, sum.Slow + b.Slow, sum.Failed + b.Failed, sum.Unknown + b.Unknown}
	}
	if sum != w.Sum {
		return fmt.Sprintf("10: the window says %v, its buckets %v", w.Sum, sum)
	}
	quiet := o.ev.Kind == Admit || o.ev.Kind == Release || o.ev.Kind == Renew || o.ev.Kind == Tick ||
		o.ev.Kind == Outcome && o.ev.Outcome == Excluded
	if quiet && !o.moved() {
		at := func(c Circuit) Tally {
			if c.Window.Used && o.now.Sub(c.Window.Last) >= o.r.Forget {
				return Tally{} // too old to count at all, in a window by count too
			}
			return c.Window.At(&o.r.Window, o.now).Sum
		}
		if at(o.after) != at(o.idle) {
			return "11: an event that counts for nothing changed the counts"
		}
	}
	return ""
}

func (o *oracle) ramp() string {
	a, i, b := &o.after, &o.idle, &o.before
	if a.State == Ramping && a.Step >= max(o.r.Ramp.steps(), 1) {
		return "9: beyond the last step of the ramp"
	}
	climbed := func(from, to *Circuit, more uint32) bool {
		if from.State != Ramping || to.State == Ramping && to.Step == from.Step || to.State == Open {
			return false
		}
		return to.State == Ramping && to.Step > from.Step || to.State == Closed
	}
	if b.State == Ramping && i.State == Ramping && i.Step != b.Step && i.RampOK != 0 {
		return "ramp: successes of one step count for the next"
	}
	need := o.r.Ramp.MinSuccesses
	if climbed(b, i, 0) && (b.RampOK < need || o.now < b.Until) && o.ev.Kind != RuleSwap && o.ev.Kind != Restore {
		return "ramp: a step ended by time alone or before its time"
	}
	if climbed(i, a, 0) && o.ev.Kind == Outcome {
		ok := uint32(0)
		if o.ev.Outcome == OK || o.ev.Outcome == Slow {
			ok = max(o.ev.N, 1)
		}
		if i.RampOK+ok < need || o.now < i.Until {
			return "ramp: a step ended without its successes or before its time"
		}
	}
	return ""
}

func (o *oracle) probes() string {
	a, i := &o.after, &o.idle
	if o.ev.Kind != Outcome || i.State != HalfOpen || i.held(o.ev.Token) == nil {
		if i.State == HalfOpen && a.State != HalfOpen && a.State != Open && o.ev.Kind != EvidenceSeen {
			return "4: HALF_OPEN ended without a probe or evidence"
		}
		return ""
	}
	if a.held(o.ev.Token) != nil {
		return "2: a probe that ended kept its lease"
	}
	switch o.ev.Outcome {
	case Excluded:
		if a.State != HalfOpen || a.ProbeOK != i.ProbeOK || a.Until < o.now.Add(o.r.Probe.Gap) {
			return "5: an excluded probe counted, or started no gap"
		}
	case OK:
		if a.State == Open {
			return "19: a good probe reopened"
		}
		if done := i.ProbeOK+1 >= o.r.Probe.Successes; done != (a.State != HalfOpen) && !o.r.Probe.All {
			return "19: probes needed and probes counted differ"
		}
	default:
		if a.State != Open {
			return "19: a failed probe did not reopen"
		}
	}
	return ""
}

func (o *oracle) overrides() string {
	a, b := o.after.Override, o.before.Override
	if o.ev.Kind == Peek {
		return ""
	}
	if a != nil && a.Until <= o.now && o.ev.Kind != Restore {
		return "17: an override outlived its end"
	}
	if a != b && len(o.ts) == 0 {
		return "17: an override changed without a transition"
	}
	return ""
}

// verdict works the trip limits out again, with numbers that cannot wrap.
func (o *oracle) verdict() string {
	a := &o.after
	for i := range o.ts {
		t := &o.ts[i]
		if t.From == Closed && t.To == Open && o.ev.Kind == Outcome && !over(o.r, Closed, t.Facts.Tally, t.Facts.Row) {
			return "60: opened below every limit"
		}
	}
	if o.ev.Kind == Outcome && o.d.Fate == Counted && (a.State == Closed || a.State == Ramping) && a.Version == o.before.Version &&
		over(o.r, a.State, a.Window.Sum, a.Row) {
		return "60: stayed closed above a limit"
	}
	return ""
}

// over is the trip rule in another hand.
func over(r *Rule, s State, t Tally, row uint32) bool {
	limit, least := r.Trip.Consecutive, int64(max(r.Window.MinSamples, 1))
	if s == Ramping {
		if r.Ramp.Consecutive > 0 {
			limit = r.Ramp.Consecutive
		}
		if r.Ramp.MinSamples > 0 {
			least = int64(r.Ramp.MinSamples)
		}
	}
	if limit > 0 && row >= limit {
		return true
	}
	bad, all := int64(t.Failed), int64(t.OK)+int64(t.Slow)+int64(t.Failed)
	if r.Trip.Unknown > 0 {
		if t.Unknown >= r.Trip.Unknown {
			return true
		}
	} else {
		bad, all = bad+int64(t.Unknown), all+int64(t.Unknown)
	}
	if all < least {
		return false
	}
	share := func(part int64, p PPM) bool {
		return p > 0 && big.NewRat(part, all).Cmp(big.NewRat(int64(p), int64(One))) >= 0
	}
	return share(bad, r.Trip.FailureRatio) || share(int64(t.Slow), r.Trip.SlowRatio)
}
