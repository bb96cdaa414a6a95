package receipts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestRollups: sampled-out receipts are counted, none twice and none not at all.
func TestRollups(t *testing.T) {
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.Sampling.OneIn = 10; o.Depth = 1 << 14 })
	const n = 3000
	for i := range n {
		r := sampleReceipt(i)
		r.Class, r.Scope = Sample, fmt.Sprintf("scope-%d", i%40)
		r.Outcome = Some(taxonomy.Succeeded)
		if _, err := l.Submit(r); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			submit(t, l, 1) // audit is never sampled
		}
	}
	closeLog(t, l)
	s := l.Stats()
	if s.Written[Sample] != n/10 || s.Sampled != n-n/10 || s.Written[Audit] != n/100 || s.Dropped != [3]int64{} {
		t.Errorf("%+v", s)
	}
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	var total, rows int64
	byScope := map[string]int64{}
	for e, err := range r.All(Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if u := e.Receipt.Rollup; u != nil {
			total += u.Total
			for _, row := range u.Rows {
				rows += row.N
				byScope[row.Scope] += row.N
				if row.Decision != taxonomy.DecideAllow || !row.Outcome.Is(taxonomy.Succeeded) || row.Breaker != "provider" {
					t.Errorf("%+v", row)
				}
			}
		}
		if e.Receipt.Kind == KindAdmission && e.Receipt.Class == Sample {
			byScope[e.Receipt.Scope]++
		}
	}
	if total != s.Sampled || rows != total {
		t.Errorf("rollups count %d in rows of %d, sampled out were %d", total, rows, s.Sampled)
	}
	for scope, have := range byScope {
		if have != n/40 {
			t.Errorf("%s: written and rolled up are %d of %d", scope, have, n/40)
		}
	}
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
}

// TestRollupsAreBounded: a flood of scopes does not grow the counters.
func TestRollupsAreBounded(t *testing.T) {
	var u rollups
	for i := range 5000 {
		u.skip(2, &Receipt{Breaker: "b", Scope: fmt.Sprint(i)}, 1)
	}
	if len(u.rows) > maxRollupRows+1 {
		t.Errorf("%d rows", len(u.rows))
	}
	var total int64
	for _, n := range u.take() {
		total += n.Total
	}
	if total != 2500 {
		t.Errorf("%d counted", total)
	}
}

// TestFlood: whatever the load, for every class submitted = written + dropped,
// exactly, and audit is not starved by a flood of samples.
func TestFlood(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t, func(o *Options) {
		o.Depth, o.FlushEvery, o.SyncEvery, o.CheckpointWithin = 256, time.Millisecond, 5*time.Millisecond, 50*time.Millisecond
		o.SegmentBytes = 1 << 20
	})
	var audit, ledger int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			r := typical(1)
			r.Class = Sample
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					l.Submit(&r)
				}
				if i%4096 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	var done sync.WaitGroup
	done.Go(func() {
		for i := range 3000 {
			if _, err := l.Submit(sampleReceipt(i)); err != nil {
				t.Error(err)
			}
			audit++
		}
	})
	done.Go(func() {
		for range 50 {
			if _, err := l.Commit(ctx, &Receipt{Kind: KindIntent}); err != nil {
				t.Error(err)
			}
			ledger++
		}
	})
	done.Wait()
	close(stop)
	wg.Wait()
	closeLog(t, l)
	s := l.Stats()
	for c := range s.Submitted {
		if s.Submitted[c] != s.Written[c]+s.Dropped[c] {
			t.Errorf("%s: submitted %d, written %d, dropped %d", Delivery(c), s.Submitted[c], s.Written[c], s.Dropped[c])
		}
	}
	if s.Written[Audit] != audit || s.Written[Ledger] != ledger || s.Dropped[Audit]+s.Dropped[Ledger] != 0 {
		t.Errorf("%+v", s)
	}
	v := verify(t, p, VerifyOptions{Trusted: []string{p.trusted}})
	wantExit(t, v, ExitPass)
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	var owned, written int64
	for e, err := range r.All(Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		written++
		if g := e.Receipt.Gap; g != nil {
			owned += g.Count
		}
	}
	if owned != s.Dropped[Sample] || written != s.Written[0]+s.Written[1]+s.Written[2]+s.Own {
		t.Errorf("gap receipts own up to %d of %d; %d receipts in the log: %+v", owned, s.Dropped[Sample], written, s)
	}
	t.Logf("%+v", s)
}

// breakDisk lets every write of the log fail, and gives back the cure.
func breakDisk(t *testing.T, l *Log) (cure func()) {
	t.Helper()
	wal := filepath.Join(l.dir, dirWAL)
	err := l.do(context.Background(), func(w *writer) error {
		// A file that is full, and a folder in which none can be begun.
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		w.file.Close()
		w.file = full
		return os.Rename(wal, wal+".gone")
	})
	if err != nil {
		t.Skip("this system has no /dev/full:", err)
	}
	return func() {
		if err := os.Rename(wal+".gone", wal); err != nil {
			t.Error(err)
		}
	}
}

// TestDiskFull: ledger fails closed at once, audit waits and is then refused
// and counted, and once there is room everything that was accepted is written.
func TestDiskFull(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t, func(o *Options) {
		o.Depth, o.MaxWait, o.FlushEvery, o.SyncEvery = 32, 20*time.Millisecond, time.Millisecond, time.Millisecond
	})
	submit(t, l, 10)
	if err := l.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	cure := breakDisk(t, l)
	if _, err := l.Commit(ctx, &Receipt{Kind: KindIntent}); !errors.Is(err, ErrDegraded) {
		t.Fatalf("commit on a full disk: %v", err)
	}
	if _, err := l.Commit(ctx, &Receipt{Kind: KindIntent}); !errors.Is(err, ErrDegraded) {
		t.Fatalf("the next commit: %v", err)
	}
	if l.Stats().Degraded == nil {
		t.Error("the log does not say that it is degraded")
	}
	accepted, refused := 0, 0
	for i := range 40 {
		switch _, err := l.Submit(sampleReceipt(i)); {
		case err == nil:
			accepted++
		case errors.Is(err, ErrDegraded):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if accepted == 0 || refused == 0 {
		t.Errorf("accepted %d, refused %d", accepted, refused)
	}
	cure()
	if _, err := l.Commit(ctx, &Receipt{Kind: KindIntent}); err != nil {
		// The writer tries again four times a second.
		for l.Stats().Degraded != nil {
			time.Sleep(time.Millisecond)
		}
	}
	if _, err := l.Commit(ctx, &Receipt{Kind: KindIntent}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	s := l.Stats()
	if s.Dropped[Audit] != int64(refused) || s.Written[Audit] != int64(10+accepted) || s.Submitted[Ledger] != s.Written[Ledger]+s.Dropped[Ledger] {
		t.Errorf("accepted %d, refused %d: %+v", accepted, refused, s)
	}
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range r.All(Query{Kinds: []Kind{KindGap}}) {
		if err != nil || e.Receipt.Gap.Cause != causeDisk {
			t.Errorf("%+v, %v", e.Receipt.Gap, err)
		}
	}
}

// TestCloseOnFullDisk says what was lost instead of hanging or pretending.
func TestCloseOnFullDisk(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	cure := breakDisk(t, l)
	submit(t, l, 3)
	err := l.Close(context.Background())
	if !errors.Is(err, ErrDegraded) || !strings.Contains(err.Error(), "were not written") {
		t.Errorf("%v", err)
	}
	cure()
	l = p.open(t) // and what was sealed is still good
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}}), ExitPass)
}

// TestTimers: an idle log signs what it has after CheckpointWithin, and then
// sleeps.
func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		heads := 0
		o := p.options()
		o.FlushEvery, o.SyncEvery, o.CheckpointWithin = 0, 0, 0 // the defaults
		o.OnCheckpoint = func(Checkpoint) { heads++ }
		l, err := Open(t.Context(), p.dir, o)
		if err != nil {
			t.Fatal(err)
		}
		start := heads
		submit(t, l, 3)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if s := l.Stats(); s.Size != 4 || s.Sealed != 1 {
			t.Errorf("after 50 ms: %+v", s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := l.Stats(); s.Sealed != 4 || s.Synced != 4 {
			t.Errorf("after 1 s: %+v", s)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if heads != start+1 {
			t.Errorf("%d heads of nothing new", heads-start-1)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCallerGivesUp: a submit that waits for room ends with its context, and
// the number it had is owned up to.
func TestCallerGivesUp(t *testing.T) {
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.Depth, o.MaxWait = 8, time.Hour })
	cure := breakDisk(t, l)
	if err := l.Flush(context.Background()); err == nil {
		submit(t, l, 1)
		l.Flush(context.Background())
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		_, err := l.put(ctx, sampleReceipt(0), nil)
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			break
		}
	}
	cure()
	for l.Stats().Degraded != nil {
		time.Sleep(time.Millisecond)
	}
	closeLog(t, l)
	if s := l.Stats(); s.Dropped[Audit] != 1 {
		t.Errorf("%+v", s)
	}
	wantExit(t, verify(t, p, VerifyOptions{}), ExitPass)
}

// TestTornHead: a head that a full disk cut is gone before the next is written.
func TestTornHead(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 3)
	err := l.do(ctx, func(w *writer) error {
		if _, err := w.heads.Write([]byte("example.com/test/0\n4\nabc")); err != nil {
			return err
		}
		w.headTorn = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}}), ExitPass)
	if heads, err := ReadCheckpoints(filepath.Join(p.dir, fileCheckpoints)); err != nil || len(heads) != 2 {
		t.Errorf("%d heads, %v", len(heads), err)
	}
}

// TestSamplesNeverBlock: while the writer is busy elsewhere, samples stop at
// half the ring and audit has the other half.
func TestSamplesNeverBlock(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.Depth = 16 })
	held, release := make(chan struct{}), make(chan struct{})
	go l.do(ctx, func(*writer) error {
		close(held)
		<-release
		return nil
	})
	<-held
	for i := range 20 {
		r := sampleReceipt(i)
		r.Class = Sample
		if _, err := l.Submit(r); err != nil {
			t.Fatal(err)
		}
	}
	submit(t, l, 8) // the other half, without waiting
	if s := l.Stats(); s.Dropped[Sample] != 12 || s.Waiting != 16 || s.Dropped[Audit] != 0 {
		t.Errorf("%+v", s)
	}
	close(release)
	closeLog(t, l)
	if s := l.Stats(); s.Written[Sample] != 8 || s.Written[Audit] != 8 {
		t.Errorf("%+v", s)
	}
	wantExit(t, verify(t, p, VerifyOptions{Deep: true}), ExitPass)
}

// TestSealAfterHeal: a log that went on in a new file in the middle of a block
// is sealed and read like any other.
func TestSealAfterHeal(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	var want []ID
	more := func(n int) {
		for _, ref := range submit(t, l, n) {
			want = append(want, ref.ID)
		}
	}
	more(100)
	if err := l.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	cure := breakDisk(t, l)
	more(50)
	if err := l.Flush(ctx); err == nil {
		t.Fatal("a full disk is not noticed")
	}
	cure()
	for l.Stats().Degraded != nil {
		time.Sleep(time.Millisecond)
	}
	more(500)
	if err := l.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 99, 100, 149, 150, 400, 649} {
		if e, err := l.Get(ctx, want[i]); err != nil || e.Index != int64(i)+1 {
			t.Errorf("get %d: %d, %v", i, e.Index, err)
		}
	}
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
	l = p.open(t)
	more(10)
	closeLog(t, l)
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []ID
	for e, err := range r.All(Query{Kinds: []Kind{KindAdmission}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Receipt.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d receipts, want %d", len(got), len(want))
	}
}
