package interop

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	mrand "math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/gowebpki/jcs"
	"github.com/transparency-dev/formats/log"
	tproof "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/merkle/testonly"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const origin = "example.com/interop"

// ourLog is a log of ours with sealed and unsealed receipts.
func ourLog(t *testing.T, n int) (*receipts.Reader, []receipts.ID, []receipts.Checkpoint, note.Verifier) {
	t.Helper()
	ctx := context.Background()
	base := t.TempDir()
	dir := filepath.Join(base, "log")
	l, err := receipts.Open(ctx, dir, receipts.Options{Origin: origin, KeyFile: filepath.Join(base, "key"), Depth: 1 << 14})
	if err != nil {
		t.Fatal(err)
	}
	var ids []receipts.ID
	var heads []receipts.Checkpoint
	for i := range n {
		ref, err := l.Submit(&receipts.Receipt{Kind: receipts.KindAdmission, RequestID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, ref.ID)
		if i%97 == 96 {
			c, err := l.Checkpoint(ctx)
			if err != nil {
				t.Fatal(err)
			}
			heads = append(heads, c)
		}
		if i == n/2 {
			if err := l.Seal(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
	keys, err := receipts.ReadKeys(filepath.Join(dir, "keys", "0001.vkey"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := receipts.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	head, err := r.Head()
	if err != nil {
		t.Fatal(err)
	}
	return r, ids, append(heads, head), keys[0]
}

// TestOurCheckpoints: others accept them, by format, by signature and as a
// chain.
func TestOurCheckpoints(t *testing.T) {
	r, _, heads, key := ourLog(t, 1000)
	for i, c := range heads {
		theirs, _, _, err := log.ParseCheckpoint(c.Note, origin, key)
		if err != nil || theirs.Size != uint64(c.Size) || !bytes.Equal(theirs.Hash, c.Root[:]) || theirs.Origin != origin {
			t.Fatalf("%+v, %v", theirs, err)
		}
		if i == 0 {
			continue
		}
		old := heads[i-1]
		p, err := r.ProveConsistency(old.Size, c.Size)
		if err != nil {
			t.Fatal(err)
		}
		if err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(old.Size), uint64(c.Size), hashes(p), old.Root[:], c.Root[:]); err != nil {
			t.Errorf("%d to %d: %v", old.Size, c.Size, err)
		}
	}
}

// TestOurSignature checks a checkpoint with nothing but Ed25519 and the text of
// c2sp.org/signed-note.
func TestOurSignature(t *testing.T) {
	_, _, heads, key := ourLog(t, 10)
	text, sig, _ := strings.Cut(string(heads[0].Note), "\n\n")
	fields := strings.Fields(sig)
	if len(fields) != 3 || fields[0] != "—" || fields[1] != origin {
		t.Fatalf("%q", sig)
	}
	raw, err := base64.StdEncoding.DecodeString(fields[2])
	if err != nil || len(raw) != 4+ed25519.SignatureSize || binary.BigEndian.Uint32(raw) != key.KeyHash() {
		t.Fatal(len(raw), err)
	}
	if !key.Verify([]byte(text+"\n"), raw[4:]) {
		t.Error("the signature is not over the text")
	}
}

func hashes[P ~[]tlog.Hash](p P) (out [][]byte) {
	for _, h := range p {
		out = append(out, append([]byte(nil), h[:]...))
	}
	return out
}

// TestOurProofs: others read our proofs and find them to hold, and find a
// changed one not to.
func TestOurProofs(t *testing.T) {
	r, ids, _, key := ourLog(t, 1000)
	for _, i := range []int{0, 1, 254, 255, 256, 500, 767, 768, 998, 999} {
		ours, err := r.Prove(ids[i])
		if err != nil {
			t.Fatal(err)
		}
		text, err := ours.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var theirs tproof.TLogProof
		if err := theirs.Unmarshal(text); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(theirs.Marshal(), text) {
			t.Errorf("receipt %d: they write it otherwise:\n%s\n%s", i, theirs.Marshal(), text)
		}
		head, _, _, err := log.ParseCheckpoint(theirs.Checkpoint, origin, key)
		if err != nil {
			t.Fatal(err)
		}
		var path [][]byte
		for _, h := range theirs.Hashes {
			path = append(path, h[:])
		}
		leaf := rfc6962.DefaultHasher.HashLeaf(theirs.ExtraData)
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, theirs.Index, head.Size, leaf, path, head.Hash); err != nil {
			t.Errorf("receipt %d: %v", i, err)
		}
		leaf[0] ^= 1
		if proof.VerifyInclusion(rfc6962.DefaultHasher, theirs.Index, head.Size, leaf, path, head.Hash) == nil {
			t.Error("they accept anything; this test proves nothing")
		}
	}
}

// TestTheirProofs: a log that others keep, with receipts of ours as entries,
// proves them to us.
func TestTheirProofs(t *testing.T) {
	skey, vkey, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, _ := note.NewSigner(skey)
	keys, err := receipts.ReadKeys(vkey)
	if err != nil {
		t.Fatal(err)
	}
	tree := testonly.New(rfc6962.DefaultHasher)
	var entries [][]byte
	for i := range 300 {
		r := receipts.Receipt{ID: receipts.NewID(), Log: origin, Seq: int64(i + 1), Kind: receipts.KindAdmission}
		entries = append(entries, r.AppendJSON(nil))
		tree.AppendData(entries[i])
	}
	for _, size := range []uint64{1, 2, 3, 7, 64, 255, 256, 257, 300} {
		root := tree.HashAt(size)
		body := log.Checkpoint{Origin: origin, Size: size, Hash: root}.Marshal()
		signed, err := note.Sign(&note.Note{Text: string(body)}, signer)
		if err != nil {
			t.Fatal(err)
		}
		c, err := receipts.ParseCheckpoint(signed)
		if err != nil || c.Size != int64(size) || !bytes.Equal(c.Root[:], root) {
			t.Fatalf("%+v, %v", c, err)
		}
		if _, err := c.Verify(keys); err != nil {
			t.Error(err)
		}
		for _, index := range []uint64{0, size / 2, size - 1} {
			path, err := tree.InclusionProof(index, size)
			if err != nil {
				t.Fatal(err)
			}
			theirs := tproof.TLogProof{Index: index, Checkpoint: signed, ExtraData: entries[index]}
			for _, h := range path {
				theirs.Hashes = append(theirs.Hashes, [32]byte(h))
			}
			got, _, err := receipts.CheckProof(theirs.Marshal(), nil, keys)
			if err != nil || got.Seq != int64(index+1) {
				t.Errorf("entry %d of %d: %+v, %v", index, size, got, err)
			}
			if _, _, err := receipts.CheckProof(theirs.Marshal(), entries[(index+1)%300], keys); err == nil {
				t.Errorf("entry %d of %d: proves another receipt", index, size)
			}
		}
	}
}

// TestCanonical: what the encoder writes is what another implementation of RFC
// 8785 makes of it, for strings of all kinds.
func TestCanonical(t *testing.T) {
	rnd := mrand.New(mrand.NewPCG(3, 4))
	alphabet := []string{"a", "Z", "0", " ", "<", ">", "&", "\"", "\\", "/", "\b", "\f", "\n", "\r", "\t", "\x00", "\x01", "\x1f", "\x7f", "\x80",
		"\xff", "\xed\xa0\x80", "é", "\u2028", "\u2029", "\ufeff", "\ufffd", "😀", "\U0010ffff", "€", "ö", "דּ"}
	text := func() string {
		var b strings.Builder
		for range rnd.IntN(12) {
			b.WriteString(alphabet[rnd.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range 20000 {
		r := receipts.Receipt{ID: receipts.NewID(), Log: "l" + text(), Seq: 1 + rnd.Int64N(1<<53), Kind: receipts.KindOutcome,
			Tenant: text(), Scope: text(), Agent: text(), ScopePath: []string{text(), text()}, Reason: text(), Rules: []string{text()},
			TimeUS: rnd.Int64() - rnd.Int64(), ElapsedMS: rnd.Int64N(1 << 60), Attempt: rnd.Int64N(100),
			Limits:   []receipts.Count{{Name: text(), N: rnd.Int64()}, {Name: "b", N: -rnd.Int64N(1000)}, {Name: "a", N: 0}},
			Circuits: []receipts.Circuit{{Breaker: text(), Scope: text(), State: receipts.StateOpen}},
			Override: &receipts.OverrideNote{By: text(), Ticket: text(), Reason: text()}}
		ours := r.AppendJSON(nil)
		theirs, err := jcs.Transform(ours)
		if err != nil {
			t.Fatalf("%v\n%s", err, ours)
		}
		if !bytes.Equal(ours, theirs) {
			t.Fatalf("ours   %s\ntheirs %s", ours, theirs)
		}
		if _, err := receipts.Decode(ours); err != nil {
			t.Fatalf("%v\n%s", err, ours)
		}
	}
}
