package receipts

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// judge reaches the verdicts on one log.
type judge struct {
	dir     string
	n       int // number of the log among those under the root
	opt     *VerifyOptions
	outside []note.Verifier
	machine *machine
	out     LogVerdicts

	signature, root, consistency, coverage, sequence, states, objects finding

	about   logFile
	heads   []Checkpoint // every signed head, by size
	trusted []Checkpoint // those of this origin, by size
	limit   int64        // the largest size that any of them claims
	keys    []keyEpoch

	facts     factReader
	tree      frontier
	leaf      []byte
	matched   int64 // size of the last head whose root the receipts gave
	nextHead  int
	nextTrust int
	broken    bool // the walk stopped at damage below limit
	holes     holes
	mono      int64
	lastKind  Kind
	bootEpoch int64
	prunedRun int64 // pruned receipts since the last whole one
	keyNotes  []segmentKey
	retention retention
	objectN   int
	inputs    *sealedInputs // with Deep only
	lastUS    int64
	sealedUS  int64
	firstOpen int64 // time_us of the first receipt after limit
}

// keyEpoch is the key that signs heads larger than from.
type keyEpoch struct {
	from int64
	vkey note.Verifier
}

func (j *judge) run(ctx context.Context, trusted []Checkpoint) error {
	if err := j.evidence(trusted); err != nil {
		return err
	}
	j.facts = factReader{origin: j.out.Origin, deep: j.opt.Deep, seed: j.machine.seed}
	if j.opt.Deep {
		j.inputs = newSealedInputs(j.dir, j.opt.InputKeys)
		defer j.inputs.reader.Close()
	}
	if err := j.walk(ctx); err != nil {
		return err
	}
	if j.inputs != nil && !j.broken {
		j.inputs.close(&j.objects)
	}
	j.judgeKeys()
	j.judgeCoverage()
	return nil
}

// evidence reads the heads before the receipts, so that a live log has at
// least as many receipts as they say.
func (j *judge) evidence(trusted []Checkpoint) error {
	about, err := readLogFile(j.dir)
	if err != nil {
		j.coverage.fail("missing", "the file LOG is missing or changed: %v", err)
	}
	j.about, j.out.Origin = about, about.Origin
	j.readHeads()
	if j.out.Origin == "" && len(j.heads) > 0 {
		j.out.Origin = j.heads[0].Origin
	}
	for _, t := range trusted {
		if t.Origin == j.out.Origin {
			j.trusted = append(j.trusted, t)
		}
	}
	bySize := func(a, b Checkpoint) int { return cmp.Compare(a.Size, b.Size) }
	slices.SortStableFunc(j.heads, bySize)
	slices.SortStableFunc(j.trusted, bySize)
	for _, list := range [][]Checkpoint{j.heads, j.trusted} {
		if n := len(list); n > 0 {
			j.limit = max(j.limit, list[n-1].Size)
		}
	}
	if n := len(j.trusted); n > 0 {
		size := j.trusted[n-1].Size
		j.out.Trusted = &size
	}
	return nil
}

// readHeads collects the heads in the folder. A torn note at the end of
// checkpoints.log is what a crash or a write under way leaves.
func (j *judge) readHeads() {
	b, err := os.ReadFile(filepath.Join(j.dir, fileCheckpoints))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.signature.fail("unreadable", "%v", err)
	}
	list, rest, err := splitCheckpoints(b)
	if err != nil || len(rest) > 0 && !isTorn(rest, j.out.Origin, list) {
		j.signature.fail("edited", "checkpoints.log is damaged after its note %d", len(list))
	}
	for i := 1; i < len(list); i++ {
		if list[i].Size <= list[i-1].Size {
			j.signature.fail("edited", "checkpoints.log repeats or reorders heads at its note %d", i)
		}
	}
	j.heads = list
	b, err = os.ReadFile(filepath.Join(j.dir, fileCheckpoint))
	if err != nil {
		return // judged by checkpoints.log alone
	}
	c, err := ParseCheckpoint(b)
	if err != nil {
		j.signature.fail("edited", "the file checkpoint is damaged: %v", err)
		return
	}
	if !slices.ContainsFunc(j.heads, func(h Checkpoint) bool { return bytes.Equal(h.Note, c.Note) }) {
		j.heads = append(j.heads, c)
	}
}

// take judges the next receipt.
func (j *judge) take(index int64, f *fact) {
	switch {
	case f.pruned:
		j.prunedRun++
		j.out.Pruned++
		j.retention.pruned(index)
	case f.err != nil:
		j.sequence.fail("malformed", "receipt %d: %v", index, f.err)
	default:
		j.follow(index, f)
		j.lastUS = f.time
	}
	if f.input != nil {
		j.inputs.see(index, f.input, &j.objects)
	}
	if f.newer {
		j.out.Newer++
	}
}

// follow checks what receipts say about each other.
func (j *judge) follow(index int64, f *fact) {
	var gap *GapNote
	if f.rare != nil {
		gap = f.rare.gap
	}
	switch {
	case f.foreign:
		j.sequence.fail("foreign", "receipt %d is of another log", index)
	case index == 0 && (f.kind != KindBoot || f.seq != 1):
		j.sequence.fail("missing", "the log does not begin with a boot receipt of number 1")
	case !j.holes.see(f.seq, gap, j.prunedRun):
		j.sequence.fail("order", "receipt %d has number %d after %d", index, f.seq, j.holes.last)
	case f.kind != KindBoot && f.mono < j.mono:
		j.sequence.fail("order", "receipt %d is older than the one before it in the same process", index)
	}
	j.mono, j.prunedRun, j.lastKind = f.mono, 0, f.kind
	if f.rare != nil {
		j.followRare(index, f.rare)
	}
	j.machine.see(j.n, index, f)
}

func (j *judge) followRare(index int64, g *look) {
	if g.boot != nil {
		j.bootEpoch = g.boot.Epoch
	}
	if g.key != nil {
		j.announced(index, g.key)
	}
	if g.retention != nil {
		j.retention.allow(index, g.retention)
	}
	if len(g.object) > 0 {
		j.object(index, string(g.object))
	}
}

// announced notes the key that signs after the head which covers this receipt.
func (j *judge) announced(index int64, n *KeyNote) {
	v, err := note.NewVerifier(n.VKey)
	if err != nil || n.Epoch != int64(len(j.keyNotes))+2 {
		j.signature.fail("malformed", "receipt %d announces no usable key: %v", index, err)
		return
	}
	j.keyNotes = append(j.keyNotes, segmentKey{index, n.Epoch, n.VKey})
	j.keys = append(j.keys, keyEpoch{index + 1, v})
}

// object checks that a stored object is what a receipt vouches for.
func (j *judge) object(index int64, digest string) {
	j.objectN++
	hexes, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(hexes) != 64 || strings.ContainsAny(hexes, `/\.`) {
		j.objects.fail("malformed", "receipt %d names object %q", index, digest)
		return
	}
	b, err := os.ReadFile(filepath.Join(j.dir, dirObjects, hexes))
	if err != nil {
		j.objects.fail("missing", "receipt %d vouches for object %s: it is not there", index, digest)
		return
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != hexes {
		j.objects.fail("edited", "object %s has other content", digest)
	}
}

// compare checks every head of the current size against the receipts so far.
func (j *judge) compare() {
	for ; j.nextHead < len(j.heads) && j.heads[j.nextHead].Size == j.tree.n; j.nextHead++ {
		if h := &j.heads[j.nextHead]; h.Root != j.tree.root() {
			j.root.fail("edited", "the receipts %d to %d are not those that the head of %d was signed for", j.matched, h.Size-1, h.Size)
		} else {
			j.matched, j.sealedUS = h.Size, j.lastUS
		}
	}
	for ; j.nextTrust < len(j.trusted) && j.trusted[j.nextTrust].Size == j.tree.n; j.nextTrust++ {
		if t := &j.trusted[j.nextTrust]; t.Root != j.tree.root() {
			j.consistency.fail("rewritten", "the first %d receipts are not those of the trusted checkpoint", t.Size)
		} else {
			j.matched, j.sealedUS = t.Size, j.lastUS
		}
	}
}

// judgeKeys checks every signature with the key of its epoch: the first key
// until the head that covers its key receipt, then the next.
func (j *judge) judgeKeys() {
	first, err := j.firstKey()
	if err != nil {
		if len(j.heads)+len(j.trusted) > 0 {
			j.signature.fail("unsigned", "%v", err)
		} else {
			j.signature.unproven("unsigned", "no head was signed yet")
		}
		return
	}
	j.keys = append([]keyEpoch{{-1, first}}, j.keys...)
	if len(j.outside) > 0 && !slices.ContainsFunc(j.outside, func(v note.Verifier) bool {
		return v.Name() == first.Name() && v.KeyHash() == first.KeyHash()
	}) {
		j.signature.fail("foreign key", "the log's first key %s is not among the keys known from outside", keyID(first))
	}
	for _, list := range [][]Checkpoint{j.heads, j.trusted} {
		for i := range list {
			c := &list[i]
			k := j.keyOf(c.Size)
			if _, err := c.Verify([]note.Verifier{k}); err != nil || c.Origin != j.out.Origin {
				j.signature.fail("unsigned", "the head of %d is not signed by %s, the key of its epoch", c.Size, keyID(k))
			}
		}
	}
	j.judgeHandOver()
	if len(j.heads) == 0 {
		j.signature.unproven("unsigned", "the folder holds no signed head")
	}
	j.signature.pass("%d heads signed by %d key(s), the last by %s", len(j.heads), len(j.keys), keyID(j.keyOf(j.limit)))
}

// judgeHandOver requires of every key receipt that the old key signed a head
// which ends with it: else anybody could announce a key of his own.
func (j *judge) judgeHandOver() {
	for i, n := range j.keyNotes {
		signed := func(h Checkpoint) bool { return h.Size == n.Index+1 }
		if j.limit > n.Index+1 && !slices.ContainsFunc(j.heads, signed) && !slices.ContainsFunc(j.trusted, signed) {
			j.signature.fail("unsigned", "key %d was announced by receipt %d, and the key before it did not sign for that", i+2, n.Index)
		}
	}
	names, err := filepath.Glob(filepath.Join(j.dir, dirKeys, "*.vkey"))
	for _, path := range names {
		b, rerr := os.ReadFile(path)
		ok := rerr == nil && filepath.Base(path) == keyName(1)
		for i, n := range j.keyNotes {
			ok = ok || rerr == nil && filepath.Base(path) == keyName(int64(i+2)) && string(b) == n.VKey+"\n"
		}
		if !ok && !j.out.Live && !j.broken {
			j.signature.fail("foreign key", "keys/%s is not the key that the log announced", filepath.Base(path))
		}
	}
	if err != nil {
		j.signature.fail("unreadable", "%v", err)
	}
}

func keyID(v note.Verifier) string { return fmt.Sprintf("%s+%08x", v.Name(), v.KeyHash()) }

func (j *judge) keyOf(size int64) note.Verifier {
	k := j.keys[0].vkey
	for _, e := range j.keys[1:] {
		if e.from < size {
			k = e.vkey
		}
	}
	return k
}

func (j *judge) firstKey() (note.Verifier, error) {
	b, err := os.ReadFile(filepath.Join(j.dir, dirKeys, keyName(1)))
	if err != nil {
		return nil, errors.New("the log's first verifier key is not there")
	}
	line, ok := strings.CutSuffix(string(b), "\n")
	v, err := note.NewVerifier(line)
	if err == nil && (!ok || strings.ContainsAny(line, "\r\n")) {
		err = errors.New("it is not one line")
	}
	if err != nil {
		return nil, fmt.Errorf("keys/%s: %w", keyName(1), err)
	}
	if v.Name() != j.out.Origin {
		return nil, fmt.Errorf("keys/%s is of log %s", keyName(1), v.Name())
	}
	return v, nil
}

// overtaken reports whether retention or an erasure may have gone on since the
// heads were read. Its receipt comes with it, so that the next look finds both.
func (j *judge) overtaken() bool {
	var f finding
	j.retention.judge(&f)
	return j.out.Live && (f.status == Fail || j.inputs != nil && j.inputs.lost > 0 && j.objects.kind == "missing")
}

// judgeCoverage says up to where the log is proven, and what the other
// verdicts come to.
func (j *judge) judgeCoverage() {
	j.out.Sealed = j.tree.n
	if j.sealedUS > 0 {
		j.out.UpTo = time.UnixMicro(j.sealedUS).UTC()
	}
	if j.tree.n < j.limit && !j.broken {
		j.coverage.fail("truncated", "a signed head knows %d receipts, the log ends after %d", j.limit, j.tree.n)
	}
	if !j.broken {
		j.retention.judge(&j.coverage)
	}
	if len(j.holes.runs) > 0 || len(j.holes.claims) > 0 {
		j.sequence.fail("missing", "receipts submitted as numbers %v are missing and no gap receipt counts them", j.holes.runs)
	}
	j.judgeConsistency()
	switch {
	case j.limit == 0:
		j.coverage.unproven("unsealed", "nothing is under a signed head yet")
	case j.out.Unsealed > 0 && (!j.out.Live || len(j.trusted) > 0):
		j.coverage.unproven("unsealed", "%d receipts from %s on are not under a signed head", j.out.Unsealed, when(j.firstOpen))
	}
	j.root.pass("%d receipts give the root of every head up to %d", j.tree.n, j.matched)
	j.sequence.pass("numbers 1 to %d, every hole is owned up to", j.holes.last)
	if j.inputs != nil {
		j.objects.pass("%d stored objects are what receipts say%s", j.objectN, j.inputs.said())
	}
	j.objects.pass("%d stored objects are what receipts say; sealed inputs are looked at with --deep only", j.objectN)
}

func (j *judge) judgeConsistency() {
	if !j.comparing() {
		j.consistency.pass("%d heads continue each other; not compared with a trusted checkpoint", j.nextHead)
		return
	}
	if len(j.trusted) == 0 {
		j.consistency.unproven("no trusted", "no trusted checkpoint is of this log")
		return
	}
	newest := j.trusted[len(j.trusted)-1].Size
	if j.tree.n < newest {
		j.consistency.unproven("cut short", "the log could be followed up to %d, the trusted checkpoint is of %d", j.tree.n, newest)
	}
	j.consistency.pass("the log continues the trusted checkpoint of %d", newest)
	if j.limit > newest {
		j.coverage.unproven("tail", "receipts %d to %d are not under the trusted checkpoint", newest, j.limit-1)
	}
}

func (j *judge) comparing() bool { return len(j.opt.Trusted) > 0 }

func when(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339) }

// finish puts the verdicts in their order.
func (j *judge) finish() {
	if j.comparing() {
		j.coverage.pass("complete up to the trusted checkpoint of %d", j.tree.n)
	} else {
		j.coverage.pass("complete up to the head of %d", j.tree.n)
	}
	j.out.Verdicts = []Verdict{
		j.signature.verdict(VerdictSignature), j.root.verdict(VerdictRoot), j.consistency.verdict(VerdictConsistency),
		j.coverage.verdict(VerdictCoverage), j.sequence.verdict(VerdictSequence), j.states.verdict(VerdictStates),
		j.objects.verdict(VerdictObjects),
	}
}
