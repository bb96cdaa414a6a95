package guest

import "github.com/fusebox-dev/fusebox/taxonomy/jsonscan"

// The host's words for outcomes and classes. They are texts here, and not the
// host's own types, because those bring a megabyte of tables with them.
const (
	Succeeded        = "SUCCEEDED"
	Failed           = "FAILED"
	FailedBeforeSend = "FAILED_BEFORE_SEND"
	Unknown          = "UNKNOWN"

	NoClass              = "none" // only with SUCCEEDED
	TransientTransport   = "transient_transport"
	PersistentDependency = "persistent_dependency"
	RateLimit            = "rate_limit"
	ClientInput          = "client_input"
	Authentication       = "authentication"
	Authorization        = "authorization"
	Validation           = "validation"
	AmbiguousWrite       = "ambiguous_write"
	SemanticQuality      = "semantic_quality"
	NoProgress           = "no_progress"
	Budget               = "budget"
	Cancellation         = "cancellation"
	PolicyDenial         = "policy_denial"
)

// A Verdict is what a classifier answers. Reason and facts must be in the
// vocabulary that the policy declares for the module.
type Verdict struct {
	Outcome      string
	Class        string
	Reason       string // snake_case, at most 200 bytes
	RetryAfterMS int64  // 0 is no hint
	Facts        []Fact
}

// A Fact is one thing beside the verdict.
type Fact struct{ Name, Value string }

// A Choice is what a fallback chooser answers: the id of one of the candidates.
type Choice struct {
	ID     string
	Reason string // for people, at most 200 bytes
}

// Append appends the verdict's document.
func (v *Verdict) Append(b []byte) []byte {
	b = quoted(append(b, `{"class":`...), v.Class)
	if len(v.Facts) > 0 {
		b = append(b, `,"facts":{`...)
		for i, f := range v.Facts {
			if i > 0 {
				b = append(b, ',')
			}
			b = quoted(b, f.Name)
			b = quoted(append(b, ':'), f.Value)
		}
		b = append(b, '}')
	}
	b = quoted(append(b, `,"outcome":`...), v.Outcome)
	b = quoted(append(b, `,"reason":`...), v.Reason)
	if v.RetryAfterMS > 0 {
		b = jsonscan.AppendInt(append(b, `,"retry_after_ms":`...), v.RetryAfterMS)
	}
	return append(b, '}')
}

// Append appends the choice's document.
func (c *Choice) Append(b []byte) []byte {
	b = quoted(append(b, `{"choose":`...), c.ID)
	b = quoted(append(b, `,"reason":`...), c.Reason)
	return append(b, '}')
}
