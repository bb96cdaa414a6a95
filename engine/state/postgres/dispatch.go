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

func (t *tx) dispatch(d state.Dispatch, out *state.Dispatched) error {
	if d.Reservation != nil {
		out.Grant = state.Grant{ID: d.Reservation.ID, Lines: d.Reservation.Lines}
	}
	if d.Intent != nil {
		if old, found, err := t.intent(d.Intent.ID); err != nil {
			return err
		} else if found {
			return t.repeated(old, d, out)
		}
	}
	p, err := t.plan(d)
	if err != nil {
		return err
	}
	return t.carryOut(d, p, out)
}

// repeated answers the same dispatch again after a lost reply.
func (t *tx) repeated(old state.Intent, d state.Dispatch, out *state.Dispatched) error {
	if old.State != state.InFlight || !old.SameDispatch(*d.Intent) {
		return fmt.Errorf("dispatch intent %s: %w: it is there already, as %s", old.ID, state.ErrConflict, old.State)
	}
	docs, err := t.lock(leaseKeys(d)...)
	if err != nil {
		return err
	}
	out.Docs = docs
	return errUnchanged
}

func leaseKeys(d state.Dispatch) (keys []string) {
	for _, l := range d.Leases {
		keys = append(keys, l.Key)
	}
	return keys
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
	if p.docs, err = t.lock(leaseKeys(d)...); err != nil {
		return p, err
	}
	for i, l := range d.Leases {
		seen := p.docs[i]
		seen.Data = bytes.Clone(seen.Data)
		data, ok := l.F(seen)
		if !ok {
			return p, fmt.Errorf("dispatch %s: circuit %s: %w", d.ID(), l.Key, state.ErrRefused)
		}
		p.data = append(p.data, data)
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
		t.queue("UPDATE @approval SET used_by = $1::text WHERE id = $2::text", d.ID(), d.UseApproval)
	}
	out.Docs = p.docs
	for i, l := range d.Leases {
		switch {
		case p.data[i] != nil:
			if err := t.put(l.Key, p.data[i], true, &out.Docs[i]); err != nil {
				return err
			}
		case p.docs[i].Rev.N == 0:
			t.queue("DELETE FROM @doc WHERE key = $1::bytea AND rev = 0", []byte(l.Key)) // the placeholder
		}
	}
	if d.Intent != nil {
		t.queue(insertIntent, state.IntentArgs(*d.Intent)...)
	}
	return nil
}
