package receipts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestEachSlot: upkeep over a root whose processes are gone, and not over one
// that somebody writes.
func TestEachSlot(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	root := filepath.Join(base, "receipts")
	a, _, _, err := OpenSlot(ctx, root, Options{Origin: "example.com/fleet"})
	if err != nil {
		t.Fatal(err)
	}
	b, _, _, err := OpenSlot(ctx, root, Options{Origin: "example.com/fleet"})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Log{a, b} {
		r := Receipt{ID: NewID(), Kind: KindAdmission, Tenant: "acme"}
		if r.InputCommit, r.InputRef, err = l.Inputs().Seal("acme", r.ID, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Submit(&r); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, a)
	erase := func(_ int, l *Log) error {
		_, err := l.Erase(ctx, "acme", "u_1", "tenant_request")
		return err
	}
	if err := EachSlot(ctx, root, Options{}, erase); !errors.Is(err, ErrLocked) {
		t.Errorf("a slot that is in use: %v", err)
	}
	closeLog(t, b)
	slots := 0
	err = EachSlot(ctx, root, Options{}, func(n int, l *Log) error {
		slots++
		return errors.Join(erase(n, l), l.RotateKey(ctx))
	})
	if err != nil || slots != 2 {
		t.Fatal(slots, err)
	}
	v, err := Verify(ctx, root, VerifyOptions{Trusted: []string{filepath.Join(base, "trusted")}, Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	wantExit(t, v, ExitPass)
	logs, err := OpenReaders(root)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range logs {
		keys, err := r.Keys()
		if err != nil || len(keys) != 2 || keys[1].Epoch != 2 || keys[1].FromSize < 2 {
			t.Errorf("slot %d: %+v, %v", i, keys, err)
		}
		for e, err := range r.All(Query{Tenant: "acme", Kinds: []Kind{KindAdmission}}) {
			if err != nil {
				t.Fatal(err)
			}
			in := OpenInputs(r.Dir(), SlotFile(filepath.Join(base, "keys", "inputs"), i))
			if _, err := in.Open(&e.Receipt); !errors.Is(err, ErrErased) {
				t.Errorf("slot %d: %v", i, err)
			}
		}
	}
}

// TestThinHeads: old heads become fewer, and the log verifies as before, also
// over a change of keys and against any trusted checkpoint.
func TestThinHeads(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	var old []byte
	for i := range 1500 {
		submit(t, l, 2)
		if i == 100 {
			if err := l.RotateKey(ctx); err != nil {
				t.Fatal(err)
			}
		}
		c, err := l.Checkpoint(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if i == 50 {
			old = c.Note
		}
	}
	before, _ := ReadCheckpoints(filepath.Join(p.dir, fileCheckpoints))
	if err := l.do(ctx, func(w *writer) error { return w.thinHeads() }); err != nil {
		t.Fatal(err)
	}
	submit(t, l, 1)
	closeLog(t, l)
	after, err := ReadCheckpoints(filepath.Join(p.dir, fileCheckpoints))
	if err != nil || len(after) >= len(before) || len(after) < keepHeads {
		t.Errorf("%d heads became %d, %v", len(before), len(after), err)
	}
	if err := os.WriteFile(p.trusted+".old", old, 0o600); err != nil {
		t.Fatal(err)
	}
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
	v := verify(t, p, VerifyOptions{Trusted: []string{p.trusted + ".old"}})
	wantExit(t, v, ExitUnproven)
	if c := v.Logs[0].Verdict(VerdictConsistency); c.Status != Pass {
		t.Errorf("%+v", c)
	}
}

// TestReadWhileWriting: readers see a whole prefix of the log, whatever is
// written, sealed, pruned or rotated meanwhile.
func TestReadWhileWriting(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t, func(o *Options) {
		o.SegmentBytes, o.FlushEvery, o.SyncEvery, o.CheckpointWithin = 100<<10, time.Millisecond, time.Millisecond, 5*time.Millisecond
	})
	var submitted atomic.Int64
	stop, done := make(chan struct{}), make(chan error, 2)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			r := plainly(typical(i))
			r.ID, r.Class = ID{}, Audit
			if _, err := l.Submit(&r); err != nil {
				done <- err
				return
			}
			if submitted.Add(1)%20 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}()
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(3 * time.Millisecond):
			}
			if err := errors.Join(l.Seal(ctx), l.RotateKey(ctx)); err != nil {
				done <- err
				return
			}
			if _, err := l.Prune(ctx, Retention{Audit: time.Millisecond}, ""); err != nil {
				done <- err
				return
			}
		}
	}()
	fresh := l.Reader()
	for round := range 8 {
		for _, r := range []*Reader{fresh, nil} {
			if r == nil {
				var err error
				if r, err = OpenReader(p.dir); err != nil {
					t.Fatal(err)
				}
			}
			last := int64(-1)
			for e, err := range r.All(Query{}) {
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if e.Index <= last {
					t.Fatalf("round %d: index %d after %d", round, e.Index, last)
				}
				last = e.Index
			}
			if e, err := r.At(0); err != nil || e.Receipt.Kind != KindBoot { // never pruned
				t.Fatalf("round %d: %+v, %v", round, e, err)
			}
		}
		v := verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: round%5 == 0})
		if v.Exit != ExitPass && v.Exit != ExitUnproven {
			t.Fatalf("round %d: %+v", round, v)
		}
	}
	close(stop)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
}
