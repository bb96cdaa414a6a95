package receipts

import (
	"fmt"
	"slices"
)

// retention checks that every pruned receipt was allowed to be: an erasure
// receipt, sealed like all others, names the range and how many.
type retention struct {
	taken [][2]int64 // runs of pruned indexes, half open
	notes []RetentionNote
	bad   string
}

func (r *retention) pruned(index int64) {
	if n := len(r.taken); n > 0 && r.taken[n-1][1] == index {
		r.taken[n-1][1]++
		return
	}
	r.taken = append(r.taken, [2]int64{index, index + 1})
}

func (r *retention) allow(index int64, n *RetentionNote) {
	if n.ToIndex > index || n.FromIndex < 0 || n.FromIndex > n.ToIndex || n.Count > n.ToIndex-n.FromIndex {
		r.bad = fmt.Sprintf("receipt %d allows retention of an impossible range", index)
	}
	r.notes = append(r.notes, *n)
}

// judge compares what is gone with what was allowed. Fewer may be gone than
// allowed: a crash may have come between the receipt and the deed.
func (r *retention) judge(f *finding) {
	if r.bad != "" {
		f.fail("malformed", "%s", r.bad)
		return
	}
	var gone, allowed int64
	for _, t := range r.taken {
		gone += t[1] - t[0]
		if at := r.outside(t); at >= 0 {
			f.fail("missing", "the body of receipt %d is gone, and no erasure receipt says why", at)
			return
		}
	}
	for _, n := range r.notes {
		allowed += n.Count
	}
	if gone > allowed {
		f.fail("missing", "the bodies of %d receipts are gone, erasure receipts account for %d", gone, allowed)
	}
}

// outside finds an index of the run that no note covers, or -1.
func (r *retention) outside(t [2]int64) int64 {
	for at := t[0]; at < t[1]; {
		i := slices.IndexFunc(r.notes, func(n RetentionNote) bool { return n.FromIndex <= at && at < n.ToIndex })
		if i < 0 {
			return at
		}
		at = r.notes[i].ToIndex
	}
	return -1
}
