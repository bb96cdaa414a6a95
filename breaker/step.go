package breaker

import "github.com/fusebox-dev/fusebox/taxonomy"

const enforce = taxonomy.ModeEnforce

// Step is the rule of one circuit: what the circuit is after an event, what it
// answers, and what changed. It is pure. r must have passed [Rule.Validate].
//
// Read it in this order: what time alone has decided (settle, below), then the
// event (admit.go, outcome.go, signal.go), and where every change of state ends
// (open and enter, below). Overrides and the mode have their say in admit only:
// under them the circuit goes on as if they were not there.
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
	if c.High != 0 {
		now = max(now, c.High) // a clock that runs backwards stands still
	}
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
		c.Until = later(c.Until, l.Until.Add(p.Gap))
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
	c.LostRow, c.Until, c.Step, c.RampOK = 0, 0, 0, 0
	if to != HalfOpen { // what was proved during the cooldown goes on counting
		c.ProbeOK, c.Seen = 0, 0
	}
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
