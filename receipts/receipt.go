package receipts

import "github.com/fusebox-dev/fusebox/taxonomy"

// Version is the major version of the receipt schema. Adding an optional field
// keeps it; renaming one or changing its meaning makes a new version in a new
// log.
const Version = 1

// A Receipt is the record of one decision. Absent is the zero value, and absent
// fields are not written. Times are Unix microseconds, ratios parts per
// million; every integer lies within ±(2^53−1), because JSON readers elsewhere
// hold numbers as doubles.
//
// A receipt handed to a [Log] is copied; its slices and pointers are shared, so
// they must not be changed afterwards.
type Receipt struct {
	// Filled in by the log: ID and TimeUS only where they are zero.
	ID     ID
	Log    string // origin of the log
	Seq    int64  // submit sequence in this log; no hole without a gap receipt
	TimeUS int64  // wall clock
	MonoUS int64  // monotonic since the boot receipt, when the writer took it from the ring

	Kind  Kind
	Class Delivery

	// Who and what.
	Parent      ID // the receipt this one answers: outcome → intent → admission
	RequestID   string
	RunID       string
	Workflow    string // workflow@version
	Attempt     int64  // 1 is the first
	Origin      Opt[taxonomy.Origin]
	Tenant      string
	Agent       string
	TraceID     string // W3C, 32 hex digits
	SpanID      string // W3C, 16 hex digits
	Operation   string // name of the tool's operation or model call
	Effect      Opt[taxonomy.Effect]
	Idempotency string // keyed fingerprint of the idempotency key
	ArgsFP      string // keyed fingerprint of the canonical arguments

	// Where.
	Layer     taxonomy.Layer
	Breaker   string   // its name in the policy
	Scope     string   // readable: "provider:acme/eu/model-x"
	ScopePath []string // what was consulted, widest first; at most 8

	// What was decided.
	Decision            Opt[taxonomy.Decision]
	WouldDecide         Opt[taxonomy.Decision] // what enforcement would have done
	Mode                Opt[taxonomy.Mode]
	RemoteCallAttempted bool   // whether anything may have left the process
	Reason              string // snake_case
	Rules               []string
	FailMode            FailMode
	EvalError           string // code of a policy error: "policy_undefined", …

	// How it ended.
	Outcome      Opt[taxonomy.Outcome]
	ErrorClass   taxonomy.Class
	ErrorCode    string // snake_case; from the classifier's declared vocabulary
	ClassifiedBy string // "table:openai/insufficient_quota", "wasm:acme-mail@sha256:…"
	Retry        Opt[taxonomy.Retry]
	RetryAfterMS int64
	ElapsedMS    int64
	Signal       Opt[taxonomy.Signal]
	Feeds        []Feed // where an outcome counted; at most 12
	Finding      Finding

	// The circuit.
	PrevState    State
	State        State
	StateVersion int64     // revision of the circuit in the store: orders receipts of one scope across processes
	StateEpoch   int64     // changes when the store may have gone back in time
	StaleMS      int64     // how long this process had not heard of the store when it decided; 0 is fresh
	StoreRule    string    // by which rule it decided all the same, or asked the store itself: local, allow, deny, read_through
	Circuits     []Circuit // what admission looked at; at most 12
	Window       Window
	Limits       []Count // thresholds in force; at most 16
	CooldownMS   int64
	ReopenAtUS   int64 // the earliest probe
	ProbeLease   string
	ProbeBudget  int64

	// Fallback, queue, budget, people.
	Fallback       string
	FallbackResult FallbackResult
	FallbackLoss   []string // freshness, accuracy, privacy, authority, audit
	QueueID        string
	QueueExpiresUS int64
	Budget         []Count // used and limit per budget; at most 16
	Approval       string  // id of the approval used
	Override       *OverrideNote
	By             string // principal behind a load, a rollout step or a reconciliation

	// Under what.
	PolicyVersion taxonomy.PolicyVersion
	ConfigDigest  string // "sha256:…" of the wiring
	Engine        string // "fusebox/0.4.0 opa/1.22.3"
	Module        ModuleNote
	Plugin        string // "pricing@1.2"
	Object        string // "sha256:…" of a stored object this receipt vouches for
	Cohort        string
	Rollout       string // "ro-12@500bp"
	Step          *RolloutStep
	ShadowOf      ID
	Diff          Diff

	// For replay.
	InputCommit string // salted commitment to the policy inputs
	InputRef    string // where the sealed inputs lie
	Input       []byte // what replay needs, on its way to be sealed: the log takes it when it writes the receipt, and no receipt holds it
	ND          *Nondeterminism
	EvalUS      int64
	WasmUS      int64

	Flags     []string // degraded, redaction_error, vocabulary, clock_step, late, …
	Truncated []string // fields cut by the encoder

	// Written by the log itself, or for it.
	Boot   *BootNote
	Gap    *GapNote
	Rollup *RollupNote
	Key    *KeyNote

	Retention *RetentionNote // of erasure receipts

	// Unknown holds the names of fields that a decoder met and does not know: a
	// newer writer added them. They are inside the hashed bytes.
	Unknown []string
}

// A Feed says where an outcome counted.
type Feed struct {
	Layer   taxonomy.Layer
	Breaker string
	Level   string
	Scope   string
	Signal  taxonomy.Signal
	Reason  string
}

// A Circuit is what a decision saw of one circuit.
type Circuit struct {
	Layer   taxonomy.Layer
	Breaker string
	Scope   string
	State   State
	Version int64
}

// A Window is what a circuit had counted. It is absent while Kind is NoWindow.
type Window struct {
	Kind        WindowKind
	MS          int64 // length of a time window
	SampleSize  int64 // the denominator
	Failures    int64
	Successes   int64
	Excluded    int64
	RatioPPM    int64 // failures / sample size
	Consecutive int64
	ExcludedBy  []Count // per error class; at most 16
}

// A Count is a named number.
type Count struct {
	Name string
	N    int64
}

// A ModuleNote says which WebAssembly module was asked and what came of it.
type ModuleNote struct {
	Name   string // name@version
	Digest string // "sha256:…" of its original bytes
	ABI    int64
	Limits string // digest of its limits
	Input  string // digest of what it was given
	Output string // digest of what it answered
	Error  string // code: "trap", "fuel_exhausted", "schema_violation", …
	Fuel   int64
}

// An OverrideNote is a human decision.
type OverrideNote struct {
	By        string
	Ticket    string // why, in the words of who decided: "ticket 4711"
	ExpiresUS int64
	Reason    string // a code
}

// A RolloutStep is one step of a policy's way into force.
type RolloutStep struct {
	From        string // off, observe, shadow, canary, enforce
	To          string
	BasisPoints int64 // share of the canary, in 1/10,000
	Candidate   taxonomy.PolicyVersion
	Figures     []Count // of both arms, when the step was taken; at most 16
}

// Nondeterminism is what a replay cannot recompute.
type Nondeterminism struct {
	NowUS      int64
	Seed       int64
	Transcript string // digest of recorded builtin and host calls
}

// A BootNote says in which state a writer found its log.
type BootNote struct {
	Incarnation string // of the process
	Epoch       int64  // how often the log was taken, 1 is the first
	Recovered   int64  // receipts found whole
	CutBytes    int64  // bytes of a torn frame that were cut off
	Unclean     bool   // the last writer left without a shutdown receipt
}

// A GapNote owns up to receipts that were submitted and not written.
type GapNote struct {
	FromSeq int64
	ToSeq   int64
	Count   int64 // how many of FromSeq … ToSeq are missing
	Class   Delivery
	Cause   string // overflow, disk_full, crash
}

// A RollupNote counts receipts that were sampled out.
type RollupNote struct {
	FromUS int64
	ToUS   int64
	Total  int64
	Rows   []RollupRow // at most 64; what did not fit is in Total only
}

// A RollupRow counts one kind of decision.
type RollupRow struct {
	Breaker  string
	Scope    string
	Decision taxonomy.Decision
	Outcome  Opt[taxonomy.Outcome]
	N        int64
}

// A RetentionNote says that the bodies of old receipts were replaced by their
// leaf hashes. It is in the log before they are.
type RetentionNote struct {
	FromIndex int64 // the first that may be affected
	ToIndex   int64 // one past the last
	Count     int64 // how many are
	BeforeUS  int64 // they are older than this
	Classes   []Delivery
}

// A KeyNote announces the key that signs after the next checkpoint.
type KeyNote struct {
	Epoch int64  // of the next key, 2 is the second
	VKey  string // its note verifier key
}
