package rego

import (
	"context"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Options tune a snapshot. The zero value is what production uses.
type Options struct {
	// Version is stamped on the snapshot; the caller composes it, since it covers
	// settings and modules that this package does not know.
	Version taxonomy.PolicyVersion

	// Deadline bounds one evaluation; 0 is 100 ms.
	Deadline time.Duration

	// MemoBytes bounds the remembered answers of each entrypoint; 0 is 8 MiB,
	// negative switches the memo off.
	MemoBytes int64

	// VerifyEvery re-evaluates one in so many memo hits on the whole input and
	// compares; 0 is 4096 (at 1024 the checks would be a third of what hits cost),
	// 1 is every hit.
	VerifyEvery uint32

	// KeepInput makes Evaluation.Input hold the projected input for receipts.
	KeepInput bool

	// Allow lists nondeterministic builtins that policy may use all the same. The
	// memo is off for every entrypoint that can reach one, and what it returned is
	// kept in Evaluation.Returned.
	Allow []string

	// Breakers are those of policy.toml. When given, a feed must name one of its
	// layer, and a level of its scope; a feed that names none gets the layer's only
	// one.
	Breakers []Breaker

	// Mismatch is called when a remembered answer differs from a fresh one. The
	// memo of that entrypoint is off from then on. nil is allowed.
	Mismatch func(Mismatch)

	// RunTests runs the bundle's own tests and refuses it when one fails.
	RunTests bool

	// RequireTests is RunTests, and refuses a bundle that has none, too.
	RequireTests bool

	// MinCoverage refuses a bundle whose tests cover less, in percent of its
	// non-test rules; 0 is no bound. It implies RequireTests.
	MinCoverage float64

	// Differential refuses a bundle that answers the golden inputs differently
	// with rule indexing or early exit switched off.
	Differential bool

	// TestTime bounds one test; 0 is 20 seconds. Stock opa gives it five; a server
	// that loads a policy on a busy machine gives it more, since a slow test is not
	// a wrong rule.
	TestTime time.Duration

	// ProofTime bounds the tests and the differential together; 0 is one minute.
	// A bundle that is not done by then is refused: it may have a test that never
	// ends.
	ProofTime time.Duration
}

// A Breaker is what routing must know of one entry of policy.toml.
type Breaker struct {
	Name  string
	Layer taxonomy.Layer
	Scope []string // widest first
}

// A Mismatch is a remembered answer that a fresh evaluation contradicts.
type Mismatch struct {
	Entrypoint Entrypoint
	Version    taxonomy.PolicyVersion
	Input      []byte // the whole input, canonical JSON
	Remembered string // canonical answers, for people
	Fresh      string
}

// Entrypoint names one of the four questions.
type Entrypoint string

// The four questions, each answered by data.fusebox.<name>.decision.
const (
	Routing   Entrypoint = "routing"
	Authority Entrypoint = "authority"
	Admission Entrypoint = "admission"
	Fallback  Entrypoint = "fallback"
)

// Entrypoints lists the four questions in a fixed order.
var Entrypoints = []Entrypoint{Routing, Authority, Admission, Fallback}

// A Snapshot is one compiled policy. It never changes and is safe for any
// number of goroutines; a new policy is a new snapshot. It holds no resource
// that must be closed.
type Snapshot struct {
	version  taxonomy.PolicyVersion
	warnings []Problem
	route    *entry[routeIn, taxonomy.RouteAnswer]
	authz    *entry[authorityIn, taxonomy.AuthorityAnswer]
	admit    *entry[admissionIn, taxonomy.AdmissionAnswer]
	fall     *entry[fallbackIn, taxonomy.FallbackAnswer]
	tests    *TestReport
	compiler *ast.Compiler // this and the rest: for what compares whole policies
	data     ast.Object
	files    *Files
	loader   *loader
}

// Version is the stamp of the policy that answers.
func (s *Snapshot) Version() taxonomy.PolicyVersion { return s.version }

// Warnings are what is allowed but unwise: reads that switch the memo off or
// make it useless, each with file and line.
func (s *Snapshot) Warnings() []Problem { return s.warnings }

// Tests is the report of the bundle's own tests; nil when Compile was not asked
// to run them.
func (s *Snapshot) Tests() *TestReport { return s.tests }

// Route says which layers an outcome feeds. On failure there are no feeds and
// Evaluation.Error says why. The answer may be shared with other callers and
// must not be changed.
func (s *Snapshot) Route(ctx context.Context, in *taxonomy.RouteInput) taxonomy.RouteAnswer {
	return s.route.ask(ctx, in)
}

// Authorize says whether an agent may do this. Failure is denial. The answer
// may be shared with other callers and must not be changed.
func (s *Snapshot) Authorize(ctx context.Context, in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
	return s.authz.ask(ctx, in)
}

// Admission says what to do with new work while circuits refuse it. Failure is
// reject.
func (s *Snapshot) Admission(ctx context.Context, in *taxonomy.AdmissionInput) taxonomy.AdmissionAnswer {
	return s.admit.ask(ctx, in)
}

// Fallback orders the candidates that may stand in; on failure none may. The
// answer may be shared with other callers and must not be changed.
func (s *Snapshot) Fallback(ctx context.Context, in *taxonomy.FallbackInput) taxonomy.FallbackAnswer {
	return s.fall.ask(ctx, in)
}

// Reads says which input fields an entrypoint's answers depend on.
func (s *Snapshot) Reads(ep Entrypoint) ReadSet { return s.asker(ep).reads() }

// A MemoStatus says how an entrypoint's memo stands.
type MemoStatus struct {
	On      bool
	Why     string // why it is off
	Entries int64
	Bytes   int64
	Checks  uint64 // hits that were evaluated again and agreed
}

// Memo reports how an entrypoint's memo stands.
func (s *Snapshot) Memo(ep Entrypoint) MemoStatus { return s.asker(ep).memoStatus() }

// Replay answers a question again from a projected input that a receipt kept.
// The result is the answer of the entrypoint's type: *taxonomy.RouteAnswer,
// *taxonomy.AuthorityAnswer, *taxonomy.AdmissionAnswer or *taxonomy.FallbackAnswer.
// The snapshot may be of another policy than the one that was recorded: a field
// that its rules read and that the receipt did not keep is an error that names it.
func (s *Snapshot) Replay(ctx context.Context, ep Entrypoint, projected []byte) (any, error) {
	return s.asker(ep).replay(ctx, projected)
}

// asker is what the four entrypoints have in common.
type asker interface {
	reads() ReadSet
	memoStatus() MemoStatus
	replay(context.Context, []byte) (any, error)
	golden(context.Context) []Problem
}

func (s *Snapshot) asker(ep Entrypoint) asker {
	switch ep {
	case Routing:
		return s.route
	case Authority:
		return s.authz
	case Admission:
		return s.admit
	default:
		return s.fall
	}
}
