package state

import (
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// SameApproval reports whether two records allow the same.
func SameApproval(a, b taxonomy.Approval) bool {
	until := a.Until.Equal(b.Until)
	a.Until, b.Until, a.UsedBy, b.UsedBy = time.Time{}, time.Time{}, "", ""
	return until && a == b
}

// CheckApproval says what is wrong with an approval that is to be kept.
func CheckApproval(a taxonomy.Approval, now time.Time) error {
	switch {
	case a.ID == "" || a.Scope == "" || a.By == "":
		return fmt.Errorf("grant approval %s: %w: it needs an id, a scope and who gave it", a.ID, ErrInvalid)
	case !a.Until.After(now):
		return fmt.Errorf("grant approval %s: %w: it has no end in the future", a.ID, ErrExpired)
	}
	return nil
}

// CheckUse says whether an approval may be used at now; usedBy names what
// consumed it before, "" when nothing did.
func CheckUse(a taxonomy.Approval, usedBy string, now time.Time) error {
	switch {
	case !a.Until.After(now):
		return fmt.Errorf("use approval %s: %w: %w at %s", a.ID, ErrConflict, ErrExpired, a.Until.UTC().Format(time.RFC3339))
	case a.SingleUse && usedBy != "":
		return fmt.Errorf("use approval %s: %w: it was used by %s", a.ID, ErrConflict, usedBy)
	}
	return nil
}
