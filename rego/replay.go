package rego

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// replay evaluates a recorded projected input again. It never answers from the
// memo: what is asked is whether the rules say the same.
func (e *entry[T, A]) replay(ctx context.Context, projected []byte) (any, error) {
	if err := e.covers(projected); err != nil {
		return nil, fmt.Errorf("replay %s: %w", e.name, err)
	}
	in, err := e.parse(projected)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", e.name, err)
	}
	if at := e.seen.doc.invalid(in); at != "" {
		a := e.fail("invalid_input:"+at, "")
		return &a, nil
	}
	r := e.query.run(ctx, e.seen.value(in), mode{patient: true})
	if r.code == "policy_timeout" || r.code == "policy_memory" || r.code == "policy_canceled" {
		return nil, fmt.Errorf("replay %s: %s: %s", e.name, r.code, r.detail) // no answer, not even the careful one
	}
	a, _ := e.judge(in, r)
	if e.keepInput {
		e.evaluation(&a).Input = e.seen.appendJSON(nil, in)
	}
	return &a, nil
}

// covers checks that the recorded input holds every field that the rules read.
func (e *entry[T, A]) covers(projected []byte) error {
	var doc map[string]any
	if err := json.Unmarshal(projected, &doc); err != nil {
		return fmt.Errorf("recorded input: %w", err)
	}
	var lacking []string
	for i := range e.seen.fields {
		f := &e.seen.fields[i]
		if f.kind != constant && !has(doc, strings.Split(f.path, ".")) {
			lacking = append(lacking, f.path)
		}
	}
	if lacking != nil {
		return fmt.Errorf("the recorded input has no %s, which this policy's rules read", strings.Join(lacking, ", "))
	}
	return nil
}

func has(doc map[string]any, path []string) bool {
	v, ok := doc[path[0]]
	if !ok || len(path) == 1 {
		return ok
	}
	inner, ok := v.(map[string]any)
	return ok && has(inner, path[1:])
}

// strictly reads one JSON document without unknown members; integers in
// attributes come out as int64, which is what an operation may hold.
func strictly(b []byte, into any, op *taxonomy.Operation) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("recorded input: %w", err)
	}
	for n, v := range op.Attributes {
		if num, ok := v.(json.Number); ok {
			i, err := num.Int64()
			if err != nil {
				return fmt.Errorf("recorded input: attribute %s: %w", n, err)
			}
			op.Attributes[n] = i
		}
	}
	return nil
}

func parseRoute(b []byte) (routeIn, error) {
	var doc struct {
		Schema  string `json:"schema"`
		Outcome struct {
			Status       taxonomy.Outcome `json:"status"`
			Class        taxonomy.Class   `json:"class"`
			Reason       string           `json:"reason"`
			HTTPStatus   int64            `json:"http_status"`
			Attempt      int64            `json:"attempt"`
			Repeats      int64            `json:"repeats"`
			RetryAfterMS int64            `json:"retry_after_ms"`
			ElapsedMS    int64            `json:"elapsed_ms"`
		} `json:"outcome"`
		Operation taxonomy.Operation `json:"operation"`
	}
	err := strictly(b, &doc, &doc.Operation)
	o := &doc.Outcome
	return &taxonomy.RouteInput{Operation: &doc.Operation, Outcome: o.Status, Class: o.Class, Reason: o.Reason,
		HTTPStatus: o.HTTPStatus, Attempt: o.Attempt, Repeats: o.Repeats, RetryAfterMS: o.RetryAfterMS, ElapsedMS: o.ElapsedMS}, err
}

func parseAuthority(b []byte) (authorityIn, error) {
	var doc struct {
		Schema string `json:"schema"`
		Agent  struct {
			ID    string   `json:"id"`
			Roles []string `json:"roles"`
		} `json:"agent"`
		Approvals []taxonomy.ApprovalFact `json:"approvals"`
		Clock     taxonomy.Clock          `json:"clock"`
		Operation taxonomy.Operation      `json:"operation"`
	}
	err := strictly(b, &doc, &doc.Operation)
	slices.Sort(doc.Agent.Roles)
	return &taxonomy.AuthorityInput{Operation: &doc.Operation, AgentID: doc.Agent.ID, Roles: doc.Agent.Roles,
		Approvals: doc.Approvals, Clock: doc.Clock}, err
}

func parseAdmission(b []byte) (admissionIn, error) {
	var doc struct {
		Schema    string                    `json:"schema"`
		Blocked   []taxonomy.BlockedCircuit `json:"blocked"`
		Operation taxonomy.Operation        `json:"operation"`
	}
	err := strictly(b, &doc, &doc.Operation)
	return &taxonomy.AdmissionInput{Operation: &doc.Operation, Blocked: doc.Blocked}, err
}

func parseFallback(b []byte) (fallbackIn, error) {
	var doc struct {
		Schema    string `json:"schema"`
		Rejection struct {
			Decision taxonomy.Decision `json:"decision"`
			Layer    taxonomy.Layer    `json:"layer"`
			Breaker  string            `json:"breaker"`
			Reason   string            `json:"reason"`
			Class    taxonomy.Class    `json:"class"`
			State    string            `json:"state"`
		} `json:"rejection"`
		Candidates []taxonomy.Candidate `json:"candidates"`
		Operation  taxonomy.Operation   `json:"operation"`
	}
	err := strictly(b, &doc, &doc.Operation)
	r := &doc.Rejection
	return &taxonomy.FallbackInput{Operation: &doc.Operation, Candidates: doc.Candidates,
		Rejection: &taxonomy.Rejection{Decision: r.Decision, Layer: r.Layer, Breaker: r.Breaker, Reason: r.Reason, Class: r.Class, State: r.State}}, err
}
