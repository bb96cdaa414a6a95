package receipts

import (
	"golang.org/x/mod/sumdb/tlog"
)

// treeReader gives the hashes inside the tree to the proofs of
// golang.org/x/mod/sumdb/tlog. Sealed blocks bring their roots along, so that
// only the block of the receipt in question is read.
type treeReader struct {
	x      *store
	nodes  map[[2]int64]tlog.Hash // level and number
	leaves map[int64]tlog.Hash    // of blocks that were read
}

func newTreeReader(x *store) *treeReader {
	return &treeReader{x: x, nodes: map[[2]int64]tlog.Hash{}, leaves: map[int64]tlog.Hash{}}
}

// ReadHashes implements [tlog.HashReader].
func (t *treeReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		level, n := tlog.SplitStoredHashIndex(x)
		h, err := t.node(level, n)
		if err != nil {
			return nil, err
		}
		out[i] = h
	}
	return out, nil
}

// node is the root of the perfect tree number n of 2^level leaves.
func (t *treeReader) node(level int, n int64) (tlog.Hash, error) {
	key := [2]int64{int64(level), n}
	if h, ok := t.nodes[key]; ok {
		return h, nil
	}
	if level == blockLevel {
		if s, ok := t.x.at(n * blockSize); ok && s.seg != nil {
			return s.seg.blocks[s.block].root, nil
		}
	}
	if level == 0 {
		return t.leafAt(n)
	}
	left, err := t.node(level-1, 2*n)
	if err != nil {
		return left, err
	}
	right, err := t.node(level-1, 2*n+1)
	if err != nil {
		return right, err
	}
	h := tlog.NodeHash(left, right)
	t.nodes[key] = h
	return h, nil
}

func (t *treeReader) leafAt(n int64) (tlog.Hash, error) {
	if h, ok := t.leaves[n]; ok {
		return h, nil
	}
	s, ok := t.x.at(n)
	if !ok {
		return tlog.Hash{}, ErrNotFound
	}
	var buf []byte
	err := t.x.read(s, func(index int64, r record) error {
		t.leaves[index], buf = r.hash(buf)
		return nil
	})
	if err != nil {
		return tlog.Hash{}, err
	}
	h, ok := t.leaves[n]
	if !ok {
		return h, ErrNotFound
	}
	return h, nil
}
