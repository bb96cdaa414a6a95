package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Check says what is wrong with an item that is to be put.
func (it Item) Check(now time.Time) error {
	switch {
	case it.ID == "":
		return fmt.Errorf("put item: %w: it has no id", ErrInvalid)
	case it.State != Waiting && it.State != Dead:
		return fmt.Errorf("put item %s: %w: it is put as %s, not WAITING or DEAD", it.ID, ErrInvalid, it.State)
	case it.State == Waiting && !it.Expires.After(now):
		return fmt.Errorf("put item %s: %w: no future expiry, no entry", it.ID, ErrExpired)
	}
	return nil
}

// Free reports whether nobody holds the item at now: it waits, or its claim
// ran out.
func (it Item) Free(now time.Time) bool {
	return it.State == Waiting || it.State == Claimed && !it.ClaimUntil.After(now)
}

// Stale reports whether the item has to be dropped instead of claimed.
func (it Item) Stale(now time.Time) bool { return !it.Expires.After(now) }

// Ready reports whether a worker may have the item now.
func (it Item) Ready(now time.Time) bool {
	return it.Free(now) && !it.Stale(now) && !it.NotBefore.After(now)
}

// Taken is the item in the hands of a worker. The token never repeats.
func (it Item) Taken(worker string, lease time.Duration, now time.Time) Item {
	it.State, it.Owner = Claimed, worker
	it.Claim++
	it.ClaimUntil = now.Add(lease)
	return it
}

// Lapsed is the item after its expiry was met.
func (it Item) Lapsed() Item {
	it.State, it.Owner = Expired, ""
	it.ClaimUntil = time.Time{}
	it.Reason = "expired_in_queue"
	return it
}

// Held says whether a worker still holds this claim at now.
func (it Item) Held(claim uint64, now time.Time) error {
	switch {
	case it.State != Claimed || it.Claim != claim:
		return fmt.Errorf("item %s, claim %d: %w: it is %s under claim %d", it.ID, claim, ErrFenced, it.State, it.Claim)
	case !it.ClaimUntil.After(now):
		return fmt.Errorf("item %s, claim %d: %w: the claim ended at %s", it.ID, claim, ErrFenced, it.ClaimUntil.UTC().Format(time.RFC3339))
	}
	return nil
}

// Finished is the item after its worker let go of it.
func (it Item) Finished(claim uint64, d Disposition, now time.Time) (Item, error) {
	if d.State == Claimed {
		return it, fmt.Errorf("finish item %s: %w: a claim does not end as CLAIMED", it.ID, ErrInvalid)
	}
	if err := it.Held(claim, now); err != nil {
		return it, fmt.Errorf("finish %w", err)
	}
	return it.disposed(d), nil
}

// Moved is the item after a person, or the engine, changed it.
func (it Item) Moved(d Disposition, now time.Time) (Item, error) {
	switch {
	case d.State == Claimed:
		return it, fmt.Errorf("move item %s: %w: only a claim makes it CLAIMED", it.ID, ErrInvalid)
	case it.State == Claimed && !it.Free(now):
		return it, fmt.Errorf("move item %s to %s: %w: %s holds it until %s", it.ID, d.State, ErrConflict, it.Owner, it.ClaimUntil.UTC().Format(time.RFC3339))
	case it.State == Done || it.State == Dropped:
		return it, fmt.Errorf("move item %s to %s: %w: it is %s", it.ID, d.State, ErrConflict, it.State)
	case d.State == Waiting && it.Stale(now):
		return it, fmt.Errorf("move item %s to WAITING: %w at %s; put it again with a new expiry", it.ID, ErrExpired, it.Expires.UTC().Format(time.RFC3339))
	}
	return it.disposed(d), nil
}

func (it Item) disposed(d Disposition) Item {
	it.State, it.Reason, it.Owner = d.State, d.Reason, ""
	it.ClaimUntil, it.NotBefore = time.Time{}, time.Time{}
	if d.State == Waiting {
		it.NotBefore = d.At
	}
	if d.Attempt != nil {
		it.Attempts = append(slices.Clip(it.Attempts), *d.Attempt)
	}
	return it
}

// Sooner orders items as Claim hands them out and Items lists them: highest
// priority, then oldest deadline, then id.
func (it Item) Sooner(o Item) int {
	return cmp.Or(cmp.Compare(o.Priority, it.Priority), it.Expires.Compare(o.Expires), strings.Compare(it.ID, o.ID))
}

// Match reports whether the item is one of these.
func (f From) Match(it Item) bool {
	return (f.Dependency == "" || it.Dependency == f.Dependency) && (f.Tenant == "" || it.Tenant == f.Tenant)
}

// Match reports whether the query selects the item. Limit is not its affair.
func (q ItemQuery) Match(it Item) bool {
	return (q.ID == "" || it.ID == q.ID) &&
		(len(q.States) == 0 || slices.Contains(q.States, it.State)) &&
		From{q.Dependency, q.Tenant}.Match(it)
}
