package receipts

import "slices"

// holes follows the submit sequence of one log and matches missing numbers with
// the gap receipts that own up to them.
type holes struct {
	last    int64 // last number seen
	started bool
	runs    [][2]int64 // missing and not yet owned up to, in order
	claims  []GapNote  // gap receipts not used up yet
}

// see takes the next receipt. ok is false when its number does not rise.
func (h *holes) see(g *look) (ok bool) {
	if !h.started {
		h.started, h.last = true, g.seq-1
	}
	if g.seq <= h.last {
		return false
	}
	if g.seq > h.last+1 {
		h.runs = append(h.runs, [2]int64{h.last + 1, g.seq - 1})
	}
	h.last = g.seq
	if g.gap != nil {
		h.claims = append(h.claims, *g.gap)
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
		missing += r[1] - r[0] + 1
		inside := slices.ContainsFunc(h.claims, func(c GapNote) bool { return c.FromSeq <= r[0] && r[1] <= c.ToSeq })
		if !inside && !h.covered(r) {
			return
		}
	}
	if missing == claimed {
		h.runs, h.claims = nil, nil
	}
}

// covered reports whether the run lies within the union of the claims.
func (h *holes) covered(r [2]int64) bool {
	at := r[0]
	for at <= r[1] {
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
			list = append(list, GapNote{FromSeq: r[0], ToSeq: r[1], Count: r[1] - r[0] + 1, Cause: causeCrash})
		}
	}
	return list
}
