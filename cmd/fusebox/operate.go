package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// operations are what people change: each asks who and why, and leaves a
// receipt that is on disk when it returns. The operator plane and the commands
// share them.
type operations struct {
	engine *engine.Engine
	clock  engine.Clock
	store  state.Store
	log    *receipts.Log
	client *sdk.Client
}

func operationsOf(c *sdk.Client, clock engine.Clock) operations {
	return operations{engine: c.Engine(), clock: clock, store: c.Store(), log: c.Log(), client: c}
}

// Bounds of what people write: all of it fits a receipt, uncut.
const (
	maxBy       = 40
	maxWhy      = 80
	maxOverride = 24 * time.Hour
	maxApproval = 30 * 24 * time.Hour
)

// checkWho refuses a change that does not say who and why.
func checkWho(by, why string) error {
	switch {
	case by == "" || !shortLine(by, maxBy):
		return &problem{Code: "bad_request", Field: "by", Message: fmt.Sprintf("must be one line of 1 to %d bytes", maxBy)}
	case why == "" || !shortLine(why, maxWhy):
		return &problem{Code: "bad_request", Field: "reason", Message: fmt.Sprintf("must say why, in one line of 1 to %d bytes", maxWhy)}
	}
	return nil
}

// An overrideRequest is a human decision about one circuit.
type overrideRequest struct {
	Scope  string `json:"scope"`  // "provider:openai/eu/gpt-x", or a circuit's key
	Action string `json:"action"` // force_open, force_closed, release
	For    string `json:"for"`    // "30m"; it ends by itself
	Reason string `json:"reason"`
}

func (o operations) override(ctx context.Context, by string, r overrideRequest) error {
	if err := checkWho(by, r.Reason); err != nil {
		return err
	}
	kind, known := map[string]breaker.OverrideKind{"force_open": breaker.ForcedOpen, "force_closed": breaker.ForcedClosed, "release": breaker.NoOverride}[r.Action]
	if !known {
		return &problem{Code: "bad_request", Field: "action", Message: "must be force_open, force_closed or release"}
	}
	var err error
	if kind == breaker.NoOverride {
		err = o.engine.Release(ctx, r.Scope, by, r.Reason)
	} else {
		d, derr := time.ParseDuration(r.For)
		if derr != nil || d < time.Second || d > maxOverride {
			return &problem{Code: "bad_request", Field: "for", Message: "must say how long, from 1s to 24h: every override ends by itself"}
		}
		err = o.engine.Override(ctx, r.Scope, breaker.Override{Kind: kind, Until: o.clock.Mono().Add(d), By: by, Why: r.Reason})
	}
	if errors.Is(err, breaker.ErrUnknownCircuit) {
		return &problem{Code: "not_found", Field: "scope", Message: err.Error()}
	}
	return errors.Join(err, o.log.Flush(ctx))
}

// reconcile records a finding, or asks the declared reconciler once.
func (o operations) reconcile(ctx context.Context, id, finding, by string) (state.Intent, error) {
	in, err := o.store.Intent(ctx, id)
	if errors.Is(err, state.ErrNotFound) {
		return in, &problem{Code: "not_found", Field: "permit", Message: "there is no such intent; fusebox intents list shows those that are there"}
	}
	if err != nil {
		return in, err
	}
	if finding == "lookup" {
		_, err = o.engine.Lookup(ctx, in)
	} else if f, ferr := engine.ParseFinding(finding); ferr != nil {
		err = ferr
	} else {
		_, err = o.engine.Reconcile(ctx, id, f, by)
	}
	if err != nil {
		return in, err
	}
	in, err = o.store.Intent(ctx, id)
	return in, errors.Join(err, o.log.Flush(ctx))
}

// A queueRequest moves an item that nobody has claimed.
type queueRequest struct {
	Action string `json:"action"` // retry, discard, compensate
	Reason string `json:"reason"`
}

// move retries, discards or compensates a queued item or dead letter. A retry
// waits its turn and then passes admission like any other call, and so does what
// takes a dead letter back.
func (o operations) move(ctx context.Context, by, id string, r queueRequest) error {
	if err := checkWho(by, r.Reason); err != nil {
		return err
	}
	to, known := map[string]state.ItemState{"retry": state.Waiting, "discard": state.Dropped, "compensate": state.Dropped}[r.Action]
	if !known {
		return &problem{Code: "bad_request", Field: "action", Message: "must be retry, discard or compensate"}
	}
	it, err := o.item(ctx, id)
	if err != nil {
		return err
	}
	if r.Action == "compensate" {
		if _, err := o.engine.TakeBack(ctx, it); err != nil {
			return &problem{Code: "not_moved", Message: err.Error()}
		}
	}
	if err := o.store.Move(ctx, id, state.Disposition{State: to, Reason: by + ": " + r.Reason}); err != nil {
		return &problem{Code: "not_moved", Message: err.Error()}
	}
	rec := o.receipt(receipts.KindQueue, by, "operator_"+r.Action)
	rec.RequestID, rec.Tenant, rec.QueueID, rec.Scope = it.RequestID, it.Tenant, it.ID, it.Dependency
	rec.Override = &receipts.OverrideNote{By: by, Reason: rec.Reason, Ticket: r.Reason}
	_, err = o.log.Commit(ctx, rec)
	return err
}

// item finds a queued item by its id.
func (o operations) item(ctx context.Context, id string) (state.Item, error) {
	for it, err := range o.store.Items(ctx, state.ItemQuery{ID: id}) {
		return it, err
	}
	return state.Item{}, &problem{Code: "not_found", Field: "id", Message: "there is no such item in the queue"}
}

// An approvalRequest allows something for a while.
type approvalRequest struct {
	Scope     string `json:"scope"` // an action class, "tool.action", or a request id
	Tenant    string `json:"tenant"`
	For       string `json:"for"`
	SingleUse bool   `json:"single_use"`
	Denies    bool   `json:"denies"` // a person's no instead
	Reason    string `json:"reason"`
}

func (o operations) approve(ctx context.Context, by string, r approvalRequest) (taxonomy.Approval, error) {
	var none taxonomy.Approval
	if err := checkWho(by, r.Reason); err != nil {
		return none, err
	}
	d, err := time.ParseDuration(r.For)
	switch {
	case r.Scope == "" || !shortLine(r.Scope, 200):
		return none, &problem{Code: "bad_request", Field: "scope", Message: "must be an action class, a tool.action, or a request id"}
	case err != nil || d < time.Second || d > maxApproval:
		return none, &problem{Code: "bad_request", Field: "for", Message: "must say how long, from 1s to 720h"}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return none, err
	}
	a := taxonomy.Approval{ID: id.String(), By: by, Scope: r.Scope, Tenant: r.Tenant, Until: o.clock.Now().Add(d).UTC().Truncate(time.Second),
		SingleUse: r.SingleUse, Denies: r.Denies, Reason: r.Reason}
	return a, o.engine.Approve(ctx, a)
}

// receipt starts the evidence of a change that the engine does not itself note.
func (o operations) receipt(kind receipts.Kind, by, reason string) *receipts.Receipt {
	return &receipts.Receipt{Kind: kind, Class: receipts.Ledger, By: by, Reason: reason,
		PolicyVersion: o.engine.Version(), Engine: buildName(), TimeUS: o.clock.Now().UnixMicro()}
}

// An itemDoc is one queued item or dead letter. Its payload is not shown.
type itemDoc struct {
	ID         string    `json:"id"`
	RequestID  string    `json:"request_id"`
	State      string    `json:"state"` // WAITING, CLAIMED, DONE, EXPIRED, DEAD, DROPPED
	Created    time.Time `json:"created"`
	Expires    time.Time `json:"expires"`
	Priority   int64     `json:"priority"`
	Dependency string    `json:"dependency"` // the circuit it waits for
	Tenant     string    `json:"tenant,omitempty"`
	Operation  string    `json:"operation"` // its name
	Attempts   int       `json:"attempts"`
	Reason     string    `json:"reason,omitempty"`
	Owner      string    `json:"owner,omitempty"`
	History    []tryDoc  `json:"history,omitempty"`
}

// A tryDoc is one attempt at a queued item.
type tryDoc struct {
	At      time.Time        `json:"at"`
	Outcome taxonomy.Outcome `json:"outcome"`
	Reason  string           `json:"reason"`
}

func describeItem(it state.Item) itemDoc {
	d := itemDoc{ID: it.ID, RequestID: it.RequestID, State: it.State.String(), Created: it.Created.UTC(), Expires: it.Expires.UTC(),
		Priority: it.Priority, Dependency: it.Dependency, Tenant: it.Tenant, Attempts: len(it.Attempts), Reason: it.Reason, Owner: it.Owner}
	if op, err := taxonomy.ParseOperation(it.Operation); err == nil {
		d.Operation = op.Name
	}
	for _, a := range it.Attempts {
		d.History = append(d.History, tryDoc{a.At.UTC(), a.Outcome, a.Reason})
	}
	return d
}

// queueStates reads the state of a listing; "" is what waits.
func queueStates(name string) ([]state.ItemState, error) {
	switch name {
	case "", "WAITING":
		return []state.ItemState{state.Waiting, state.Claimed}, nil
	case "ALL":
		return nil, nil
	}
	for s := state.Waiting; s <= state.Dropped; s++ {
		if s.String() == name {
			return []state.ItemState{s}, nil
		}
	}
	return nil, &problem{Code: "bad_request", Field: "state", Message: "must be WAITING, DONE, EXPIRED, DEAD, DROPPED or ALL"}
}

// items lists the queue.
func items(ctx context.Context, store state.Store, states []state.ItemState, limit int) ([]itemDoc, error) {
	list := []itemDoc{}
	for it, err := range store.Items(ctx, state.ItemQuery{States: states, Limit: limit}) {
		if err != nil {
			return nil, err
		}
		list = append(list, describeItem(it))
	}
	return list, nil
}
