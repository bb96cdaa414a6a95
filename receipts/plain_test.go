package receipts

import "encoding/json"

type plainCircuit struct {
	Breaker string `json:"breaker"`
	Layer   string `json:"layer"`
	Scope   string `json:"scope"`
	State   string `json:"state"`
	Version int64  `json:"version"`
}

type plainFeed struct {
	Breaker string `json:"breaker"`
	Layer   string `json:"layer"`
	Level   string `json:"level"`
	Reason  string `json:"reason"`
	Scope   string `json:"scope"`
	Signal  string `json:"signal"`
}

// plainReceipt is the same document as a plain struct of strings and integers:
// what encoding/json would be given. It is kinder to encoding/json than the
// real type, whose enums would cost it a method call each.
type plainReceipt struct {
	Agent               string           `json:"agent,omitempty"`
	ArgsFp              string           `json:"args_fp,omitempty"`
	Attempt             int64            `json:"attempt,omitempty"`
	Breaker             string           `json:"breaker,omitempty"`
	Budget              map[string]int64 `json:"budget,omitempty"`
	Circuits            []plainCircuit   `json:"circuits,omitempty"`
	Class               string           `json:"class"`
	ClassifiedBy        string           `json:"classified_by,omitempty"`
	ConfigDigest        string           `json:"config_digest,omitempty"`
	Consecutive         int64            `json:"consecutive,omitempty"`
	Decision            string           `json:"decision,omitempty"`
	Effect              string           `json:"effect,omitempty"`
	ElapsedMs           int64            `json:"elapsed_ms,omitempty"`
	Engine              string           `json:"engine,omitempty"`
	ErrorClass          string           `json:"error_class,omitempty"`
	ErrorCode           string           `json:"error_code,omitempty"`
	EvalUs              int64            `json:"eval_us,omitempty"`
	Excluded            int64            `json:"excluded,omitempty"`
	ExcludedBy          map[string]int64 `json:"excluded_by,omitempty"`
	FailureRatioPpm     int64            `json:"failure_ratio_ppm,omitempty"`
	Failures            int64            `json:"failures,omitempty"`
	Feeds               []plainFeed      `json:"feeds,omitempty"`
	Id                  string           `json:"id,omitempty"`
	InputCommit         string           `json:"input_commit,omitempty"`
	InputRef            string           `json:"input_ref,omitempty"`
	Kind                string           `json:"kind,omitempty"`
	Layer               string           `json:"layer,omitempty"`
	Limits              map[string]int64 `json:"limits,omitempty"`
	Log                 string           `json:"log,omitempty"`
	Mode                string           `json:"mode,omitempty"`
	MonoUs              int64            `json:"mono_us"`
	Operation           string           `json:"operation,omitempty"`
	Origin              string           `json:"origin,omitempty"`
	Outcome             string           `json:"outcome,omitempty"`
	Parent              string           `json:"parent,omitempty"`
	PolicyVersion       string           `json:"policy_version,omitempty"`
	PrevState           string           `json:"prev_state,omitempty"`
	Reason              string           `json:"reason,omitempty"`
	RemoteCallAttempted bool             `json:"remote_call_attempted"`
	RequestId           string           `json:"request_id,omitempty"`
	Retry               string           `json:"retry,omitempty"`
	RetryAfterMs        int64            `json:"retry_after_ms,omitempty"`
	Rules               []string         `json:"rules,omitempty"`
	RunId               string           `json:"run_id,omitempty"`
	SampleSize          int64            `json:"sample_size,omitempty"`
	Scope               string           `json:"scope,omitempty"`
	ScopePath           []string         `json:"scope_path,omitempty"`
	Seq                 int64            `json:"seq"`
	Signal              string           `json:"signal,omitempty"`
	SpanId              string           `json:"span_id,omitempty"`
	State               string           `json:"state,omitempty"`
	StateVersion        int64            `json:"state_version,omitempty"`
	Successes           int64            `json:"successes,omitempty"`
	Tenant              string           `json:"tenant,omitempty"`
	TimeUs              int64            `json:"time_us"`
	TraceId             string           `json:"trace_id,omitempty"`
	V                   int64            `json:"v"`
	WindowKind          string           `json:"window_kind,omitempty"`
	WindowMs            int64            `json:"window_ms,omitempty"`
	Workflow            string           `json:"workflow,omitempty"`
}

func plainOf(r *Receipt) *plainReceipt {
	p := new(plainReceipt)
	if err := json.Unmarshal(r.AppendJSON(nil), p); err != nil {
		panic(err)
	}
	return p
}
