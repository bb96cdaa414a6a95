package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Dispatch locks accounts, approval and documents, always in this order, lets
// the rules decide, and writes only when nothing refused.
func (s *Store) Dispatch(ctx context.Context, d state.Dispatch) (state.Dispatched, error) {
	if err := d.Check(); err != nil {
		return state.Dispatched{}, err
	}
	if d.Reservation != nil {
		r := *d.Reservation
		r.Lines = slices.Clone(r.Lines)
		d.Reservation = &r
	}
	var out state.Dispatched
	err := s.do(ctx, "dispatch "+d.ID(), func(t *tx) error {
		out = state.Dispatched{}
		return t.dispatch(d, &out)
	})
	if err != nil && err != errUnchanged {
		return state.Dispatched{}, err
	}
	return out, nil
}

// seen is what a dispatch has to know. All of it is asked in one round trip;
// the statements run one after the other, so rows are locked in one order:
// intent, accounts, approval, documents.
type seen struct {
	intent   state.Intent
	there    bool
	held     *held
	approval *approval
	docs     *locked
}

func (t *tx) look(d state.Dispatch) (v seen, err error) {
	if d.Intent != nil {
		t.ask("SELECT "+state.IntentColumns+" FROM @intent WHERE id = $1::text FOR UPDATE", []any{d.Intent.ID}, func(row scan) (err error) {
			v.there = true
			v.intent, err = state.ScanIntent(row)
			return err
		})
	}
	if d.Reservation != nil {
		v.held = t.hold(*d.Reservation)
	}
	if d.UseApproval != "" {
		t.ask("SELECT "+approvalColumns+" FROM @approval WHERE id = $1::text FOR UPDATE", []any{d.UseApproval}, func(row scan) error {
			a, err := scanApproval(row)
			v.approval = &a
			return err
		})
	}
	v.docs = t.lock(leaseKeys(d)...)
	t.later()
	err = t.flush() // fills v
	return v, err
}

func leaseKeys(d state.Dispatch) (keys []string) {
	for _, l := range d.Leases {
		keys = append(keys, l.Key)
	}
	return keys
}

func (t *tx) dispatch(d state.Dispatch, out *state.Dispatched) error {
	v, err := t.look(d)
	if err != nil {
		return err
	}
	if d.Reservation != nil {
		out.Grant = state.Grant{ID: d.Reservation.ID, Lines: d.Reservation.Lines}
	}
	var m missing
	out.Docs = v.docs.docs(&m)
	if v.there {
		// The same again, after a lost reply.
		if v.intent.State != state.InFlight || !v.intent.SameDispatch(*d.Intent) {
			return fmt.Errorf("dispatch intent %s: %w: it is there already, as %s", v.intent.ID, state.ErrConflict, v.intent.State)
		}
		return errUnchanged
	}
	return t.carryOut(d, v, &m, out)
}

// carryOut asks every rule, and writes when none refused and nothing that has
// to be locked is missing.
func (t *tx) carryOut(d state.Dispatch, v seen, m *missing, out *state.Dispatched) error {
	var accounts map[string]*account // nil where the reservation was made before
	if v.held != nil {
		var err error
		if accounts, _, err = v.held.fits(m); err != nil {
			return err
		}
	}
	if d.UseApproval != "" {
		if v.approval == nil {
			return fmt.Errorf("dispatch %s: use approval %s: %w", d.ID(), d.UseApproval, state.ErrNotFound)
		}
		if err := state.CheckUse(v.approval.Approval, v.approval.usedBy, t.now); err != nil {
			return fmt.Errorf("dispatch %s: %w", d.ID(), err)
		}
	}
	if err := m.complain(); err != nil {
		return err
	}
	data := make([][]byte, len(d.Leases))
	for i, l := range d.Leases {
		var ok bool
		before := out.Docs[i]
		before.Data = bytes.Clone(before.Data)
		if data[i], ok = l.F(before); !ok {
			return fmt.Errorf("dispatch %s: circuit %s: %w", d.ID(), l.Key, state.ErrRefused)
		}
	}

	if accounts != nil {
		if err := t.reserve(*d.Reservation, accounts); err != nil {
			return err
		}
	}
	if d.UseApproval != "" {
		t.queue("UPDATE @approval SET used_by = $1::text WHERE id = $2::text", d.ID(), d.UseApproval)
	}
	for i, l := range d.Leases {
		if data[i] != nil {
			t.put(l.Key, data[i], true, &out.Docs[i])
		}
	}
	if d.Intent != nil {
		t.queue(insertIntent, state.IntentArgs(*d.Intent)...)
	}
	return nil
}
