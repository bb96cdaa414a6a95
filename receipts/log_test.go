package receipts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// place is a root with one slot's files.
type place struct {
	root, dir, key, trusted string
}

func newPlace(t testing.TB) place {
	base := t.TempDir()
	return place{root: filepath.Join(base, "receipts"), dir: filepath.Join(base, "receipts", "0"),
		key: filepath.Join(base, "keys", "receipts-0.key"), trusted: filepath.Join(base, "trusted", "receipts-0.checkpoint")}
}

func (p place) options() Options {
	_ = os.MkdirAll(filepath.Dir(p.trusted), 0o700)
	return Options{Origin: "example.com/test/0", KeyFile: p.key, TrustedFile: p.trusted, Engine: "fusebox/test",
		// Nothing happens by time: tests say Flush and Checkpoint.
		FlushEvery: time.Hour, SyncEvery: time.Hour, CheckpointWithin: time.Hour}
}

func (p place) open(t testing.TB, change ...func(*Options)) *Log {
	t.Helper()
	o := p.options()
	for _, c := range change {
		c(&o)
	}
	l, err := Open(context.Background(), p.dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.Background()) })
	return l
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func verify(t testing.TB, p place, o VerifyOptions) Verdicts {
	t.Helper()
	v, err := Verify(context.Background(), p.root, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func wantExit(t testing.TB, v Verdicts, code int) {
	t.Helper()
	if v.Exit != code {
		t.Fatalf("exit %d, want %d: %+v", v.Exit, code, v)
	}
}

// sample is an ordinary receipt.
func sampleReceipt(i int) *Receipt {
	return &Receipt{Kind: KindAdmission, RequestID: fmt.Sprintf("req-%d", i), Attempt: 1, Tenant: "t_1", Layer: taxonomy.LayerProvider,
		Breaker: "provider", Scope: "provider:acme/eu/model-x", Decision: Some(taxonomy.DecideAllow), Mode: Some(taxonomy.ModeEnforce),
		Effect: Some(taxonomy.ReadOnly), PrevState: StateClosed, State: StateClosed, StateVersion: 3, Reason: "closed",
		PolicyVersion: "p@sha256:00", ConfigDigest: "sha256:11"}
}

func submit(t testing.TB, l *Log, n int) []Ref {
	t.Helper()
	var refs []Ref
	for i := range n {
		ref, err := l.Submit(sampleReceipt(i))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	return refs
}

func TestLogLife(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	refs := submit(t, l, 700)
	ref, err := l.Commit(ctx, &Receipt{Kind: KindIntent, RequestID: "w", Effect: Some(taxonomy.NonRepeatable)})
	if err != nil || ref.Index != 701 || ref.Seq != 702 {
		t.Fatalf("%+v, %v", ref, err)
	}
	// Get finds what was just submitted and what was written before.
	late := submit(t, l, 1)[0]
	for i, id := range map[int]ID{0: refs[0].ID, 699: refs[699].ID} {
		e, err := l.Get(ctx, id)
		if err != nil || e.Index != int64(i)+1 || e.Receipt.RequestID != fmt.Sprintf("req-%d", i) {
			t.Errorf("get %d: %+v, %v", i, e, err)
		}
	}
	if e, err := l.Get(ctx, late.ID); err != nil || e.Index != 702 {
		t.Errorf("get the last: %+v, %v", e, err)
	}
	if _, err := l.Get(ctx, NewID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("get of an unknown id: %v", err)
	}
	closeLog(t, l)
	if _, err := l.Submit(sampleReceipt(0)); !errors.Is(err, ErrClosed) {
		t.Errorf("submit after close: %v", err)
	}

	// Everything passes, with and without the remembered checkpoint.
	v := verify(t, p, VerifyOptions{Deep: true})
	wantExit(t, v, ExitPass)
	v = verify(t, p, VerifyOptions{Trusted: []string{p.trusted}})
	wantExit(t, v, ExitPass)
	if v.Logs[0].Sealed != 704 || v.Logs[0].Open != 1 {
		t.Errorf("%+v", v.Logs[0])
	}
	if st, err := os.Stat(p.key); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", st.Mode(), err)
	}

	// A second life goes on where the first ended.
	l = p.open(t)
	submit(t, l, 10)
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	var boots []*BootNote
	n := int64(0)
	for e, err := range r.All(Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Index != n || e.Receipt.Seq != n+1 {
			t.Fatalf("entry %d: index %d, seq %d", n, e.Index, e.Receipt.Seq)
		}
		if e.Receipt.Boot != nil {
			boots = append(boots, e.Receipt.Boot)
		}
		n++
	}
	if n != 716 || len(boots) != 2 || boots[1].Epoch != 2 || boots[1].Recovered != 704 || boots[1].Unclean {
		t.Errorf("%d receipts, boots %+v", n, boots)
	}
}

func TestQueries(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 500)
	closeLog(t, l)
	logs, err := OpenReaders(p.root)
	if err != nil {
		t.Fatal(err)
	}
	count := func(q Query) (n int, first int64) {
		first = -1
		for e, err := range All(logs, q) {
			if err != nil {
				t.Fatal(err)
			}
			if first < 0 {
				first = e.Index
			}
			n++
		}
		return n, first
	}
	for name, c := range map[string]struct {
		q     Query
		n     int
		first int64
	}{
		"all":     {Query{}, 502, 0},
		"request": {Query{RequestID: "req-77"}, 1, 78},
		"kind":    {Query{Kinds: []Kind{KindBoot, KindShutdown}}, 2, 0},
		"newest":  {Query{Newest: true, Limit: 3}, 3, 501},
		"from":    {Query{From: 500}, 2, 500},
		"breaker": {Query{Breaker: "provider", Limit: 1000}, 500, 1},
		"nobody":  {Query{Tenant: "t_2"}, 0, -1},
		"future":  {Query{Since: time.Now().Add(time.Hour)}, 0, -1},
		"past":    {Query{Until: time.Now().Add(-time.Hour)}, 0, -1},
		"now":     {Query{Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}, 502, 0},
	} {
		if n, first := count(c.q); n != c.n || first != c.first {
			t.Errorf("%s: %d from %d, want %d from %d", name, n, first, c.n, c.first)
		}
	}
	if e, err := logs[0].At(300); err != nil || e.Receipt.RequestID != "req-299" {
		t.Errorf("at 300: %+v, %v", e, err)
	}
}

// TestTornTail cuts the file at every byte of its last frames: nothing before
// the cut is lost (SPEC R-RCP-2).
func TestTornTail(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 5)
	if _, err := l.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	submit(t, l, 2)
	if err := l.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	wal := filepath.Join(p.dir, dirWAL, walName(0))
	whole, err := os.ReadFile(wal)
	if err != nil {
		t.Fatal(err)
	}
	saved := map[string][]byte{} // the folder as a crash would leave it
	for _, f := range []string{fileCheckpoint, fileCheckpoints} {
		if saved[f], err = os.ReadFile(filepath.Join(p.dir, f)); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, l)
	var ends []int
	for rest := whole; len(rest) > 0; {
		_, more, err := nextFrame(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = more
		ends = append(ends, len(whole)-len(rest))
	}
	for cut := ends[5]; cut <= len(whole); cut += 97 {
		for f, b := range saved {
			if err := os.WriteFile(filepath.Join(p.dir, f), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(wal, whole[:cut], 0o640); err != nil {
			t.Fatal(err)
		}
		os.Remove(p.trusted) // of a later state than the crash
		kept := 0
		for _, e := range ends {
			if e <= cut {
				kept++
			}
		}
		l := p.open(t)
		if s := l.Stats(); s.Size != int64(kept)+1 {
			t.Fatalf("cut at %d: %d receipts and a boot, want %d", cut, s.Size-1, kept)
		}
		e, err := l.Reader().At(int64(kept))
		if err != nil || e.Receipt.Boot == nil || e.Receipt.Boot.CutBytes != int64(cut-ends[kept-1]) || !e.Receipt.Boot.Unclean {
			t.Fatalf("cut at %d: boot %+v, %v", cut, e.Receipt.Boot, err)
		}
		closeLog(t, l)
		wantExit(t, verify(t, p, VerifyOptions{}), ExitPass)
	}
}

// TestOpenRefusesDamage: what a head covers is never cut off as a torn tail.
func TestOpenRefusesDamage(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 20)
	closeLog(t, l)
	wal := filepath.Join(p.dir, dirWAL, walName(0))
	whole, _ := os.ReadFile(wal)
	for name, b := range map[string][]byte{
		"cut":  whole[:len(whole)-5],
		"flip": flip(whole, len(whole)/2),
		"none": nil,
	} {
		if err := os.WriteFile(wal, b, 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(context.Background(), p.dir, p.options()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func flip(b []byte, at int) []byte {
	c := append([]byte(nil), b...)
	c[at] ^= 0x20
	return c
}

func TestOneWriter(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	if _, err := Open(context.Background(), p.dir, p.options()); !errors.Is(err, ErrLocked) {
		t.Errorf("a second writer: %v", err)
	}
	// A reader asking whether it is live disturbs nobody, and is told the truth.
	if !isLive(p.dir) {
		t.Error("not live")
	}
	submit(t, l, 3)
	closeLog(t, l)
	if isLive(p.dir) {
		t.Error("live after close")
	}
}

func TestKeyMustLieOutside(t *testing.T) {
	p := newPlace(t)
	o := p.options()
	o.KeyFile = filepath.Join(p.dir, "key")
	if _, err := Open(context.Background(), p.dir, o); err == nil {
		t.Error("a key inside the folder is accepted")
	}
	o = p.options()
	if _, _, _, err := OpenSlot(context.Background(), filepath.Dir(p.root), o); err == nil {
		t.Error("a key inside the root is accepted")
	}
	l := p.open(t)
	closeLog(t, l)
	if err := os.Chmod(p.key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), p.dir, p.options()); err == nil {
		t.Error("a key that others may read is accepted")
	}
	os.Remove(p.key)
	if _, err := Open(context.Background(), p.dir, p.options()); err == nil {
		t.Error("a log with heads goes on under a new key")
	}
}

// TestSlots: several processes share a root, each in its own slot (DESIGN 17).
func TestSlots(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	root := filepath.Join(base, "receipts")
	o := Options{Origin: "example.com/fleet"}
	a, n, inc, err := OpenSlot(ctx, root, o)
	if err != nil || n != 0 || inc == "" {
		t.Fatal(n, inc, err)
	}
	b, n, inc2, err := OpenSlot(ctx, root, o)
	if err != nil || n != 1 || inc2 == inc {
		t.Fatal(n, inc2, err)
	}
	if a.Origin() != "example.com/fleet/0" || b.Origin() != "example.com/fleet/1" {
		t.Error(a.Origin(), b.Origin())
	}
	submit(t, a, 5)
	submit(t, b, 7)
	closeLog(t, a)
	c, n, _, err := OpenSlot(ctx, root, o)
	if err != nil || n != 0 {
		t.Fatal(n, err)
	}
	closeLog(t, b)
	closeLog(t, c)
	v, err := Verify(ctx, root, VerifyOptions{Trusted: []string{filepath.Join(base, "trusted")}})
	if err != nil {
		t.Fatal(err)
	}
	wantExit(t, v, ExitPass)
	if len(v.Logs) != 2 || v.Receipts != 5+7+2*3 {
		t.Errorf("%+v", v)
	}
	// A slot that disappears as a whole is missed.
	if err := os.RemoveAll(filepath.Join(root, "1")); err != nil {
		t.Fatal(err)
	}
	v, _ = Verify(ctx, root, VerifyOptions{Trusted: []string{filepath.Join(base, "trusted")}})
	wantExit(t, v, ExitTampered)
}

// TestManyWriters: numbers are given once, in the order of the file.
func TestManyWriters(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.Depth = 64; o.SyncEvery = time.Millisecond })
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				if i%20 == 0 {
					ref, err := l.Commit(ctx, &Receipt{Kind: KindIntent, RequestID: fmt.Sprint(g)})
					if err != nil {
						t.Error(err)
					}
					e, err := l.Get(ctx, ref.ID)
					if err != nil || e.Index != ref.Index {
						t.Errorf("%+v is at %d, %v", ref, e.Index, err)
					}
				}
				if _, err := l.Submit(sampleReceipt(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	closeLog(t, l)
	s := l.Stats()
	if s.Written[Audit] != 1600 || s.Written[Ledger] != 80 || s.Dropped != [3]int64{} {
		t.Errorf("%+v", s)
	}
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
}

// TestSamplesYield: a flood of samples is dropped and counted, audit is not.
func TestSamplesYield(t *testing.T) {
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.Depth = 16 })
	const n = 5000
	for i := range n {
		r := sampleReceipt(i)
		r.Class = Sample
		if _, err := l.Submit(r); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			submit(t, l, 1)
		}
	}
	closeLog(t, l)
	s := l.Stats()
	if s.Submitted[Sample] != n || s.Written[Sample]+s.Dropped[Sample] != n || s.Dropped[Audit] != 0 || s.Written[Audit] != n/10 {
		t.Errorf("%+v", s)
	}
	v := verify(t, p, VerifyOptions{Deep: true})
	wantExit(t, v, ExitPass)
	// The gap receipts in the log own up to exactly what Stats counted.
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	var owned int64
	for e, err := range r.All(Query{Kinds: []Kind{KindGap}}) {
		if err != nil {
			t.Fatal(err)
		}
		owned += e.Receipt.Gap.Count
	}
	if owned != s.Dropped[Sample] {
		t.Errorf("gap receipts own up to %d, dropped %d", owned, s.Dropped[Sample])
	}
}
