package receipts

import (
	"slices"
	"sync"
)

// markEvery is how many receipts share one mark of the index.
const markEvery = 64

// A mark says where a run of receipts lies in a write-ahead file, and between
// which times they were made. Ids of version 7 hold a time, so marks find a
// receipt by its id without an entry for each.
type mark struct {
	file         int64 // first index of the file
	first        int64 // index of the run's first receipt
	off          int64 // its offset in the file
	minID, maxID int64 // milliseconds in the ids
	minUS, maxUS int64 // time_us
}

// walIndex is the list of marks over all write-ahead files.
type walIndex struct {
	mu    sync.RWMutex
	marks []mark
	size  int64 // one past the last index
}

func (x *walIndex) add(file, index, off, idMS, timeUS int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.size = index + 1
	if n := len(x.marks); n > 0 {
		m := &x.marks[n-1]
		if m.file == file && index-m.first < markEvery {
			m.minID, m.maxID = min(m.minID, idMS), max(m.maxID, idMS)
			m.minUS, m.maxUS = min(m.minUS, timeUS), max(m.maxUS, timeUS)
			return
		}
	}
	x.marks = append(x.marks, mark{file: file, first: index, off: off,
		minID: idMS, maxID: idMS, minUS: timeUS, maxUS: timeUS})
}

// rewritten says that receipts from this index on now lie in a file that
// begins with them, and whose frames these are.
func (x *walIndex) rewritten(from int64, frames []byte) {
	x.mu.Lock()
	x.marks = slices.DeleteFunc(x.marks, func(m mark) bool { return m.first >= from })
	x.mu.Unlock()
	for index, rest := from, frames; len(rest) > 0; index++ {
		off := int64(len(frames) - len(rest))
		receipt, next, err := nextFrame(rest)
		if err != nil {
			return // our own frames are whole
		}
		g, _ := glance(receipt)
		x.add(from, index, off, g.id.Millis(), g.timeUS)
		rest = next
	}
}

// withID lists the marks that may hold an id made in this millisecond, newest
// first, because questions are mostly about what just happened.
func (x *walIndex) withID(ms int64) (list []mark) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i := len(x.marks) - 1; i >= 0; i-- {
		if m := x.marks[i]; m.minID <= ms && ms <= m.maxID {
			list = append(list, m)
		}
	}
	return list
}

// at finds the mark whose run holds the index.
func (x *walIndex) at(index int64) (mark, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if index < 0 || index >= x.size {
		return mark{}, false
	}
	i, ok := slices.BinarySearchFunc(x.marks, index, func(m mark, n int64) int { return int(m.first - n) })
	if !ok {
		i--
	}
	if i < 0 {
		return mark{}, false
	}
	return x.marks[i], true
}

// after is the index at which the mark behind m begins.
func (x *walIndex) after(m mark) (int64, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i, _ := slices.BinarySearchFunc(x.marks, m.first+1, func(m mark, n int64) int { return int(m.first - n) })
	if i < len(x.marks) {
		return x.marks[i].first, true
	}
	return x.size, x.size > m.first
}

// between lists the marks that a query has to look at, in its order.
func (x *walIndex) between(q Query) (list []mark) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i, m := range x.marks {
		end := x.size
		if i+1 < len(x.marks) {
			end = x.marks[i+1].first
		}
		if end <= q.From || !q.Since.IsZero() && m.maxUS < q.Since.UnixMicro() || !q.Until.IsZero() && m.minUS >= q.Until.UnixMicro() {
			continue
		}
		list = append(list, m)
	}
	if q.Newest {
		slices.Reverse(list)
	}
	return list
}
