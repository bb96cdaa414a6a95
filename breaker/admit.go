package breaker

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
	case c.Until != 0 && m.now < c.Until:
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
	if m.ev.Until != 0 {
		end = min(end, m.ev.Until)
	}
	return end
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
