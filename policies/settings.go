package policies

import (
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Settings is policy.toml, read and checked. Durations are written with their
// units ("30s"), shares as decimals (0.5), sizes with units ("16MiB"), money in
// US dollars.
type Settings struct {
	Breakers  []Breaker
	Modules   []Module      // in the order of the chain: the first that has an opinion answers
	Plugins   []Plugin      // likewise
	Fallbacks []Contract    //
	Tools     []Tool        //
	Impacts   []Impact      //
	Bulkheads []Bulkhead    //
	Budget    Budget        //
	Prices    []Price       //
	Queue     Queue         //
	Retry     Retry         //
	Loop      Loop          //
	Rollout   Rollout       //
	Answers   PolicyDefault // what a policy error means where it does not mean deny
}

// A Breaker is one [[breaker]]: the setting that package breaker understands,
// and where it stands.
type Breaker struct {
	breaker.Setting
	Line int // of its header in policy.toml
}

// A Select says which operations a module or plugin is asked about. An empty
// list is any; lists are joined by and.
type Select struct {
	Kinds         []string `toml:"kinds"`
	Names         []string `toml:"names"`
	Providers     []string `toml:"providers"`
	Models        []string `toml:"models"`
	Tools         []string `toml:"tools"`
	Actions       []string `toml:"actions"`
	ActionClasses []string `toml:"action_classes"`
	Tenants       []string `toml:"tenants"`
}

// Matches reports whether an operation is selected. A pattern that ends in '*'
// is a prefix.
func (s *Select) Matches(o *taxonomy.Operation) bool {
	return matches(s.Kinds, o.Kind) && matches(s.Names, o.Name) && matches(s.Providers, o.Provider) &&
		matches(s.Models, o.Model) && matches(s.Tools, o.Tool) && matches(s.Actions, o.Action) &&
		matches(s.ActionClasses, o.ActionClass) && matches(s.Tenants, o.Tenant)
}

func matches(patterns []string, text string) bool {
	for _, p := range patterns {
		if matchOne(p, text) {
			return true
		}
	}
	return len(patterns) == 0
}

func matchOne(pattern, text string) bool {
	if n := len(pattern); n > 0 && pattern[n-1] == '*' {
		return len(text) >= n-1 && text[:n-1] == pattern[:n-1]
	}
	return pattern == text
}

// A Module is one [[module]]: a WebAssembly module, pinned by digest.
type Module struct {
	Name       string       `toml:"name"`    // lower case letters, digits and '-'
	Version    string       `toml:"version"` // for people
	File       string       `toml:"file"`    // relative to the bundle: "modules/acme.wasm"
	SHA256     string       `toml:"sha256"`
	Kinds      []string     `toml:"kinds"`   // classifier, fallback
	Profile    string       `toml:"profile"` // pure (default) or go
	Select     Select       `toml:"select"`
	Limits     ModuleLimits `toml:"limits"`
	Vocabulary Vocabulary   `toml:"vocabulary"`
	Log        bool         `toml:"log"`       // it may write bounded log lines
	Isolation  string       `toml:"isolation"` // reset (default) or fresh
	OnFailure  string       `toml:"on_failure"`
	Bench      Bench        `toml:"bench"`
	Line       int
}

// ModuleLimits bound one call; zero is the host's default for the profile.
type ModuleLimits struct {
	Module    Size          `toml:"module"`    // the file
	Memory    Size          `toml:"memory"`    // whole pages of 64 KiB
	Stack     Size          `toml:"stack"`     // native stack of recursive functions
	Input     Size          `toml:"input"`     //
	Output    Size          `toml:"output"`    //
	Fuel      int64         `toml:"fuel"`      // of one call
	InitFuel  int64         `toml:"init_fuel"` // of starting
	Table     int           `toml:"table"`     // entries
	LogLines  int           `toml:"log_lines"` // of one call
	LogBytes  Size          `toml:"log_bytes"` // of one call
	Instances int           `toml:"instances"` // kept ready
	Wait      time.Duration `toml:"wait"`      // for an instance
}

// A Vocabulary lists what a module may say beside the enums. Anything else in
// its answer is refused, so that no text of a request reaches receipts and
// metrics.
type Vocabulary struct {
	Reasons []string            `toml:"reasons"` // snake_case
	Facts   map[string][]string `toml:"facts"`   // names, and the values each may have; an empty list allows a whole number only
}

// Bench takes a module or plugin that keeps failing out of the chain for a while.
type Bench struct {
	Failures int           `toml:"failures"` // in Window; 0 is the host's default
	Window   time.Duration `toml:"window"`
	Rest     time.Duration `toml:"rest"`
}

// A Plugin is one [[plugin]]: an out-of-process extension whose answers enter
// decisions, pinned by the checksum of its binary. How it is started is wiring.
type Plugin struct {
	Name       string        `toml:"name"`    // lower case letters, digits and '-'
	Version    string        `toml:"version"` // for people
	Role       string        `toml:"role"`    // classifier, reconciler, approver, evaluator
	SHA256     string        `toml:"sha256"`
	Select     Select        `toml:"select"`     // what it is asked about; a reconciler is named by its tools
	Deadline   time.Duration `toml:"deadline"`   // of one call
	Vocabulary Vocabulary    `toml:"vocabulary"` // reasons and facts of a classifier; an evaluator's checks are its reasons
	OnFailure  string        `toml:"on_failure"` // of a classifier: next (default) or unknown
	Bench      Bench         `toml:"bench"`
	Line       int
}

// MaxPluginDeadline bounds one call of a plugin: as long as one look-up may take.
const MaxPluginDeadline = 10 * time.Second

// A Contract is one [[fallback]]: what callers get while a breaker is open.
type Contract struct {
	Name          string        `toml:"name"`
	LatencyBudget time.Duration `toml:"latency_budget"` // after it a synchronous flow gets the first candidate that sends nothing
	MaxCases      int           `toml:"max_cases"`      // open human cases at most; 0 is no bound
	Reviewers     string        `toml:"reviewers"`      // who decides a human case
	Saved         string        `toml:"saved"`          // what the caller is told was kept
	Then          string        `toml:"then"`           // retry, wait or review
	Candidates    []Candidate   `toml:"candidate"`      // in the author's order
	Line          int
}

// A Candidate is one declared way to go on.
type Candidate struct {
	ID         string        `toml:"id"`
	Kind       string        `toml:"kind"` // cached, alternate, reduced, draft, queued, human, refuse
	Provider   string        `toml:"provider"`
	Model      string        `toml:"model"`
	Tool       string        `toml:"tool"`
	Losses     []string      `toml:"losses"` // freshness, accuracy, privacy, authority, audit
	Prohibited []string      `toml:"prohibited"`
	Message    string        `toml:"message"`
	MaxAge     time.Duration `toml:"max_age"`    // of a cached answer; required there
	ExpiresIn  time.Duration `toml:"expires_in"` // of a queued item; required there
}

// Shown is the candidate as rules and modules see it.
func (c *Candidate) Shown() taxonomy.Candidate {
	return taxonomy.Candidate{ID: c.ID, Kind: c.Kind, Provider: c.Provider, Model: c.Model, Tool: c.Tool,
		Losses: c.Losses, Prohibited: c.Prohibited, Message: c.Message}
}

// A Tool is one [[tool]]: what is known of a tool, or of one of its actions.
// It may declare more care than the caller does, never less.
type Tool struct {
	Tool        string          `toml:"tool"`
	Action      string          `toml:"action"` // "" is every action that has no entry of its own
	Effect      taxonomy.Effect `toml:"effect"`
	ActionClass string          `toml:"action_class"`
	Idempotency string          `toml:"idempotency"` // how the key travels: "header:Idempotency-Key", "argument:request_id"; "" is not at all
	Condition   string          `toml:"condition"`   // what makes a conditionally_repeatable action repeatable: live_key, precondition, status_lookup
	Reconcile   Reconcile       `toml:"reconcile"`
	Compensate  string          `toml:"compensate"` // "tool/action" that takes it back, or NoCompensation
	Loop        string          `toml:"loop"`       // "watch" (default), "poll": equal results are progress, "off"
	Timeout     time.Duration   `toml:"timeout"`    // of one attempt; 0 is the profile's
	MaxParallel int             `toml:"max_parallel"`
	Line        int
}

// NoCompensation is the value of compensate by which somebody declares that the
// action cannot be taken back, like a mail that was sent. It is no default: what
// declares nothing was not thought about.
const NoCompensation = "none"

// Reconcile says how an UNKNOWN outcome is found out.
type Reconcile struct {
	By     string        `toml:"by"`     // http, plugin, tool, callback, human; "" is not at all
	URL    string        `toml:"url"`    // of http; {key} and {request} are replaced
	Plugin string        `toml:"plugin"` // a [[plugin]] with role reconciler
	Tool   string        `toml:"tool"`   // "tool/action" of a read-only lookup
	After  time.Duration `toml:"after"`  // first lookup
	Every  time.Duration `toml:"every"`
	Tries  int           `toml:"tries"` // then a person is asked
}

// An Impact is one [[impact]]: how a class of actions is treated.
type Impact struct {
	ActionClass string            `toml:"action_class"`
	Impact      string            `toml:"impact"`        // high or low; high can be added, never taken away
	OnStoreLoss breaker.StoreLoss `toml:"on_store_loss"` // while the state store cannot be read
	Intents     bool              `toml:"intents"`       // durable intents for reads too
	Line        int
}

// A Bulkhead is one [[bulkhead]]: how many calls of one scope may be out at once.
type Bulkhead struct {
	Name  string   `toml:"name"`
	Scope []string `toml:"scope"` // fields of the operation: ["provider", "tenant"]
	Most  int      `toml:"most"`
	Line  int
}

// Budget is [budget]: limits that are reserved before a call and settled after.
type Budget struct {
	Limits      []Limit       `toml:"limit"`
	Reservation time.Duration `toml:"reservation"`  // after it an unsettled reservation counts as used
	OnExhausted string        `toml:"on_exhausted"` // finalize, defer or approval
	Retry       RetryBudget   `toml:"retry"`
}

// A Limit is one [[budget.limit]]. A zero amount is no limit.
type Limit struct {
	Name     string        `toml:"name"`
	Scope    []string      `toml:"scope"`  // fields of the operation: ["tenant", "workflow"]
	Window   string        `toml:"window"` // run, hour, day or month (UTC)
	CostUSD  float64       `toml:"cost_usd"`
	Tokens   int64         `toml:"tokens"`
	Attempts int64         `toml:"attempts"`
	Time     time.Duration `toml:"time"`
	Line     int
}

// RetryBudget is [budget.retry]: what all runs together may spend on retries.
type RetryBudget struct {
	Ratio    float64       `toml:"ratio"`    // tokens that a first-try success gives back
	Capacity float64       `toml:"capacity"` // tokens at most; a retry costs one
	Floor    int           `toml:"floor"`    // retries at once that are always possible
	Refill   time.Duration `toml:"refill"`   // one token in this time, so that a drained budget recovers
}

// A Price is one [[price]], in US dollars for a million tokens.
type Price struct {
	Provider    string  `toml:"provider"` // like Model, a pattern: a '*' at its end is every ending
	Model       string  `toml:"model"`
	Input       float64 `toml:"input"`
	Output      float64 `toml:"output"`
	CachedInput float64 `toml:"cached_input"`
	PerCall     float64 `toml:"per_call"` // US dollars
	Line        int
}

// Queue is [queue].
type Queue struct {
	Expires   time.Duration `toml:"expires"`     // of an item that names none
	MaxItems  int           `toml:"max_items"`   // waiting, in all
	PerTenant int           `toml:"per_tenant"`  // waiting, of one tenant
	Replay    string        `toml:"replay"`      // revalidate or never
	Pace      float64       `toml:"pace"`        // items a second after a circuit closed
	Attempts  int           `toml:"attempts"`    // then it is dead
	Claim     time.Duration `toml:"claim"`       // lease of a worker
	Deadline  time.Duration `toml:"dead_letter"` // dead letters are kept so long
}

// Retry is [retry]: the profiles and the bounds of all of them.
type Retry struct {
	Deadline      time.Duration `toml:"deadline"`        // of a call with no deadline of its own
	RetryAfterMax time.Duration `toml:"retry_after_max"` // bound of a remote's hint
	Model         Profile       `toml:"model"`
	Tool          Profile       `toml:"tool"`
	Workflow      Profile       `toml:"workflow"`
	Background    Profile       `toml:"background"`
}

// A Profile is how often and how fast attempts follow each other.
type Profile struct {
	Attempts int             `toml:"attempts"` // in all
	Base     time.Duration   `toml:"base"`     // first wait, doubled each time
	Cap      time.Duration   `toml:"cap"`      // longest wait
	Jitter   float64         `toml:"jitter"`   // ± this share of each wait
	Waits    []time.Duration `toml:"waits"`    // explicit waits instead of base and cap
	Timeout  time.Duration   `toml:"timeout"`  // of one attempt
}

// Loop is [loop]: when a run is said to get nowhere.
type Loop struct {
	SameCall  int `toml:"same_call"`  // equal tool and arguments
	SameError int `toml:"same_error"` // equal tool and normalised error on one target
	PingPong  int `toml:"ping_pong"`  // repetitions of a cycle
	Steps     int `toml:"steps"`      // without new evidence; 0 is not watched
}

// Rollout is [rollout]: in which stage this version is, and what moves it.
type Rollout struct {
	Stage         taxonomy.Mode `toml:"stage"`          // observe, shadow, canary or enforce
	CanaryPercent float64       `toml:"canary_percent"` // of the units
	Unit          string        `toml:"unit"`           // tenant or run_id, never an attempt
	EnforceWrites bool          `toml:"enforce_writes"` // circuits bind writes too; needs what policy check lists
	MinHours      float64       `toml:"min_hours"`      // before promotion
	MinDecisions  int64         `toml:"min_decisions"`  //
	Deadline      time.Duration `toml:"deadline"`       // then it is rolled back
	Gates         []Gate        `toml:"gate"`
}

// A Gate is one [[rollout.gate]]: a measure of the candidate against the
// version in force. All gates must hold for promotion; one that breaks rolls back.
type Gate struct {
	Measure  string  `toml:"measure"`   // opens, user_failures, fallback_quality, interventions, corrections, risk
	MaxRatio float64 `toml:"max_ratio"` // candidate / in force
	MaxRise  float64 `toml:"max_rise"`  // candidate - in force
	Line     int
}

// PolicyDefault is [policy_error]: what an error of the rules means. Authority
// always denies, and writes always fail closed; this is for the rest.
type PolicyDefault struct {
	Reads string `toml:"reads"` // allow or reject
}

// file is policy.toml as it is written.
type file struct {
	Breakers  []map[string]any `toml:"breaker"`
	Modules   []Module         `toml:"module"`
	Plugins   []Plugin         `toml:"plugin"`
	Fallbacks []Contract       `toml:"fallback"`
	Tools     []Tool           `toml:"tool"`
	Impacts   []Impact         `toml:"impact"`
	Bulkheads []Bulkhead       `toml:"bulkhead"`
	Budget    Budget           `toml:"budget"`
	Prices    []Price          `toml:"price"`
	Queue     Queue            `toml:"queue"`
	Retry     Retry            `toml:"retry"`
	Loop      Loop             `toml:"loop"`
	Rollout   Rollout          `toml:"rollout"`
	Answers   PolicyDefault    `toml:"policy_error"`
}
