package taxonomy

import "errors"

// An UnknownName reports text that is not a name of the enum it was read for.
type UnknownName struct {
	Enum string // "effect", "class", …
	Text string
}

func (e *UnknownName) Error() string {
	return e.Enum + " " + quote(e.Text) + " is not one of the known names"
}

// ErrUnknownName matches every [UnknownName].
var ErrUnknownName = errors.New("unknown name")

// Is makes errors.Is(err, ErrUnknownName) true.
func (e *UnknownName) Is(target error) bool { return target == ErrUnknownName }

// quote shows text inside an error, cut so that a hostile value stays short.
func quote(s string) string {
	const most = 40
	cut := false
	if len(s) > most {
		s, cut = s[:most], true
	}
	out := make([]byte, 0, len(s)+2)
	out = append(out, '"')
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' {
			out = append(out, '?')
		} else {
			out = append(out, c)
		}
	}
	out = append(out, '"')
	if cut {
		out = append(out, "…"...)
	}
	return string(out)
}

// name is the printed form of an enum value; a value outside the list prints
// as its zero, which is always the careful one.
func name(names []string, v uint8) string {
	if int(v) >= len(names) {
		v = 0
	}
	return names[v]
}

// parse finds text among the names; ok is false when it is none of them.
func parse(enum string, names []string, text []byte) (uint8, error) {
	for i, n := range names {
		if n == string(text) {
			return uint8(i), nil
		}
	}
	return 0, &UnknownName{Enum: enum, Text: string(text)}
}

// Effect says whether an operation may be repeated. The zero value is the
// careful one: whoever forgets to declare an effect gets no automatic retry.
type Effect uint8

const (
	NonRepeatable           Effect = iota // repeating it does harm
	ConditionallyRepeatable               // only while a declared condition is verified
	IdempotentWrite                       // a write that may be repeated
	ReadOnly                              // changes nothing; a pure model completion is one
)

var effectNames = []string{"non_repeatable", "conditionally_repeatable", "idempotent_write", "read_only"}

func (e Effect) String() string               { return name(effectNames, uint8(e)) }
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads a name; the empty text is NonRepeatable.
func (e *Effect) UnmarshalText(t []byte) error {
	if len(t) == 0 {
		*e = NonRepeatable
		return nil
	}
	v, err := parse("effect", effectNames, t)
	*e = Effect(v)
	return err
}

// Writes reports whether the operation may change the world.
func (e Effect) Writes() bool { return e != ReadOnly }

// Repeatable reports whether sending it twice is harmless by declaration.
func (e Effect) Repeatable() bool { return e == ReadOnly || e == IdempotentWrite }

// Outcome is what is known about an operation after an attempt. The zero value
// is UNKNOWN: nobody can prove whether the remote accepted it.
type Outcome uint8

const (
	Unknown          Outcome = iota // nobody can prove whether the remote accepted it
	FailedBeforeSend                // refused locally, nothing dispatched
	Failed                          // definitive error, no side effect took place
	Succeeded                       // valid response received
)

var outcomeNames = []string{"UNKNOWN", "FAILED_BEFORE_SEND", "FAILED", "SUCCEEDED"}

func (o Outcome) String() string               { return name(outcomeNames, uint8(o)) }
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
func (o *Outcome) UnmarshalText(t []byte) error {
	v, err := parse("outcome", outcomeNames, t)
	*o = Outcome(v)
	return err
}

// Class is the kind of error behind every outcome but SUCCEEDED.
type Class uint8

const (
	NoClass Class = iota // only with SUCCEEDED
	TransientTransport
	PersistentDependency
	RateLimit
	ClientInput
	Authentication
	Authorization
	Validation
	AmbiguousWrite
	SemanticQuality
	NoProgress
	Budget
	Cancellation
	PolicyDenial
	classes // how many there are
)

// Classes is the number of Class values, NoClass included.
const Classes = int(classes)

var classNames = []string{"none", "transient_transport", "persistent_dependency", "rate_limit", "client_input",
	"authentication", "authorization", "validation", "ambiguous_write", "semantic_quality", "no_progress",
	"budget", "cancellation", "policy_denial"}

func (c Class) String() string               { return name(classNames, uint8(c)) }
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
func (c *Class) UnmarshalText(t []byte) error {
	v, err := parse("class", classNames, t)
	*c = Class(v)
	return err
}

// Retry is advice about another attempt. The zero value is never.
type Retry uint8

const (
	RetryNever          Retry = iota // another attempt cannot help, or is not allowed
	RetryReconcileFirst              // only after a status lookup proved that nothing was applied
	RetryAfterHint                   // not before Verdict.RetryAfter has passed
	RetryBackoff                     // with exponential backoff and jitter
)

var retryNames = []string{"never", "reconcile_first", "after_hint", "backoff"}

func (r Retry) String() string               { return name(retryNames, uint8(r)) }
func (r Retry) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
func (r *Retry) UnmarshalText(t []byte) error {
	v, err := parse("retry", retryNames, t)
	*r = Retry(v)
	return err
}

// Automatic reports whether the engine may try again by itself.
func (r Retry) Automatic() bool { return r == RetryAfterHint || r == RetryBackoff }

// Layer is one of the six kinds of health that breakers remember.
type Layer uint8

const (
	NoLayer Layer = iota
	LayerProvider
	LayerTool
	LayerWorkflow
	LayerSemantic
	LayerBudget
	LayerAuthority
	layers
)

// Layers is the number of Layer values, NoLayer included.
const Layers = int(layers)

var layerNames = []string{"none", "provider", "tool", "workflow", "semantic", "budget", "authority"}

func (l Layer) String() string               { return name(layerNames, uint8(l)) }
func (l Layer) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
func (l *Layer) UnmarshalText(t []byte) error {
	v, err := parse("layer", layerNames, t)
	*l = Layer(v)
	return err
}

// Signal is what a feed tells a circuit. The zero value counts for nothing.
type Signal uint8

const (
	SignalExcluded Signal = iota // recorded apart, counted toward nothing
	SignalSuccess
	SignalFailure
	SignalOpenNow // opens at once, no minimum sample
)

var signalNames = []string{"excluded", "success", "failure", "open_now"}

func (s Signal) String() string               { return name(signalNames, uint8(s)) }
func (s Signal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s *Signal) UnmarshalText(t []byte) error {
	v, err := parse("signal", signalNames, t)
	*s = Signal(v)
	return err
}

// Authority is the answer of the authority rules. The zero value is deny.
type Authority uint8

const (
	Deny Authority = iota
	RequireApproval
	Allow
)

var authorityNames = []string{"deny", "require_approval", "allow"}

func (a Authority) String() string               { return name(authorityNames, uint8(a)) }
func (a Authority) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
func (a *Authority) UnmarshalText(t []byte) error {
	v, err := parse("decision", authorityNames, t)
	*a = Authority(v)
	return err
}

// Decision is the answer of admission. The zero value is reject.
type Decision uint8

const (
	DecideReject Decision = iota
	DecideAllow
	DecideQueue
	DecideFallback
	DecideApproval
)

var decisionNames = []string{"reject", "allow", "queue", "fallback", "require_approval"}

func (d Decision) String() string               { return name(decisionNames, uint8(d)) }
func (d Decision) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
func (d *Decision) UnmarshalText(t []byte) error {
	v, err := parse("decision", decisionNames, t)
	*d = Decision(v)
	return err
}

// Dispatched says whether bytes of the request may have left. The zero value
// is unknown, which is treated as yes wherever it matters.
type Dispatched uint8

const (
	DispatchedUnknown Dispatched = iota
	DispatchedYes
	DispatchedNo
)

var dispatchedNames = []string{"unknown", "yes", "no"}

func (d Dispatched) String() string               { return name(dispatchedNames, uint8(d)) }
func (d Dispatched) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a name; the empty text is unknown.
func (d *Dispatched) UnmarshalText(t []byte) error {
	if len(t) == 0 {
		*d = DispatchedUnknown
		return nil
	}
	v, err := parse("dispatched", dispatchedNames, t)
	*d = Dispatched(v)
	return err
}

// Origin says which road a call took to the dependency (SPEC R-ADM-1: all of
// them pass the same admission).
type Origin uint8

const (
	OriginFirst Origin = iota
	OriginRetry
	OriginFallback
	OriginBackground
	OriginCallback
	OriginSchedule
	OriginQueue
	OriginReplay
	OriginSubagent
)

var originNames = []string{"first", "retry", "fallback", "background", "callback", "schedule", "queue", "replay", "subagent"}

func (o Origin) String() string               { return name(originNames, uint8(o)) }
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads a name; the empty text is first.
func (o *Origin) UnmarshalText(t []byte) error {
	if len(t) == 0 {
		*o = OriginFirst
		return nil
	}
	v, err := parse("origin", originNames, t)
	*o = Origin(v)
	return err
}

// Mode says whether a rule's decisions bind. The zero value is observe: a
// fresh rule is computed and receipted, and enforces nothing.
type Mode uint8

const (
	ModeObserve Mode = iota
	ModeShadow
	ModeCanary
	ModeEnforce
)

var modeNames = []string{"observe", "shadow", "canary", "enforce"}

func (m Mode) String() string               { return name(modeNames, uint8(m)) }
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
func (m *Mode) UnmarshalText(t []byte) error {
	v, err := parse("mode", modeNames, t)
	*m = Mode(v)
	return err
}
