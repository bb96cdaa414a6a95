package receipts

// Causes of gaps.
const (
	causeOverflow = "overflow"  // a sample found the ring half full
	causeDisk     = "disk_full" // the disk refused for too long
	causeCaller   = "caller"    // the caller gave up waiting
	causeCrash    = "crash"     // found at start: numbers given and never written
)

// gapCounter remembers dropped numbers until the writer makes receipts of
// them, one for each class and cause. It does not grow.
type gapCounter struct{ open [3][3]GapNote }

func (g *gapCounter) add(seq int64, class Delivery, cause string) {
	i := 0
	switch cause {
	case causeDisk:
		i = 1
	case causeCaller:
		i = 2
	}
	n := &g.open[class][i]
	if n.Count == 0 {
		*n = GapNote{FromSeq: seq, Class: class, Cause: cause}
	}
	n.ToSeq = seq
	n.Count++
}

// take returns the gaps to write and forgets them.
func (g *gapCounter) take() (list []GapNote) {
	for c := range g.open {
		for i := range g.open[c] {
			if n := g.open[c][i]; n.Count > 0 {
				list = append(list, n)
				g.open[c][i] = GapNote{}
			}
		}
	}
	return list
}
