package taxonomy

// An Operation is one thing an agent wants done: a model call, a tool call, a
// workflow step. It is one flat document, the same in the API, in Rego, in
// receipts and in observations; an absent text is "" and an absent number 0.
type Operation struct {
	Kind            string     `json:"kind"` // "model", "tool" or "workflow"
	Name            string     `json:"name"` // "chat.completions", "orders.create"
	Provider        string     `json:"provider"`
	Model           string     `json:"model"`
	Region          string     `json:"region"`
	Credential      string     `json:"credential"` // keyed fingerprint, never the secret
	Tool            string     `json:"tool"`
	Action          string     `json:"action"`
	ActionClass     string     `json:"action_class"`
	Tenant          string     `json:"tenant"`
	User            string     `json:"user"`
	Agent           string     `json:"agent"`
	Workflow        string     `json:"workflow"`
	WorkflowVersion string     `json:"workflow_version"`
	TaskClass       string     `json:"task_class"`
	PromptVersion   string     `json:"prompt_version"`
	Schema          string     `json:"schema"` // name of the output schema
	Effect          Effect     `json:"effect"`
	Impact          string     `json:"impact"` // "high" where a caller marks it so
	IdempotencyKey  string     `json:"idempotency_key"`
	RunID           string     `json:"run_id"`
	RequestID       string     `json:"request_id"`
	ParentID        string     `json:"parent_id"`
	Attempt         int64      `json:"attempt"` // 1 is the first
	Origin          Origin     `json:"origin"`
	Priority        int64      `json:"priority"` // higher is more urgent
	Deadline        int64      `json:"deadline"` // Unix milliseconds; 0 is none
	DependsOn       []string   `json:"depends_on"`
	ArgsFP          string     `json:"args_fp"` // keyed fingerprint of the canonical arguments
	Estimate        Estimate   `json:"estimate"`
	Amount          int64      `json:"amount"` // in the smallest unit of its currency
	Attributes      Attributes `json:"attributes"`
	PriorUnknown    bool       `json:"prior_unknown"` // an earlier attempt's outcome is UNKNOWN
}

// Estimate is what a call is expected to use at most; it is reserved before
// the call and settled after.
type Estimate struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CostNanoUSD  int64 `json:"cost_nano_usd"` // 1e9 is one dollar
}

// Attributes are a team's own declared facts about an operation. Values are
// strings, int64 or bool; nothing else is accepted.
type Attributes map[string]any

// HighImpact reports whether the operation's own declaration makes it
// high-impact: an effect that is not safely repeatable, one that was not
// declared, or an explicit mark. Policy may add to this and never takes away.
func (o *Operation) HighImpact() bool {
	return o.Effect == NonRepeatable || o.Effect == ConditionallyRepeatable || o.Impact == "high"
}

// A Part reads one text field of an operation. Scopes are built from parts.
type Part func(*Operation) string

// parts lists the fields a scope may name, by their document names.
var parts = map[string]Part{
	"kind":             func(o *Operation) string { return o.Kind },
	"name":             func(o *Operation) string { return o.Name },
	"provider":         func(o *Operation) string { return o.Provider },
	"model":            func(o *Operation) string { return o.Model },
	"region":           func(o *Operation) string { return o.Region },
	"credential":       func(o *Operation) string { return o.Credential },
	"tool":             func(o *Operation) string { return o.Tool },
	"action":           func(o *Operation) string { return o.Action },
	"action_class":     func(o *Operation) string { return o.ActionClass },
	"tenant":           func(o *Operation) string { return o.Tenant },
	"user":             func(o *Operation) string { return o.User },
	"agent":            func(o *Operation) string { return o.Agent },
	"workflow":         func(o *Operation) string { return o.Workflow },
	"workflow_version": func(o *Operation) string { return o.WorkflowVersion },
	"task_class":       func(o *Operation) string { return o.TaskClass },
	"prompt_version":   func(o *Operation) string { return o.PromptVersion },
	"schema":           func(o *Operation) string { return o.Schema },
	"run_id":           func(o *Operation) string { return o.RunID },
	"effect":           func(o *Operation) string { return o.Effect.String() },
}

// PartNamed returns the reader of the field with this document name; ok is
// false when a scope may not name it.
func PartNamed(name string) (Part, bool) {
	p, ok := parts[name]
	return p, ok
}

// PartNames lists the fields a scope may name, in no order.
func PartNames() []string {
	out := make([]string, 0, len(parts))
	for n := range parts {
		out = append(out, n)
	}
	return out
}
