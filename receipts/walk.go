package receipts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/mod/sumdb/tlog"
)

// walk reads the receipts in order, once: the segments, then what is not
// sealed yet.
func (j *judge) walk(ctx context.Context) error {
	files, err := listWAL(j.dir) // first: a file is sealed, and only then removed
	if err != nil {
		return err
	}
	j.compare() // heads of the empty log
	paths, err := listSegments(j.dir)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := j.walkSegment(ctx, path); err != nil || j.broken {
			return err
		}
	}
	for _, f := range files {
		if f.until >= 0 && f.until <= j.next() {
			continue // sealed
		}
		if err := j.walkFile(ctx, f); err != nil || j.broken {
			return err
		}
	}
	return nil
}

// next is the index of the receipt that should come next.
func (j *judge) next() int64 { return j.tree.n + j.out.Unsealed }

func (j *judge) walkFile(ctx context.Context, f walFile) error {
	if f.first > j.next() {
		j.gone(f.first)
		return nil
	}
	end, err := f.scan(func(index, _ int64, receipt []byte) error {
		if index < j.next() {
			return nil
		}
		if err := j.tick(ctx, index); err != nil {
			return err
		}
		j.takeFrame(index, receipt)
		return nil
	})
	if err != nil {
		return err
	}
	switch {
	case end.torn > 0 && end.next < j.limit:
		j.broken = true
		j.root.fail("edited", "receipt %d in %s: %v", end.next, filepath.Base(f.path), end.err)
	case f.until > end.next:
		j.gone(f.until)
	}
	return nil
}

// tick reports progress and notices that the caller gave up.
func (j *judge) tick(ctx context.Context, index int64) error {
	if index&0xfff != 0 {
		return nil
	}
	if j.opt.Progress != nil {
		j.opt.Progress(index)
	}
	return ctx.Err()
}

// gone notes that receipts are missing before the one at next. After the last
// head that is what a write under way looks like.
func (j *judge) gone(next int64) {
	if j.next() < j.limit {
		j.broken = true
		j.coverage.fail("missing", "receipts %d to %d are not there", j.next(), next-1)
	}
}

// takeFrame judges one receipt of a write-ahead file.
func (j *judge) takeFrame(index int64, receipt []byte) {
	if index > j.limit {
		j.out.Unsealed++
		return
	}
	var f fact
	j.facts.read(&f, receipt)
	if index == j.limit {
		j.firstOpen = f.time
		j.out.Unsealed++
		return
	}
	f.leaf, j.leaf = leafHash(j.leaf, receipt)
	j.take(index, &f)
	j.tree.add(f.leaf)
	j.compare()
}

// blockFacts is what a worker read of one block.
type blockFacts struct {
	facts   [blockSize]fact
	root    tlog.Hash
	err     error // damage
	in, out []byte
	leaf    []byte
}

var blockPool = sync.Pool{New: func() any { return new(blockFacts) }}

// walkSegment reads the blocks of a segment with all processors, and judges
// them in order.
func (j *judge) walkSegment(ctx context.Context, path string) error {
	f, err := os.Open(path) // once: retention may put another file in its place
	if err != nil {
		return err
	}
	defer f.Close()
	s, filters, err := segmentOf(f, path)
	if errors.Is(err, errSegment) {
		j.spoil(err)
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case s.first() == j.next():
	case j.out.Live && s.first() > j.limit:
		return nil // sealed after the heads were read
	default:
		j.spoil(damaged("%s does not follow receipt %d", filepath.Base(path), j.next()-1))
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan chan *blockFacts, runtime.GOMAXPROCS(0))
	go func() {
		defer close(results)
		for i := range s.blocks {
			c := make(chan *blockFacts, 1)
			select {
			case results <- c:
			case <-ctx.Done():
				return
			}
			go func() { c <- j.readBlock(f, s, filters, i) }()
		}
	}()
	for c := range results {
		b := <-c
		if b.err != nil && !errors.Is(b.err, errSegment) {
			err = b.err
		}
		if err != nil || j.broken {
			cancel()
			continue // let the workers end before the file is closed
		}
		if b.err != nil {
			j.spoil(fmt.Errorf("%s: %w", filepath.Base(path), b.err))
		} else if err = j.tick(ctx, j.tree.n&^0xfff); err == nil {
			j.takeBlock(b)
		}
		blockPool.Put(b)
	}
	if err == nil && !j.broken && s.end() <= j.limit {
		j.checkAbout(s)
	}
	return err
}

// spoil notes damage to a segment. Segments are made of receipts under a head
// only, so it is never what a crash leaves.
func (j *judge) spoil(err error) {
	j.broken = true
	j.root.fail("edited", "receipts from %d on: %v", j.next(), err)
}

// readBlock is a worker's part: everything that does not depend on what came
// before.
func (j *judge) readBlock(f *os.File, s *segment, filters []byte, i int) *blockFacts {
	b := blockPool.Get().(*blockFacts)
	b.in, b.out, b.err = s.readBlock(f, i, b.in, b.out)
	if b.err != nil {
		return b
	}
	sum := blockMeta{minID: math.MaxInt64, maxID: math.MinInt64, minUS: math.MaxInt64, maxUS: math.MinInt64}
	var filt filter
	records := b.out
	for k := range b.facts {
		var r record
		if r, records, b.err = nextRecord(records); b.err != nil {
			return b
		}
		p := &b.facts[k]
		*p = fact{leaf: r.leaf, pruned: r.body == nil}
		if p.pruned {
			sum.pruned++
			continue
		}
		j.facts.read(p, r.body)
		p.leaf, b.leaf = r.hash(b.leaf)
		sum.minID, sum.maxID = min(sum.minID, p.ms), max(sum.maxID, p.ms)
		sum.minUS, sum.maxUS = min(sum.minUS, p.time), max(sum.maxUS, p.time)
		if j.opt.Deep {
			_ = filt.addAll(r.body)
		}
	}
	b.root = perfectRoot(&b.facts)
	m := &s.blocks[i]
	switch {
	case len(records) > 0:
		b.err = damaged("its block %d holds more than %d receipts", i, blockSize)
	case b.root != m.root || sum.pruned != m.pruned:
		b.err = damaged("its block %d is not what its index says", i)
	case sum.minID < m.minID || sum.maxID > m.maxID || sum.minUS < m.minUS || sum.maxUS > m.maxUS,
		m.pruned == 0 && (sum.minID != m.minID || sum.maxID != m.maxID || sum.minUS != m.minUS || sum.maxUS != m.maxUS):
		b.err = damaged("the times of block %d in its index are wrong", i)
	case j.opt.Deep && filt != filter(filters[i*filterSize:][:filterSize]):
		b.err = damaged("the filter of block %d hides receipts", i)
	}
	return b
}

// takeBlock judges a block. The tree takes its root as a whole, except where a
// head ends inside it.
func (j *judge) takeBlock(b *blockFacts) {
	first := j.tree.n
	whole := first+blockSize <= j.limit && !j.headInside(first, first+blockSize)
	for k := range b.facts {
		f, index := &b.facts[k], first+int64(k)
		if index >= j.limit { // sealed after the heads were read
			if j.out.Unsealed == 0 {
				j.firstOpen = f.time
			}
			j.out.Unsealed++
			continue
		}
		j.take(index, f)
		if !whole {
			j.tree.add(f.leaf)
			j.compare()
		}
	}
	if whole {
		j.tree.addPerfect(blockLevel, b.root)
		j.compare()
	}
}

// headInside reports whether a head or trusted checkpoint has a size strictly
// between the two.
func (j *judge) headInside(from, to int64) bool {
	for _, list := range [][]Checkpoint{j.heads[j.nextHead:], j.trusted[j.nextTrust:]} {
		if len(list) > 0 && list[0].Size > from && list[0].Size < to {
			return true
		}
	}
	return false
}

// checkAbout compares what a segment tells the next writer with its receipts.
func (j *judge) checkAbout(s *segment) {
	a := &s.about
	var keys []segmentKey
	for _, k := range j.keyNotes {
		if k.Index >= s.first() {
			keys = append(keys, k)
		}
	}
	same := len(keys) == len(a.Keys)
	for i := 0; same && i < len(keys); i++ {
		same = keys[i] == a.Keys[i]
	}
	if !same || j.prunedRun == 0 && (a.LastSeq != j.holes.last || a.LastKind != j.lastKind.String()) || a.BootEpoch != j.bootEpoch {
		j.root.fail("edited", "%s says other things about itself than its receipts", filepath.Base(s.path))
	}
}
