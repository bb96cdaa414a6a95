package receipts

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/mod/sumdb/tlog"
)

// A segment is a sealed part of the log: whole blocks of 256 receipts, each
// compressed by itself.
//
//	"fbxseg1\n"
//	blocks    zstd of records: uvarint length, zero, bytes; or uvarint 0, leaf
//	          hash, where retention took the receipt's bytes away. The zero is the
//	          prefix of a leaf (RFC 6962), so that a record is hashed where it lies
//	entries   one per block: blockEntry bytes
//	filters   one per block: filterSize bytes
//	about     JSON: segmentAbout
//	u32 length of about | u32 number of blocks | u32 crc32c of everything from
//	entries to here | "fbxseg1\n"
//
// All numbers are little endian. Every byte is under a checksum or compared,
// and every receipt under the tree besides.
const (
	segMagic   = "fbxseg1\n"
	segTail    = 12 + len(segMagic)
	blockEntry = 4 + 4 + 4 + tlog.HashSize + 4*8
)

// blockMeta is what is known about a block without reading it.
type blockMeta struct {
	off          int64
	size, crc    uint32
	pruned       uint32 // receipts of which only the leaf hash is kept
	root         tlog.Hash
	minID, maxID int64 // milliseconds in the ids; of pruned receipts too
	minUS, maxUS int64
}

// segmentAbout is what a writer that starts after this segment must know.
type segmentAbout struct {
	First     int64        `json:"first"`
	LastSeq   int64        `json:"last_seq"`
	LastKind  string       `json:"last_kind"`
	BootEpoch int64        `json:"boot_epoch"` // of the last boot receipt so far
	Keys      []segmentKey `json:"keys,omitempty"`
}

// segmentKey is a key receipt inside the segment.
type segmentKey struct {
	Index int64  `json:"index"`
	Epoch int64  `json:"epoch"`
	VKey  string `json:"vkey"`
}

type segment struct {
	path   string
	about  segmentAbout
	blocks []blockMeta
}

func (s *segment) first() int64 { return s.about.First }
func (s *segment) end() int64   { return s.about.First + int64(len(s.blocks))*blockSize }

func segName(first, end int64) string { return fmt.Sprintf("%020d-%020d.fbz", first, end-1) }

func parseSegName(name string) (first, end int64, ok bool) {
	s, ok := strings.CutSuffix(name, ".fbz")
	a, b, ok2 := strings.Cut(s, "-")
	if !ok || !ok2 || len(a) != 20 || len(b) != 20 {
		return 0, 0, false
	}
	first, err1 := strconv.ParseInt(a, 10, 64)
	last, err2 := strconv.ParseInt(b, 10, 64)
	return first, last + 1, err1 == nil && err2 == nil && first >= 0 && last >= first
}

// errSegment matches damage inside a segment, as opposed to a failing disk.
var errSegment = errors.New("segment is damaged")

// listSegments names the segment files of a log, in order.
func listSegments(dir string) (paths []string, err error) {
	names, err := os.ReadDir(filepath.Join(dir, dirSeg))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, n := range names { // sorted by name, which is by number
		if _, _, ok := parseSegName(n.Name()); ok {
			paths = append(paths, filepath.Join(dir, dirSeg, n.Name()))
		}
	}
	return paths, nil
}

// openSegment reads what surrounds the blocks and checks it.
func openSegment(path string) (*segment, error) {
	s, _, err := readSegment(path)
	return s, err
}

// readSegment returns the filters too, which are large and seldom needed.
func readSegment(path string) (s *segment, filters []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return segmentOf(f, path)
}

func segmentOf(f *os.File, path string) (s *segment, filters []byte, err error) {
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	foot, blocks, aboutLen, err := readFoot(f, st.Size())
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	s = &segment{path: path}
	if err := s.parse(foot, blocks, aboutLen, st.Size()); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return s, foot[blocks*blockEntry : blocks*(blockEntry+filterSize)], nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errSegment, fmt.Sprintf(format, args...))
}

func readFoot(f *os.File, size int64) (foot []byte, blocks, aboutLen int, err error) {
	if size < int64(len(segMagic)+segTail) {
		return nil, 0, 0, damaged("%d bytes are too few", size)
	}
	var head [len(segMagic)]byte
	var tail [segTail]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return nil, 0, 0, err
	}
	if _, err := f.ReadAt(tail[:], size-int64(segTail)); err != nil {
		return nil, 0, 0, err
	}
	if string(head[:]) != segMagic || string(tail[12:]) != segMagic {
		return nil, 0, 0, damaged("its marks are wrong")
	}
	aboutLen = int(binary.LittleEndian.Uint32(tail[:]))
	blocks = int(binary.LittleEndian.Uint32(tail[4:]))
	n := int64(blocks)*(blockEntry+filterSize) + int64(aboutLen)
	if blocks < 1 || aboutLen > 1<<20 || n > size-int64(len(segMagic)+segTail) {
		return nil, 0, 0, damaged("its lengths are wrong")
	}
	foot = make([]byte, n+8)
	if _, err := f.ReadAt(foot, size-int64(segTail)-n); err != nil && err != io.EOF {
		return nil, 0, 0, err
	}
	if crc32.Checksum(foot, castagnoli) != binary.LittleEndian.Uint32(tail[8:]) {
		return nil, 0, 0, damaged("the checksum of its index is wrong")
	}
	return foot, blocks, aboutLen, nil
}

func (s *segment) parse(foot []byte, blocks, aboutLen int, size int64) error {
	about := foot[blocks*(blockEntry+filterSize):][:aboutLen]
	if err := json.Unmarshal(about, &s.about); err != nil {
		return damaged("%v", err)
	}
	off := int64(len(segMagic))
	s.blocks = make([]blockMeta, blocks)
	for i := range s.blocks {
		e, m := foot[i*blockEntry:], &s.blocks[i]
		m.off, m.size, m.crc = off, binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint32(e[4:])
		m.pruned = binary.LittleEndian.Uint32(e[8:])
		m.root = tlog.Hash(e[12:44])
		for k, p := range []*int64{&m.minID, &m.maxID, &m.minUS, &m.maxUS} {
			*p = int64(binary.LittleEndian.Uint64(e[44+8*k:]))
		}
		off += int64(m.size)
	}
	if off+int64(len(foot)-8+segTail) != size {
		return damaged("its blocks do not fill it")
	}
	first, end, _ := parseSegName(filepath.Base(s.path))
	if first != s.first() || end != s.end() || first%blockSize != 0 {
		return damaged("it holds receipts %d to %d", s.first(), s.end()-1)
	}
	return nil
}

func (m *blockMeta) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, m.size)
	b = binary.LittleEndian.AppendUint32(b, m.crc)
	b = binary.LittleEndian.AppendUint32(b, m.pruned)
	b = append(b, m.root[:]...)
	for _, v := range []int64{m.minID, m.maxID, m.minUS, m.maxUS} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// The codecs hold no state between calls. Fastest is the level where better
// ones gain nothing on receipts.
var codecs = sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
		zstd.WithEncoderConcurrency(1), zstd.WithSingleSegment(true))
	if err != nil {
		panic(err) // the options are constants
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(blockSize*(maxFrame+8)))
	if err != nil {
		panic(err)
	}
	return enc, dec
})

// readBlock returns the records of block i, not yet taken apart. buf is used
// where it is large enough.
func (s *segment) readBlock(f io.ReaderAt, i int, in, out []byte) (_, records []byte, err error) {
	m := &s.blocks[i]
	in = slices.Grow(in[:0], int(m.size))[:m.size]
	if _, err := f.ReadAt(in, m.off); err == io.EOF {
		return in, nil, damaged("it ends inside block %d", i)
	} else if err != nil {
		return in, nil, err
	}
	if crc32.Checksum(in, castagnoli) != m.crc {
		return in, nil, damaged("the checksum of its block %d is wrong", i)
	}
	_, dec := codecs()
	records, err = dec.DecodeAll(in, out[:0])
	if err != nil {
		return in, nil, damaged("block %d: %v", i, err)
	}
	return in, records, nil
}

// A record of a block: the receipt's bytes, or only its leaf hash.
type record struct {
	body []byte
	pre  []byte    // zero and body, as they are hashed; nil outside of blocks
	leaf tlog.Hash // set where body is nil
}

// hash is the leaf hash of the record. buf saves an allocation.
func (r *record) hash(buf []byte) (tlog.Hash, []byte) {
	switch {
	case r.body == nil:
		return r.leaf, buf
	case r.pre != nil:
		return sha256.Sum256(r.pre), buf
	}
	return leafHash(buf, r.body)
}

// nextRecord splits the first record off a block.
func nextRecord(b []byte) (r record, rest []byte, err error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > maxFrame || n == 1 {
		return r, nil, damaged("a record has no length")
	}
	b = b[k:]
	if n == 0 {
		if len(b) < tlog.HashSize {
			return r, nil, damaged("a leaf hash is cut")
		}
		return record{leaf: tlog.Hash(b[:tlog.HashSize])}, b[tlog.HashSize:], nil
	}
	if uint64(len(b)) < n+1 || b[0] != 0 {
		return r, nil, damaged("a record is cut")
	}
	return record{body: b[1 : n+1 : n+1], pre: b[: n+1 : n+1]}, b[n+1:], nil
}

func appendRecord(b []byte, r record) []byte {
	if r.body == nil {
		return append(append(b, 0), r.leaf[:]...)
	}
	b = append(binary.AppendUvarint(b, uint64(len(r.body))), 0)
	return append(b, r.body...)
}
