package breaker

import (
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// EventKind names what happens to a circuit. The zero value asks and changes
// nothing.
type EventKind uint8

const (
	Peek          EventKind = iota // what would Admit answer? changes nothing
	Admit                          // may this call go? takes a lease where one is needed
	Outcome                        // a call ended
	Release                        // a lease comes back unused
	Renew                          // a lease is held longer
	HardSignal                     // open at once: revoked credential, prohibited action, roll-up
	RetryAfter                     // open at once, for as long as the server said
	EvidenceSeen                   // proof that did not come from a call
	SetOverride                    // an operator decides
	ClearOverride                  // and takes it back
	RuleSwap                       // the settings changed
	Tick                           // time passed; OPEN past its cooldown becomes HALF_OPEN
	Settle                         // time passed; nothing that takes a probe slot
	Restore                        // the circuit was read from a store
)

var eventNames = []string{"peek", "admit", "outcome", "release", "renew", "hard_signal", "retry_after", "evidence",
	"set_override", "clear_override", "rule_swap", "tick", "settle", "restore"}

func (k EventKind) String() string               { return name(eventNames, uint8(k)) }
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Kind is how a call ended, as one circuit sees it. The zero value counts for
// nothing.
type Kind uint8

const (
	Excluded Kind = iota // recorded apart, by class
	OK
	Slow // a success that took longer than the rule allows
	Failed
	Unknown // nobody can prove what happened
)

var kindNames = []string{"excluded", "ok", "slow", "failed", "unknown"}

func (k Kind) String() string               { return name(kindNames, uint8(k)) }
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// An Event is one thing that happens to a circuit. Fields not named for its
// kind are ignored.
type Event struct {
	Kind EventKind

	// Outcome.
	Outcome Kind
	Class   taxonomy.Class
	N       uint32 // so many equal outcomes at once; 0 is one
	Shadow  bool   // the circuit would have refused this call

	// Outcome, HardSignal, RetryAfter: the circuit's Version when the call was
	// admitted. Unbound signals belong to no call and are never late.
	Version uint64
	Unbound bool

	// Admit, Peek: what a success of this call would prove. A call that proves
	// nothing the rule asks for takes no lease.
	// EvidenceSeen: what was proved.
	Gives Evidence

	// Admit: the token of the lease, should one be needed; unique in the fleet.
	// Outcome, Release, Renew: the token of the lease that is held; 0 is none.
	Token uint64

	// Admit, Renew: the call's deadline, which no lease outlives; 0 is none.
	// RetryAfter: not before.
	// HardSignal: not before; 0 is the cooldown.
	Until Instant

	// Draw is uniform in [0, One): it decides jitter and the share of a ramp.
	Draw PPM

	Override *Override // SetOverride
	Old      *Rule     // RuleSwap: the rule that was in force
	Reason   Reason    // HardSignal: ByHardSignal unless told
	Detail   string    // for people: the feed's reason, the operator's why
	By       string    // who: an operator, the source of evidence
}

// Reason says why a circuit changed, or refuses. Its text is a reason code of
// rejections and receipts.
type Reason uint8

const (
	NoReason Reason = iota
	// Changes.
	ByFailureRatio
	ByConsecutive
	BySlowRatio
	ByUnknown
	ByHardSignal
	ByRetryAfter
	ByRollup
	ByProbeFailed
	ByProbesLost
	ByRampFailed
	ByCooldownOver
	ByProbesPassed
	ByEvidence
	ByRampPassed
	ByOverride
	ByOverrideCleared
	ByOverrideExpired
	ByRuleSwap
	ByStore
	// Refusals.
	CircuitOpen
	AwaitsEvidence
	NotAProbe
	ProbeBusy
	ProbeGap
	RampShare
	ForceOpened
	reasons
)

var reasonNames = []string{"", "failure_ratio", "consecutive_failures", "slow_ratio", "unknown_outcomes",
	"hard_signal", "retry_after", "rollup", "probe_failed", "probes_lost", "ramp_failed", "cooldown_over",
	"probes_passed", "evidence", "ramp_passed", "override", "override_cleared", "override_expired", "rule_swap",
	"store", "circuit_open", "awaits_evidence", "not_a_probe", "probe_busy", "probe_gap", "ramp_share", "forced_open"}

func (r Reason) String() string               { return name(reasonNames, uint8(r)) }
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Fate says what became of an event in a circuit. The zero value: nothing.
type Fate uint8

const (
	Ignored  Fate = iota // it changed nothing
	Counted              // toward the state in force
	SetApart             // excluded: by class, toward nothing
	TooLate              // the state had moved on
	Shadowed             // the circuit would have refused the call
	Applied              // a signal, a lease, an override or evidence took hold
)

var fateNames = []string{"ignored", "counted", "excluded", "late", "shadow", "applied"}

func (f Fate) String() string               { return name(fateNames, uint8(f)) }
func (f Fate) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// A Decision is a circuit's answer. The zero value refuses.
type Decision struct {
	Allow   bool    // the call may go, as far as this circuit is concerned
	Would   bool    // the same under ModeEnforce; differs from Allow under observe
	Lease   Lease   // Admit: the lease it took; Token 0 is none
	Leases  bool    // Peek, Admit: this call needs a lease here
	Reason  Reason  // of a refusal
	RetryAt Instant // of a refusal: ask again then; 0 is unknown
	Fate    Fate
}

// A Transition is a change and the figures that caused it, as they stood
// before the change cleared them.
type Transition struct {
	From, To State
	Reason   Reason
	Detail   string
	By       string
	At       Instant
	Until    Instant // OPEN: the end of the cooldown; an override: its end
	Version  uint64  // the circuit's after it
	Override OverrideKind
	Capped   bool // the server asked for longer than retry_after_max
	Lease    uint64
	Cooldown time.Duration // 0 unless it opened
	Facts    Facts
}

// Moved reports whether the state changed; otherwise only a deadline, an
// override or a rule did.
func (t *Transition) Moved() bool { return t.From != t.To }

// Facts are the figures behind a decision.
type Facts struct {
	Tally      Tally
	Samples    uint64 // counted outcomes in the window
	Failures   uint64 // as the failure ratio counts them
	Ratio      PPM    // Failures / Samples, rounded down; 0 without samples
	SlowRatio  PPM
	Row        uint32 // failures in a row
	Late       uint32
	Lost       uint32 // leases that ran out
	ProbeOK    uint8
	Reopened   uint8
	Step       uint8
	ShadowOK   uint32
	ShadowFail uint32
	Excluded   [taxonomy.Classes]uint32
}

// Facts reads the circuit's figures at now. While it is open the window stands
// still and shows what opened it.
func (c *Circuit) Facts(r *Rule, now Instant) Facts {
	w := c.Window
	if c.State != Open {
		w = w.At(&r.Window, now)
	}
	f := Facts{Tally: w.Sum, Row: c.Row, Late: w.Late, Lost: c.Lost, ProbeOK: c.ProbeOK, Reopened: c.Reopened,
		Step: c.Step, ShadowOK: w.ShadowOK, ShadowFail: w.ShadowFailed, Excluded: w.Excluded}
	f.Samples, f.Failures = r.sample(w.Sum)
	if f.Samples > 0 {
		f.Ratio = PPM(f.Failures * uint64(One) / f.Samples)
		f.SlowRatio = PPM(uint64(w.Sum.Slow) * uint64(One) / f.Samples)
	}
	return f
}

// MaxTransitions is the most that one event can cause: an override that ended,
// a move that time alone had decided, and the event's own.
const MaxTransitions = 3

// Transitions are the changes that one event caused, in order.
type Transitions struct {
	N    uint8
	List [MaxTransitions]Transition
}

// All returns them as a slice of the value.
func (t *Transitions) All() []Transition { return t.List[:t.N] }
