package breaker

import "github.com/fusebox-dev/fusebox/taxonomy"

const enforce = taxonomy.ModeEnforce

// Step is the rule of one circuit: what the circuit is after an event, what it
// answers, and what changed. It is pure. r must have passed [Rule.Validate].
//
// Read it in this order: time first (settle), then the event, and last what
// lies over the machine (overrides when a call asks, the mode when the answer
// leaves).
func Step(r *Rule, c Circuit, ev Event, now Instant) (Circuit, Decision, Transitions) {
	before := c
	var d Decision
	t := step(r, &c, &ev, now, &d)
	switch {
	case ev.Kind == Peek:
		return before, d, Transitions{}
	case t == nil:
		return c, d, Transitions{}
	}
	return c, d, *t
}

// step is Step on a pointer: the registry calls it under a circuit's lock. The
// transitions are nil when there are none, which is nearly always.
func step(r *Rule, c *Circuit, ev *Event, now Instant, d *Decision) *Transitions {
	now = max(now, c.High) // a clock that runs backwards stands still
	c.High = now
	m := machine{r: r, c: c, ev: ev, now: now, d: d}
	if ev.Kind != Restore { // reading a circuit is not living through the time since
		m.settle()
	}
	switch ev.Kind {
	case Peek, Admit:
		m.admit()
	case Outcome:
		m.outcome()
	case Release:
		m.release()
	case Renew:
		m.renew()
	case HardSignal, RetryAfter:
		m.signal()
	case EvidenceSeen:
		m.evidence()
	case SetOverride, ClearOverride:
		m.override()
	case RuleSwap:
		m.swap()
	case Tick:
		m.tick()
	case Restore:
		m.restore()
	}
	return m.t
}

// machine is one step under way.
type machine struct {
	r   *Rule
	c   *Circuit
	ev  *Event
	now Instant
	d   *Decision
	t   *Transitions
}

// settle makes the changes that time alone has decided, whatever the event.
func (m *machine) settle() {
	c := m.c
	if o := c.Override; o != nil && m.now >= o.Until {
		c.Override = nil
		m.note(ByOverrideExpired, o.Until, o.Why, o.By)
	}
	switch c.State {
	case HalfOpen:
		m.expireLeases()
	case Ramping:
		m.climb()
	}
}

// expireLeases frees the slots of probes whose owner died. The gap counts from
// the end of the lease, not from when somebody noticed.
func (m *machine) expireLeases() {
	c, p := m.c, &m.r.Probe
	for i := range c.Leases {
		l := &c.Leases[i]
		if l.Token == 0 || m.now < l.Until {
			continue
		}
		c.Until = max(c.Until, l.Until.Add(p.Gap))
		*l = Lease{}
		add(&c.Lost, 1)
		c.LostRow = inc(c.LostRow)
	}
	if p.LostMax > 0 && c.LostRow >= p.LostMax {
		m.open(ByProbesLost, 0)
	}
}

// climb takes the next step of a ramp: its time is over and enough succeeded.
// Time alone is not enough, or a ramp without traffic would close a circuit
// that nobody tried.
func (m *machine) climb() {
	c, r := m.c, &m.r.Ramp
	if m.now < c.Until || c.RampOK < r.MinSuccesses {
		return
	}
	if c.Step+1 >= r.steps() {
		m.enter(Closed, ByRampPassed)
		return
	}
	c.Step, c.Until, c.RampOK = c.Step+1, m.now.Add(r.Every), 0
}

// admit answers whether one call may go.
func (m *machine) admit() {
	c := m.c
	switch c.forced() {
	case ForcedOpen: // no leases either; binds in every mode
		m.d.Reason, m.d.RetryAt = ForceOpened, c.Override.Until
		return
	case ForcedClosed:
		m.d.Allow, m.d.Would = true, true
		return
	}
	switch c.State {
	case Closed:
		m.allow()
	case Open:
		m.admitOpen()
	case HalfOpen:
		m.lease()
	case Ramping:
		if m.ev.Draw < m.r.Ramp.Steps[c.Step] {
			m.allow()
		} else {
			m.refuse(RampShare, c.Until)
		}
	}
	if m.r.Mode != enforce {
		m.d.Allow = true
	}
}

func (m *machine) allow() { m.d.Allow, m.d.Would = true, true }

func (m *machine) refuse(why Reason, retryAt Instant) { m.d.Reason, m.d.RetryAt = why, retryAt }

// admitOpen refuses until the cooldown is over; then the call that asks becomes
// the first probe, if it can be one.
func (m *machine) admitOpen() {
	c := m.c
	switch {
	case !m.r.Probe.byCalls():
		m.refuse(AwaitsEvidence, 0)
	case m.now < c.Until:
		m.refuse(CircuitOpen, c.Until)
	case !m.probes():
		m.refuse(NotAProbe, 0)
	default:
		m.enter(HalfOpen, ByCooldownOver)
		m.lease()
	}
}

// probes reports whether a success of this call would prove something here. A
// call whose deadline is over cannot hold a lease.
func (m *machine) probes() bool {
	return m.ev.Gives&Calls&m.r.Probe.Evidence != 0 && (m.ev.Until == 0 || m.ev.Until > m.now)
}

// lease hands out a free slot. The same token gets its own lease again, so a
// store may run a step twice.
func (m *machine) lease() {
	c, p := m.c, &m.r.Probe
	if l := c.held(m.ev.Token); l != nil {
		m.allow()
		m.d.Leases, m.d.Lease = true, *l
		return
	}
	switch {
	case !m.probes():
		m.refuse(NotAProbe, 0)
		return
	case c.live() >= p.Budget:
		m.refuse(ProbeBusy, c.firstEnd())
		return
	case m.now < c.Until:
		m.refuse(ProbeGap, c.Until)
		return
	}
	m.allow()
	m.d.Leases = true
	if m.ev.Kind != Admit || m.ev.Token == 0 {
		return // a question takes no slot
	}
	for i := range c.Leases {
		if c.Leases[i].Token == 0 {
			c.Leases[i] = Lease{Token: m.ev.Token, Until: m.leaseEnd()}
			m.d.Lease, m.d.Fate = c.Leases[i], Applied
			return
		}
	}
}

// leaseEnd is the end of a lease that starts now: never past the call's deadline.
func (m *machine) leaseEnd() Instant {
	end := m.now.Add(m.r.Probe.Lease)
	if m.ev.Until > 0 {
		end = min(end, m.ev.Until)
	}
	return end
}

// outcome records how a call ended. Three questions decide whether it may move
// anything: does it hold a live lease, is it of this generation, and was the
// circuit counting when the call went out?
func (m *machine) outcome() {
	c, ev := m.c, m.ev
	if c.State == HalfOpen {
		if l := c.held(ev.Token); l != nil {
			*l = Lease{}
			m.probed()
			return
		}
	}
	switch {
	case ev.Token != 0 || ev.Version < c.Version:
		// The lease is gone or the state moved on: kept as evidence only.
		add(&c.Window.Late, m.n())
		m.d.Fate = TooLate
	case ev.Shadow || c.State == Open || c.State == HalfOpen:
		m.shadow()
	case ev.Outcome == Excluded:
		m.exclude()
	default:
		m.count()
		m.judge()
	}
}

// n is how many equal outcomes the event stands for.
func (m *machine) n() uint32 { return max(m.ev.N, 1) }

// shadow keeps what became of calls that should not have gone, apart from the
// counts, so that the counterfactual stays what enforcement would have seen.
func (m *machine) shadow() {
	switch m.ev.Outcome {
	case OK, Slow:
		add(&m.c.Window.ShadowOK, m.n())
	case Failed, Unknown:
		add(&m.c.Window.ShadowFailed, m.n())
	}
	m.d.Fate = Shadowed
}

func (m *machine) exclude() {
	m.c.Window.exclude(&m.r.Window, m.ev.Class, m.n(), m.now)
	m.d.Fate = SetApart
}

// count adds the outcome to the window and to the run of failures, which is a
// field of its own: failures in a row count however far apart they are.
func (m *machine) count() {
	c, n := m.c, m.n()
	if m.r.forgotten(c, m.now) {
		c.Window, c.Row = Window{}, 0
	}
	c.Window.count(&m.r.Window, m.ev.Outcome, n, m.now)
	m.d.Fate = Counted
	switch m.ev.Outcome {
	case OK, Slow:
		c.Row = 0
		if c.State == Ramping {
			add(&c.RampOK, n)
		}
	case Failed:
		add(&c.Row, n)
	case Unknown:
		if m.r.Trip.Unknown == 0 { // otherwise it has a counter of its own
			add(&c.Row, n)
		}
	}
}

// judge opens the circuit when a limit is reached. It runs after every counted
// outcome, because a success too can complete the minimum sample.
func (m *machine) judge() {
	c := m.c
	why := m.r.tripped(c)
	if why == NoReason {
		if c.State == Ramping {
			m.climb()
		}
		return
	}
	if c.State == Ramping {
		why = ByRampFailed
	}
	m.open(why, 0)
}

// tripped names the limit that the circuit's counts have reached.
func (r *Rule) tripped(c *Circuit) Reason {
	if c.clean() {
		return NoReason
	}
	t := &r.Trip
	if row := r.consecutive(c.State); row > 0 && c.Row >= row {
		return ByConsecutive
	}
	sum := &c.Window.Sum
	if t.Unknown > 0 && sum.Unknown >= t.Unknown {
		return ByUnknown
	}
	samples, failures := r.sample(*sum)
	if samples < r.minSamples(c.State) {
		return NoReason
	}
	if t.FailureRatio > 0 && t.FailureRatio.reached(failures, samples) {
		return ByFailureRatio
	}
	if t.SlowRatio > 0 && t.SlowRatio.reached(uint64(sum.Slow), samples) {
		return BySlowRatio
	}
	return NoReason
}

// clean reports that nothing counted speaks against the circuit.
func (c *Circuit) clean() bool {
	s := &c.Window.Sum
	return s.Failed|s.Unknown|s.Slow|c.Row == 0
}

// sample counts what the ratios are taken of. An UNKNOWN with a limit of its
// own is neither a success nor a failure, so it is not in the denominator.
func (r *Rule) sample(t Tally) (samples, failures uint64) {
	failures = uint64(t.Failed)
	if r.Trip.Unknown == 0 {
		failures += uint64(t.Unknown)
	}
	return uint64(t.OK) + uint64(t.Slow) + failures, failures
}

// probed records the outcome of a probe; its lease is already back.
func (m *machine) probed() {
	c, p := m.c, &m.r.Probe
	if m.ev.Outcome == Excluded {
		// It proved nothing. The gap keeps a stream of such probes from going
		// on without end.
		c.Until = max(c.Until, m.now.Add(p.Gap))
		m.exclude()
		return
	}
	c.LostRow = 0
	c.Window.count(&m.r.Window, m.ev.Outcome, 1, m.now)
	m.d.Fate = Counted
	if m.ev.Outcome != OK { // slow and UNKNOWN are no proof of health
		add(&c.Row, 1)
		m.open(ByProbeFailed, 0)
		return
	}
	c.Row = 0
	c.ProbeOK = inc(c.ProbeOK)
	c.Seen |= p.Evidence & Calls
	if p.enough(c.ProbeOK, c.Seen) {
		m.recover(ByProbesPassed)
	}
}

// recover leads out of HALF_OPEN, in stages where the rule has them.
func (m *machine) recover(why Reason) {
	if m.r.Ramp.steps() > 0 {
		m.enter(Ramping, why)
	} else {
		m.enter(Closed, why)
	}
}

// release takes back a lease whose call was never sent.
func (m *machine) release() {
	if l := m.c.held(m.ev.Token); l != nil {
		*l = Lease{}
		m.d.Fate = Applied
	}
}

// renew holds a lease longer while its attempt lives. A lease that ran out is
// gone: settle has freed its slot.
func (m *machine) renew() {
	if l := m.c.held(m.ev.Token); l != nil {
		l.Until = max(l.Until, m.leaseEnd())
		m.d.Lease, m.d.Fate = *l, Applied
	}
}

// signal opens at once, without a minimum sample. While the circuit is open it
// can only lengthen, and only because of a signal: failures of older calls
// cannot.
func (m *machine) signal() {
	c, ev := m.c, m.ev
	if c.State == Open {
		m.prolong()
		return
	}
	if !ev.Unbound && ev.Version < c.Version && c.held(ev.Token) == nil {
		add(&c.Window.Late, 1)
		m.d.Fate = TooLate
		return
	}
	m.d.Fate = Applied
	if ev.Kind == RetryAfter {
		m.open(ByRetryAfter, ev.Until)
		return
	}
	m.open(hard(ev.Reason), ev.Until)
}

func hard(r Reason) Reason {
	if r == NoReason {
		return ByHardSignal
	}
	return r
}

// prolong keeps an open circuit open until the later of two deadlines. A hard
// signal also voids the evidence gathered so far: it came after it.
func (m *machine) prolong() {
	c, ev := m.c, m.ev
	why := ByRetryAfter
	if ev.Kind == HardSignal {
		why = hard(ev.Reason)
		c.Seen, c.ProbeOK = 0, 0
	}
	until, capped := m.clamp(ev.Until)
	if until <= c.Until {
		return
	}
	c.Until = until
	m.d.Fate = Applied
	t := m.note(why, until, ev.Detail, ev.By)
	t.Capped, t.Cooldown = capped, until.Sub(m.now)
}

// clamp bounds a deadline that somebody else set.
func (m *machine) clamp(until Instant) (_ Instant, capped bool) {
	if until <= m.now {
		return 0, false
	}
	most := m.now.Add(m.r.Cooldown.RetryAfterMax)
	return min(until, most), until > most
}

// evidence counts proof that did not come from a call. Only the kinds that the
// rule names move anything: a latency probe restores no permission.
func (m *machine) evidence() {
	c, p := m.c, &m.r.Probe
	got := m.ev.Gives &^ Calls & p.Evidence
	if got == 0 || (c.State != Open && c.State != HalfOpen) {
		return
	}
	m.d.Fate = Applied
	c.Seen |= got
	c.ProbeOK = inc(c.ProbeOK)
	if p.enough(c.ProbeOK, c.Seen) {
		m.recover(ByEvidence)
	}
}

// override lays a human decision over the circuit or takes it away. One
// without an end, or with an end in the past, is none.
func (m *machine) override() {
	c, o := m.c, m.ev.Override
	if m.ev.Kind == ClearOverride {
		if c.Override != nil {
			c.Override = nil
			m.note(ByOverrideCleared, 0, m.ev.Detail, m.ev.By)
			m.d.Fate = Applied
		}
		return
	}
	if o == nil || o.Kind == NoOverride || o.Until <= m.now {
		return
	}
	c.Override = o
	m.note(ByOverride, o.Until, o.Why, o.By)
	m.d.Fate = Applied
}

// swap keeps what still makes sense under the new rule: the state always,
// the counts where the window has the same shape, deadlines up to what the new
// rule could have set.
func (m *machine) swap() {
	c, r := m.c, m.r
	if old := m.ev.Old; old == nil || !old.Window.sameShape(r.Window) {
		c.Window = Window{Late: c.Window.Late, Excluded: c.Window.Excluded}
	}
	c.Seen &= r.Probe.Evidence
	switch c.State {
	case Closed:
		return
	case Open:
		c.Until = min(c.Until, c.Since.Add(r.Cooldown.longest()))
	case HalfOpen:
		c.Until = min(c.Until, m.now.Add(r.Probe.Gap))
	case Ramping:
		if r.Ramp.steps() == 0 {
			m.enter(Closed, ByRuleSwap)
			return
		}
		c.Step = min(c.Step, r.Ramp.steps()-1)
		c.Until = min(c.Until, m.now.Add(r.Ramp.Every))
	}
	m.d.Fate = Applied
	m.note(ByRuleSwap, c.Until, m.ev.Detail, m.ev.By)
}

// tick lets time do what a call would have done, for routers that skip open
// targets: without it they would never send the probe.
func (m *machine) tick() {
	c := m.c
	if c.State == Open && m.now >= c.Until && m.r.Probe.byCalls() && c.forced() != ForcedOpen {
		m.enter(HalfOpen, ByCooldownOver)
		m.d.Fate = Applied
	}
}

// restore bounds what was read from a store by what the rule could have set,
// so that a clock that jumped between writing and reading parks nothing.
func (m *machine) restore() {
	c, r := m.c, m.r
	for i := range c.Leases {
		c.Leases[i].Until = min(c.Leases[i].Until, m.now.Add(r.Probe.Lease))
	}
	if c.State == Ramping {
		if r.Ramp.steps() == 0 {
			m.enter(Closed, ByRuleSwap)
			return
		}
		c.Step = min(c.Step, r.Ramp.steps()-1)
	}
	c.Until = min(c.Until, m.now.Add(r.waits(c.State)))
	c.Seen &= r.Probe.Evidence
}

// open starts a cooldown; a server's own deadline lengthens it, up to a cap.
func (m *machine) open(why Reason, until Instant) {
	c := m.c
	if c.State != Closed {
		// A recovery failed, in the ramp as well as in a probe: the next pause
		// is longer, until the circuit has been closed once.
		c.Reopened = inc(c.Reopened)
	}
	wait := m.r.Cooldown.cooldown(c.Reopened, m.ev.Draw)
	end := m.now.Add(wait)
	asked, capped := m.clamp(until)
	if asked > end {
		end, wait = asked, asked.Sub(m.now)
	}
	t := m.enter(Open, why)
	c.Until, t.Until = end, end
	t.Capped, t.Cooldown = capped, wait
}

// enter is the only place where State changes.
func (m *machine) enter(to State, why Reason) *Transition {
	c := m.c
	from := c.State
	t := m.note(why, 0, m.ev.Detail, m.ev.By)
	c.State, c.Since, c.Reason, c.Detail = to, m.now, why, t.Detail
	c.Version++
	c.Leases = [MaxProbes]Lease{}
	c.ProbeOK, c.LostRow, c.Seen = 0, 0, 0
	c.Until, c.Step, c.RampOK = 0, 0, 0
	switch to {
	case Open: // the window stands still and shows what opened it
		if from == Closed {
			c.Lost = 0
		}
	case Ramping:
		c.Until = m.now.Add(m.r.Ramp.Every)
		c.Window, c.Row = Window{}, 0
	case HalfOpen:
		c.Window, c.Row = Window{}, 0
	case Closed:
		c.Window, c.Row = Window{}, 0
		c.Reopened, c.Lost = 0, 0
	}
	t.To, t.Version = to, c.Version
	return t
}

// note writes one transition with the figures as they stand.
func (m *machine) note(why Reason, until Instant, detail, by string) *Transition {
	c := m.c
	if m.t == nil {
		m.t = new(Transitions)
	}
	t := &m.t.List[min(m.t.N, MaxTransitions-1)]
	m.t.N = min(m.t.N+1, MaxTransitions)
	*t = Transition{From: c.State, To: c.State, Reason: why, Detail: detail, By: by, At: m.now, Until: until,
		Version: c.Version, Override: c.forced(), Lease: m.ev.Token, Facts: c.Facts(m.r, m.now)}
	return t
}

// inc saturates.
func inc(v uint8) uint8 { return min(v, 254) + 1 }
