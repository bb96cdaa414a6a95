package taxonomy

import "time"

// The four questions that policy answers. Their documents are the inputs of
// the Rego entrypoints data.fusebox.{routing,authority,admission,fallback}.decision
// (DESIGN decision 5); every field is always present in them.

// RouteInput asks which layers an outcome feeds.
type RouteInput struct {
	Operation    *Operation
	Outcome      Outcome
	Class        Class
	Reason       string
	HTTPStatus   int64 // 0 when no response arrived
	Attempt      int64
	Repeats      int64 // equivalent earlier calls of the run
	RetryAfterMS int64
	ElapsedMS    int64
}

// RouteAnswer is a sorted set of feeds.
type RouteAnswer struct {
	Feeds      []Feed
	Evaluation Evaluation
}

// AuthorityInput asks whether an agent may do this.
type AuthorityInput struct {
	Operation *Operation
	AgentID   string
	Roles     []string       // sorted
	Approvals []ApprovalFact // only unexpired ones, sorted
	Clock     Clock          // coarse, UTC, so that answers repeat
}

// An ApprovalFact is what a rule sees of an approval: no id, no timestamp.
type ApprovalFact struct {
	By    string `json:"by"`
	Scope string `json:"scope"`
}

// Clock is a coarse reading of the wall clock in UTC.
type Clock struct {
	Date    string `json:"date"`    // "2026-11-30"
	Hour    int64  `json:"hour"`    // 0 to 23
	Weekday string `json:"weekday"` // "monday"
}

// ClockAt reads the coarse clock from an instant.
func ClockAt(t time.Time) Clock {
	t = t.UTC()
	days := [...]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}
	return Clock{Date: t.Format("2006-01-02"), Hour: int64(t.Hour()), Weekday: days[t.Weekday()]}
}

// AuthorityAnswer is a decision with its reasons; its zero value denies.
type AuthorityAnswer struct {
	Decision    Authority
	Reasons     []string
	Obligations []string
	Evaluation  Evaluation
}

// AdmissionInput asks what to do with new work while circuits are not closed.
type AdmissionInput struct {
	Operation *Operation
	Blocked   []BlockedCircuit
}

// A BlockedCircuit is one circuit that refuses the operation.
type BlockedCircuit struct {
	Layer     Layer  `json:"layer"`
	Breaker   string `json:"breaker"`
	Scope     string `json:"scope"`
	State     string `json:"state"`
	Reason    string `json:"reason"`
	RetryInMS int64  `json:"retry_in_ms"`
}

// AdmissionAction is what policy does with new work while something is open.
// The zero value is reject.
type AdmissionAction uint8

const (
	ActionReject AdmissionAction = iota
	ActionQueue
	ActionProceed
	ActionRequireApproval
)

var actionNames = []string{"reject", "queue", "proceed", "require_approval"}

func (a AdmissionAction) String() string               { return name(actionNames, uint8(a)) }
func (a AdmissionAction) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
func (a *AdmissionAction) UnmarshalText(t []byte) error {
	v, err := parse("action", actionNames, t)
	*a = AdmissionAction(v)
	return err
}

// AdmissionAnswer is the action, and for a queue its expiry.
type AdmissionAnswer struct {
	Action     AdmissionAction
	Reason     string
	ExpiresIn  time.Duration
	Evaluation Evaluation
}

// FallbackInput asks which of the declared candidates may stand in.
type FallbackInput struct {
	Operation  *Operation
	Rejection  *Rejection
	Candidates []Candidate
}

// FallbackAnswer orders candidates by id; one it leaves out is not allowed.
type FallbackAnswer struct {
	Order      []Choice
	Evaluation Evaluation
}

// Evaluation says how an answer came about; receipts keep it.
type Evaluation struct {
	Entrypoint string        // "routing", "authority", "admission", "fallback"
	Error      string        // "" or a code: "policy_undefined", "policy_error", "policy_timeout", "policy_memory", "invalid_input:<field>", …
	Detail     string        // for people; never part of a decision
	Rules      []string      // labels of the rules that fired, sorted
	Memo       string        // "off", "hit", "miss"
	Input      []byte        // canonical JSON of the projected input, for replay; nil when not asked for
	Returned   []byte        // JSON of what builtins allowed by name returned; nil when there are none
	Took       time.Duration // 0 on a hit
}
