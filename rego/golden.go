package rego

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Golden inputs walk the enums that rules branch on. They are used where a
// policy must be seen whole without anybody writing inputs by hand: to compare
// evaluator modes at activation, and to print what a new version changes.

var kinds = []string{"model", "tool", "workflow"}

// goldenOperation is an operation with every part set.
func goldenOperation(kind string, effect taxonomy.Effect) *taxonomy.Operation {
	o := &taxonomy.Operation{Kind: kind, Name: "golden", Provider: "provider-a", Region: "eu", Credential: "cred-a", Tenant: "tenant-a",
		User: "user-a", Agent: "agent-a", Workflow: "workflow-a", WorkflowVersion: "1", TaskClass: "task-a", Effect: effect,
		RunID: "run-a", RequestID: "request-a", Attempt: 1}
	switch kind {
	case "model":
		o.Model, o.PromptVersion, o.Schema = "model-a", "prompt-1", "schema-1"
	case "tool":
		o.Tool, o.Action, o.ActionClass = "tool-a", "act", "class-a"
	}
	return o
}

func effects() []taxonomy.Effect {
	return []taxonomy.Effect{taxonomy.NonRepeatable, taxonomy.ConditionallyRepeatable, taxonomy.IdempotentWrite, taxonomy.ReadOnly}
}

// goldenRoutes yields every class with every outcome, kind and effect, with
// and without an instruction to wait.
func goldenRoutes(_ context.Context, yield func(routeIn) bool) {
	outcomes := []taxonomy.Outcome{taxonomy.Unknown, taxonomy.FailedBeforeSend, taxonomy.Failed}
	for _, kind := range kinds {
		for _, effect := range effects() {
			op := goldenOperation(kind, effect)
			if !yield(&taxonomy.RouteInput{Operation: op, Outcome: taxonomy.Succeeded, Reason: "ok", HTTPStatus: 200, Attempt: 1}) {
				return
			}
			for c := 1; c < taxonomy.Classes; c++ {
				for _, outcome := range outcomes {
					for _, wait := range []int64{0, 120_000} {
						if !yield(&taxonomy.RouteInput{Operation: op, Outcome: outcome, Class: taxonomy.Class(c),
							Reason: "golden", Attempt: 1, RetryAfterMS: wait}) {
							return
						}
					}
				}
			}
		}
	}
}

// goldenAuthority yields every kind and effect with a few roles, approvals,
// amounts and hours.
func goldenAuthority(_ context.Context, yield func(authorityIn) bool) {
	classes := []string{"", "class-a"}
	for _, kind := range kinds {
		for _, effect := range effects() {
			for _, class := range classes {
				for _, approved := range []bool{false, true} {
					for _, unknown := range []bool{false, true} {
						op := goldenOperation(kind, effect)
						op.ActionClass, op.PriorUnknown = class, unknown
						in := &taxonomy.AuthorityInput{Operation: op, AgentID: op.Agent,
							Clock: taxonomy.Clock{Date: "2026-11-30", Hour: 10, Weekday: "monday"}}
						if approved {
							in.Approvals = []taxonomy.ApprovalFact{{By: "person-a", Scope: class}}
						}
						if !yield(in) {
							return
						}
					}
				}
			}
		}
	}
}

func goldenAdmissions(_ context.Context, yield func(admissionIn) bool) {
	for _, kind := range kinds {
		for _, effect := range effects() {
			for l := 1; l < taxonomy.Layers; l++ {
				for _, priority := range []int64{0, 5, 10} {
					op := goldenOperation(kind, effect)
					op.Priority = priority
					if !yield(&taxonomy.AdmissionInput{Operation: op, Blocked: []taxonomy.BlockedCircuit{{
						Layer: taxonomy.Layer(l), Breaker: "golden", Scope: "golden", State: "OPEN", Reason: "golden", RetryInMS: 30_000}}}) {
						return
					}
				}
			}
		}
	}
}

func goldenFallbacks(_ context.Context, yield func(fallbackIn) bool) {
	var candidates []taxonomy.Candidate
	for _, kind := range []string{"cached", "alternate", "reduced", "draft", "queued", "human", "refuse"} {
		candidates = append(candidates, taxonomy.Candidate{ID: kind, Kind: kind, Provider: "provider-b", Model: "model-b", Message: "golden"})
	}
	for _, kind := range kinds {
		for _, effect := range effects() {
			for l := 1; l < taxonomy.Layers; l++ {
				if !yield(&taxonomy.FallbackInput{Operation: goldenOperation(kind, effect), Candidates: candidates,
					Rejection: &taxonomy.Rejection{Layer: taxonomy.Layer(l), Breaker: "golden", Reason: "circuit_open", State: "OPEN"}}) {
					return
				}
			}
		}
	}
}

// golden compares the evaluator's answers to the golden inputs with rule
// indexing and early exit switched off one by one. OPA 1.21.0 to 1.22.0 had an
// indexer that gave wrong answers (`x in {"a", input.y}`, fixed in 1.22.1): a
// policy that meets such a fault is refused before it decides anything.
//
// What is compared are answers and not speed, so each has far more time than a
// decision would: a slow machine must not look like a fault of the evaluator.
//
// Inputs that look alike to the rules are one: what rules do not read cannot
// change what they answer.
//
// A rule that fails for one of these ordinary inputs is refused as well: in a
// server it would turn every such answer into policy_error.
func (e *entry[T, A]) golden(ctx context.Context) []Problem {
	var inputs []T
	seen := map[string]bool{}
	e.samples(ctx, func(in T) bool {
		if key := string(e.seen.appendKey(nil, in)); !seen[key] {
			seen[key] = true
			inputs = append(inputs, in)
		}
		return true
	})
	unhurried := *e.query
	unhurried.deadline = max(unhurried.deadline, 10*time.Second)
	workers := runtime.GOMAXPROCS(0)
	found := make([][]Problem, workers)
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(inputs) && len(found[w]) < 4 && ctx.Err() == nil; i += workers {
				found[w] = append(found[w], e.agrees(ctx, &unhurried, inputs[i])...)
			}
		})
	}
	wait.Wait()
	return firstOfEach(slices.Concat(found...))
}

// firstOfEach leaves out what was already said of the same line.
func firstOfEach(all []Problem) (out []Problem) {
	for _, p := range all {
		if p.Line == 0 || !slices.ContainsFunc(out, func(q Problem) bool { return q.File == p.File && q.Line == p.Line && q.Code == p.Code }) {
			out = append(out, p)
		}
	}
	return out
}

// agrees compares the answers to one input in all modes.
func (e *entry[T, A]) agrees(ctx context.Context, q *query, in T) (problems []Problem) {
	value := e.seen.value(in)
	r := q.run(ctx, value, plainMode)
	switch {
	case ctx.Err() != nil:
		return nil
	case r.code == "policy_timeout" || r.code == "policy_memory":
		return []Problem{{Code: "resources", Text: fmt.Sprintf("%s answers %s for input %s: %s", e.name, r.code, e.seen.appendJSON(nil, in), r.detail)}}
	case len(r.faults) > 0:
		for _, f := range ofPolicy(r.faults) {
			problems = append(problems, faulty(f, fmt.Sprintf("%s asked with %s", e.name, e.seen.appendJSON(nil, in))))
		}
		return problems
	}
	want := e.answer(in, r)
	for _, m := range []mode{{noIndexing: true}, {noEarlyExit: true}, {noIndexing: true, noEarlyExit: true}} {
		if got := e.answer(in, q.run(ctx, value, m)); got != want && ctx.Err() == nil {
			problems = append(problems, Problem{Code: "differential", Text: fmt.Sprintf(
				"%s answers %s with %s, but %s without, for input %s; the evaluator cannot be trusted with this policy",
				e.name, want, m, got, e.seen.appendJSON(nil, in))})
		}
	}
	return problems
}

// answer prints an answer without how it came about.
func (e *entry[T, A]) answer(in T, r result) string {
	r.rules = nil // early exit may skip rules that would say the same
	a, _ := e.judge(in, r)
	return e.print(&a)
}

func (m mode) String() string {
	switch {
	case m.noIndexing && m.noEarlyExit:
		return "rule indexing and early exit"
	case m.noIndexing:
		return "rule indexing"
	}
	return "early exit"
}
