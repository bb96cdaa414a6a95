package receipts

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"golang.org/x/mod/sumdb/note"
)

// forger rewrites a log as somebody would who knows the format: lengths,
// checksums, block roots and indexes are always right. Only what needs the key
// is out of reach.
type forger struct {
	p      place
	sealed int64 // receipts in segments
	bodies [][]byte
	rnd    *mrand.Rand
}

// victimLog is a log of at least n receipts of all kinds, with sealed segments,
// an unsealed tail, several heads and a change of keys.
func victimLog(t testing.TB, n int) (place, *forger) {
	t.Helper()
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.SegmentBytes = int64(n) * 300 })
	state := StateClosed
	for i := range n {
		r := plainly(typical(i))
		switch i % 50 {
		case 7:
			next := StateOpen
			if state == StateOpen {
				next = StateClosed
			}
			r = Receipt{Kind: KindTransition, Breaker: "provider", Scope: "provider:acme", PrevState: state, State: next, StateVersion: int64(i/50 + 1)}
			state = next
		case 8:
			intent := Receipt{ID: NewID(), Kind: KindIntent, Class: Audit, RequestID: fmt.Sprint(i), Effect: Some(taxonomy.NonRepeatable)}
			if _, err := l.Submit(&intent); err != nil {
				t.Fatal(err)
			}
			r = Receipt{Kind: KindOutcome, Parent: intent.ID, Effect: Some(taxonomy.NonRepeatable), RemoteCallAttempted: true, Outcome: Some(taxonomy.Unknown)}
		}
		if _, err := l.Submit(&r); err != nil {
			t.Fatal(err)
		}
		if i%700 == 699 {
			if _, err := l.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if i == n/2 {
			if err := l.RotateKey(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := l.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	// Only closed files are sealed, so that nothing is there twice.
	if err := l.keep(ctx, func() error { return l.sealTo(l.closedEnd()) }); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	f := &forger{p: p, rnd: mrand.New(mrand.NewPCG(1, 2))}
	x, err := loadStore(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	f.sealed = x.sealed()
	x.each(func(s span) {
		err := x.read(s, func(_ int64, r record) error {
			f.bodies = append(f.bodies, bytes.Clone(r.body))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return p, f
}

// write lays the receipts out again.
func (f *forger) write(t testing.TB, bodies [][]byte) {
	t.Helper()
	for _, d := range []string{dirSeg, dirWAL} {
		if err := os.RemoveAll(filepath.Join(f.p.dir, d)); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(f.p.dir, d), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	sealed := min(f.sealed, int64(len(bodies))/blockSize*blockSize)
	if sealed > 0 {
		w, err := newSegment(f.p.dir, segmentAbout{})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bodies[:sealed] {
			if err := w.add(b); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.finish(f.p.dir, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	var wal []byte
	for _, b := range bodies[sealed:] {
		wal = appendFrame(wal, b)
	}
	if err := os.WriteFile(filepath.Join(f.p.dir, dirWAL, walName(sealed)), wal, 0o640); err != nil {
		t.Fatal(err)
	}
}

// resign gives the folder a key of the forger's own, and one head signed by it.
func (f *forger) resign(t testing.TB, bodies [][]byte) {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, "example.com/test/0")
	if err != nil {
		t.Fatal(err)
	}
	signer, _ := note.NewSigner(skey)
	var tree frontier
	for _, b := range bodies {
		h, _ := leafHash(nil, b)
		tree.add(h)
	}
	c := Checkpoint{Origin: "example.com/test/0", Size: tree.n, Root: tree.root()}
	if err := c.sign(signer); err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(filepath.Join(f.p.dir, dirKeys))
	for name, b := range map[string][]byte{
		fileCheckpoint: c.Note, fileCheckpoints: append(bytes.Clone(c.Note), '\n'), filepath.Join(dirKeys, keyName(1)): []byte(vkey + "\n"),
	} {
		path := filepath.Join(f.p.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// change gives a receipt another content of the same form.
func (f *forger) change(b []byte) []byte {
	c := bytes.Clone(b)
	for {
		i := f.rnd.IntN(len(c))
		if c[i] >= '0' && c[i] <= '8' && c[i-1] != ':' { // a digit, and no leading zero
			c[i]++
			if err := glance(new(look), c); err == nil {
				return c
			}
			c[i]--
		}
	}
}

// attacks on the receipts; each returns another list.
var attacks = map[string]func(f *forger, b [][]byte) [][]byte{
	"edit": func(f *forger, b [][]byte) [][]byte {
		i := f.rnd.IntN(len(b))
		b[i] = f.change(b[i])
		return b
	},
	"delete": func(f *forger, b [][]byte) [][]byte {
		i := f.rnd.IntN(len(b))
		return slices.Delete(b, i, min(len(b), i+1+f.rnd.IntN(3)))
	},
	"duplicate": func(f *forger, b [][]byte) [][]byte {
		i := f.rnd.IntN(len(b))
		return slices.Insert(b, f.rnd.IntN(len(b)), b[i])
	},
	"reorder": func(f *forger, b [][]byte) [][]byte {
		i := f.rnd.IntN(len(b) - 1)
		k := i + 1 + f.rnd.IntN(min(300, len(b)-i-1))
		b[i], b[k] = b[k], b[i]
		return b
	},
	"insert": func(f *forger, b [][]byte) [][]byte {
		return slices.Insert(b, f.rnd.IntN(len(b)), f.change(b[f.rnd.IntN(len(b))]))
	},
	"cut the tail":  func(f *forger, b [][]byte) [][]byte { return b[:len(b)-1-f.rnd.IntN(len(b)-1)] },
	"cut the front": func(f *forger, b [][]byte) [][]byte { return b[1+f.rnd.IntN(len(b)-1):] },
}

// rounds is how often each attack is tried: a little in ordinary tests,
// FUSEBOX_TAMPER times where that is set. 290 make 2,000 random attacks.
func rounds(short int) int {
	if n, err := strconv.Atoi(os.Getenv("FUSEBOX_TAMPER")); err == nil {
		return n
	}
	return short
}

func victimSize() int {
	if os.Getenv("FUSEBOX_TAMPER") != "" {
		return 10000
	}
	return 1500
}

// TestTamper attacks a log in every way there is, and looks for the right
// verdict (SPEC R-RCP-2).
func TestTamper(t *testing.T) {
	p, f := victimLog(t, victimSize())
	whole := takeSnapshot(t, p.dir)
	trusted := VerifyOptions{Trusted: []string{p.trusted}}
	wantExit(t, verify(t, p, VerifyOptions{Trusted: trusted.Trusted, Deep: true}), ExitPass)
	if f.sealed == 0 || f.sealed == int64(len(f.bodies)) {
		t.Fatalf("%d of %d sealed", f.sealed, len(f.bodies))
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			for i := range rounds(3) {
				bodies := attack(f, slices.Clone(f.bodies))
				f.write(t, bodies)
				v := verify(t, p, trusted)
				wantExit(t, v, ExitTampered)
				cut := bytes.Equal(bytes.Join(bodies, nil), bytes.Join(f.bodies[:len(bodies)], nil))
				wantKind(t, v, cut, i)

				// The same by somebody who brings his own key.
				if len(bodies) > 0 {
					f.resign(t, bodies)
					v = verify(t, p, trusted)
					wantExit(t, v, ExitTampered)
					// Where the list ends with the key receipt, the key it announces
					// is the true one again.
					s := v.Logs[0].Verdict(VerdictSignature)
					if s.Status != Fail && !bytes.Contains(bodies[len(bodies)-1], []byte(`"kind":"key"`)) {
						t.Fatalf("round %d, re-signed: %+v", i, s)
					}
				}
				whole.restore(t, p.dir)
			}
		})
	}
	wantExit(t, verify(t, p, trusted), ExitPass)
}

// wantKind: a log that was only cut is truncated, anything else is edited. One
// that is shorter and changed after its last but one head only is truncated
// too: nothing says more about it.
func wantKind(t *testing.T, v Verdicts, cut bool, round int) {
	t.Helper()
	root, cover := v.Logs[0].Verdict(VerdictRoot), v.Logs[0].Verdict(VerdictCoverage)
	if !cut && root.Status != Fail && cover.Kind == "truncated" {
		return
	}
	if cut && (cover.Status != Fail || cover.Kind != "truncated" || root.Status == Fail) ||
		!cut && (root.Status != Fail || root.Kind != "edited") {
		t.Fatalf("round %d (only cut: %v): root %+v, coverage %+v", round, cut, root, cover)
	}
}

// TestTamperFiles damages files without caring about their form: bytes changed,
// pieces cut out, doubled or cut off, whole files removed, exchanged or added.
func TestTamperFiles(t *testing.T) {
	p, f := victimLog(t, victimSize())
	whole := takeSnapshot(t, p.dir)
	trusted := VerifyOptions{Trusted: []string{p.trusted}}
	var paths []string
	for path := range whole {
		if filepath.Base(path) != fileLOCK && len(whole[path]) > 0 {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for i := range 6 * rounds(12) {
		path := paths[f.rnd.IntN(len(paths))]
		b := bytes.Clone(whole[path])
		at := f.rnd.IntN(len(b))
		end := min(len(b), at+1+f.rnd.IntN(400))
		what := []string{"change", "remove a piece", "double a piece", "cut", "remove", "exchange"}[i%6]
		switch what {
		case "change":
			b[at] ^= byte(1 + f.rnd.IntN(255))
		case "remove a piece":
			b = slices.Delete(b, at, end)
		case "double a piece":
			b = slices.Insert(b, end, b[at:end]...)
		case "cut":
			b = b[:at]
		case "remove":
			b = nil
		case "exchange":
			b = whole[paths[(slices.Index(paths, path)+1)%len(paths)]]
		}
		if bytes.Equal(b, whole[path]) {
			continue
		}
		var err error
		if what == "remove" {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, b, 0o640)
		}
		if err != nil {
			t.Fatal(err)
		}
		if v := verify(t, p, trusted); v.Exit != ExitTampered && !harmless(path, what, whole, b, v) {
			t.Fatalf("%s, %s at %d to %d of %d: exit %d: %+v", what, path, at, end, len(whole[path]), v.Exit, v)
		}
		if err := os.WriteFile(path, whole[path], 0o640); err != nil {
			t.Fatal(err)
		}
	}
	wantExit(t, verify(t, p, trusted), ExitPass)
}

// harmless are the changes that take nothing away that cannot be had from
// elsewhere, and that a crash may leave: the newest head is in two files, and
// the end of either may be missing. Everything is still judged by the heads
// that are left and by the trusted one.
func harmless(path, what string, whole snapshot, b []byte, v Verdicts) bool {
	name := filepath.Base(path)
	if v.Exit != ExitPass {
		return false
	}
	switch {
	case name == fileCheckpoint && what == "remove":
		return true
	case name == fileCheckpoints:
		return bytes.HasPrefix(whole[path], b)
	case filepath.Ext(name) == ".vkey" && name != keyName(1) && what == "remove":
		return true // the log itself announced it
	}
	return false
}

// TestOpenRefusesForgery: a writer does not go on after receipts that are not
// those its head was signed for, however well they are laid out.
func TestOpenRefusesForgery(t *testing.T) {
	p, f := victimLog(t, 700)
	whole := takeSnapshot(t, p.dir)
	for i, at := range []int{10, len(f.bodies) - 10} { // sealed, and not
		bodies := slices.Clone(f.bodies)
		bodies[at] = f.change(bodies[at])
		f.write(t, bodies)
		o := p.options()
		o.TrustedFile = "" // the head alone must do
		if _, err := Open(context.Background(), p.dir, o); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d: %v", i, err)
		}
		whole.restore(t, p.dir)
	}
	closeLog(t, p.open(t))
}

// TestLyingIndex: a block root in a segment's index is compared with the block,
// because the next writer relies on it.
func TestLyingIndex(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 600)
	path := segments(t, p)[0]
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tail := b[len(b)-segTail:]
	about, blocks := int(binary.LittleEndian.Uint32(tail)), int(binary.LittleEndian.Uint32(tail[4:]))
	foot := b[len(b)-segTail-about-blocks*(blockEntry+filterSize) : len(b)-segTail+8]
	foot[12] ^= 1 // the first byte of the first root
	binary.LittleEndian.PutUint32(tail[8:], crc32.Checksum(foot, castagnoli))
	if err := os.WriteFile(path, b, 0o640); err != nil {
		t.Fatal(err)
	}
	v := verify(t, p, VerifyOptions{})
	wantExit(t, v, ExitTampered)
	if r := v.Logs[0].Verdict(VerdictRoot); r.Status != Fail {
		t.Errorf("%+v", r)
	}
}

// TestHiddenByFilter: a filter that hides receipts from queries, with all
// checksums right, is found by a deep verification.
func TestHiddenByFilter(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 600)
	x := &store{dir: p.dir}
	if err := x.loadSegments(); err != nil {
		t.Fatal(err)
	}
	seg := x.segs[0]
	w, err := newSegment(p.dir, seg.about)
	if err != nil {
		t.Fatal(err)
	}
	w.seg.about.Keys = nil
	for i := range seg.blocks {
		err := x.read(x.blockSpan(seg, i), func(_ int64, r record) error { return w.add(bytes.Clone(r.body)) })
		if err != nil {
			t.Fatal(err)
		}
	}
	clear(w.filters[:filterSize])
	if _, err := w.finish(p.dir, 0o640); err != nil {
		t.Fatal(err)
	}
	wantExit(t, verify(t, p, VerifyOptions{}), ExitPass)
	wantExit(t, verify(t, p, VerifyOptions{Deep: true}), ExitTampered)
}
