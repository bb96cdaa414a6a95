package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Dispatch checks everything first, and writes only when nothing refused.
func (s *Store) Dispatch(ctx context.Context, d state.Dispatch) (out state.Dispatched, err error) {
	err = s.do(ctx, "Dispatch", d.ID(), func(now time.Time) error {
		out = state.Dispatched{}
		if err := d.Check(); err != nil {
			return err
		}
		if d.Intent != nil {
			if old, there := s.intents[d.Intent.ID]; there {
				return s.repeated(old, d, now, &out)
			}
		}
		return s.dispatch(d, now, &out)
	})
	return out, err
}

// repeated answers the same dispatch again after a lost reply.
func (s *Store) repeated(old state.Intent, d state.Dispatch, now time.Time, out *state.Dispatched) error {
	if old.State != state.InFlight || !old.SameDispatch(*d.Intent) {
		return fmt.Errorf("dispatch intent %s: %w: it is there already, as %s", old.ID, state.ErrConflict, old.State)
	}
	if d.Reservation != nil {
		out.Grant = state.Grant{ID: d.Reservation.ID, Lines: d.Reservation.Lines}
	}
	for _, l := range d.Leases {
		out.Docs = append(out.Docs, s.doc(l.Key, now))
	}
	return nil
}

func (s *Store) dispatch(d state.Dispatch, now time.Time, out *state.Dispatched) error {
	held := false
	if d.Reservation != nil {
		var err error
		if held, err = s.fits(*d.Reservation, now); err != nil {
			return err
		}
		out.Grant = state.Grant{ID: d.Reservation.ID, Lines: d.Reservation.Lines}
	}
	used := s.approval(d.UseApproval)
	if d.UseApproval != "" {
		if used == nil {
			return fmt.Errorf("dispatch %s: use approval %s: %w", d.ID(), d.UseApproval, state.ErrNotFound)
		}
		if err := state.CheckUse(used.Approval, used.usedBy, now); err != nil {
			return fmt.Errorf("dispatch %s: %w", d.ID(), err)
		}
	}
	data := make([][]byte, len(d.Leases))
	for i, l := range d.Leases {
		var ok bool
		if data[i], ok = l.F(s.doc(l.Key, now)); !ok {
			return fmt.Errorf("dispatch %s: circuit %s: %w", d.ID(), l.Key, state.ErrRefused)
		}
	}

	// Nothing refused: from here on everything is written.
	if d.Reservation != nil && !held {
		s.reserve(*d.Reservation, now)
	}
	if used != nil {
		used.usedBy = d.ID()
	}
	for i, l := range d.Leases {
		if data[i] != nil {
			s.put(l.Key, data[i], true)
		}
		out.Docs = append(out.Docs, s.doc(l.Key, now))
	}
	if d.Intent != nil {
		s.intents[d.Intent.ID] = copied(*d.Intent)
	}
	return nil
}
