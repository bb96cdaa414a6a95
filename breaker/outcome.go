package breaker

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
	m.forget()
	m.c.Window.exclude(&m.r.Window, m.ev.Class, m.n(), m.now)
	m.d.Fate = SetApart
}

// count adds the outcome to the window and to the run of failures, which is a
// field of its own: failures in a row count however far apart they are.
func (m *machine) count() {
	c, n := m.c, m.n()
	m.forget()
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

// forget drops what is too old to count, before anything new makes it look
// fresh.
func (m *machine) forget() {
	if m.r.forgotten(m.c, m.now) {
		m.c.Window, m.c.Row = Window{}, 0
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
		c.Until = later(c.Until, m.now.Add(p.Gap))
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
