package postgres

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
	err := s.do(ctx, "reserve "+r.ID, func(t *tx) error {
		accounts, repeated, err := t.fits(r)
		if err != nil {
			return err
		}
		if repeated {
			return errUnchanged
		}
		return t.reserve(r, accounts)
	})
	if err != nil && err != errUnchanged {
		return state.Grant{}, err
	}
	return state.Grant{ID: r.ID, Lines: r.Lines}, nil
}

// account is one row of that table.
type account struct {
	state.Usage
	open int64
}

// fits locks the accounts and checks a reservation. It returns the accounts as
// they stand.
func (t *tx) fits(r state.Reservation) (accounts map[string]*account, repeated bool, err error) {
	var names []string
	for _, l := range r.Lines {
		if l.Account != "" && !slices.Contains(names, l.Account) {
			names = append(names, l.Account)
		}
	}
	if accounts, err = t.accounts(names); err != nil {
		return nil, false, err
	}
	// Asked after the accounts are locked, so that a repeat that runs at the
	// same time is seen.
	old := state.Reservation{ID: r.ID}
	var settled bool
	found, err := t.row("SELECT lines, settled FROM @reservation WHERE id = $1::text", []any{r.ID}, state.Document(&old.Lines), &settled)
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
	return accounts, false, r.Fits(func(name string) state.Usage { return accounts[name].Usage })
}

const accountColumns = "used_cost, used_tokens, used_attempts, used_time, held_cost, held_tokens, held_attempts, held_time"

func usageColumns(u *state.Usage) []any {
	return []any{&u.Used.CostNanoUSD, &u.Used.Tokens, &u.Used.Attempts, &u.Used.TimeMS,
		&u.Reserved.CostNanoUSD, &u.Reserved.Tokens, &u.Reserved.Attempts, &u.Reserved.TimeMS}
}

// accounts locks rows in the order of their names, so that no two transactions
// wait for each other. Missing ones are made.
func (t *tx) accounts(names []string) (map[string]*account, error) {
	slices.Sort(names)
	out := map[string]*account{}
	const q = "SELECT name, " + accountColumns + ", open FROM @account WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE"
	for len(out) < len(names) {
		err := t.each(q, []any{names}, func(row scan) error {
			a := &account{}
			err := row(append(append([]any{&a.Account}, usageColumns(&a.Usage)...), &a.open)...)
			out[a.Account] = a
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(out) < len(names) {
			t.queue("INSERT INTO @account (name) SELECT n FROM unnest($1::text[]) AS n ORDER BY n ON CONFLICT DO NOTHING", names)
		}
	}
	return out, t.begun()
}

func (t *tx) putAccount(a *account) {
	u, r := a.Used, a.Reserved
	t.queue(`UPDATE @account SET used_cost = $2::bigint, used_tokens = $3::bigint, used_attempts = $4::bigint, used_time = $5::bigint,
		held_cost = $6::bigint, held_tokens = $7::bigint, held_attempts = $8::bigint, held_time = $9::bigint, open = $10::bigint, touched = $11::bigint WHERE name = $1::text`,
		a.Account, u.CostNanoUSD, u.Tokens, u.Attempts, u.TimeMS, r.CostNanoUSD, r.Tokens, r.Attempts, r.TimeMS, a.open, state.Nanos(t.now))
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
		t.putAccount(a)
	}
	t.queue("INSERT INTO @reservation VALUES ($1::text, $2::text, $3::bigint, false, 0, 0, 0, 0, 0)", r.ID, lines, state.Nanos(r.Expires))
	return nil
}

// SettleGrant commits what was used and releases the rest.
func (s *Store) SettleGrant(ctx context.Context, id string, used state.Amounts) error {
	if used.Negative() {
		return fmt.Errorf("settle grant %s: %w: what was used is not negative", id, state.ErrInvalid)
	}
	err := s.do(ctx, "settle grant "+id, func(t *tx) error { return t.settleGrant(id, used) })
	if err == errUnchanged {
		return nil
	}
	return err
}

func (t *tx) settleGrant(id string, used state.Amounts) error {
	var r state.Reservation
	var settled bool
	var before state.Amounts
	found, err := t.row("SELECT lines, settled, used_cost, used_tokens, used_attempts, used_time FROM @reservation WHERE id = $1::text FOR UPDATE", []any{id},
		state.Document(&r.Lines), &settled, &before.CostNanoUSD, &before.Tokens, &before.Attempts, &before.TimeMS)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("settle grant %s: %w", id, state.ErrNotFound)
	case settled && before == used:
		return errUnchanged
	case settled:
		return fmt.Errorf("settle grant %s: %w: it is settled with %+v", id, state.ErrConflict, before)
	}
	var names []string
	for _, l := range r.Lines {
		if !slices.Contains(names, l.Account) {
			names = append(names, l.Account)
		}
	}
	accounts, err := t.accounts(names)
	if err != nil {
		return err
	}
	for _, l := range r.Lines {
		a := accounts[l.Account]
		a.Reserved = a.Reserved.Sub(l.Want)
		a.Used = a.Used.Add(used)
		a.open--
	}
	for _, a := range accounts {
		t.putAccount(a)
	}
	t.queue(`UPDATE @reservation SET settled = true, used_cost = $2::bigint, used_tokens = $3::bigint, used_attempts = $4::bigint, used_time = $5::bigint, settled_at = $6::bigint
		WHERE id = $1::text`, id, used.CostNanoUSD, used.Tokens, used.Attempts, used.TimeMS, state.Nanos(t.now))
	return nil
}

// Usage returns where the accounts stand, in the order asked.
func (s *Store) Usage(ctx context.Context, accounts ...string) ([]state.Usage, error) {
	found, _, err := query(ctx, s, "usage", "SELECT name, "+accountColumns+" FROM @account WHERE name = ANY($1::text[])", []any{accounts}, func(row scan) (u state.Usage, err error) {
		err = row(append([]any{&u.Account}, usageColumns(&u)...)...)
		return u, err
	})
	if err != nil {
		return nil, err
	}
	out := make([]state.Usage, len(accounts))
	for i, name := range accounts {
		if n := slices.IndexFunc(found, func(u state.Usage) bool { return u.Account == name }); n >= 0 {
			out[i] = found[n]
		}
		out[i].Account = name
	}
	return out, nil
}

// Prune deletes what ended before then.
func (s *Store) Prune(ctx context.Context, before time.Time) (int, error) {
	total := 0
	err := s.do(ctx, "prune", func(t *tx) error {
		t.relaxed = true
		if err := t.begun(); err != nil {
			return err
		}
		sum := 0
		then := state.Nanos(before)
		for q, args := range map[string][]any{
			"DELETE FROM @intent WHERE state = 2 AND settled_at < $1::bigint":       {then},
			"DELETE FROM @reservation WHERE settled AND settled_at < $1::bigint":    {then},
			"DELETE FROM @item WHERE state IN (2, 3, 5) AND expires < $1::bigint":   {then},
			"DELETE FROM @approval WHERE until < $1::bigint AND until < $2::bigint": {then, state.Nanos(t.now)},
			// An account that somebody has locked is in use.
			"DELETE FROM @account WHERE name IN (SELECT name FROM @account WHERE open = 0 AND touched < $1::bigint FOR UPDATE SKIP LOCKED)": {then},
		} {
			n, err := t.change(q, args...)
			if err != nil {
				return err
			}
			sum += n
		}
		total = sum
		return nil
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}
