package receipts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

func TestKeyEpochs(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	var old []byte
	for range 3 {
		submit(t, l, 300)
		old, _ = os.ReadFile(p.key)
		if err := l.RotateKey(ctx); err != nil {
			t.Fatal(err)
		}
		if now, _ := os.ReadFile(p.key); string(now) == string(old) {
			t.Fatal("the key file did not change")
		}
	}
	submit(t, l, 10)
	if err := l.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	if st, err := os.Stat(p.key); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st.Mode(), err)
	}
	all := VerifyOptions{Trusted: []string{p.trusted}, Deep: true}
	wantExit(t, verify(t, p, all), ExitPass)
	l = p.open(t) // the newest key goes on
	submit(t, l, 10)
	closeLog(t, l)
	wantExit(t, verify(t, p, all), ExitPass)

	// The stolen key of an earlier epoch signs nothing any more.
	resign(t, p, old)
	v := verify(t, p, all)
	wantExit(t, v, ExitTampered)
	if s := v.Logs[0].Verdict(VerdictSignature); s.Status != Fail {
		t.Errorf("%+v", s)
	}
}

// resign signs the newest head again with another key.
func resign(t testing.TB, p place, key []byte) {
	t.Helper()
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Head()
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range key {
		if b == '\n' {
			key = key[:i]
			break
		}
	}
	s, err := note.NewSigner(string(key))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.sign(s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, fileCheckpoint), c.Note, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestKeyAge(t *testing.T) {
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.KeyAge = time.Nanosecond })
	closeLog(t, l)
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	for _, err := range r.All(Query{Kinds: []Kind{KindKey}}) {
		if err != nil {
			t.Fatal(err)
		}
		keys++
	}
	if keys == 0 {
		t.Error("an old key was not replaced")
	}
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}}), ExitPass)
}

// TestAnnouncedByNobody: who can append to the files but has no key cannot
// bring in a key of his own.
func TestAnnouncedByNobody(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 10)
	if err := l.RotateKey(ctx); err != nil {
		t.Fatal(err)
	}
	submit(t, l, 10)
	closeLog(t, l)
	// Take the head away that the first key signed last.
	path := filepath.Join(p.dir, fileCheckpoints)
	b, _ := os.ReadFile(path)
	heads, _, err := splitCheckpoints(b)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, h := range heads {
		if h.Size != 12 { // boot, ten receipts, key
			out = append(append(out, h.Note...), '\n')
		}
	}
	if len(out) == len(b) {
		t.Fatal("the head was not found")
	}
	if err := os.WriteFile(path, out, 0o640); err != nil {
		t.Fatal(err)
	}
	v := verify(t, p, VerifyOptions{Trusted: []string{p.trusted}})
	wantExit(t, v, ExitTampered)
}

// TestRotationCrash stops a rotation after each of its steps: the next start
// finishes it, and the log verifies.
func TestRotationCrash(t *testing.T) {
	ctx := context.Background()
	errCrash := errors.New("crash")
	for _, step := range []string{"next key written", "receipt written", "head signed", "old key overwritten"} {
		t.Run(step, func(t *testing.T) {
			p := newPlace(t)
			l := p.open(t)
			submit(t, l, 5)
			if _, err := l.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
			base := filepath.Dir(p.root)
			var crashed snapshot
			err := l.do(ctx, func(w *writer) error {
				w.crash = func(at string) error {
					if at == step {
						crashed = takeSnapshot(t, base)
						return errCrash
					}
					return nil
				}
				defer func() { w.crash = nil }()
				return w.rotateKey()
			})
			if !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			closeLog(t, l)
			crashed.restore(t, base)
			for path := range crashed {
				if filepath.Dir(path) == filepath.Dir(p.key) {
					os.Chmod(path, 0o600)
				}
			}
			l = p.open(t)
			submit(t, l, 5)
			closeLog(t, l)
			wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
			if fileExists(nextKeyFile(p.key)) {
				t.Error("the next key still lies about")
			}
		})
	}
}
