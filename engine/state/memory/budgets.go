package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Reserve takes all lines or none.
func (s *Store) Reserve(ctx context.Context, r state.Reservation) (g state.Grant, err error) {
	err = s.do(ctx, "Reserve", r.ID, func(now time.Time) error {
		repeated, err := s.fits(r, now)
		if err != nil {
			return err
		}
		if !repeated {
			s.reserve(r, now)
		}
		g = state.Grant{ID: r.ID, Lines: slices.Clone(r.Lines)}
		return nil
	})
	return g, err
}

// fits checks a reservation and changes nothing.
func (s *Store) fits(r state.Reservation, now time.Time) (repeated bool, err error) {
	if old, ok := s.grants[r.ID]; ok {
		if old.settled || !old.Same(r) {
			return false, fmt.Errorf("reserve %s: %w: it was given for other amounts, or is settled", r.ID, state.ErrConflict)
		}
		return true, nil
	}
	if err := r.Check(now); err != nil {
		return false, err
	}
	return false, r.Fits(s.usage)
}

func (s *Store) usage(name string) state.Usage {
	if a := s.accounts[name]; a != nil {
		return a.Usage
	}
	return state.Usage{Account: name}
}

// reserve takes the amounts; fits has said that it may.
func (s *Store) reserve(r state.Reservation, now time.Time) {
	r.Lines = slices.Clone(r.Lines)
	s.grants[r.ID] = &grant{Reservation: r}
	for _, l := range r.Lines {
		a := s.accounts[l.Account]
		if a == nil {
			a = &account{Usage: state.Usage{Account: l.Account}}
			s.accounts[l.Account] = a
		}
		a.Reserved = a.Reserved.Add(l.Want)
		a.touched = now
	}
}

// SettleGrant commits what was used and releases the rest.
func (s *Store) SettleGrant(ctx context.Context, id string, used state.Amounts) error {
	return s.do(ctx, "SettleGrant", id, func(now time.Time) error {
		g := s.grants[id]
		switch {
		case g == nil:
			return fmt.Errorf("settle grant %s: %w", id, state.ErrNotFound)
		case used.Negative():
			return fmt.Errorf("settle grant %s: %w: what was used is not negative", id, state.ErrInvalid)
		case g.settled && g.used == used:
			return nil
		case g.settled:
			return fmt.Errorf("settle grant %s: %w: it is settled with %+v", id, state.ErrConflict, g.used)
		}
		g.settled, g.used, g.at = true, used, now
		for _, l := range g.Lines {
			a := s.accounts[l.Account]
			a.Reserved = a.Reserved.Sub(l.Want)
			a.Used = a.Used.Add(used)
			a.touched = now
		}
		return nil
	})
}

// Usage returns where the accounts stand, in the order asked.
func (s *Store) Usage(ctx context.Context, accounts ...string) (out []state.Usage, err error) {
	err = s.do(ctx, "Usage", "", func(time.Time) error {
		for _, name := range accounts {
			out = append(out, s.usage(name))
		}
		return nil
	})
	return out, err
}
