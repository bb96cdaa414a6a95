package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Dispatch checks everything first, and writes only when nothing refused.
func (s *Store) Dispatch(ctx context.Context, d state.Dispatch) (state.Dispatched, error) {
	if err := d.Check(); err != nil {
		return state.Dispatched{}, err
	}
	// The caller may go on before the writer does: keep our own copies.
	if d.Intent != nil {
		in := *d.Intent
		in.Operation = bytes.Clone(in.Operation)
		d.Intent = &in
	}
	if d.Reservation != nil {
		r := *d.Reservation
		r.Lines = slices.Clone(r.Lines)
		d.Reservation = &r
	}
	d.Leases = slices.Clone(d.Leases)

	var out state.Dispatched
	err := s.writer.do(ctx, "dispatch "+d.ID(), true, func(t *tx) (err error) {
		out, err = t.dispatch(d)
		return err
	})
	if err != nil {
		return state.Dispatched{}, err
	}
	return out, nil
}

func (t *tx) dispatch(d state.Dispatch) (out state.Dispatched, err error) {
	if d.Reservation != nil {
		out.Grant = state.Grant{ID: d.Reservation.ID, Lines: d.Reservation.Lines}
	}
	if d.Intent != nil {
		var there int // cheaper than reading an intent that is hardly ever there
		found, err := t.row("SELECT 1 FROM intent WHERE id = ?", []any{d.Intent.ID}, &there)
		if err == nil && found {
			err = t.repeated(d, &out)
		}
		if err != nil || found {
			return out, err
		}
	}
	p, err := t.plan(d)
	if err != nil {
		return out, err
	}
	return out, t.carryOut(d, p, &out)
}

// repeated answers the same dispatch again after a lost reply.
func (t *tx) repeated(d state.Dispatch, out *state.Dispatched) error {
	old, _, err := t.intent(d.Intent.ID)
	if err != nil {
		return err
	}
	if old.State != state.InFlight || !old.SameDispatch(*d.Intent) {
		return fmt.Errorf("dispatch intent %s: %w: it is there already, as %s", old.ID, state.ErrConflict, old.State)
	}
	for _, l := range d.Leases {
		doc, err := t.doc(l.Key)
		if err != nil {
			return err
		}
		out.Docs = append(out.Docs, doc)
	}
	return nil
}

// plan is what a dispatch will write, once nothing has refused.
type plan struct {
	accounts map[string]*account // nil where the reservation was made before
	docs     []state.Doc         // as the leases saw them
	data     [][]byte            // what they become; nil stays
}

func (t *tx) plan(d state.Dispatch) (p plan, err error) {
	if d.Reservation != nil {
		if p.accounts, _, err = t.fits(*d.Reservation); err != nil {
			return p, err
		}
	}
	if d.UseApproval != "" {
		if err := t.checkUse(d.UseApproval); err != nil {
			return p, fmt.Errorf("dispatch %s: %w", d.ID(), err)
		}
	}
	for _, l := range d.Leases {
		doc, err := t.doc(l.Key)
		if err != nil {
			return p, err
		}
		data, ok := l.F(doc)
		if !ok {
			return p, fmt.Errorf("dispatch %s: circuit %s: %w", d.ID(), l.Key, state.ErrRefused)
		}
		p.docs, p.data = append(p.docs, doc), append(p.data, data)
	}
	return p, nil
}

func (t *tx) carryOut(d state.Dispatch, p plan, out *state.Dispatched) error {
	if p.accounts != nil {
		if err := t.reserve(*d.Reservation, p.accounts); err != nil {
			return err
		}
	}
	if d.UseApproval != "" {
		if err := t.use(d.UseApproval, d.ID()); err != nil {
			return err
		}
	}
	for i, l := range d.Leases {
		doc := p.docs[i]
		if p.data[i] != nil {
			var err error
			if doc, err = t.putDoc(l.Key, p.data[i], true); err != nil {
				return err
			}
		}
		out.Docs = append(out.Docs, doc)
	}
	if d.Intent != nil {
		return t.insertIntent(*d.Intent)
	}
	return nil
}
