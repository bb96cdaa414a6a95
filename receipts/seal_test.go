package receipts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func segments(t testing.TB, p place) []string {
	t.Helper()
	list, err := listSegments(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// fill makes a log of typical receipts, some sealed and some not, and returns
// their ids by index.
func fill(t testing.TB, p place, n int) (ids map[int64]ID) {
	t.Helper()
	ctx := context.Background()
	l := p.open(t, func(o *Options) { o.SegmentBytes = 1 << 20 })
	ids = map[int64]ID{}
	for i := range n {
		r := plainly(typical(i))
		r.RequestID = fmt.Sprintf("req-%d", i)
		ref, err := l.Submit(&r)
		if err != nil {
			t.Fatal(err)
		}
		ids[ref.Seq-1] = ref.ID
		if i%1000 == 999 {
			if _, err := l.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	for id := range ids { // a few, while it is live
		if e, err := l.Get(ctx, ids[id]); err != nil || e.Index != id {
			t.Fatalf("get %d: %d, %v", id, e.Index, err)
		}
		if id%7 == 0 {
			break
		}
	}
	closeLog(t, l)
	return ids
}

func TestSealed(t *testing.T) {
	p := newPlace(t)
	const n = 5000
	ids := fill(t, p, n)
	if len(segments(t, p)) == 0 {
		t.Fatal("nothing was sealed")
	}
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)

	// A second life goes on without reading the sealed part again.
	l := p.open(t)
	if s := l.Stats(); s.Size != n+3 {
		t.Fatalf("%+v", s)
	}
	submit(t, l, 10)
	closeLog(t, l)
	v := verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true})
	wantExit(t, v, ExitPass)

	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for e, err := range r.All(Query{}) {
		if err != nil || e.Index != at || e.Receipt.Seq != at+1 {
			t.Fatalf("at %d: %+v, %v", at, e, err)
		}
		if id, ok := ids[at]; ok && e.Receipt.ID != id {
			t.Fatalf("at %d: another receipt", at)
		}
		at++
	}
	if at != n+14 {
		t.Errorf("%d receipts", at)
	}
	for _, i := range []int64{1, 255, 256, 257, 4000, n} {
		e, err := r.Get(ids[i])
		if err != nil || e.Index != i {
			t.Errorf("get %d: %d, %v", i, e.Index, err)
		}
		e, err = r.At(i)
		if err != nil || e.Receipt.ID != ids[i] || !bytes.Equal(e.Receipt.AppendJSON(nil), e.Raw) {
			t.Errorf("at %d: %v", i, err)
		}
	}
	for _, newest := range []bool{false, true} {
		found := 0
		for e, err := range r.All(Query{RequestID: "req-3210", Newest: newest}) {
			if err != nil || e.Index != 3211 {
				t.Fatal(e.Index, err)
			}
			found++
		}
		if found != 1 {
			t.Errorf("found %d", found)
		}
	}
}

// TestFiltersSkip: a question about one request reads few blocks.
func TestFiltersSkip(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 6000)
	may, all := 0, 0
	q := Query{RequestID: "req-17"}
	for _, path := range segments(t, p) {
		s, filters, err := readSegment(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.blocks {
			all++
			if (*filter)(filters[i*filterSize:]).mayHold(q.wants()) {
				may++
			}
		}
	}
	if may < 1 || may > 1+all/5 {
		t.Errorf("%d of %d blocks may hold it", may, all)
	}
}

// TestCrashBetweenSealAndRemoval: both the segment and its write-ahead files
// are there.
func TestCrashBetweenSealAndRemoval(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.SegmentBytes = 200 << 10; o.SegmentAge = time.Hour })
	held, release := make(chan struct{}), make(chan struct{})
	go func() { // nothing is sealed before the snapshot
		_ = l.keep(ctx, func() error { close(held); <-release; return nil })
	}()
	<-held
	for i := range 1500 {
		r := plainly(typical(i))
		if _, err := l.Submit(&r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	before := takeSnapshot(t, filepath.Join(p.dir, dirWAL))
	close(release)
	if err := l.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	restored := 0
	for path, b := range before {
		if !fileExists(path) {
			restored++
			if err := os.WriteFile(path, b, 0o640); err != nil {
				t.Fatal(err)
			}
		}
	}
	if restored == 0 {
		t.Fatal("no write-ahead file was removed; the test proves nothing")
	}
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
	l = p.open(t)
	if l.Stats().Size != 1503 {
		t.Errorf("%+v", l.Stats())
	}
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}}), ExitPass)
}

// TestBlockEveryByte changes every byte of a segment, one at a time: the block
// verifier finds each (SPEC R-RCP-2).
func TestBlockEveryByte(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 520)
	path := segments(t, p)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	good, err := openSegment(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(bad, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(bad, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at := range whole {
		if _, err := f.WriteAt([]byte{whole[at] ^ byte(1+at%255)}, int64(at)); err != nil {
			t.Fatal(err)
		}
		if err := checkSegment(f, bad, good, at); err == nil {
			t.Fatalf("byte %d of %d changed, and nothing is found", at, len(whole))
		}
		if _, err := f.WriteAt(whole[at:at+1], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkSegment(f, bad, good, 0); err != nil {
		t.Error(err)
	}
}

// checkSegment verifies what holds the byte: the block, or what is around.
func checkSegment(f *os.File, path string, good *segment, at int) error {
	for i := range good.blocks {
		m := &good.blocks[i]
		if int64(at) >= m.off && int64(at) < m.off+int64(m.size) {
			return good.check(f, i)
		}
	}
	s, err := openSegment(path)
	if err == nil {
		err = s.check(f, 0)
	}
	return err
}
