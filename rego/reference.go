package rego

import (
	"bytes"
	"context"
	"embed"
	"fmt"

	oparego "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

//go:embed reference
var reference embed.FS

// ReferenceEval prepares the yardstick of this project's benchmarks: a fixed
// routing policy, evaluated the ordinary way (PreparedEvalQuery.Eval, the default
// store, a map as input). Each call of the function is one evaluation. Nothing
// in production uses it.
func ReferenceEval(ctx context.Context) (func(context.Context) error, error) {
	source, err := reference.ReadFile("reference/routing.rego")
	if err != nil {
		return nil, err
	}
	data, err := reference.ReadFile("reference/data.json")
	if err != nil {
		return nil, err
	}
	q, err := oparego.New(oparego.Query("data.fusebox.routing.decision"), oparego.Module("routing.rego", string(source)),
		oparego.Store(inmem.NewFromReader(bytes.NewReader(data)))).PrepareForEval(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare the reference policy: %w", err)
	}
	input := map[string]any{
		"schema": "fusebox.outcome/v1",
		"outcome": map[string]any{"status": "SUCCEEDED", "class": "none", "reason": "ok", "http_status": 200, "attempt": 1,
			"repeats": 0, "retry_after_ms": 0, "elapsed_ms": 840},
		"operation": map[string]any{"kind": "model", "name": "chat.completions", "provider": "provider-a", "model": "model-a", "region": "eu",
			"credential": "cred-a", "tool": "", "action": "", "action_class": "", "tenant": "tenant-a", "user": "user-a", "agent": "agent-a",
			"workflow": "workflow-a", "workflow_version": "1", "task_class": "task-a", "prompt_version": "prompt-1", "schema": "schema-1",
			"effect": "read_only", "impact": "", "idempotency_key": "", "run_id": "run-a", "request_id": "request-a", "parent_id": "",
			"attempt": 1, "origin": "first", "priority": 0, "deadline": 0, "depends_on": []any{}, "args_fp": "",
			"estimate": map[string]any{"input_tokens": 900, "output_tokens": 300, "cost_nano_usd": 0}, "amount": 0,
			"attributes": map[string]any{}, "prior_unknown": false},
	}
	return func(ctx context.Context) error {
		rs, err := q.Eval(ctx, oparego.EvalInput(input))
		if err == nil && len(rs) != 1 {
			err = fmt.Errorf("evaluate the reference policy: %d results", len(rs))
		}
		return err
	}, nil
}
