package receipts

import "slices"

// holes follows the submit sequence of one log and matches missing numbers with
// the gap receipts that own up to them.
type holes struct {
	last    int64 // last number seen
	started bool
	runs    []hole    // missing and not yet owned up to, in order
	claims  []GapNote // gap receipts not used up yet
}

// A hole is count missing numbers in from … to; count is smaller than the range
// where retention took receipts away whose numbers are not known any more.
type hole struct{ from, to, count int64 }

// see takes the next receipt, which comes after this many pruned ones. ok is
// false when its number does not rise as it must.
func (h *holes) see(seq int64, gap *GapNote, pruned int64) (ok bool) {
	if !h.started {
		h.started, h.last = true, seq-1-pruned
	}
	missing := seq - h.last - 1 - pruned
	if missing < 0 {
		return false
	}
	if missing > 0 {
		h.runs = append(h.runs, hole{h.last + 1, seq - 1, missing})
	}
	h.last = seq
	if gap != nil {
		h.claims = append(h.claims, *gap)
		h.settle()
	}
	return true
}

// settle forgets holes and claims once they match exactly: the same count, and
// every missing number inside a claimed range.
func (h *holes) settle() {
	var missing, claimed int64
	for _, c := range h.claims {
		claimed += c.Count
	}
	for _, r := range h.runs {
		missing += r.count
		if !h.covered(r) {
			return
		}
	}
	if missing == claimed {
		h.runs, h.claims = nil, nil
	}
}

// covered reports whether the hole lies within the union of the claims.
func (h *holes) covered(r hole) bool {
	if r.count < r.to-r.from+1 { // where in the range is not known
		return slices.ContainsFunc(h.claims, func(c GapNote) bool { return c.FromSeq <= r.to && r.from <= c.ToSeq })
	}
	at := r.from
	for at <= r.to {
		next := at
		for _, c := range h.claims {
			if c.FromSeq <= at && at <= c.ToSeq {
				next = max(next, c.ToSeq+1)
			}
		}
		if next == at {
			return false
		}
		at = next
	}
	return true
}

// open lists what nobody owned up to, as the gap receipts a recovery writes.
func (h *holes) open() (list []GapNote) {
	for _, r := range h.runs {
		if !h.covered(r) {
			list = append(list, GapNote{FromSeq: r.from, ToSeq: r.to, Count: r.count, Cause: causeCrash})
		}
	}
	return list
}
