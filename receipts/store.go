package receipts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// store says where the receipts of one log lie: segments, then write-ahead
// files. The writer, the sealer and readers share it.
type store struct {
	dir  string
	live bool // a writer keeps it up to date

	mu    sync.RWMutex
	segs  []*segment
	marks []mark
	size  int64 // one past the last index
}

// A span is a run of receipts that is read in one go: a block of a segment, or
// the receipts of a mark.
type span struct {
	first, end   int64
	seg          *segment // nil in a write-ahead file
	block        int
	mark         mark
	minID, maxID int64
	minUS, maxUS int64
}

// sealed is the index after the last segment.
func (x *store) sealed() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.sealedLocked()
}

func (x *store) sealedLocked() int64 {
	if n := len(x.segs); n > 0 {
		return x.segs[n-1].end()
	}
	return 0
}

// segsNow is the list of segments at this moment.
func (x *store) segsNow() []*segment {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clone(x.segs)
}

// gone reports whether an error says that a file was sealed or replaced since
// it was looked up. Then the store is up to date again: look it up anew.
func (x *store) gone(err error, try int) bool {
	if !errors.Is(err, fs.ErrNotExist) || try >= maxTries {
		return false
	}
	if x.live {
		return true
	}
	fresh, err := loadStore(x.dir)
	if err != nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.segs, x.marks = fresh.segs, fresh.marks
	x.size = max(x.size, fresh.size)
	return true
}

// loadSegments opens the segments of the directory. They must follow each other.
func (x *store) loadSegments() error {
	paths, err := listSegments(x.dir)
	if err != nil {
		return err
	}
	for _, p := range paths {
		s, err := openSegment(p)
		if err != nil {
			return err
		}
		if end := x.sealed(); s.first() != end {
			return damaged("%s does not follow receipt %d", filepath.Base(p), end-1)
		}
		x.seal(s)
	}
	return nil
}

// add notes a receipt of a write-ahead file.
func (x *store) add(file, index, off, idMS, timeUS int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.size = max(x.size, index+1)
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
func (x *store) rewritten(from int64, frames []byte) {
	x.mu.Lock()
	x.marks = slices.DeleteFunc(x.marks, func(m mark) bool { return m.first >= from })
	x.mu.Unlock()
	for index, rest := from, frames; len(rest) > 0; index++ {
		off := int64(len(frames) - len(rest))
		receipt, next, err := nextFrame(rest)
		if err != nil {
			return // our own frames are whole
		}
		var g look
		_ = glance(&g, receipt) // we wrote it
		x.add(from, index, off, g.idMS, g.timeUS)
		rest = next
	}
}

// seal adds the next segment, and forgets the marks below its end.
func (x *store) seal(s *segment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.segs = append(x.segs, s)
	end := s.end()
	x.size = max(x.size, end)
	i := 0
	for i < len(x.marks) && x.endLocked(i) <= end {
		i++
	}
	x.marks = slices.Clone(x.marks[i:])
}

// replace puts a rewritten segment in the place of the old one.
func (x *store) replace(s *segment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.segs {
		if x.segs[i].first() == s.first() {
			x.segs[i] = s
		}
	}
}

// endLocked is where the run of mark i ends.
func (x *store) endLocked(i int) int64 {
	if i+1 < len(x.marks) {
		return x.marks[i+1].first
	}
	return x.size
}

func (x *store) blockSpan(s *segment, i int) span {
	m := &s.blocks[i]
	first := s.first() + int64(i)*blockSize
	return span{first: first, end: first + blockSize, seg: s, block: i,
		minID: m.minID, maxID: m.maxID, minUS: m.minUS, maxUS: m.maxUS}
}

// each goes through all spans in order. x.mu is held.
func (x *store) each(f func(span)) {
	for _, s := range x.segs {
		for i := range s.blocks {
			f(x.blockSpan(s, i))
		}
	}
	sealed := x.sealedLocked()
	for i, m := range x.marks {
		if end := x.endLocked(i); end > sealed {
			f(span{first: max(m.first, sealed), end: end, mark: m, minID: m.minID, maxID: m.maxID, minUS: m.minUS, maxUS: m.maxUS})
		}
	}
}

// withID lists the spans that may hold an id made in this millisecond, newest
// first, because questions are mostly about what just happened.
func (x *store) withID(ms int64) (list []span) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.each(func(s span) {
		if s.minID <= ms && ms <= s.maxID {
			list = append(list, s)
		}
	})
	slices.Reverse(list)
	return list
}

// at finds the span that holds the index.
func (x *store) at(index int64) (found span, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if index < 0 || index >= x.size {
		return span{}, false
	}
	if index < x.sealedLocked() {
		i, _ := slices.BinarySearchFunc(x.segs, index, func(s *segment, n int64) int { return cmp.Compare(s.end()-1, n) })
		s := x.segs[i]
		return x.blockSpan(s, int(index-s.first())/blockSize), true
	}
	i, exact := slices.BinarySearchFunc(x.marks, index, func(m mark, n int64) int { return cmp.Compare(m.first, n) })
	if !exact {
		i--
	}
	if i < 0 {
		return span{}, false
	}
	m := x.marks[i]
	return span{first: m.first, end: x.endLocked(i), mark: m}, true
}

// between lists the spans that a query has to look at, in its order.
func (x *store) between(q *Query) (list []span) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.each(func(s span) {
		if s.end <= q.From || !q.Since.IsZero() && s.maxUS < q.Since.UnixMicro() || !q.Until.IsZero() && s.minUS >= q.Until.UnixMicro() {
			return
		}
		list = append(list, s)
	})
	if q.Newest {
		slices.Reverse(list)
	}
	return list
}

// read calls f for every receipt of a span. The bytes are valid during the call
// only; body is nil where retention took it away.
func (x *store) read(s span, f func(index int64, r record) error) error {
	if s.seg != nil {
		return x.readBlock(s, f)
	}
	w := walFile{path: filepath.Join(x.dir, dirWAL, walName(s.mark.file)), first: s.mark.file, until: -1}
	_, err := w.scanFrom(s.mark.first, s.mark.off, func(index, _ int64, b []byte) error {
		if index >= s.end {
			return errEnough
		}
		if index < s.first {
			return nil
		}
		return f(index, record{body: b})
	})
	if err == errEnough {
		return nil
	}
	return err
}

// readBlock reads the index again where a block is not what it should be:
// retention may have put another file in the place of the one that was there
// when the span was made.
func (x *store) readBlock(s span, f func(index int64, r record) error) error {
	file, err := os.Open(s.seg.path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, records, err := s.seg.readBlock(file, s.block, nil, nil)
	if errors.Is(err, errSegment) {
		if now, _, serr := segmentOf(file, s.seg.path); serr == nil && now.blocks[s.block] != s.seg.blocks[s.block] {
			_, records, err = now.readBlock(file, s.block, nil, nil)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(s.seg.path), err)
	}
	for index := s.first; len(records) > 0; index++ {
		var r record
		if r, records, err = nextRecord(records); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(s.seg.path), err)
		}
		if err := f(index, r); err != nil {
			return err
		}
	}
	return nil
}
