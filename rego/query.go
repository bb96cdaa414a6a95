package rego

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	oparego "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"
)

// A query is one prepared entrypoint. The store holds AST values and is never
// written, so all evaluations share one read transaction.
type query struct {
	prepared    oparego.PreparedEvalQuery
	txn         storage.Transaction
	annotations *ast.AnnotationSet
	deadline    time.Duration
	allowed     bool // some builtin was allowed by name, so what it returns is kept

	// untyped says that rules read attributes, whose types only their team knows.
	// The rule indexer (OPA 1.22) leaves out a rule such as
	// deny if startswith(input.operation.attributes.note, "x") when the note is a
	// number, and with the rule its type error, so that nobody learns that a denial
	// was lost. All other fields have fixed types. So for these entrypoints the
	// indexer stays off.
	untyped bool
}

// A result is what one evaluation gave: a value, or a code and its detail.
type result struct {
	value    ast.Value
	rules    []string
	returned []byte
	code     string
	detail   string
	faults   []topdown.Error // builtin errors
}

// A mode switches parts of the evaluator off, to compare its answers.
type mode struct {
	noIndexing, noEarlyExit bool
	patient                 bool // nobody waits for the answer
}

// patience is how long a replay waits for one answer: the deadline of a decision
// would make what it says depend on how busy the machine is.
const patience = time.Minute

var plainMode mode

// run evaluates once. It always returns: OPA panics on some values that no
// typed input can hold, and after upgrades it has panicked on others, so a
// panic is caught here and becomes a code.
func (q *query) run(ctx context.Context, input ast.Value, m mode) (r result) {
	defer func() {
		if p := recover(); p != nil {
			r = result{code: "policy_panic", detail: fmt.Sprint(p)}
		}
	}()
	cancel := topdown.NewCancel()
	deadline := q.deadline
	if m.patient {
		deadline = max(deadline, patience)
	}
	watch := startWatch(deadline, cancel)
	defer watch.stop()
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, cancel.Cancel)
		defer stop()
	}
	var faults []topdown.Error
	var fired topdown.EvaluatedRuleTracker
	options := []oparego.EvalOption{
		oparego.EvalParsedInput(input),
		oparego.EvalTransaction(q.txn),
		oparego.EvalExternalCancel(cancel),
		oparego.EvalBuiltinErrorList(&faults),
		oparego.EvalEvaluatedRuleTracker(fired.WithAnnotationSet(q.annotations)),
		oparego.EvalGenerateJSON(keepTerm),
		oparego.EvalRuleIndexing(!m.noIndexing && !q.untyped),
		oparego.EvalEarlyExit(!m.noEarlyExit),
	}
	var nd builtins.NDBCache
	if q.allowed {
		nd = builtins.NDBCache{}
		options = append(options, oparego.EvalNDBuiltinCache(nd))
	}
	rs, err := q.prepared.Eval(bounded(ctx), options...)
	r.rules = labels(fired.Labels)
	if len(nd) > 0 {
		r.returned, _ = nd.MarshalJSON()
	}
	switch {
	case err != nil:
		r.code, r.detail = watch.codeOf(err), err.Error()
		if r.code == "policy_memory" {
			r.detail = errGrowth.Error()
		}
	case len(faults) > 0:
		// The value is what stock `opa test` would see. But a rule that divides by
		// zero or is handed the wrong type just does not fire, and a deny rule that
		// does not fire is an open door.
		r.code, r.detail, r.faults = "policy_error", faultText(faults), faults
	case len(rs) == 0 || len(rs[0].Expressions) == 0:
		r.code, r.detail = "policy_undefined", "no rule gave a value"
	default:
		r.value = rs[0].Expressions[0].Value.(*ast.Term).Value
	}
	return r
}

// keepTerm hands results over as they are: decoding them from the AST keeps
// sets apart from arrays and saves a conversion.
func keepTerm(t *ast.Term, _ *oparego.EvalContext) (any, error) { return t, nil }

func (w *watchdog) codeOf(err error) string {
	var te *topdown.Error
	if errors.As(err, &te) {
		switch te.Code {
		case topdown.CancelErr:
			switch {
			case w.large.Load():
				return "policy_memory"
			case w.late.Load():
				return "policy_timeout"
			}
			return "policy_canceled"
		case topdown.ConflictErr:
			return "policy_conflict"
		}
	}
	return "policy_error"
}

func faultText(faults []topdown.Error) string {
	var out []string
	for i := range faults {
		if i == 4 {
			out = append(out, fmt.Sprintf("and %d more", len(faults)-i))
			break
		}
		out = append(out, faults[i].Error())
	}
	return strings.Join(out, "; ")
}

// labels lists the rules that fired by their `rule` label.
func labels(sets []map[string]any) []string {
	var out []string
	for _, s := range sets {
		if name, ok := s["rule"].(string); ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
