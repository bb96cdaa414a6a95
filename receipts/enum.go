package receipts

import "github.com/fusebox-dev/fusebox/taxonomy"

// Kind says what a receipt is about.
type Kind uint8

const (
	NoKind         Kind = iota // refused by the log
	KindAdmission              // an admit was decided
	KindIntent                 // a dispatch is about to be sent
	KindIntentVoid             // the dispatch of an intent receipt was not begun after all
	KindOutcome                // an attempt got its verdict
	KindTransition             // a circuit changed its state
	KindProbe                  // a probe was leased, spent or freed
	KindFallback               // a fallback was chosen
	KindQueue                  // work was queued, taken, discarded or expired
	KindReconcile              // an UNKNOWN outcome was looked up
	KindOverride               // a human decision
	KindRollout                // a policy went a step further or back
	KindPolicyLoad             // a policy came into force
	KindModuleLoad             // a WebAssembly module came into force
	KindConfigLoad             // the wiring came into force
	KindBoot                   // a writer took the log
	KindShutdown               // a writer left it in order
	KindGap                    // receipts that were submitted and not written, by number
	KindRollup                 // counts of receipts that were sampled out
	KindErasure                // a tenant's inputs were made unreadable
	KindKey                    // the next signing key
	kinds
)

var kindNames = []string{"", "admission", "intent", "intent_void", "outcome", "transition", "probe", "fallback",
	"queue", "reconcile", "override", "rollout", "policy_load", "module_load", "config_load", "boot", "shutdown",
	"gap", "rollup", "erasure", "key"}

func (k Kind) String() string               { return enumName(kindNames, uint8(k)) }
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *Kind) UnmarshalText(t []byte) error {
	v, err := enumParse("kind", kindNames, t)
	*k = Kind(v)
	return err
}

// Delivery is the promise made for a receipt. The zero value is Audit: nothing
// is dropped because somebody forgot to say how much it matters.
type Delivery uint8

const (
	Audit  Delivery = iota // never dropped; the submitter waits while the ring is full
	Sample                 // may be sampled, and dropped under load; always counted
	Ledger                 // durable before the caller goes on
)

var deliveryNames = []string{"audit", "sample", "ledger"}

func (d Delivery) String() string               { return enumName(deliveryNames, uint8(d)) }
func (d Delivery) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
func (d *Delivery) UnmarshalText(t []byte) error {
	v, err := enumParse("class", deliveryNames, t)
	*d = Delivery(v)
	return err
}

// State is where a circuit stands. The zero value is none.
type State uint8

const (
	NoState State = iota
	StateClosed
	StateOpen
	StateHalfOpen
	StateForcedOpen
	StateForcedClosed
	StateDisabled
	StateRamp // a growing share of the traffic
)

var stateNames = []string{"", "CLOSED", "OPEN", "HALF_OPEN", "FORCED_OPEN", "FORCED_CLOSED", "DISABLED", "RAMP"}

func (s State) String() string               { return enumName(stateNames, uint8(s)) }
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s *State) UnmarshalText(t []byte) error {
	v, err := enumParse("state", stateNames, t)
	*s = State(v)
	return err
}

// ParseState reads a state by the name that breakers print.
func ParseState(name string) (State, error) {
	var s State
	err := s.UnmarshalText([]byte(name))
	return s, err
}

// WindowKind says how a window forgets. The zero value is none.
type WindowKind uint8

const (
	NoWindow WindowKind = iota
	TimeWindow
	CountWindow
	DecayWindow
)

var windowNames = []string{"", "time", "count", "decay"}

func (w WindowKind) String() string               { return enumName(windowNames, uint8(w)) }
func (w WindowKind) MarshalText() ([]byte, error) { return []byte(w.String()), nil }
func (w *WindowKind) UnmarshalText(t []byte) error {
	v, err := enumParse("window_kind", windowNames, t)
	*w = WindowKind(v)
	return err
}

// FallbackResult says what became of a chosen fallback. The zero value is none.
type FallbackResult uint8

const (
	NoFallbackResult FallbackResult = iota
	FallbackUsed
	FallbackRefused
	FallbackFailed
)

var fallbackResultNames = []string{"", "used", "refused", "failed"}

func (f FallbackResult) String() string               { return enumName(fallbackResultNames, uint8(f)) }
func (f FallbackResult) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
func (f *FallbackResult) UnmarshalText(t []byte) error {
	v, err := enumParse("fallback_result", fallbackResultNames, t)
	*f = FallbackResult(v)
	return err
}

// FailMode says by which declared rule a decision was made although a part was
// missing. The zero value is none.
type FailMode uint8

const (
	NoFailMode FailMode = iota
	StoreUnavailableClosed
	StoreUnavailableOpen
	EvalErrorClosed
	EvalErrorOpen
	ModuleTrapDefault
	EvidenceUnavailable // the ledger receipt could not be made durable
)

var failModeNames = []string{"", "store_unavailable_closed", "store_unavailable_open", "eval_error_closed",
	"eval_error_open", "module_trap_default", "evidence_unavailable"}

func (f FailMode) String() string               { return enumName(failModeNames, uint8(f)) }
func (f FailMode) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
func (f *FailMode) UnmarshalText(t []byte) error {
	v, err := enumParse("fail_mode", failModeNames, t)
	*f = FailMode(v)
	return err
}

// Diff says how a candidate's decision differs from the one in force. The zero
// value is none.
type Diff uint8

const (
	NoDiff Diff = iota
	DiffUnchanged
	DiffStricter
	DiffLooser
	DiffReclassified
	DiffFallbackChanged
	DiffReasonOnly
	DiffError
)

var diffNames = []string{"", "unchanged", "stricter", "looser", "reclassified", "fallback_changed", "reason_only", "error"}

func (d Diff) String() string               { return enumName(diffNames, uint8(d)) }
func (d Diff) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
func (d *Diff) UnmarshalText(t []byte) error {
	v, err := enumParse("diff", diffNames, t)
	*d = Diff(v)
	return err
}

// Finding is what a reconciliation found. The zero value is none.
type Finding uint8

const (
	NoFinding Finding = iota
	FindingApplied
	FindingNotApplied
	FindingStillUnknown
)

var findingNames = []string{"", "applied", "not_applied", "still_unknown"}

func (f Finding) String() string               { return enumName(findingNames, uint8(f)) }
func (f Finding) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
func (f *Finding) UnmarshalText(t []byte) error {
	v, err := enumParse("finding", findingNames, t)
	*f = Finding(v)
	return err
}

// Opt is a value that may be absent. Many enums of taxonomy have a careful zero
// value that means something, so that "not applicable" needs its own bit.
type Opt[T comparable] struct {
	V  T
	OK bool // whether there is one
}

// Some is a present value.
func Some[T comparable](v T) Opt[T] { return Opt[T]{V: v, OK: true} }

// Is reports whether the value is present and equal to v.
func (o Opt[T]) Is(v T) bool { return o.OK && o.V == v }

func enumName(names []string, v uint8) string {
	if int(v) >= len(names) {
		return ""
	}
	return names[v]
}

func enumParse(enum string, names []string, text []byte) (uint8, error) {
	for i, n := range names {
		if n != "" && n == string(text) {
			return uint8(i), nil
		}
	}
	return 0, &taxonomy.UnknownName{Enum: enum, Text: string(text)}
}
