package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Rules answers the four questions of policy. An answer never fails: what went
// wrong travels in its Evaluation, and a failed authority answer is a denial.
type Rules interface {
	Authorize(ctx context.Context, in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer
	Admission(ctx context.Context, in *taxonomy.AdmissionInput) taxonomy.AdmissionAnswer
	Route(ctx context.Context, in *taxonomy.RouteInput) taxonomy.RouteAnswer
	Fallback(ctx context.Context, in *taxonomy.FallbackInput) taxonomy.FallbackAnswer
}

// Table is the built-in classification. It is total and pure.
type Table interface {
	// Classify judges an observation: outcome, class, reason and hint, before
	// the floor and the retry advice.
	Classify(obs *taxonomy.Observation) taxonomy.Verdict
	// Loop judges a call that is about to be made against the earlier ones of
	// its run, oldest first: how many equivalent ones there were, and the reason
	// when one more would be a loop ("" when it is none).
	Loop(op *taxonomy.Operation, history []taxonomy.Call) (repeats int64, reason string)
}

// A Classifier is one link of the chain that is asked before the table.
type Classifier interface {
	// Selects reports whether the classifier wants this operation.
	Selects(op *taxonomy.Operation) bool
	// Classify answers, declines (ok false: the next one is asked) or fails.
	Classify(ctx context.Context, obs *taxonomy.Observation, builtin taxonomy.Verdict) (v taxonomy.Verdict, ok bool, err error)
	// Identity names it in receipts.
	Identity() Identity
}

// Identity says which module or plugin gave an answer.
type Identity struct {
	Name    string
	Version string
	Digest  string // "sha256:…"
	ABI     int64
}

// A Chooser picks a fallback among declared candidates; the rules' order
// stands when it declines or fails.
type Chooser interface {
	Selects(op *taxonomy.Operation) bool
	Choose(ctx context.Context, in *taxonomy.FallbackInput) (c taxonomy.Choice, ok bool, err error)
	Identity() Identity
}

// A Policy is everything that decides, under one version. It is immutable; a
// permit pins the one that admitted it.
type Policy struct {
	Version     taxonomy.PolicyVersion
	Rules       Rules
	Table       Table
	Classifiers []Classifier
	Choosers    []Chooser
	Breakers    []breaker.Setting
	Fallbacks   []Fallback
	Tools       []Tool
	Budgets     []Budget
	Bulkheads   []Bulkhead
	Retries     []RetryProfile
	RetryTokens RetryTokens
	Prices      []Price
	Queue       QueueRules
	Roles       map[string][]string // agent id to roles
	OnError     PolicyErrorRule     // what a read does when a rule fails
	StoreLoss   []StoreLossRule
	Observe     bool          // nothing but authority denials and R-CALL-3 is enforced
	WritesFree  bool          // circuits only observe writes, until a write path is ready for them
	HighImpact  []string      // action classes that policy marks; it never takes a mark away
	ReadIntents []string      // action classes whose reads leave durable intents too
	HintMost    time.Duration // bound of a remote's own hint when to come back; 0 is taxonomy.MaxRetryAfter
	Exhausted   string        // what a used-up budget offers: "finalize" (""), "defer" or "approval"
	Reserve     time.Duration // an unsettled reservation counts as used after it; 0 is the permit's own life
	Close       func() error  // closes modules; called once the last user is gone

	users  atomic.Int64 // permits and the engine itself
	rules  sync.Once    // fills byName
	byName map[string]*ruled
}

// A Fallback is the declared contract of an open breaker.
type Fallback struct {
	Name       string
	Within     time.Duration // after it a caller that waits gets the degraded answer; 0 waits for the end
	Reviewers  string        // who decides a human case
	MaxCases   int           // open human cases at most; 0 is no bound
	Saved      string        // what the caller is told was kept
	Then       string        // what the caller may do: "retry", "wait" or "review"
	Candidates []taxonomy.Candidate
	MaxAge     map[string]time.Duration // of cached candidates, by id
	ExpiresIn  map[string]time.Duration // of queued candidates, by id
}

// A Budget limits what is used per scope and window.
type Budget struct {
	Name   string
	Scope  []string      // fields of the operation, widest first
	Window time.Duration // 0 is for ever (a run's budget)
	Month  bool          // the window is a calendar month (UTC), whatever Window says
	Limit  state.Amounts
}

// A Bulkhead caps the permits that are out at once for one scope.
type Bulkhead struct {
	Name   string
	Tool   string // only calls of this tool; "" is every operation
	Action string // and of this action
	Scope  []string
	Most   int
}

// A RetryProfile spaces attempts. The figures are starting values to tune.
type RetryProfile struct {
	Name       string // "model", "tool", "background"
	Attempts   int
	Base       time.Duration
	Cap        time.Duration
	Growth     float64
	Jitter     float64 // share, both ways
	Deadline   time.Duration
	PerAttempt time.Duration
}

// RetryTokens bounds retries of all runs together, per provider: first
// successes refill the bucket, each retry takes from it.
type RetryTokens struct {
	Capacity int64 // 0 switches the bucket off
	Cost     int64
	Refill   int64         // what a first attempt that succeeds gives back
	Every    time.Duration // one Cost comes back in this time too, so that a drained bucket recovers; 0 is never
	Floor    int64         // so many retries may be out even with an empty bucket
}

// A Price turns usage into money.
type Price struct {
	Provider         string
	Model            string
	InputPerMillion  int64 // nano dollars for a million input tokens
	CachedPerMillion int64 // of input tokens that the remote had cached; 0 is the price of the others
	OutputPerMillion int64
	PerCall          int64 // nano dollars
}

// QueueRules bound deferred work. Zero fields bind nothing but the claim, which
// is two minutes.
type QueueRules struct {
	Expires   time.Duration // of work whose rule names none; 0 refuses it
	MaxExpiry time.Duration
	MaxItems  int
	PerTenant int           // waiting at once, of one tenant
	Manual    bool          // nothing is replayed unless a person retries it
	Drain     int           // items released per step
	Every     time.Duration // pause between steps
	Attempts  int           // dispatched ones, then an item is a dead letter
	Claim     time.Duration // how long a worker has an item; an attempt renews it
	KeepDead  time.Duration // dead letters are kept so long; 0 is until a person settles them
}

// PolicyErrorRule is what a read does when a rule cannot be evaluated. The
// zero value fails closed. Writes and high-impact actions always do.
type PolicyErrorRule struct{ ReadsProceed bool }

// A StoreLossRule says how an action class behaves while the state store
// cannot be read. High-impact actions fail closed whatever it says.
type StoreLossRule struct {
	ActionClass string // "" is every other
	ReadsOpen   bool   // go on with the local copy, and say so
}

// acquire pins the policy for one more user; false when the last one has left
// and its modules are closed.
func (p *Policy) acquire() bool {
	for {
		n := p.users.Load()
		if n <= 0 {
			return false
		}
		if p.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release lets go of it; the last one out closes the modules.
func (p *Policy) release() error {
	if p.users.Add(-1) == 0 && p.Close != nil {
		return p.Close()
	}
	return nil
}

// highImpact adds policy's marks to the operation's own.
func (p *Policy) highImpact(op *taxonomy.Operation) bool {
	if op.HighImpact() {
		return true
	}
	return slices.Contains(p.HighImpact, op.ActionClass)
}

// journals reports whether the operation leaves a durable intent before it is
// sent: every write does, and reads of the classes that policy names.
func (p *Policy) journals(op *taxonomy.Operation) bool {
	return op.Effect.Writes() || slices.Contains(p.ReadIntents, op.ActionClass)
}

// retry returns the profile for an operation.
func (p *Policy) retry(op *taxonomy.Operation) RetryProfile {
	name := "tool"
	if op.Kind == "model" || op.Kind == "workflow" {
		name = op.Kind
	}
	if op.Origin == taxonomy.OriginBackground || op.Origin == taxonomy.OriginSchedule {
		name = "background"
	}
	for _, r := range p.Retries {
		if r.Name == name {
			return r
		}
	}
	return DefaultRetries[name]
}

// DefaultRetries are the starting profiles of SPEC R-CALL-5 and R-CALL-6.
var DefaultRetries = map[string]RetryProfile{
	"model":      {Name: "model", Attempts: 4, Base: time.Second, Cap: 16 * time.Second, Growth: 2, Jitter: 0.3, Deadline: 90 * time.Second},
	"tool":       {Name: "tool", Attempts: 3, Base: time.Second, Cap: 2 * time.Second, Growth: 2, Jitter: 0.3, Deadline: 90 * time.Second},
	"workflow":   {Name: "workflow", Attempts: 1, Deadline: 90 * time.Second},
	"background": {Name: "background", Attempts: 6, Base: 5 * time.Second, Cap: 300 * time.Second, Growth: 2, Jitter: 0.3, Deadline: time.Hour},
}
