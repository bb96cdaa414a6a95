package rego

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	oparego "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// A RolloutAnswer is what a team's own gate says of a candidate.
type RolloutAnswer struct {
	Verdict string   `json:"verdict"` // "promote", "hold" or "roll_back"
	Reasons []string `json:"reasons"`
}

// rolloutDecision is the one rule that is asked beside the four questions.
var rolloutDecision = ast.MustParseRef("data.fusebox.rollout.decision")

// Rollout asks data.fusebox.rollout.decision, which a policy may define, about
// the figures of a trial, a JSON document. It is no fifth question of the path:
// no call waits for it, and a policy without it has said nothing (asked false).
// It is compiled with the rest, under the same capabilities, so it is as
// hermetic as the four; a value of another form is an error.
func (s *Snapshot) Rollout(ctx context.Context, figures []byte) (a RolloutAnswer, asked bool, err error) {
	ref := rolloutDecision
	if len(s.compiler.GetRulesExact(ref)) == 0 {
		return a, false, nil
	}
	input, err := ast.ValueFromReader(bytes.NewReader(figures))
	if err != nil {
		return a, true, fmt.Errorf("%s: the figures: %w", ref, err)
	}
	store := inmem.NewFromASTObject(s.data)
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return a, true, fmt.Errorf("%s: %w", ref, err)
	}
	defer store.Abort(ctx, txn)
	prepared, err := oparego.New(oparego.ParsedQuery(ast.NewBody(ast.NewExpr(ast.NewTerm(ref)))),
		oparego.Compiler(s.compiler), oparego.Store(store), oparego.Transaction(txn)).PrepareForEval(ctx)
	if err != nil {
		return a, true, fmt.Errorf("%s: %w", ref, err)
	}
	q := &query{prepared: prepared, txn: txn, annotations: s.compiler.GetAnnotationSet(), deadline: time.Second, untyped: true}
	r := q.run(ctx, input, plainMode)
	if r.code != "" {
		return a, true, fmt.Errorf("%s: %s: %s", ref, r.code, r.detail)
	}
	if err := ast.As(r.value, &a); err != nil {
		return RolloutAnswer{}, true, fmt.Errorf("%s must be {verdict, reasons}: %w", ref, err)
	}
	switch a.Verdict {
	case "promote", "hold", "roll_back":
		return a, true, nil
	}
	return RolloutAnswer{}, true, fmt.Errorf(`%s: verdict must be "promote", "hold" or "roll_back", got %.40q`, ref, a.Verdict)
}
