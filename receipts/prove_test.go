package receipts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// TestProofs proves receipts everywhere in the log: in segments, at their
// edges, and in the part that is not sealed yet.
func TestProofs(t *testing.T) {
	p := newPlace(t)
	ids := fill(t, p, 2000)
	keys, err := ReadKeys(filepath.Join(p.dir, dirKeys, keyName(1)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{1, 2, 255, 256, 511, 1000, 1791, 1792, 1999, 2000} {
		proof, err := r.Prove(ids[at])
		if err != nil {
			t.Fatal(err)
		}
		text, err := proof.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		got, back, err := CheckProof(text, nil, keys)
		if err != nil || got.ID != ids[at] || back.Index != at {
			t.Fatalf("receipt %d: %v, %+v", at, err, got)
		}
		if again, _ := back.MarshalText(); !bytes.Equal(again, text) {
			t.Errorf("receipt %d: the proof reads back as another", at)
		}
		// Another receipt, another place, another head: none holds.
		other, _ := r.At(at + 1)
		if _, _, err := CheckProof(text, other.Raw, keys); !errors.Is(err, ErrProof) {
			t.Errorf("the proof of receipt %d holds for the next: %v", at, err)
		}
		wrong := proof
		wrong.Index++
		if _, err := wrong.Check(keys, nil); !errors.Is(err, ErrProof) {
			t.Errorf("the proof of receipt %d holds elsewhere: %v", at, err)
		}
	}
	a, err := r.Prove(ids[7])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Check(nil, nil); !errors.Is(err, ErrProof) {
		t.Errorf("a proof holds without a key: %v", err)
	}
	other := newPlace(t)
	fill(t, other, 1)
	strange, _ := ReadKeys(filepath.Join(other.dir, dirKeys, keyName(1)))
	if _, err := a.Check(strange, nil); !errors.Is(err, ErrProof) {
		t.Errorf("a proof holds under another key: %v", err)
	}
	head, _ := r.Head()
	if _, err := r.ProveAt(head.Size, head); !errors.Is(err, ErrUnsealed) {
		t.Errorf("%v", err)
	}
}

// TestProofEveryByte changes every byte of a proof: it never holds, except
// where the same proof is only written with other words.
func TestProofEveryByte(t *testing.T) {
	p := newPlace(t)
	ids := fill(t, p, 300)
	keys, _ := ReadKeys(filepath.Join(p.dir, dirKeys, keyName(1)))
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := r.Prove(ids[100])
	if err != nil {
		t.Fatal(err)
	}
	text, _ := proof.MarshalText()
	for i := range text {
		for _, x := range []byte{1, 0x80} {
			bad := bytes.Clone(text)
			bad[i] ^= x
			if _, _, err := CheckProof(bad, nil, keys); err == nil {
				t.Fatalf("byte %d changed:\n%s", i, bad)
			}
		}
	}
	for name, bad := range map[string]string{
		"no header":    strings.Replace(string(text), proofHeader+"\n", "", 1),
		"leading zero": strings.Replace(string(text), "index ", "index 0", 1),
		"no note":      string(text[:bytes.Index(text, []byte("\n\n"))]),
		"":             "",
	} {
		if _, _, err := CheckProof([]byte(bad), nil, keys); !errors.Is(err, errFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConsistency: any older head is the beginning of any newer one.
func TestConsistency(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 3000)
	heads, err := ReadCheckpoints(filepath.Join(p.dir, fileCheckpoints))
	if err != nil || len(heads) < 4 {
		t.Fatal(len(heads), err)
	}
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, older := range heads {
		for _, newer := range heads[i:] {
			proof, err := r.ProveConsistency(older.Size, newer.Size)
			if err != nil {
				t.Fatal(err)
			}
			if err := tlog.CheckTree(proof, newer.Size, newer.Root, older.Size, older.Root); err != nil {
				t.Errorf("%d to %d: %v", older.Size, newer.Size, err)
			}
		}
	}
	if _, err := r.ProveConsistency(5, 99999); err == nil {
		t.Error("a size beyond the log is proven")
	}
}

func TestLogProve(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	ref := submit(t, l, 5)[3]
	proof, err := l.Prove(ctx, ref.ID)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(filepath.Join(p.dir, dirKeys, keyName(1)))
	keys, err := ReadKeys(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := proof.Check(keys, nil); err != nil || got.ID != ref.ID {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestFrontier compares the tree with the one of golang.org/x/mod/sumdb/tlog at
// every size, grown by leaves and by blocks.
func TestFrontier(t *testing.T) {
	var f, blocks frontier
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	var block frontier
	for n := range int64(1500) {
		data := []byte{byte(n), byte(n >> 8)}
		more, err := tlog.StoredHashes(n, data, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, more...)
		h, _ := leafHash(nil, data)
		if h != tlog.RecordHash(data) {
			t.Fatal("leaf hash")
		}
		f.add(h)
		block.add(h)
		want, err := tlog.TreeHash(n+1, reader)
		if err != nil {
			t.Fatal(err)
		}
		if f.root() != want || f.n != n+1 {
			t.Fatalf("size %d: root differs", n+1)
		}
		if block.n == blockSize {
			blocks.addPerfect(blockLevel, block.root())
			block = frontier{}
			if blocks.root() != want || blocks.n != n+1 {
				t.Fatalf("size %d: root from blocks differs", n+1)
			}
		}
	}
	var none frontier
	if want, _ := tlog.TreeHash(0, reader); none.root() != want {
		t.Error("root of the empty tree")
	}
}

// TestOneSpelling: what decoders of base 64 pass over is no way to change a
// proof or a head unseen.
func TestOneSpelling(t *testing.T) {
	p := newPlace(t)
	ids := fill(t, p, 300)
	keys, _ := ReadKeys(filepath.Join(p.dir, dirKeys, keyName(1)))
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := r.Prove(ids[100])
	if err != nil {
		t.Fatal(err)
	}
	text, _ := proof.MarshalText()
	for i := range text {
		bad := append(bytes.Clone(text[:i]), append([]byte("\r"), text[i:]...)...)
		if _, _, err := CheckProof(bad, nil, keys); err == nil {
			t.Fatalf("a carriage return at %d is passed over:\n%q", i, bad)
		}
	}
	path := filepath.Join(p.dir, fileCheckpoint)
	head, _ := os.ReadFile(path)
	for i := range head {
		bad := append(bytes.Clone(head[:i]), append([]byte("\r"), head[i:]...)...)
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if v := verify(t, p, VerifyOptions{}); v.Exit != ExitTampered {
			t.Fatalf("a carriage return at %d of the head: exit %d", i, v.Exit)
		}
	}
}
