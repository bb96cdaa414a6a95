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
		h := t.hold(r)
		if err := t.flush(); err != nil {
			return err
		}
		var m missing
		accounts, repeated, err := h.fits(&m)
		if err == nil {
			err = m.complain()
		}
		switch {
		case err != nil:
			return err
		case repeated:
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

// held is what a reservation has to know, once the queue was sent.
type held struct {
	t        *tx
	r        state.Reservation
	accounts *accounts
	old      state.Reservation
	found    bool
	settled  bool
}

// hold queues the locking of the accounts, and after that the question whether
// the reservation is there already: a repeat that runs at the same time has to
// be seen.
func (t *tx) hold(r state.Reservation) *held {
	h := &held{t: t, r: r, old: state.Reservation{ID: r.ID}, accounts: t.accounts(r.Lines)}
	t.ask("SELECT lines, settled FROM @reservation WHERE id = $1::text", []any{r.ID}, func(row scan) error {
		h.found = true
		return row(state.Document(&h.old.Lines), &h.settled)
	})
	return h
}

// fits checks the reservation. It returns the accounts as they stand; those
// that are not there go to m, and count as empty.
func (h *held) fits(m *missing) (rows map[string]*account, repeated bool, err error) {
	switch {
	case h.found && (h.settled || !h.old.Same(h.r)):
		return nil, false, fmt.Errorf("reserve %s: %w: it was given for other amounts, or is settled", h.r.ID, state.ErrConflict)
	case h.found:
		return nil, true, nil
	}
	if err := h.r.Check(h.t.now); err != nil {
		return nil, false, err
	}
	rows = h.accounts.rows(m)
	return rows, false, h.r.Fits(func(name string) state.Usage { return rows[name].Usage })
}

const accountColumns = "used_cost, used_tokens, used_attempts, used_time, held_cost, held_tokens, held_attempts, held_time"

func usageColumns(u *state.Usage) []any {
	return []any{&u.Used.CostNanoUSD, &u.Used.Tokens, &u.Used.Attempts, &u.Used.TimeMS,
		&u.Reserved.CostNanoUSD, &u.Reserved.Tokens, &u.Reserved.Attempts, &u.Reserved.TimeMS}
}

// accounts are locked rows, once the queue was sent.
type accounts struct {
	names []string
	found map[string]*account
}

// accounts queues the locking of the lines' accounts, in the order of their
// names, so that no two transactions wait for each other.
func (t *tx) accounts(lines []state.Line) *accounts {
	a := &accounts{found: map[string]*account{}}
	for _, l := range lines {
		if l.Account != "" && !slices.Contains(a.names, l.Account) {
			a.names = append(a.names, l.Account)
		}
	}
	const q = "SELECT name, " + accountColumns + ", open FROM @account WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE"
	t.ask(q, []any{a.names}, func(row scan) error {
		one := &account{}
		err := row(append(append([]any{&one.Account}, usageColumns(&one.Usage)...), &one.open)...)
		a.found[one.Account] = one
		return err
	})
	return a
}

func (a *accounts) rows(m *missing) map[string]*account {
	for _, name := range a.names {
		if a.found[name] == nil {
			m.accounts = append(m.accounts, name)
			a.found[name] = &account{Usage: state.Usage{Account: name}}
		}
	}
	return a.found
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
	locked := t.accounts(r.Lines)
	if err := t.flush(); err != nil {
		return err
	}
	var m missing
	accounts := locked.rows(&m)
	if err := m.complain(); err != nil {
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

// Prune deletes what ended before then, and rows that were made to be locked
// and stayed empty. What somebody has locked is in use.
func (s *Store) Prune(ctx context.Context, before time.Time) (int, error) {
	type step struct {
		q    string
		args int // how many of then, now
	}
	ended := []step{
		{"DELETE FROM @intent WHERE state = 2 AND settled_at < $1::bigint", 1},
		{"DELETE FROM @reservation WHERE settled AND settled_at < $1::bigint", 1},
		{"DELETE FROM @item WHERE state IN (2, 3, 5) AND expires < $1::bigint", 1},
		{"DELETE FROM @approval WHERE until < $1::bigint AND until < $2::bigint", 2},
		{`DELETE FROM @account WHERE name IN (SELECT name FROM @account
			WHERE open = 0 AND touched > 0 AND touched < $1::bigint FOR UPDATE SKIP LOCKED)`, 1},
	}
	total := 0
	err := s.do(ctx, "prune", func(t *tx) error {
		t.relaxed = true
		if err := t.begun(); err != nil {
			return err
		}
		total = 0
		args := []any{state.Nanos(before), state.Nanos(t.now)}
		for _, e := range ended {
			n, err := t.change(e.q, args[:e.args]...)
			if err != nil {
				return err
			}
			total += n
		}
		t.queue("DELETE FROM @account WHERE name IN (SELECT name FROM @account WHERE open = 0 AND touched = 0 FOR UPDATE SKIP LOCKED)")
		t.queue("DELETE FROM @doc WHERE key IN (SELECT key FROM @doc WHERE rev = 0 FOR UPDATE SKIP LOCKED)")
		return nil
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}
