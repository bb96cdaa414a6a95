package main

import (
	"encoding/json"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The answers of the decision API. Members are added, never renamed, while "v"
// is 1.

// admitAnswer is the answer of POST /v1/admit.
type admitAnswer struct {
	V         int                    `json:"v"`
	Decision  taxonomy.Decision      `json:"decision"` // allow, reject, queue, fallback, require_approval
	Permit    *permitDoc             `json:"permit,omitempty"`
	Rejection json.RawMessage        `json:"rejection,omitempty"` // the rejection document of the published schema
	Message   string                 `json:"message_for_model,omitempty"`
	ExpiresMS int64                  `json:"expires_in_ms,omitempty"` // with queue: how long the work may wait
	Ticket    string                 `json:"ticket,omitempty"`        // with queue: for POST /v1/queue
	Item      *itemDoc               `json:"item,omitempty"`          // of a release: the queued item as it is now
	RequestID string                 `json:"request_id"`
	Policy    taxonomy.PolicyVersion `json:"policy"`
	Receipt   receiptRef             `json:"receipt"`
	Shadow    bool                   `json:"shadow,omitempty"` // nothing was given out: do not send
}

// permitDoc is the right to send one operation once.
type permitDoc struct {
	ID          string            `json:"id"`
	Token       string            `json:"token"` // goes into the bodies of dispatch and record
	ExpiresAt   time.Time         `json:"expires_at"`
	OnExpiry    taxonomy.Outcome  `json:"on_expiry"` // once dispatched: what it counts as when nobody records
	Probe       bool              `json:"probe"`
	MaxDispatch int               `json:"max_dispatch"`
	Headers     map[string]string `json:"headers,omitempty"`   // send these along
	Arguments   map[string]string `json:"arguments,omitempty"` // add these to the call's arguments
}

// receiptRef names a receipt. Index is its place in the log, null until it is
// written; durable says that it is known to be on disk.
type receiptRef struct {
	ID      string `json:"id"`
	Index   *int64 `json:"index"`
	Durable bool   `json:"durable"`
}

func ref(id string, index int64, durable bool) receiptRef {
	r := receiptRef{ID: id, Durable: durable}
	if index >= 0 {
		r.Index = &index
	}
	return r
}

// recordAnswer is the answer of POST /v1/record.
type recordAnswer struct {
	V            int                    `json:"v"`
	Outcome      taxonomy.Outcome       `json:"outcome"`
	Class        taxonomy.Class         `json:"class"`
	Reason       string                 `json:"reason"`
	ClassifiedBy string                 `json:"classified_by"`
	Feeds        []feedDoc              `json:"feeds"`
	Transitions  []transitionDoc        `json:"transitions"`
	Next         nextDoc                `json:"next"`
	Retry        retryDoc               `json:"retry"`
	Receipt      receiptRef             `json:"receipt"`
	Policy       taxonomy.PolicyVersion `json:"policy"`
	Item         *itemDoc               `json:"item,omitempty"`     // of a released item: what becomes of it
	Flags        []string               `json:"flags,omitempty"`    // late, undeclared_dispatch, …
	Problems     []string               `json:"problems,omitempty"` // what could not be written; the verdict stands
}

type feedDoc struct {
	Layer   taxonomy.Layer  `json:"layer"`
	Breaker string          `json:"breaker,omitempty"`
	Scope   string          `json:"scope"`
	Signal  taxonomy.Signal `json:"signal"`
	Reason  string          `json:"reason"`
}

type transitionDoc struct {
	Breaker string        `json:"breaker"`
	Scope   string        `json:"scope"`
	From    breaker.State `json:"from"`
	To      breaker.State `json:"to"`
	Reason  string        `json:"reason"`
}

// nextDoc says what may be done now: "done", "retry", "reconcile" or "stop".
type nextDoc struct {
	Action string `json:"action"`
	Permit string `json:"permit,omitempty"` // to reconcile
	Key    string `json:"key,omitempty"`    // to look it up by
}

// retryDoc is the advice about another attempt, which needs a permit of its own.
type retryDoc struct {
	Allowed bool           `json:"allowed"`
	Advice  taxonomy.Retry `json:"advice"`
	AfterMS int64          `json:"after_ms"`
}

// intentDoc is one dispatched operation, of GET /v1/intents and fusebox intents.
type intentDoc struct {
	ID             string                 `json:"id"` // the permit's id
	RequestID      string                 `json:"request_id"`
	Attempt        int64                  `json:"attempt"`
	State          string                 `json:"state"` // IN_FLIGHT, UNKNOWN, SETTLED
	Action         string                 `json:"action"`
	Tenant         string                 `json:"tenant,omitempty"`
	Effect         taxonomy.Effect        `json:"effect"`
	IdempotencyKey string                 `json:"idempotency_key,omitempty"`
	Created        time.Time              `json:"created"`
	Expires        time.Time              `json:"expires"`
	Outcome        string                 `json:"outcome,omitempty"`
	Class          string                 `json:"class,omitempty"`
	Reason         string                 `json:"reason,omitempty"`
	By             string                 `json:"by,omitempty"` // who settled it, or called it UNKNOWN
	Lookups        int64                  `json:"lookups"`
	Case           string                 `json:"case,omitempty"`
	Policy         taxonomy.PolicyVersion `json:"policy"`
	Receipt        string                 `json:"receipt"`
}

func describeIntent(in state.Intent) intentDoc {
	d := intentDoc{
		ID: in.ID, RequestID: in.RequestID, Attempt: in.Attempt, State: in.State.String(), Action: in.Action, Tenant: in.Tenant,
		Effect: in.Effect, IdempotencyKey: in.IdempotencyKey, Created: in.Created.UTC(), Expires: in.Expires.UTC(),
		Lookups: in.Tries, Case: in.Case, Policy: in.Policy, Receipt: in.Receipt,
	}
	if in.State != state.InFlight {
		d.Outcome, d.Reason, d.By = in.Result.Outcome.String(), in.Result.Reason, in.Result.By
		d.Class = in.Result.Class.String()
	}
	return d
}

func describeFeeds(feeds []receipts.Feed) []feedDoc {
	out := make([]feedDoc, 0, len(feeds))
	for _, f := range feeds {
		out = append(out, feedDoc{Layer: f.Layer, Breaker: f.Breaker, Scope: f.Scope, Signal: f.Signal, Reason: f.Reason})
	}
	return out
}

// describeChanges are the circuits that changed their state, not those whose
// deadline alone moved.
func describeChanges(changes []breaker.Change) []transitionDoc {
	out := []transitionDoc{}
	for i := range changes {
		if c := &changes[i]; c.Moved() {
			out = append(out, transitionDoc{Breaker: c.Breaker, Scope: c.Scope, From: c.From, To: c.To, Reason: c.Reason.String()})
		}
	}
	return out
}

// describeResult is the answer to a record that settled its permit.
func describeResult(id string, res engine.Result) *recordAnswer {
	v := res.Verdict
	a := &recordAnswer{
		V: 1, Outcome: v.Outcome, Class: v.Class, Reason: v.Reason, ClassifiedBy: v.By,
		Feeds: describeFeeds(res.Feeds), Transitions: describeChanges(res.Changes),
		Next:    nextDoc{Action: res.Next},
		Retry:   retryDoc{Allowed: v.Retry.Automatic(), Advice: v.Retry, AfterMS: taxonomy.Milliseconds(v.RetryAfter)},
		Receipt: ref(res.Receipt, res.Index, res.Durable), Policy: res.Policy, Flags: res.Flags,
	}
	if res.Next == "reconcile" {
		a.Next.Permit, a.Next.Key = id, res.Operation.IdempotencyKey
	}
	return a
}

// describeSettled answers a record for an intent that has its result already,
// from the store: what was recorded first stands.
func describeSettled(in state.Intent) *recordAnswer {
	s := in.Result
	a := &recordAnswer{
		V: 1, Outcome: s.Outcome, Class: s.Class, Reason: s.Reason, ClassifiedBy: s.By,
		Feeds: []feedDoc{}, Transitions: []transitionDoc{}, Next: nextDoc{Action: "stop"},
		Receipt: ref(s.Receipt, -1, true), Policy: in.Policy, Flags: []string{"already_settled"},
	}
	switch {
	case s.Outcome == taxonomy.Succeeded:
		a.Next.Action = "done"
	case in.State == state.Unsettled:
		a.Next = nextDoc{Action: "reconcile", Permit: in.ID, Key: in.IdempotencyKey}
		a.Retry.Advice = taxonomy.RetryReconcileFirst
	}
	return a
}
