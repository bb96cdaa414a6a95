package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The rules below are pure. Every store applies them inside its transaction,
// so that no rule is written twice, and none in SQL.

// Check says what is wrong with an intent that is to be dispatched.
func (in Intent) Check() error {
	switch {
	case in.ID == "":
		return fmt.Errorf("intent: %w: it has no id", ErrInvalid)
	case in.State != InFlight:
		return fmt.Errorf("intent %s: %w: it is dispatched as %s, not IN_FLIGHT", in.ID, ErrInvalid, in.State)
	case in.Expires.IsZero():
		return fmt.Errorf("intent %s: %w: it has no expiry, so nobody could ever call it UNKNOWN", in.ID, ErrInvalid)
	}
	return nil
}

// SameDispatch reports whether o is the same dispatch repeated: a caller that
// lost the reply sends it again, unchanged.
func (in Intent) SameDispatch(o Intent) bool {
	return in.ID == o.ID && in.RequestID == o.RequestID && in.Attempt == o.Attempt && in.Owner == o.Owner
}

// Settled is the intent after a settlement, and whether that changes anything.
// A settled intent keeps its first result; an UNKNOWN one takes whatever is
// known better, also from an owner that was given up: evidence beats ignorance.
func (in Intent) Settled(s Settlement) (next Intent, changed bool, err error) {
	if in.State == Settled {
		if in.Result.Outcome == s.Outcome && in.Result.Class == s.Class {
			return in, false, nil
		}
		return in, false, fmt.Errorf("settle intent %s as %s: %w: it is settled as %s by %s",
			in.ID, s.Outcome, ErrConflict, in.Result.Outcome, in.Result.By)
	}
	if s.Outcome == taxonomy.Unknown {
		if in.State == Unsettled && in.Result == s {
			return in, false, nil
		}
		in.State = Unsettled
	} else {
		in.State, in.NextTry = Settled, time.Time{}
	}
	in.Result = s
	return in, true, nil
}

// Condemnable reports whether o may call the intent UNKNOWN at now: it is in
// flight, and its owner is an earlier life of o's slot, or its time is over.
func (in Intent) Condemnable(o Owner, now time.Time) bool {
	if in.State != InFlight {
		return false
	}
	mine := o.Slot >= 0 && in.Owner.Home == o.Home && in.Owner.Slot == o.Slot
	return mine && in.Owner.Incarnation != o.Incarnation || in.Expires.Before(now)
}

// Condemned is the intent after somebody called it UNKNOWN.
func (in Intent) Condemned(o Owner, by string, now time.Time) Intent {
	reason := "expired"
	if in.Owner.Home == o.Home && in.Owner.Slot == o.Slot && in.Owner.Incarnation != o.Incarnation {
		reason = "owner_gone"
	}
	in.State = Unsettled
	in.Result = Settlement{Outcome: taxonomy.Unknown, Class: classOfUnknown(in.Effect), Reason: reason, By: by, At: now}
	return in
}

// classOfUnknown is SPEC R-TAX-5: a write that nobody can account for is
// ambiguous, a read was only interrupted.
func classOfUnknown(e taxonomy.Effect) taxonomy.Class {
	if e.Writes() {
		return taxonomy.AmbiguousWrite
	}
	return taxonomy.TransientTransport
}

// Postponed is the intent after one more reconciliation that proved nothing.
func (in Intent) Postponed(next time.Time, humanCase string) (Intent, error) {
	if in.State != Unsettled {
		return in, fmt.Errorf("postpone intent %s: %w: it is %s, and only an UNKNOWN one is reconciled", in.ID, ErrConflict, in.State)
	}
	in.Tries++
	in.NextTry = next
	if humanCase != "" {
		in.Case = humanCase
	}
	return in, nil
}

// Match reports whether the query selects the intent. Limit is not its affair.
func (q IntentQuery) Match(in Intent) bool {
	return (len(q.States) == 0 || slices.Contains(q.States, in.State)) &&
		(q.Tenant == "" || in.Tenant == q.Tenant) &&
		(q.RequestID == "" || in.RequestID == q.RequestID) &&
		(q.Key == "" || in.IdempotencyKey == q.Key) &&
		(q.Before.IsZero() || in.Created.Before(q.Before)) &&
		(q.Due.IsZero() || !in.NextTry.After(q.Due))
}

// Older orders intents as Find lists them: by creation, then by id.
func (in Intent) Older(o Intent) int {
	if c := in.Created.Compare(o.Created); c != 0 {
		return c
	}
	return strings.Compare(in.ID, o.ID)
}
