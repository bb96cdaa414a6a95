package receipts

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/tlog"
)

// segWriter makes one segment, record by record.
type segWriter struct {
	file    *os.File
	off     int64
	seg     segment
	filters []byte
	old     *segment // the segment this one replaces; nil for a new one

	n       int // records in the current block
	records []byte
	tree    frontier // of the current block
	meta    blockMeta
	filter  filter
	leaf    []byte
	packed  []byte
}

// newSegment begins a segment in a file without a name that readers know.
func newSegment(dir string, about segmentAbout) (*segWriter, error) {
	f, err := os.CreateTemp(filepath.Join(dir, dirSeg), ".seg-*")
	if err != nil {
		return nil, err
	}
	w := &segWriter{file: f, off: int64(len(segMagic)), seg: segment{about: about}}
	w.reset()
	if _, err := f.WriteString(segMagic); err != nil {
		w.drop()
		return nil, err
	}
	return w, nil
}

// drop gives up.
func (w *segWriter) drop() {
	w.file.Close()
	os.Remove(w.file.Name())
}

func (w *segWriter) reset() {
	w.n, w.records, w.tree, w.filter = 0, w.records[:0], frontier{}, filter{}
	w.meta = blockMeta{minID: math.MaxInt64, maxID: math.MinInt64, minUS: math.MaxInt64, maxUS: math.MinInt64}
}

// add appends the next receipt.
func (w *segWriter) add(body []byte) error {
	var g look
	err := glance(&g, body)
	if err == nil {
		err = w.filter.addAll(body)
	}
	if err != nil {
		return err
	}
	m, a := &w.meta, &w.seg.about
	m.minID, m.maxID = min(m.minID, g.idMS), max(m.maxID, g.idMS)
	m.minUS, m.maxUS = min(m.minUS, g.timeUS), max(m.maxUS, g.timeUS)
	a.LastSeq, a.LastKind = g.seq, g.kind.String()
	if g.boot != nil {
		a.BootEpoch = g.boot.Epoch
	}
	if g.key != nil {
		index := a.First + int64(len(w.seg.blocks))*blockSize + int64(w.n)
		a.Keys = append(a.Keys, segmentKey{index, g.key.Epoch, g.key.VKey})
	}
	var h tlog.Hash
	h, w.leaf = leafHash(w.leaf, body)
	return w.push(record{body: body}, h)
}

func (w *segWriter) push(r record, h tlog.Hash) error {
	if r.body == nil {
		w.meta.pruned++
	}
	w.records = appendRecord(w.records, r)
	w.tree.add(h)
	if w.n++; w.n < blockSize {
		return nil
	}
	w.meta.root = w.tree.root()
	return w.endBlock()
}

// endBlock compresses and writes the block.
func (w *segWriter) endBlock() error {
	enc, _ := codecs()
	w.packed = enc.EncodeAll(w.records, w.packed[:0])
	m := &w.meta
	if w.old != nil { // times of pruned receipts are still within it
		o := &w.old.blocks[len(w.seg.blocks)]
		m.minID, m.maxID, m.minUS, m.maxUS = o.minID, o.maxID, o.minUS, o.maxUS
	}
	m.off, m.size, m.crc = w.off, uint32(len(w.packed)), crc32.Checksum(w.packed, castagnoli)
	if _, err := w.file.Write(w.packed); err != nil {
		return err
	}
	w.off += int64(len(w.packed))
	w.seg.blocks = append(w.seg.blocks, *m)
	w.filters = append(w.filters, w.filter[:]...)
	w.reset()
	return nil
}

// finish writes the index, makes everything durable, reads it all again, and
// only then gives the file its name.
func (w *segWriter) finish(dir string, mode fs.FileMode) (*segment, error) {
	var foot []byte
	for i := range w.seg.blocks {
		foot = w.seg.blocks[i].append(foot)
	}
	foot = append(foot, w.filters...)
	about, err := json.Marshal(w.seg.about)
	if err != nil {
		return nil, err
	}
	foot = append(foot, about...)
	foot = binary.LittleEndian.AppendUint32(foot, uint32(len(about)))
	foot = binary.LittleEndian.AppendUint32(foot, uint32(len(w.seg.blocks)))
	foot = binary.LittleEndian.AppendUint32(foot, crc32.Checksum(foot, castagnoli))
	foot = append(foot, segMagic...)
	if _, err := w.file.Write(foot); err != nil {
		return nil, err
	}
	if err := w.file.Chmod(mode); err != nil {
		return nil, err
	}
	if err := w.file.Sync(); err != nil {
		return nil, err
	}
	for i := range w.seg.blocks {
		if err := w.seg.check(w.file, i); err != nil {
			return nil, fmt.Errorf("read again: %w", err)
		}
	}
	w.seg.path = filepath.Join(dir, dirSeg, segName(w.seg.first(), w.seg.end()))
	if err := os.Rename(w.file.Name(), w.seg.path); err != nil {
		return nil, err
	}
	w.file.Close()
	if err := syncDir(filepath.Dir(w.seg.path)); err != nil {
		return nil, err
	}
	return openSegment(w.seg.path)
}

// check reads a block and compares it with its root.
func (s *segment) check(f *os.File, i int) error {
	_, records, err := s.readBlock(f, i, nil, nil)
	if err != nil {
		return err
	}
	var tree frontier
	var buf []byte
	for len(records) > 0 {
		var r record
		if r, records, err = nextRecord(records); err != nil {
			return err
		}
		var h tlog.Hash
		h, buf = r.hash(buf)
		tree.add(h)
	}
	if tree.n != blockSize || tree.root() != s.blocks[i].root {
		return damaged("block %d does not give its root", i)
	}
	return nil
}
