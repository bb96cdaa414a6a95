package breaker

// Rewound is a circuit whose store went back in time, as one process may write
// it again: what the store has of it, joined with what the process knew. The one
// that refuses more stands, and of two that are open the longer cooldown. The
// leases of the lost history are void; but whoever holds one may be probing
// still, and the store has forgotten whom it gave one. So nobody probes before
// the length of a lease has passed: a circuit in HALF_OPEN is open until then.
//
// It is pure, and writing its answer again changes nothing more: known is then
// not above stored. void says that stored was written before the store went
// back; what was written since has been joined once.
func Rewound(r *Rule, stored, known Circuit, void bool, now Instant) Circuit {
	s := stored
	if void {
		s = held(r, s, now)
	}
	k := held(r, known, now)
	if !void {
		k.Until = known.Until // whoever joined it first has waited for the leases
	}
	out := s
	if k.State.severity() > s.State.severity() || k.State == s.State && k.Version > s.Version {
		out = k
	}
	if s.State == Open && k.State == Open {
		out.Until = later(s.Until, k.Until)
	}
	if out.Override, out.Decided = s.Override, s.Decided; known.Decided > s.Decided {
		out.Override, out.Decided = known.Override, known.Decided
	}
	out.Version = max(stored.Version, known.Version)
	if out.State != stored.State && stored.Version == out.Version || out.State != known.State && known.Version == out.Version {
		out.Version++ // a version is of one state, everywhere
	}
	return out
}

// held is a circuit without the leases of a history that is gone.
func held(r *Rule, c Circuit, now Instant) Circuit {
	if c.State != Open && c.State != HalfOpen || !r.Probe.byCalls() {
		return c // what evidence closes has no leases
	}
	if c.State == HalfOpen {
		n := c.live()
		c.State, c.Since, c.Reason, c.Detail = Open, now, ByProbesLost, "store_went_back"
		c.Leases, c.LostRow, c.ProbeOK, c.Until = [MaxProbes]Lease{}, 0, 0, 0
		add(&c.Lost, uint32(n))
	}
	c.Until = later(c.Until, now.Add(r.Probe.Lease))
	return c
}
