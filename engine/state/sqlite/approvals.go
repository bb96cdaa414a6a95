package sqlite

import (
	"context"
	"fmt"
	"strings"

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

func collectApproval(row scan, out *[]approval) error {
	a, err := scanApproval(row)
	*out = append(*out, a)
	return err
}

func (t *tx) approval(id string) (a approval, found bool, err error) {
	a, err = scanApproval(func(dest ...any) (err error) {
		found, err = t.row("SELECT "+approvalColumns+" FROM approval WHERE id = ?", []any{id}, dest...)
		return err
	})
	return a, found, err
}

// Grant keeps an approval.
func (s *Store) Grant(ctx context.Context, a taxonomy.Approval) error {
	return s.writer.do(ctx, "grant approval "+a.ID, true, func(t *tx) error {
		old, found, err := t.approval(a.ID)
		switch {
		case err != nil:
			return err
		case found && state.SameApproval(old.Approval, a):
			return nil
		case found:
			return fmt.Errorf("grant approval %s: %w: the id is another approval's", a.ID, state.ErrConflict)
		}
		if err := state.CheckApproval(a, t.now); err != nil {
			return err
		}
		return t.exec("INSERT INTO approval ("+approvalColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, '')",
			a.ID, a.By, a.Scope, a.Tenant, state.Nanos(a.Until), a.SingleUse, a.Denies, a.Reason)
	})
}

// checkUse says whether the approval may be used, and changes nothing.
func (t *tx) checkUse(id string) error {
	a, found, err := t.approval(id)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("use approval %s: %w", id, state.ErrNotFound)
	}
	return state.CheckUse(a.Approval, a.usedBy, t.now)
}

func (t *tx) use(id, by string) error {
	return t.exec("UPDATE approval SET used_by = ? WHERE id = ?", by, id)
}

// Approved returns what is allowed now, in the order in which it was given.
func (s *Store) Approved(ctx context.Context, tenant string, scopes ...string) ([]taxonomy.Approval, error) {
	if len(scopes) == 0 {
		return nil, nil
	}
	args := []any{tenant}
	for _, sc := range scopes {
		args = append(args, sc)
	}
	q := "SELECT " + approvalColumns + " FROM approval WHERE tenant = ? AND scope IN (?" + strings.Repeat(",?", len(scopes)-1) + ") ORDER BY seq"
	found, err := query(ctx, s, "approved for "+tenant, q, args, collectApproval)
	if err != nil {
		return nil, err
	}
	var out []taxonomy.Approval
	now := s.clock()
	for _, a := range found {
		if state.CheckUse(a.Approval, a.usedBy, now) == nil {
			out = append(out, a.Approval)
		}
	}
	return out, nil
}

// Approvals lists all, newest first.
func (s *Store) Approvals(ctx context.Context, limit int) ([]taxonomy.Approval, error) {
	if limit <= 0 {
		limit = -1 // SQLite's word for no limit
	}
	found, err := query(ctx, s, "approvals", "SELECT "+approvalColumns+" FROM approval ORDER BY seq DESC LIMIT ?", []any{limit}, collectApproval)
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
