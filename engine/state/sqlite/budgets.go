package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Reserve takes all lines or none.
func (s *Store) Reserve(ctx context.Context, r state.Reservation) (state.Grant, error) {
	r.Lines = slices.Clone(r.Lines)
	err := s.writer.do(ctx, "reserve "+r.ID, true, func(t *tx) error {
		accounts, repeated, err := t.fits(r)
		if err != nil || repeated {
			return err
		}
		return t.reserve(r, accounts)
	})
	if err != nil {
		return state.Grant{}, err
	}
	return state.Grant{ID: r.ID, Lines: r.Lines}, nil
}

// account is one row of that table.
type account struct {
	state.Usage
	open int64
}

// fits checks a reservation and writes nothing. It returns the accounts as
// they stand.
func (t *tx) fits(r state.Reservation) (accounts map[string]*account, repeated bool, err error) {
	old, settled, found, err := t.reservation(r.ID)
	switch {
	case err != nil:
		return nil, false, err
	case found && (settled || !old.Same(r)):
		return nil, false, fmt.Errorf("reserve %s: %w: it was given for other amounts, or is settled", r.ID, state.ErrConflict)
	case found:
		return nil, true, nil
	}
	if err := r.Check(t.now); err != nil {
		return nil, false, err
	}
	accounts = map[string]*account{}
	for _, l := range r.Lines {
		if accounts[l.Account] == nil {
			if accounts[l.Account], err = t.account(l.Account); err != nil {
				return nil, false, err
			}
		}
	}
	return accounts, false, r.Fits(func(name string) state.Usage { return accounts[name].Usage })
}

func (t *tx) reservation(id string) (r state.Reservation, settled, found bool, err error) {
	r.ID = id
	found, err = t.row("SELECT lines, settled FROM reservation WHERE id = ?", []any{id}, state.Document(&r.Lines), &settled)
	return r, settled, found, err
}

const accountColumns = "used_cost, used_tokens, used_attempts, used_time, held_cost, held_tokens, held_attempts, held_time"

func usageColumns(u *state.Usage) []any {
	return []any{&u.Used.CostNanoUSD, &u.Used.Tokens, &u.Used.Attempts, &u.Used.TimeMS,
		&u.Reserved.CostNanoUSD, &u.Reserved.Tokens, &u.Reserved.Attempts, &u.Reserved.TimeMS}
}

func (t *tx) account(name string) (*account, error) {
	a := &account{Usage: state.Usage{Account: name}}
	_, err := t.row("SELECT "+accountColumns+", open FROM account WHERE name = ?", []any{name}, append(usageColumns(&a.Usage), &a.open)...)
	return a, err
}

func (t *tx) putAccount(a *account) error {
	const q = "INSERT INTO account (name, " + accountColumns + ", open, touched) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)" +
		" ON CONFLICT (name) DO UPDATE SET used_cost=?2, used_tokens=?3, used_attempts=?4, used_time=?5," +
		" held_cost=?6, held_tokens=?7, held_attempts=?8, held_time=?9, open=?10, touched=?11"
	u, r := a.Used, a.Reserved
	return t.exec(q, a.Account, u.CostNanoUSD, u.Tokens, u.Attempts, u.TimeMS, r.CostNanoUSD, r.Tokens, r.Attempts, r.TimeMS, a.open, state.Nanos(t.now))
}

// reserve takes the amounts; fits has said that it may.
func (t *tx) reserve(r state.Reservation, accounts map[string]*account) error {
	lines, err := state.EncodeDocument(r.Lines)
	if err != nil {
		return err
	}
	for _, l := range r.Lines {
		a := accounts[l.Account]
		a.Reserved = a.Reserved.Add(l.Want)
		a.open++
	}
	for _, a := range accounts {
		if err := t.putAccount(a); err != nil {
			return err
		}
	}
	return t.exec("INSERT INTO reservation VALUES (?, ?, ?, 0, 0, 0, 0, 0, 0)", r.ID, lines, state.Nanos(r.Expires))
}

// SettleGrant commits what was used and releases the rest.
func (s *Store) SettleGrant(ctx context.Context, id string, used state.Amounts) error {
	if used.Negative() {
		return fmt.Errorf("settle grant %s: %w: what was used is not negative", id, state.ErrInvalid)
	}
	return s.writer.do(ctx, "settle grant "+id, true, func(t *tx) error { return t.settleGrant(id, used) })
}

func (t *tx) settleGrant(id string, used state.Amounts) error {
	r, settled, found, err := t.reservation(id)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("settle grant %s: %w", id, state.ErrNotFound)
	case settled:
		var before state.Amounts
		if _, err := t.row("SELECT used_cost, used_tokens, used_attempts, used_time FROM reservation WHERE id = ?", []any{id},
			&before.CostNanoUSD, &before.Tokens, &before.Attempts, &before.TimeMS); err != nil || before == used {
			return err
		}
		return fmt.Errorf("settle grant %s: %w: it is settled with %+v", id, state.ErrConflict, before)
	}
	for _, l := range r.Lines {
		a, err := t.account(l.Account)
		if err != nil {
			return err
		}
		a.Reserved = a.Reserved.Sub(l.Want)
		a.Used = a.Used.Add(used)
		a.open--
		if err := t.putAccount(a); err != nil {
			return err
		}
	}
	return t.exec("UPDATE reservation SET settled = 1, used_cost = ?, used_tokens = ?, used_attempts = ?, used_time = ?, settled_at = ? WHERE id = ?",
		used.CostNanoUSD, used.Tokens, used.Attempts, used.TimeMS, state.Nanos(t.now), id)
}

// Usage returns where the accounts stand, in the order asked.
func (s *Store) Usage(ctx context.Context, accounts ...string) ([]state.Usage, error) {
	out := make([]state.Usage, len(accounts))
	for i, name := range accounts {
		found, err := query(ctx, s, "usage of "+name, "SELECT "+accountColumns+" FROM account WHERE name = ?", []any{name},
			func(row scan, u *state.Usage) error { return row(usageColumns(u)...) })
		if err != nil {
			return nil, err
		}
		out[i] = found
		out[i].Account = name
	}
	return out, nil
}

// Prune deletes what ended before then.
func (s *Store) Prune(ctx context.Context, before time.Time) (int, error) {
	deletes := []string{
		"DELETE FROM intent WHERE state = 2 AND settled_at < ?1",
		"DELETE FROM reservation WHERE settled = 1 AND settled_at < ?1",
		"DELETE FROM account WHERE open = 0 AND touched < ?1",
		"DELETE FROM item WHERE state IN (2, 3, 5) AND expires < ?1",
		"DELETE FROM approval WHERE until < ?1 AND until < ?2",
	}
	total := 0
	err := s.writer.do(ctx, "prune", false, func(t *tx) error {
		n := 0
		for i, q := range deletes {
			args := []any{state.Nanos(before), state.Nanos(t.now)}
			rows, err := t.change(q, args[:1+i/4]...)
			if err != nil {
				return err
			}
			n += rows
		}
		total = n
		return nil
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}
