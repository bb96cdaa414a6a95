package breaker

import "math"

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
		m.d.Fate = Applied
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

// clamp bounds a deadline that somebody else set. None, or one that is over, is
// before everything.
func (m *machine) clamp(until Instant) (_ Instant, capped bool) {
	if until == 0 || until <= m.now {
		return math.MinInt64, false
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
			c.Decided++
			m.note(ByOverrideCleared, 0, m.ev.Detail, m.ev.By)
			m.d.Fate = Applied
		}
		return
	}
	if o == nil || o.Kind == NoOverride || o.Until <= m.now {
		return
	}
	c.Override = o
	c.Decided++
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
		c.Until = sooner(c.Until, m.now.Add(r.Probe.Gap))
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
		if c.Leases[i].Token == 0 {
			continue
		}
		c.Leases[i].Until = min(c.Leases[i].Until, m.now.Add(r.Probe.Lease))
	}
	if c.State == Ramping {
		if r.Ramp.steps() == 0 {
			m.enter(Closed, ByRuleSwap)
			return
		}
		c.Step = min(c.Step, r.Ramp.steps()-1)
	}
	c.Until = sooner(c.Until, m.now.Add(r.waits(c.State)))
	c.Seen &= r.Probe.Evidence
}
