package taxonomy

import "time"

// PolicyVersion is "<revision>@sha256:<digest>". It is stamped on every
// decision, receipt and rejection.
type PolicyVersion string

// A Rejection is a local decision not to send, as a value: a caller can read
// why, what is open, when it may come back and what it may do next. It is an
// error to Go callers, and it is never worth retrying blindly.
type Rejection struct {
	Decision     Decision      `json:"decision"` // reject, queue, fallback or require_approval
	Layer        Layer         `json:"layer"`
	Breaker      string        `json:"breaker"`
	Scope        string        `json:"scope"`  // readable: "provider:openai/eu/gpt-x"
	Reason       string        `json:"reason"` // "circuit_open", "probe_busy", "budget_exhausted", "denied_by_policy", …
	Class        Class         `json:"class"`
	Reasons      []string      `json:"reasons,omitempty"` // what the rules said
	State        string        `json:"state"`             // "OPEN", "HALF_OPEN", …; "" where no circuit is meant
	StateVersion uint64        `json:"state_version"`
	RetryAt      time.Time     `json:"retry_at,omitzero"`
	Next         string        `json:"next"`     // "wait", "fallback", "ask", "reconcile", "stop"
	Fallback     string        `json:"fallback"` // name of the declared contract, "" when there is none
	Policy       PolicyVersion `json:"policy"`
	Receipt      string        `json:"receipt"`
	Index        int64         `json:"receipt_index"` // position in the log; -1 while not yet written
	ExpiresIn    time.Duration `json:"-"`             // with queue: how long the work may wait
	Dispatched   bool          `json:"remote_called"` // true only where a later step of a dispatched call refused
	Cause        error         `json:"-"`
}

func (r *Rejection) Error() string {
	b := make([]byte, 0, 128)
	b = append(b, "admit "...)
	if r.Scope != "" {
		b = append(b, r.Scope...)
	} else {
		b = append(b, r.Layer.String()...)
	}
	b = append(b, ": "...)
	b = append(b, r.Reason...)
	if !r.RetryAt.IsZero() {
		b = append(b, " until "...)
		b = r.RetryAt.UTC().AppendFormat(b, time.RFC3339)
	}
	b = append(b, "; the request was not sent"...)
	if r.Cause != nil {
		b = append(b, ": "...)
		b = append(b, r.Cause.Error()...)
	}
	return string(b)
}

// Unwrap gives the technical cause, where there is one.
func (r *Rejection) Unwrap() error { return r.Cause }

// An Approval is a signed record that somebody allowed something.
type Approval struct {
	ID        string    `json:"id"`
	By        string    `json:"by"`
	Scope     string    `json:"scope"` // what it allows: an action class, or a request id
	Tenant    string    `json:"tenant"`
	Until     time.Time `json:"until"`
	SingleUse bool      `json:"single_use"`
	Denies    bool      `json:"denies"` // a person's no: what asks for an approval is refused until then
	Reason    string    `json:"reason"`
	UsedBy    string    `json:"used_by,omitempty"` // the latest permit that used it; only listings say so
}

// A Candidate is one declared way to go on while something is open.
type Candidate struct {
	ID         string   `json:"id"`
	Kind       string   `json:"kind"` // cached, alternate, reduced, draft, queued, human, refuse
	Provider   string   `json:"provider"`
	Model      string   `json:"model"`
	Tool       string   `json:"tool"`
	Losses     []string `json:"losses"`     // freshness, accuracy, privacy, authority, audit
	Prohibited []string `json:"prohibited"` // actions not allowed while on this fallback
	Message    string   `json:"message"`    // what the caller is told
}

// A Choice names one of the declared candidates.
type Choice struct {
	ID     string `json:"choose"`
	Reason string `json:"reason"`
}
