package sdk

import (
	"context"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

var (
	_ engine.Accountant = (*plugin)(nil)
	_ engine.Reconciler = (*plugin)(nil)
	_ engine.Approver   = (*plugin)(nil)
	_ engine.Evaluator  = (*plugin)(nil)
)

// Selects reports whether policy asks the plugin about this operation.
func (p *plugin) Selects(op *taxonomy.Operation) bool { return p.config.Select.Matches(op) }

// Identity names the plugin in receipts.
func (p *plugin) Identity() engine.Identity { return p.identity }

// Classify asks the plugin.
func (p *plugin) Classify(ctx context.Context, obs *taxonomy.Observation, builtin taxonomy.Verdict) (taxonomy.Verdict, bool, error) {
	v, ok, _, err := p.ClassifyAccount(ctx, obs, builtin)
	return v, ok, err
}

// ClassifyAccount asks the plugin what a module is asked, and holds its answer to
// the same rules: the schema, the declared vocabulary, and then the engine's
// floor.
func (p *plugin) ClassifyAccount(ctx context.Context, obs *taxonomy.Observation, builtin taxonomy.Verdict) (v taxonomy.Verdict, ok bool, a engine.Account, err error) {
	start := time.Now()
	document := taxonomy.AppendClassifyInput(nil, obs, &builtin)
	a.Input = digestOf(document)
	words := taxonomy.Vocabulary{Reasons: p.config.Vocabulary.Reasons, Facts: p.config.Vocabulary.Facts}
	err = p.Ask(ctx, document, func(answer []byte) error {
		if len(answer) == 0 {
			return nil
		}
		a.Output = digestOf(answer)
		got, err := taxonomy.ParseClassifyAnswer(answer)
		if err == nil {
			err = words.Allows(&got, func() string { return builtin.Reason })
		}
		v, ok = got, err == nil
		return err
	})
	a.Took = time.Since(start)
	v.By = p.by
	if err != nil && p.config.OnFailure == "unknown" && obs.Operation.Effect.Writes() {
		return taxonomy.Verdict{Outcome: taxonomy.Unknown, Class: taxonomy.AmbiguousWrite, Reason: "plugin_failed", By: "policy:on_failure"}, true, a, err
	}
	return v, ok && err == nil, a, err
}

// Reconcile asks the plugin whether a write was applied. Whatever goes wrong
// leaves it unknown.
func (p *plugin) Reconcile(ctx context.Context, in state.Intent) (engine.Finding, error) {
	op, err := taxonomy.ParseOperation(in.Operation)
	if err != nil {
		return engine.StillUnknown, err
	}
	if op.IdempotencyKey = in.IdempotencyKey; op.RequestID == "" {
		op.RequestID = in.RequestID
	}
	document := taxonomy.AppendReconcileQuestion(nil, &taxonomy.ReconcileQuestion{Intent: in.ID, Operation: op, Created: in.Created, Tries: in.Tries})
	found := taxonomy.FoundNothing
	err = p.Ask(ctx, document, func(answer []byte) (err error) {
		if len(answer) > 0 {
			found, err = taxonomy.ParseReconcileAnswer(answer)
		}
		return err
	})
	switch {
	case err != nil:
		return engine.StillUnknown, err
	case found == taxonomy.FoundApplied:
		return engine.Applied, nil
	case found == taxonomy.FoundNotApplied:
		return engine.NotApplied, nil
	}
	return engine.StillUnknown, nil
}

// Approve asks the plugin for its ruling. Whatever goes wrong leaves it open.
func (p *plugin) Approve(ctx context.Context, q *taxonomy.ApproveQuestion) (a taxonomy.ApproveAnswer, err error) {
	err = p.Ask(ctx, taxonomy.AppendApproveQuestion(nil, q), func(answer []byte) (err error) {
		if len(answer) > 0 {
			a, err = taxonomy.ParseApproveAnswer(answer)
		}
		return err
	})
	if err != nil {
		return taxonomy.ApproveAnswer{}, err
	}
	return a, nil
}

// Evaluate asks the plugin whether a result is good enough. The checks that it
// names are words of its vocabulary.
func (p *plugin) Evaluate(ctx context.Context, obs *taxonomy.Observation) (a taxonomy.EvaluateAnswer, ok bool, err error) {
	err = p.Ask(ctx, taxonomy.AppendEvaluateQuestion(nil, obs), func(answer []byte) error {
		if len(answer) == 0 {
			return nil
		}
		got, err := taxonomy.ParseEvaluateAnswer(answer)
		for _, name := range got.Failed {
			if !slices.Contains(p.config.Vocabulary.Reasons, name) {
				return &taxonomy.VocabularyError{What: "a failed check is not in the declared vocabulary"}
			}
		}
		a, ok = got, err == nil
		return err
	})
	if err != nil {
		return taxonomy.EvaluateAnswer{}, false, err
	}
	return a, ok, nil
}
