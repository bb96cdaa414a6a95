package receipts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// writer is the state of the one goroutine that touches the files. Everything
// in it belongs to that goroutine.
type writer struct {
	l     *Log
	spare []slot // the other half of the double buffer

	tree   frontier
	leaf   []byte     // scratch for leaf hashes
	file   *os.File   // the current write-ahead file
	first  int64      // index of its first receipt
	size   int64      // its length, without what is still in buf
	opened time.Time  // when it was begun
	buf    []byte     // frames not known durable yet
	wrote  int        // bytes of buf that were handed to the file
	synced int64      // receipts known durable
	wait   []*Pending // released by the next sync
	idle   []control  // requests that wait for the drain

	signer   note.Signer
	epoch    int64          // of the key
	keyAt    time.Time      // when it was made
	owed     *owedHead      // what the old key must sign before any other head
	handOver map[int64]bool // sizes of heads that the last key of an epoch signed
	headEnd  int64          // length of checkpoints.log
	thinAt   int64          // the length at which it is thinned out
	headTorn bool           // it ends in the middle of a note
	headSize int64          // of the last head in it
	heads    *os.File       // checkpoints.log
	last     Checkpoint     // the newest head
	lastAt   time.Time
	crash    func(step string) error // tests stop it between two steps
	bad      error                   // the file is not to be used any more

	flushAt, syncAt, headAt, retryAt, rollAt time.Time // zero: nothing is due
	remembered                               time.Time // when TrustedFile was last written
	stale                                    bool      // TrustedFile is behind
}

const retryEvery = 250 * time.Millisecond

// run is the writer's loop: it sleeps until somebody needs it or something is
// due, and an idle log costs nothing.
func (w *writer) run() {
	defer close(w.l.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(w.untilDue())
		select {
		case <-w.l.wake:
		case c := <-w.l.ctl:
			w.idle = append(w.idle, c)
		case <-timer.C:
		}
		if w.step() {
			return
		}
	}
}

// untilDue is how long the writer may sleep.
func (w *writer) untilDue() time.Duration {
	var at time.Time
	for _, t := range [...]time.Time{w.flushAt, w.syncAt, w.headAt, w.retryAt, w.rollAt} {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if at.IsZero() {
		return time.Hour
	}
	return max(time.Until(at), 0)
}

func due(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// step does what is due. It reports whether the log is closed.
func (w *writer) step() (closed bool) {
	l, now := w.l, time.Now()
	l.mu.Lock()
	n, urgent, closing, bad := l.n, l.urgent || len(w.idle) > 0, l.closing, l.degraded != nil
	dropped := l.gaps != (gapCounter{})
	rolled := l.rollups.total > 0
	l.mu.Unlock()
	if bad && (closing || due(w.retryAt, now)) {
		bad = !w.heal(now)
	}
	if closing {
		l.closeErr = w.shutdown(bad)
		w.answer(ErrClosed)
		return true
	}
	if bad {
		w.answer(ErrDegraded)
		return false
	}
	if rolled && w.rollAt.IsZero() {
		w.rollAt = now.Add(l.opt.RollupEvery)
	}
	switch {
	case due(w.rollAt, now):
		w.drain()
	case n == 0 && !dropped && len(w.idle) == 0:
	case urgent || due(w.flushAt, now):
		w.drain()
	case w.flushAt.IsZero():
		w.flushAt = now.Add(l.opt.FlushEvery)
	}
	if len(w.wait) > 0 || due(w.syncAt, now) {
		w.l.report(w.sync())
	}
	if w.tree.n-w.last.Size >= int64(l.opt.CheckpointEvery) || due(w.headAt, now) {
		w.l.report(w.checkpoint())
	}
	for len(w.idle) > 0 {
		c := w.idle[0]
		w.idle = w.idle[1:]
		c.done <- c.f(w)
	}
	w.publish()
	return false
}

// fault is where a test may let the process end.
func (w *writer) fault(step string) error {
	if w.crash == nil {
		return nil
	}
	return w.crash(step)
}

// answer refuses the requests that wait.
func (w *writer) answer(err error) {
	for _, c := range w.idle {
		c.done <- err
	}
	w.idle = nil
}

// drain takes what is in the ring, encodes it and writes it to the file, and
// after it the log's own receipts. Numbers are given in the order of the file,
// so that the ring is emptied and own receipts are numbered under one lock.
func (w *writer) drain(last ...Receipt) {
	l := w.l
	l.mu.Lock()
	batch := l.ring[:l.n]
	l.ring, w.spare = w.spare, l.ring
	l.n, l.urgent = 0, false
	mono := l.monoLocked(l.opt.Now())
	own := l.ownLocked(l.gaps.take())
	if l.closing || due(w.rollAt, time.Now()) {
		own = append(own, l.rollupLocked()...)
		w.rollAt = time.Time{}
	}
	for _, r := range last {
		own = append(own, l.own(r))
	}
	if l.space != nil {
		close(l.space)
		l.space = nil
	}
	l.mu.Unlock()
	w.flushAt = time.Time{}
	for i := range batch {
		batch[i].r.MonoUS = mono
	}
	w.append(batch)
	w.append(own)
	clear(batch) // the strings of written receipts are not held
	w.l.report(w.write())
}

// ownLocked makes gap receipts. l.mu is held, so that their numbers follow
// those of the batch.
func (l *Log) ownLocked(gaps []GapNote) (own []slot) {
	for i := range gaps {
		own = append(own, l.own(Receipt{Kind: KindGap, Gap: &gaps[i], Reason: gaps[i].Cause}))
	}
	return own
}

// rollupLocked makes rollup receipts. l.mu is held.
func (l *Log) rollupLocked() (own []slot) {
	for _, n := range l.rollups.take() {
		own = append(own, l.own(Receipt{Kind: KindRollup, Rollup: &n}))
	}
	return own
}

// monoLocked is the time since the boot receipt; it never falls, whatever clock
// was handed in. l.mu is held.
func (l *Log) monoLocked(now time.Time) int64 {
	l.lastMono = max(l.lastMono, now.Sub(l.boot).Microseconds())
	return l.lastMono
}

// own numbers a receipt that the log itself writes. l.mu is held.
func (l *Log) own(r Receipt) slot {
	now := l.opt.Now()
	l.seq++
	r.ID, r.Log, r.Seq, r.TimeUS, r.MonoUS, r.Class = newID(now), l.origin, l.seq, now.UnixMicro(), l.monoLocked(now), Audit
	r.Engine = l.opt.Engine
	return slot{r: r}
}

// sealInput seals what replay needs of a receipt. A seal that fails costs the replay
// of this receipt and never the receipt.
func (l *Log) sealInput(r *Receipt) {
	if len(r.Input) == 0 {
		return
	}
	if l.inputs != nil {
		var err error
		if r.InputCommit, r.InputRef, err = l.inputs.Seal(r.Tenant, r.ID, r.Input); err != nil {
			r.Flags = append(slices.Clip(r.Flags), "input_lost")
			l.report(err)
		}
	}
	r.Input = nil
}

// append encodes a batch: frames into buf, leaves into the tree.
func (w *writer) append(batch []slot) {
	for i := range batch {
		s := &batch[i]
		if w.tree.n%blockSize == 0 && w.fileFull() {
			w.l.report(w.rotate())
		}
		w.l.sealInput(&s.r)
		start := len(w.buf)
		w.buf = append(w.buf, 0, 0, 0, 0, 0, 0, 0, 0)
		w.buf = s.r.AppendJSON(w.buf)
		sealFrame(w.buf[start:])
		var h tlog.Hash
		h, w.leaf = leafHash(w.leaf, w.buf[start+frameHead:])
		w.l.store.add(w.first, w.tree.n, w.size+int64(start-w.wrote), s.r.ID.Millis(), s.r.TimeUS)
		if s.p != nil {
			s.p.index = w.tree.n
			w.wait = append(w.wait, s.p)
		}
		w.tree.add(h)
	}
	if len(batch) == 0 {
		return
	}
	now := time.Now()
	if w.syncAt.IsZero() {
		w.syncAt = now.Add(w.l.opt.SyncEvery)
	}
	if w.headAt.IsZero() {
		w.headAt = now.Add(w.l.opt.CheckpointWithin)
	}
	w.count(batch)
}

func (w *writer) count(batch []slot) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	for i := range batch {
		switch r := &batch[i].r; r.Kind {
		case KindBoot, KindShutdown, KindGap, KindKey, KindRollup:
			w.l.stats.Own++
		default:
			w.l.stats.Written[r.Class]++
		}
	}
}

// publish shows the writer's position in Stats.
func (w *writer) publish() {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	s := &w.l.stats
	s.Size, s.Synced, s.Sealed = w.tree.n, w.synced, w.last.Size
	s.UnsyncedBytes, s.LastCheckpoint = int64(len(w.buf)), w.lastAt
	closed := min(w.first, w.last.Size)
	if w.l.fileFirst = w.first; closed-w.l.store.sealed() >= blockSize {
		w.l.maySeal()
	}
}

// write hands the rest of buf to the file.
func (w *writer) write() error {
	if w.bad != nil {
		return w.bad
	}
	if w.wrote == len(w.buf) {
		return nil
	}
	if in := w.l.inputs; in != nil { // first, so that no receipt names an input that a crash took
		w.l.report(in.Flush()) // a receipt is worth more than its input
	}
	n, err := w.file.Write(w.buf[w.wrote:])
	w.wrote += n
	w.size += int64(n)
	if err != nil {
		return w.degrade("write", err)
	}
	return nil
}

// sync makes everything written durable and releases those who wait for it.
func (w *writer) sync() error {
	if err := w.write(); err != nil {
		return err
	}
	if len(w.buf) > 0 {
		if err := syncData(w.file); err != nil {
			return w.degrade("sync", err)
		}
	}
	w.settle()
	return nil
}

// settle notes that buf is durable.
func (w *writer) settle() {
	w.buf, w.wrote = w.buf[:0], 0
	w.synced, w.syncAt = w.tree.n, time.Time{}
	w.release(nil)
}

func (w *writer) release(err error) {
	for _, p := range w.wait {
		if err != nil {
			p.index, p.err = -1, err
		}
		close(p.done)
	}
	clear(w.wait)
	w.wait = w.wait[:0]
}

// report tells the observer; the caller goes on, because what it was about to
// do is kept and tried again.
func (l *Log) report(err error) {
	if err != nil {
		l.opt.OnError(err)
	}
}

// begin opens a write-ahead file that starts at this index.
func (w *writer) begin(first int64) error {
	path := filepath.Join(w.l.dir, dirWAL, walName(first))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		f.Close()
		return err
	}
	w.file, w.first, w.size, w.opened = f, first, 0, time.Now()
	return nil
}

func (w *writer) fileFull() bool {
	size := w.size + int64(len(w.buf)-w.wrote)
	return w.tree.n > w.first && (size >= w.l.opt.SegmentBytes || time.Since(w.opened) >= w.l.opt.SegmentAge)
}

// rotate closes the current file and begins the next.
func (w *writer) rotate() error {
	if err := w.sync(); err != nil {
		return err
	}
	old := w.file
	if err := w.begin(w.tree.n); err != nil {
		return fmt.Errorf("rotate receipts: %w", err)
	}
	return old.Close()
}

// shutdown writes what is left and the last receipts.
func (w *writer) shutdown(bad bool) error {
	l := w.l
	defer l.lock.Close()
	close(l.stop)
	<-l.kept
	if bad {
		return w.lost()
	}
	w.drain(Receipt{Kind: KindShutdown})
	err := w.checkpoint()
	if w.bad != nil && w.heal(time.Now()) { // one more chance, in a new file
		err = w.checkpoint()
	}
	w.publish()
	if w.bad != nil {
		return w.lost()
	}
	w.stale = w.stale || w.last.Size > 0
	err = errors.Join(err, w.remember(true), w.file.Close(), w.heads.Close())
	if err != nil {
		return fmt.Errorf("close receipts: %w", err)
	}
	return nil
}
