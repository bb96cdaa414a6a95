package receipts

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// snapshot is a folder in memory.
type snapshot map[string][]byte

func takeSnapshot(t testing.TB, root string) snapshot {
	t.Helper()
	s := snapshot{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		s[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s snapshot) restore(t testing.TB, root string) {
	t.Helper()
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	for path, b := range s {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryByte changes every byte of every file of a closed log, one at a
// time: each change is found (SPEC R-RCP-2). Ordinary runs take every third
// byte; FUSEBOX_TAMPER takes all.
func TestEveryByte(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 3)
	closeLog(t, l)
	s := takeSnapshot(t, p.dir)
	for path, b := range s {
		if filepath.Base(path) == fileLOCK {
			continue // says who wrote last; nothing depends on it
		}
		step := 3
		if os.Getenv("FUSEBOX_TAMPER") != "" {
			step = 1
		}
		for i := 0; i < len(b); i += step {
			c := bytes.Clone(b)
			c[i] ^= 0x01
			if err := os.WriteFile(path, c, 0o640); err != nil {
				t.Fatal(err)
			}
			v := verify(t, p, VerifyOptions{})
			if v.Exit != ExitTampered {
				t.Fatalf("%s: byte %d changed, exit %d: %+v", path, i, v.Exit, v)
			}
		}
		if err := os.WriteFile(path, b, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	wantExit(t, verify(t, p, VerifyOptions{}), ExitPass)
}

// TestCutBack sets the whole folder back to an older state that was signed:
// only a checkpoint from outside shows it (SPEC R-RCP-2).
func TestCutBack(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 10)
	if _, err := l.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	older := takeSnapshot(t, p.dir)
	submit(t, l, 10)
	closeLog(t, l)
	older.restore(t, p.dir)

	v := verify(t, p, VerifyOptions{})
	wantExit(t, v, ExitPass) // consistent in itself, and it says that this is all
	if v.Trusted {
		t.Error("claims to have been compared")
	}
	v = verify(t, p, VerifyOptions{Trusted: []string{p.trusted}})
	wantExit(t, v, ExitTampered)
	if c := v.Logs[0].Verdict(VerdictCoverage); c.Status != Fail || c.Kind != "truncated" {
		t.Errorf("%+v", c)
	}
}

// TestOpenComparesWithTrusted: a writer does not go on with a log that is not
// the one it remembers, nor write over that memory.
func TestOpenComparesWithTrusted(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 300)
	if err := l.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	middle, err := l.Checkpoint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	older := takeSnapshot(t, p.dir)
	submit(t, l, 300)
	if err := l.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	newer := takeSnapshot(t, p.dir)
	remembered, err := os.ReadFile(p.trusted)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		before, _ := os.ReadFile(p.trusted)
		if _, err := Open(ctx, p.dir, p.options()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
		if after, _ := os.ReadFile(p.trusted); !bytes.Equal(after, before) {
			t.Errorf("%s: the remembered checkpoint was written over", what)
		}
	}
	older.restore(t, p.dir)
	refused("cut back")

	newer.restore(t, p.dir)
	// An older memory, of a size inside a sealed block, is fine.
	if err := os.WriteFile(p.trusted, middle.Note, 0o600); err != nil {
		t.Fatal(err)
	}
	closeLog(t, p.open(t))
	other := Checkpoint{Origin: "example.com/test/0", Size: middle.Size, Root: middle.Root, Note: bytes.Replace(middle.Note, []byte("\n3"), []byte("\n2"), 1)}
	if err := os.WriteFile(p.trusted, other.Note, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("other receipts")
	if err := os.WriteFile(p.trusted, bytes.ReplaceAll(remembered, []byte("example.com/test"), []byte("example.com/tess")), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("another log")
}

// TestTailBeyondTrusted: what came after the trusted checkpoint is unproven,
// not wrong.
func TestTailBeyondTrusted(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 10)
	closeLog(t, l)
	old, err := os.ReadFile(p.trusted)
	if err != nil {
		t.Fatal(err)
	}
	l = p.open(t)
	submit(t, l, 10)
	closeLog(t, l)
	if err := os.WriteFile(p.trusted, old, 0o644); err != nil {
		t.Fatal(err)
	}
	v := verify(t, p, VerifyOptions{Trusted: []string{p.trusted}})
	wantExit(t, v, ExitUnproven)
	if c := v.Logs[0].Verdict(VerdictConsistency); c.Status != Pass {
		t.Errorf("%+v", c)
	}
}

// TestRewrittenWithNewKey writes another history under the same name and a key
// of its own.
func TestRewrittenWithNewKey(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 10)
	closeLog(t, l)
	trusted, err := os.ReadFile(p.trusted)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(p.dir); err != nil {
		t.Fatal(err)
	}
	os.Remove(p.key)
	os.Remove(p.trusted)
	l = p.open(t)
	submit(t, l, 20)
	closeLog(t, l)
	if err := os.WriteFile(p.trusted, trusted, 0o644); err != nil {
		t.Fatal(err)
	}
	wantExit(t, verify(t, p, VerifyOptions{}), ExitPass)
	v := verify(t, p, VerifyOptions{Trusted: []string{p.trusted}})
	wantExit(t, v, ExitTampered)
	if c := v.Logs[0].Verdict(VerdictConsistency); c.Status != Fail || c.Kind != "rewritten" {
		t.Errorf("%+v", c)
	}
	if s := v.Logs[0].Verdict(VerdictSignature); s.Status != Fail {
		t.Errorf("%+v", s)
	}
}

func TestNotALog(t *testing.T) {
	v, err := Verify(context.Background(), t.TempDir(), VerifyOptions{})
	if err != nil || v.Exit != ExitMalformed {
		t.Errorf("exit %d, %v", v.Exit, err)
	}
	v, err = Verify(context.Background(), filepath.Join(t.TempDir(), "nowhere"), VerifyOptions{})
	if err != nil || v.Exit != ExitMalformed {
		t.Errorf("exit %d, %v", v.Exit, err)
	}
}

// TestEmptied: a folder without a log is nothing by itself, and a deletion to
// who kept a checkpoint of one. A path that leads nowhere stays a mistake.
func TestEmptied(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 10)
	closeLog(t, l)
	if err := os.RemoveAll(p.dir); err != nil {
		t.Fatal(err)
	}
	judge := func() Verdicts {
		v, err := Verify(t.Context(), p.dir, VerifyOptions{Trusted: []string{p.trusted}})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	wantExit(t, judge(), ExitMalformed)
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	v := judge()
	wantExit(t, v, ExitTampered)
	if c := v.Logs[0].Verdict(VerdictCoverage); c.Status != Fail || c.Kind != "missing" {
		t.Errorf("%+v", c)
	}
}

// TestLiveIsNeverCorrupt verifies a log while it is written (SPEC R-RCP-2).
func TestLiveIsNeverCorrupt(t *testing.T) {
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.FlushEvery, o.SyncEvery, o.CheckpointWithin = 1, 1, 20*time.Millisecond })
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := l.Submit(sampleReceipt(i)); err != nil {
					t.Error(err)
				}
				if i%20 == 19 {
					time.Sleep(time.Millisecond) // let the log stay small
				}
			}
		}
	}()
	for range 6 {
		v := verify(t, p, VerifyOptions{})
		wantExit(t, v, ExitPass)
		if !v.Logs[0].Live {
			t.Error("not seen to be live")
		}
		if v := verify(t, p, VerifyOptions{Trusted: []string{p.trusted}}); v.Exit != ExitPass && v.Exit != ExitUnproven {
			t.Fatalf("%+v", v)
		}
	}
	close(stop)
	<-done
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}}), ExitPass)
}
