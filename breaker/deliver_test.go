package breaker

import (
	"slices"
	"testing"
	"testing/synctest"
)

func numbered(from, n int) []Change {
	out := make([]Change, n)
	for i := range out {
		out[i].Sequence = uint64(from + i)
	}
	return out
}

// TestBacklogStaysWhereItIs: a change that is posted to a listener that fell far
// behind costs no more than to one that keeps up: what waits is not moved.
func TestBacklogStaysWhereItIs(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	b := &mailbox{hear: func(Change) { <-block }}
	b.post(numbered(0, maxWaiting+1000))
	place := func(seq uint64) *Change {
		b.mu.Lock()
		defer b.mu.Unlock()
		i := slices.IndexFunc(b.waiting, func(c Change) bool { return c.Sequence == seq })
		if i < 0 {
			t.Fatalf("change %d does not wait", seq)
		}
		return &b.waiting[i]
	}
	const middle = maxWaiting / 2
	was := place(middle)
	for i := range 100 {
		b.post(numbered(maxWaiting+1000+i, 1))
	}
	if place(middle) != was {
		t.Fatal("a change that waits was moved because another came")
	}
}

// TestBacklogInOrder (also fault 28): whatever is posted and heard in between, a
// listener hears the changes in order, and every one that was not dropped for
// having waited behind 65,536 others.
func TestBacklogInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := make(chan struct{}, 1<<20) // each lets it hear one
		var heard []uint64
		b := &mailbox{hear: func(c Change) {
			<-may
			heard = append(heard, c.Sequence)
		}}
		sent := 0
		for _, n := range []int{1, 3, 700, maxWaiting - 2, 10, 5000, 3, maxWaiting, 2*maxWaiting + 7, 1, 1} {
			b.post(numbered(sent, n))
			sent += n
			for range n/2 + 1 {
				may <- struct{}{}
			}
			synctest.Wait()
		}
		close(may)
		synctest.Wait()
		if !slices.IsSorted(heard) || len(heard)+int(b.lost) != sent || heard[len(heard)-1] != uint64(sent-1) {
			t.Fatalf("%d sent, %d heard, %d lost, in order: %v", sent, len(heard), b.lost, slices.IsSorted(heard))
		}
		if b.running || len(b.waiting) != 0 {
			t.Fatalf("nothing waits, and %d places are kept", len(b.waiting))
		}
	})
}
