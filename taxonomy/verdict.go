package taxonomy

import "time"

// A Verdict is a judged observation.
type Verdict struct {
	Outcome    Outcome       `json:"outcome"`
	Class      Class         `json:"class"`
	Reason     string        `json:"reason"` // snake_case: "read_timeout", "insufficient_quota"
	Retry      Retry         `json:"retry"`
	RetryAfter time.Duration `json:"-"`  // 0 is no hint; bounded by MaxRetryAfter
	By         string        `json:"by"` // "table:openai/insufficient_quota", "wasm:acme-mail@sha256:…"
	Facts      []Fact        `json:"facts,omitempty"`
}

// A Fact is one thing a classifier says beside its verdict, from a declared
// vocabulary.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// MaxRetryAfter bounds every retry hint, so that no remote can park a caller
// for ever. Policy may set a smaller bound.
const MaxRetryAfter = 24 * time.Hour

// A Feed tells one breaker layer what an outcome means for it.
type Feed struct {
	Layer   Layer  `json:"layer"`
	Breaker string `json:"breaker,omitempty"` // its name in policy.toml; "" where the layer has one
	Level   string `json:"level"`             // a field of that breaker's scope
	Signal  Signal `json:"signal"`
	Reason  string `json:"reason"`
	UntilMS int64  `json:"until_ms,omitempty"` // with open_now: wait this many milliseconds
}
