package breaker

import "github.com/fusebox-dev/fusebox/taxonomy"

// State is where a circuit stands. The zero value is Closed, because a circuit
// that was never used is the zero Circuit; whoever cannot read a circuit must
// not make one up (see [Decode]).
type State uint8

const (
	Closed   State = iota // outcomes are counted
	Open                  // nothing is sent
	HalfOpen              // only probes under a lease
	Ramping               // a growing share of the traffic
)

var stateNames = []string{"CLOSED", "OPEN", "HALF_OPEN", "RAMP"}

func (s State) String() string               { return name(stateNames, uint8(s)) }
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(t []byte) error {
	v, err := parse("state", stateNames, t)
	*s = State(v)
	return err
}

// severity orders states by how much they refuse.
func (s State) severity() int { return [...]int{0, 3, 2, 1}[s&3] }

// A Circuit is everything that is remembered about one scope. It is a value:
// copying it copies the circuit. The zero Circuit is closed and new.
type Circuit struct {
	State    State
	Reason   Reason // of the latest change
	Reopened uint8  // how often recovery failed since the circuit was last closed
	ProbeOK  uint8  // successes in HALF_OPEN, or matching evidence
	LostRow  uint8  // leases lost in a row
	Step     uint8  // of the ramp
	Seen     Evidence
	RampOK   uint32 // successes in this step of the ramp
	Row      uint32 // failures in a row
	Lost     uint32 // leases that ran out since the circuit opened
	Decided  uint32 // counts operators' decisions: the higher one is the newer
	Version  uint64 // counts changes of State
	Since    Instant
	// Until is what the state waits for: the end of OPEN's cooldown, of the gap
	// before HALF_OPEN's next probe, of the present step of RAMP.
	Until    Instant
	High     Instant // the latest instant seen; never stored
	Leases   [MaxProbes]Lease
	Window   Window
	Override *Override // nil is none; never changed in place
	Detail   string    // what the signal or the operator said at the latest change
}

// A Lease is the right to probe, held by whoever knows its token. A zero
// token is a free slot.
type Lease struct {
	Token uint64
	Until Instant
}

// live counts the leases that are out.
func (c *Circuit) live() (n uint8) {
	for i := range c.Leases {
		if c.Leases[i].Token != 0 {
			n++
		}
	}
	return n
}

// held finds the lease with this token.
func (c *Circuit) held(token uint64) *Lease {
	if token == 0 {
		return nil
	}
	for i := range c.Leases {
		if c.Leases[i].Token == token {
			return &c.Leases[i]
		}
	}
	return nil
}

// firstEnd is when the next lease runs out.
func (c *Circuit) firstEnd() Instant {
	var first Instant
	for _, l := range c.Leases {
		if l.Token != 0 && (first == 0 || l.Until < first) {
			first = l.Until
		}
	}
	return first
}

// Idle reports whether the circuit is as good as new at now, so that
// forgetting it loses nothing.
func (c *Circuit) Idle(r *Rule, now Instant) bool {
	if c.State != Closed || c.Override != nil {
		return false
	}
	if !c.Window.Used || r.forgotten(c, now) {
		return true
	}
	w := c.Window.At(&r.Window, now)
	return c.Row == 0 && r.Window.Kind == TimeWindow && w.Sum == Tally{} && w.Excluded == [taxonomy.Classes]uint32{}
}

// forgotten reports whether the latest outcome is too old to count at all.
func (r *Rule) forgotten(c *Circuit, now Instant) bool {
	return r.Forget > 0 && c.Window.Used && now.Sub(c.Window.Last) >= r.Forget
}

// OverrideKind is a human decision that lies over a circuit.
type OverrideKind uint8

const (
	NoOverride OverrideKind = iota
	ForcedOpen
	ForcedClosed
)

var overrideNames = []string{"none", "forced_open", "forced_closed"}

func (k OverrideKind) String() string               { return name(overrideNames, uint8(k)) }
func (k OverrideKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads an override's name.
func (k *OverrideKind) UnmarshalText(t []byte) error {
	v, err := parse("override", overrideNames, t)
	*k = OverrideKind(v)
	return err
}

// An Override is a human decision with a reason and an end. While it lasts it
// binds in every mode, and the circuit below goes on counting and moving.
type Override struct {
	Kind  OverrideKind
	Until Instant
	By    string
	Why   string
}

// forced is the override in force.
func (c *Circuit) forced() OverrideKind {
	if c.Override == nil {
		return NoOverride
	}
	return c.Override.Kind
}
