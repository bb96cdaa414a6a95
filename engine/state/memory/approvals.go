package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Grant keeps an approval.
func (s *Store) Grant(ctx context.Context, a taxonomy.Approval) error {
	return s.do(ctx, "Grant", a.ID, func(now time.Time) error {
		if old := s.approval(a.ID); old != nil {
			if state.SameApproval(old.Approval, a) {
				return nil
			}
			return fmt.Errorf("grant approval %s: %w: the id is another approval's", a.ID, state.ErrConflict)
		}
		if err := state.CheckApproval(a, now); err != nil {
			return err
		}
		s.approvals = append(s.approvals, &approval{Approval: a})
		return nil
	})
}

func (s *Store) approval(id string) *approval {
	for _, a := range s.approvals {
		if a.ID == id {
			return a
		}
	}
	return nil
}

// Approved returns what is allowed now, in the order in which it was given.
func (s *Store) Approved(ctx context.Context, tenant string, scopes ...string) (out []taxonomy.Approval, err error) {
	err = s.do(ctx, "Approved", tenant, func(now time.Time) error {
		for _, a := range s.approvals {
			if a.Tenant == tenant && slices.Contains(scopes, a.Scope) && state.CheckUse(a.Approval, a.usedBy, now) == nil {
				out = append(out, a.Approval)
			}
		}
		return nil
	})
	return out, err
}

// Approvals lists all, newest first.
func (s *Store) Approvals(ctx context.Context, limit int) (out []taxonomy.Approval, err error) {
	err = s.do(ctx, "Approvals", "", func(time.Time) error {
		for _, a := range slices.Backward(s.approvals) {
			if limit <= 0 || len(out) < limit {
				said := a.Approval
				said.UsedBy = a.usedBy
				out = append(out, said)
			}
		}
		return nil
	})
	return out, err
}
