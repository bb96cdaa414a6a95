package receipts

import (
	"crypto/sha256"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// blockSize is the number of receipts in a block: 256 is where compression
// stops gaining and where tiles of c2sp.org/tlog-tiles end.
const (
	blockSize  = 256
	blockLevel = 8 // 1<<blockLevel == blockSize
)

// leafHash is the RFC 6962 hash of one receipt's bytes. It equals
// [tlog.RecordHash]; buf saves the allocation.
func leafHash(buf []byte, receipt []byte) (tlog.Hash, []byte) {
	buf = append(append(buf[:0], 0), receipt...)
	return sha256.Sum256(buf), buf
}

// frontier is the compact form of a Merkle tree that only grows: one hash per
// set bit of its size. hash[k] is the root of a perfect tree of 2^k leaves.
type frontier struct {
	n    int64
	hash [63]tlog.Hash
}

// add appends one leaf.
func (f *frontier) add(h tlog.Hash) { f.addPerfect(0, h) }

// addPerfect appends a perfect tree of 2^level leaves; the size must be a
// multiple of that.
func (f *frontier) addPerfect(level int, h tlog.Hash) {
	top := level
	for ; f.n>>top&1 == 1; top++ {
		h = tlog.NodeHash(f.hash[top], h)
	}
	f.hash[top] = h
	f.n += 1 << level
}

// root is the head of the tree. The head of an empty one is the hash of nothing.
func (f *frontier) root() tlog.Hash {
	if f.n == 0 {
		return sha256.Sum256(nil)
	}
	level := bits.TrailingZeros64(uint64(f.n))
	h := f.hash[level]
	for rest := f.n >> (level + 1) << (level + 1); rest != 0; rest &= rest - 1 {
		h = tlog.NodeHash(f.hash[bits.TrailingZeros64(uint64(rest))], h)
	}
	return h
}
