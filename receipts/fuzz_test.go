package receipts

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzDecode: whatever the strict reader accepts is the one spelling of its
// document; nothing makes a reader panic.
func FuzzDecode(f *testing.F) {
	for _, r := range golden() {
		f.Add(r.AppendJSON(nil))
	}
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var g look
		loose := glance(&g, b)
		r, err := Decode(b)
		if err != nil {
			return
		}
		if loose != nil {
			t.Fatalf("the quick reader refuses what the strict one accepts: %v\n%s", loose, b)
		}
		if string(g.idText) != r.ID.String() || g.idMS != r.ID.Millis() || g.seq != r.Seq || g.kind != r.Kind || g.timeUS != r.TimeUS || g.monoUS != r.MonoUS || g.parent != r.Parent {
			t.Fatalf("the readers disagree: %+v\n%s", g, b)
		}
		again := r.AppendJSON(nil)
		if len(r.Unknown) == 0 && len(r.Flags) < capCounts {
			if back, err := Decode(again); err != nil {
				t.Fatalf("what was read cannot be written: %v\n%s\n%s", err, b, again)
			} else if twice := back.AppendJSON(nil); !bytes.Equal(twice, again) {
				t.Fatalf("writing is not stable:\n%s\n%s", again, twice)
			}
		}
		if !bytes.Equal(canonical(t, again), again) {
			t.Fatalf("not canonical: %s", again)
		}
	})
}

// FuzzEncode: no text in any field breaks the form or the size of a receipt.
func FuzzEncode(f *testing.F) {
	f.Add("tenant", "scope", "reason", int64(1))
	f.Add("<\u2028\xff\x00>", "a\"b\\c", "a sentence", int64(-1<<63))
	f.Fuzz(func(t *testing.T, a, b, c string, n int64) {
		r := full()
		r.Tenant, r.Scope, r.Workflow, r.Reason, r.ElapsedMS = a, b, a+b, c, n
		r.ScopePath, r.Rules, r.Flags = []string{a, b, c}, []string{c, a}, []string{c}
		r.Limits = []Count{{a, n}, {b, -n}, {c, 1}, {"z", 2}}
		r.Circuits[0].Scope, r.Feeds[0].Reason, r.Override.By = c, b, c
		out := r.AppendJSON(nil)
		if len(out) > maxReceipt || !bytes.Equal(canonical(t, out), out) {
			t.Fatalf("%d bytes: %s", len(out), out)
		}
		got, err := Decode(out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if again := got.AppendJSON(nil); !bytes.Equal(again, out) {
			t.Fatalf("%s\n%s", out, again)
		}
	})
}

func FuzzProof(f *testing.F) {
	p := Proof{Index: 3, Checkpoint: Checkpoint{Note: []byte("o\n4\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n— o AAAA\n")}, Receipt: []byte("{}")}
	text, _ := p.MarshalText()
	f.Add(text)
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Proof
		if p.UnmarshalText(b) != nil {
			return
		}
		if again, _ := p.MarshalText(); !bytes.Equal(again, b) {
			t.Fatalf("%q\n%q", b, again)
		}
	})
}

func FuzzCheckpoints(f *testing.F) {
	note := []byte("o\n4\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n— o AAAA\n\n")
	f.Add(note)
	f.Add(append(note, note[:40]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, rest, err := splitCheckpoints(b)
		if err != nil {
			return
		}
		var out []byte
		for _, c := range list {
			out = append(append(out, c.Note...), '\n')
		}
		if out = append(out, rest...); !bytes.Equal(out, b) {
			t.Fatalf("%q\n%q", b, out)
		}
		isTorn(rest, "o", list)
	})
}

// FuzzSegment: a damaged segment gives an error, whatever the damage.
func FuzzSegment(f *testing.F) {
	p := newPlace(f)
	fill(f, p, 300)
	path := segments(f, p)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	f.Add(whole[:200], 0)
	f.Add(whole[len(whole)-300:], len(whole)-300)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		bad := bytes.Clone(whole)
		if at < 0 || at > len(bad) {
			return
		}
		bad = append(bad[:at], append(bytes.Clone(b), bad[min(len(bad), at+len(b)):]...)...)
		name := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openSegment(name)
		if err == nil {
			file, _ := os.Open(name)
			defer file.Close()
			err = s.check(file, 0)
		}
		if (err == nil) != bytes.Equal(bad, whole) {
			t.Fatalf("%d bytes changed at %d: %v", len(b), at, err)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, []byte("{}")), []byte(`{"v":1}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		rest := b
		for len(rest) > 0 {
			receipt, more, err := nextFrame(rest)
			if err != nil {
				return
			}
			if again := appendFrame(nil, receipt); !bytes.Equal(again, rest[:len(rest)-len(more)]) {
				t.Fatalf("%q", rest)
			}
			rest = more
		}
	})
}
