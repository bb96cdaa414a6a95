package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Approve records that somebody allowed something, or refused it: who, what,
// until when, and whether once only (SPEC R-AGT-5). The record is signed as every receipt is,
// by the log's next checkpoint, and awaited, so that no approval is used that
// evidence does not know. Its end is by this machine's clock, as whoever gives it
// reads it. Authority circuits of the same scope hear of it.
func (e *Engine) Approve(ctx context.Context, a taxonomy.Approval) error {
	return e.approve(ctx, a, nil)
}

// approve is Approve; asked is the approver that ruled, if one did.
func (e *Engine) approve(ctx context.Context, a taxonomy.Approval, asked *inquiry) error {
	switch {
	case a.By == "" || a.Reason == "":
		return errors.New("approve: an approval says who and why")
	case a.Scope == "":
		return errors.New("approve: an approval names a request, an action (tool.action) or an action class")
	case !a.Until.After(e.clock.Now()):
		return fmt.Errorf("approve %s: it must end in the future", a.Scope)
	}
	if a.ID == "" {
		a.ID = newID()
	}
	r := e.newReceipt(receipts.KindOverride, receipts.Ledger)
	r.Layer, r.Scope, r.Tenant = taxonomy.LayerAuthority, a.Scope, a.Tenant
	r.Reason, r.By, r.Approval = "approval_granted", a.By, a.ID
	if a.Denies {
		r.Reason = "approval_denied"
	}
	r.Override = &receipts.OverrideNote{By: a.By, Reason: r.Reason, Ticket: a.Reason, ExpiresUS: a.Until.UnixMicro()}
	if asked != nil {
		asked.note(r)
	}
	if _, err := e.await(ctx, e.begin(ctx, r)); err != nil {
		return fmt.Errorf("approve %s: %w", a.Scope, err)
	}
	a.Until = e.toStore(a.Until)
	if err := e.parts.Store.Grant(ctx, a); err != nil {
		return fmt.Errorf("approve %s: %w", a.Scope, err)
	}
	return nil
}

// Restored tells the circuits of an operation what was proved outside any call:
// a credential that works again, a budget that was filled, an approval, cases
// that pass. It moves only circuits whose rule names that kind of evidence.
func (e *Engine) Restored(ctx context.Context, op taxonomy.Operation, kind breaker.Evidence, by string) error {
	_, policy := e.armFor(&op)
	err := e.prepare(policy, &op)
	_ = policy.release()
	if err != nil {
		return err
	}
	return e.evidenceFor(ctx, &op, kind, by)
}
