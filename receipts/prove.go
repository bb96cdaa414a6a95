package receipts

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// A Proof shows, to somebody who has the log's verifier key and nothing else,
// that a receipt is in the log. Its text is formatted according to
// c2sp.org/tlog-proof; the receipt's bytes travel in the extra line.
type Proof struct {
	Index      int64
	Hashes     tlog.RecordProof // from the leaf's sibling up to the root's child
	Checkpoint Checkpoint
	Receipt    []byte // canonical bytes; nil where they are kept elsewhere
}

const proofHeader = "c2sp.org/tlog-proof@v1"

// Errors of proofs.
var (
	ErrUnsealed = errors.New("no head covers this receipt yet; one is signed within a second")
	ErrProof    = errors.New("the proof does not hold")
	errFormat   = errors.New("not a proof of c2sp.org/tlog-proof")
)

// MarshalText writes the proof, by custom into a file ending in .tlog-proof.
func (p *Proof) MarshalText() ([]byte, error) {
	b := append([]byte(proofHeader), '\n')
	if len(p.Receipt) > 0 {
		b = append(b, "extra "...)
		b = base64.StdEncoding.AppendEncode(b, p.Receipt)
		b = append(b, '\n')
	}
	b = append(b, "index "...)
	b = append(strconv.AppendInt(b, p.Index, 10), '\n')
	for _, h := range p.Hashes {
		b = append(base64.StdEncoding.AppendEncode(b, h[:]), '\n')
	}
	return append(append(b, '\n'), p.Checkpoint.Note...), nil
}

// UnmarshalText reads a proof and judges nothing but its form.
func (p *Proof) UnmarshalText(b []byte) error {
	v, err := parseProof(b)
	if err != nil {
		return fmt.Errorf("read proof: %w: %w", errFormat, err)
	}
	*p = v
	return nil
}

func parseProof(b []byte) (p Proof, err error) {
	head, note, ok := bytes.Cut(b, []byte("\n\n"))
	if !ok {
		return p, errors.New("no empty line")
	}
	lines := strings.Split(string(head), "\n")
	if lines[0] != proofHeader {
		return p, fmt.Errorf("the first line is not %s", proofHeader)
	}
	lines = lines[1:]
	if len(lines) > 0 && strings.HasPrefix(lines[0], "extra ") {
		p.Receipt, err = oneSpelling(lines[0][len("extra "):])
		if err != nil {
			return p, fmt.Errorf("extra line: %w", err)
		}
		lines = lines[1:]
	}
	if len(lines) == 0 || !strings.HasPrefix(lines[0], "index ") {
		return p, errors.New("no index line")
	}
	index := lines[0][len("index "):]
	p.Index, err = strconv.ParseInt(index, 10, 64)
	if err != nil || p.Index < 0 || strconv.FormatInt(p.Index, 10) != index {
		return p, fmt.Errorf("index %q", index)
	}
	for _, line := range lines[1:] {
		h, err := oneSpelling(line)
		if err != nil || len(h) != tlog.HashSize {
			return p, fmt.Errorf("hash line %q", line)
		}
		p.Hashes = append(p.Hashes, tlog.Hash(h))
	}
	if len(p.Hashes) > 63 {
		return p, errors.New("more hashes than a tree has levels")
	}
	p.Checkpoint, err = ParseCheckpoint(note)
	return p, err
}

// Check verifies the proof of a receipt against keys known from outside. Where
// receipt is nil, the one in the proof is meant. It returns the receipt.
func (p *Proof) Check(keys []note.Verifier, receipt []byte) (Receipt, error) {
	if receipt == nil {
		receipt = p.Receipt
	}
	if len(receipt) == 0 {
		return Receipt{}, fmt.Errorf("check proof: %w: it brings no receipt, and none was given", ErrProof)
	}
	c := &p.Checkpoint
	if _, err := c.Verify(keys); err != nil {
		return Receipt{}, fmt.Errorf("check proof: %w: %w", ErrProof, err)
	}
	if p.Index >= c.Size {
		return Receipt{}, fmt.Errorf("check proof: %w: receipt %d is not among the first %d", ErrProof, p.Index, c.Size)
	}
	if err := tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Index, tlog.RecordHash(receipt)); err != nil {
		return Receipt{}, fmt.Errorf("check proof: %w: receipt %d of %s: %w", ErrProof, p.Index, c.Origin, err)
	}
	r, err := Decode(receipt)
	if err != nil {
		return Receipt{}, fmt.Errorf("check proof: the receipt is in the log, but: %w", err)
	}
	if r.Log != c.Origin {
		return Receipt{}, fmt.Errorf("check proof: %w: the receipt says it is of log %s, the head is of %s", ErrProof, r.Log, c.Origin)
	}
	return r, nil
}

// CheckProof reads and checks the text of a proof; see [Proof.Check].
func CheckProof(proof, receipt []byte, keys []note.Verifier) (Receipt, Proof, error) {
	var p Proof
	if err := p.UnmarshalText(proof); err != nil {
		return Receipt{}, p, err
	}
	r, err := p.Check(keys, receipt)
	return r, p, err
}

// ReadKeys reads note verifier keys (c2sp.org/signed-note), each given as its
// text or as a file of one or more lines.
func ReadKeys(from ...string) (keys []note.Verifier, err error) {
	for _, k := range from {
		text := k
		if b, err := os.ReadFile(k); err == nil {
			text = string(b)
		}
		for _, line := range strings.Fields(text) {
			v, err := note.NewVerifier(line)
			if err != nil {
				return nil, fmt.Errorf("read verifier key %q: %w", line, err)
			}
			keys = append(keys, v)
		}
	}
	return keys, nil
}

// KeyEpoch is a key and the first head size it signs.
type KeyEpoch struct {
	Epoch    int64  `json:"epoch"`
	VKey     string `json:"vkey"`
	FromSize int64  `json:"from_size"`
}

// Keys lists the verifier keys of the log: the first one, and those that key
// receipts announced.
func (r *Reader) Keys() ([]KeyEpoch, error) {
	b, err := os.ReadFile(filepath.Join(r.dir, dirKeys, keyName(1)))
	if err != nil {
		return nil, fmt.Errorf("read keys of %s: %w", r.origin, err)
	}
	list := []KeyEpoch{{Epoch: 1, VKey: strings.TrimSpace(string(b)), FromSize: 0}}
	for _, s := range r.store.segsNow() {
		for _, k := range s.about.Keys {
			list = append(list, KeyEpoch{k.Epoch, k.VKey, k.Index + 2})
		}
	}
	for e, err := range r.All(Query{From: r.store.sealed(), Kinds: []Kind{KindKey}}) {
		if err != nil {
			return nil, fmt.Errorf("read keys of %s: %w", r.origin, err)
		}
		list = append(list, KeyEpoch{e.Receipt.Key.Epoch, e.Receipt.Key.VKey, e.Index + 2})
	}
	return list, nil
}

// Prove makes the proof of a receipt against the newest head of the log.
func (r *Reader) Prove(id ID) (Proof, error) {
	e, err := r.Get(id)
	if err != nil {
		return Proof{}, err
	}
	head, err := r.Head()
	if err != nil {
		return Proof{}, err
	}
	return r.ProveAt(e.Index, head)
}

// ProveAt makes the proof of the receipt at a position against a given head.
func (r *Reader) ProveAt(index int64, head Checkpoint) (Proof, error) {
	p := Proof{Index: index, Checkpoint: head}
	if index < 0 || index >= head.Size {
		return p, fmt.Errorf("prove receipt %d of %s: %w", index, r.origin, ErrUnsealed)
	}
	if e, err := r.At(index); err == nil {
		p.Receipt = e.Raw
	} else if !errors.Is(err, ErrNotFound) { // a pruned receipt still has its proof
		return p, err
	}
	var err error
	for try := 0; try == 0 || r.store.gone(err, try); try++ {
		p.Hashes, err = tlog.ProveRecord(head.Size, index, newTreeReader(r.store))
	}
	if err != nil {
		return p, fmt.Errorf("prove receipt %d of %s: %w", index, r.origin, err)
	}
	return p, nil
}

// ProveConsistency shows that the log of the smaller size is the beginning of
// that of the larger one: what a witness asks for.
func (r *Reader) ProveConsistency(older, newer int64) (tlog.TreeProof, error) {
	if older < 1 || older > newer || newer > r.Size() {
		return nil, fmt.Errorf("prove consistency of %s: sizes %d and %d of a log of %d", r.origin, older, newer, r.Size())
	}
	var p tlog.TreeProof
	var err error
	for try := 0; try == 0 || r.store.gone(err, try); try++ {
		p, err = tlog.ProveTree(newer, older, newTreeReader(r.store))
	}
	if err != nil {
		return nil, fmt.Errorf("prove consistency of %s: %w", r.origin, err)
	}
	return p, nil
}

// Prove signs a head that covers the receipt, where none does yet, and proves
// it.
func (l *Log) Prove(ctx context.Context, id ID) (Proof, error) {
	if _, err := l.Checkpoint(ctx); err != nil {
		return Proof{}, err
	}
	return l.Reader().Prove(id)
}
