package receipts

import (
	"bytes"
	"errors"
	"hash/maphash"

	"golang.org/x/mod/sumdb/tlog"
)

// fact is what verification keeps of one receipt: everything that can be told
// from its bytes alone. It is small, because a million of them pass by.
type fact struct {
	leaf  tlog.Hash
	err   error
	input *sealedRef // with deep only
	rare  *look      // of receipts that say more: boot, gap, key, erasure, a stored object
	who   uint64     // hash of an intent's id, of what an outcome answers, of a transition's circuit
	seq   int64
	mono  int64
	time  int64 // time_us
	epoch int64 // of a transition's store
	vers  int64 // state_version
	ms    int64 // milliseconds in the id

	kind        Kind
	prev, state State
	pruned      bool // only the leaf hash is kept
	newer       bool // has fields this version does not know
	foreign     bool // belongs to another log
	needs       bool // ends something sent that may have changed the world
}

// reader of facts: the same for all receipts of one log.
type factReader struct {
	origin string
	deep   bool
	seed   maphash.Seed
}

// read fills f from a receipt's bytes.
func (fr *factReader) read(f *fact, receipt []byte) {
	var g look
	if f.err = glance(&g, receipt); f.err == nil && fr.deep {
		f.input, f.newer, f.err = deep(receipt)
	}
	f.seq, f.mono, f.time, f.kind, f.ms = g.seq, g.monoUS, g.timeUS, g.kind, g.idMS
	f.foreign = string(g.log) != fr.origin
	switch g.kind {
	case KindIntent:
		id, err := parseID(g.idText)
		if f.who = maphash.Bytes(fr.seed, id[:]); f.err == nil {
			f.err = err
		}
	case KindIntentVoid, KindOutcome:
		f.who, f.needs = maphash.Bytes(fr.seed, g.parent[:]), needsIntent(&g)
	case KindTransition:
		f.who, f.prev, f.state, f.vers, f.epoch = fr.circuit(&g), g.prev, g.state, g.stateVersion, g.stateEpoch
	}
	if g.boot != nil || g.gap != nil || g.key != nil || g.retention != nil || len(g.object) > 0 {
		rare := g
		rare.object = bytes.Clone(g.object)
		f.rare = &rare
	}
}

// circuit identifies the circuit of a transition.
func (fr *factReader) circuit(g *look) uint64 {
	var h maphash.Hash
	h.SetSeed(fr.seed)
	for _, part := range [][]byte{g.breaker, g.scope, g.cohort} {
		h.Write(part)
		h.WriteByte('"') // never inside the raw text of a string
	}
	return h.Sum64()
}

// needsIntent reports whether the receipt ends something that may have been
// sent and may have changed the world, as far as it was declared.
func needsIntent(g *look) bool {
	if g.kind == KindIntentVoid {
		return true
	}
	if !g.attempted || len(g.effect) == 0 || string(g.effect) == "read_only" {
		return false
	}
	for _, flag := range withoutIntent {
		if bytes.Contains(g.flags, flag) {
			return false
		}
	}
	return true
}

// withoutIntent are the flags of outcomes that may have no intent in any log:
// something sent without a dispatch, and what was declared UNKNOWN for a process
// that is gone. That one may have died after its state was durable and before
// its receipt was, and then it sent nothing.
var withoutIntent = [][]byte{[]byte(`"undeclared_dispatch"`), []byte(`"owner_gone"`), []byte(`"expired"`)}

// deep reads every field and encodes the receipt again.
func deep(receipt []byte) (input *sealedRef, newer bool, err error) {
	r, err := Decode(receipt)
	if err != nil {
		return nil, false, err
	}
	input = sealedOf(&r)
	if len(r.Unknown) > 0 {
		return input, true, nil
	}
	if !bytes.Equal(r.AppendJSON(nil), receipt) {
		return input, false, errors.New("encoding it again gives other bytes")
	}
	return input, false, nil
}

// perfectRoot is the root over exactly blockSize leaves.
func perfectRoot(facts *[blockSize]fact) tlog.Hash {
	var row [blockSize / 2]tlog.Hash
	for i := range row {
		row[i] = tlog.NodeHash(facts[2*i].leaf, facts[2*i+1].leaf)
	}
	for n := len(row) / 2; n > 0; n /= 2 {
		for i := range n {
			row[i] = tlog.NodeHash(row[2*i], row[2*i+1])
		}
	}
	return row[0]
}
