package postgres

import (
	"context"
	"fmt"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

const approvalColumns = "id, given_by, scope, tenant, until, single_use, denies, reason, used_by"

// approval is one row of that table.
type approval struct {
	taxonomy.Approval
	usedBy string
}

func scanApproval(row scan) (a approval, err error) {
	err = row(&a.ID, &a.By, &a.Scope, &a.Tenant, state.Stamp(&a.Until), &a.SingleUse, &a.Denies, &a.Reason, &a.usedBy)
	return a, err
}

func (t *tx) approval(id string) (a approval, found bool, err error) {
	a, err = scanApproval(func(dest ...any) (err error) {
		found, err = t.row("SELECT "+approvalColumns+" FROM @approval WHERE id = $1::text FOR UPDATE", []any{id}, dest...)
		return err
	})
	return a, found, err
}

// Grant keeps an approval.
func (s *Store) Grant(ctx context.Context, a taxonomy.Approval) error {
	err := s.do(ctx, "grant approval "+a.ID, func(t *tx) error {
		old, found, err := t.approval(a.ID)
		switch {
		case err != nil:
			return err
		case found && state.SameApproval(old.Approval, a):
			return errUnchanged
		case found:
			return fmt.Errorf("grant approval %s: %w: the id is another approval's", a.ID, state.ErrConflict)
		}
		if err := state.CheckApproval(a, t.now); err != nil {
			return err
		}
		t.queue("INSERT INTO @approval ("+approvalColumns+") VALUES ($1::text, $2::text, $3::text, $4::text, $5::bigint, $6::boolean, $7::boolean, $8::text, '')",
			a.ID, a.By, a.Scope, a.Tenant, state.Nanos(a.Until), a.SingleUse, a.Denies, a.Reason)
		return nil
	})
	if err == errUnchanged {
		return nil
	}
	return err
}

// Approved returns what is allowed now, in the order in which it was given.
func (s *Store) Approved(ctx context.Context, tenant string, scopes ...string) ([]taxonomy.Approval, error) {
	if len(scopes) == 0 {
		return nil, nil
	}
	found, at, err := query(ctx, s, "approved for "+tenant, "SELECT "+approvalColumns+" FROM @approval WHERE tenant = $1::text AND scope = ANY($2::text[]) ORDER BY seq",
		[]any{tenant, scopes}, scanApproval)
	if err != nil {
		return nil, err
	}
	var out []taxonomy.Approval
	for _, a := range found {
		if state.CheckUse(a.Approval, a.usedBy, at.now) == nil {
			out = append(out, a.Approval)
		}
	}
	return out, nil
}

// Approvals lists all, newest first.
func (s *Store) Approvals(ctx context.Context, limit int) ([]taxonomy.Approval, error) {
	q := "SELECT " + approvalColumns + " FROM @approval ORDER BY seq DESC"
	var args []any
	if limit > 0 {
		q += " LIMIT $1::bigint"
		args = append(args, limit)
	}
	found, _, err := query(ctx, s, "approvals", q, args, scanApproval)
	if err != nil {
		return nil, err
	}
	var out []taxonomy.Approval
	for _, a := range found {
		a.Approval.UsedBy = a.usedBy
		out = append(out, a.Approval)
	}
	return out, nil
}
