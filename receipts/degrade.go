package receipts

import (
	"fmt"
	"time"
)

// degrade is the answer to a failed write or sync: after it nobody knows which
// pages reached the disk, so the file is not used any more. The frames stay in
// buf, and heal writes them into a new file.
func (w *writer) degrade(step string, cause error) error {
	err := fmt.Errorf("%s %s: %w", step, w.file.Name(), cause)
	w.bad, w.retryAt = err, time.Now().Add(retryEvery)
	w.flushAt, w.syncAt, w.headAt, w.rollAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	// Whoever waits is told only after the log says so, and so is whoever came
	// into the ring in between: its receipt may still be written, but nobody
	// waits for a disk that refuses.
	w.l.mu.Lock()
	w.l.degraded = err
	for i := range w.l.ring[:w.l.n] {
		if s := &w.l.ring[i]; s.p != nil {
			w.wait = append(w.wait, s.p)
			s.p = nil
		}
	}
	w.l.mu.Unlock()
	w.release(fmt.Errorf("%w: %w", ErrDegraded, err))
	return err
}

// heal begins a new file with the frames that are not known durable. Readers
// take a file to end where the next one begins.
func (w *writer) heal(now time.Time) bool {
	old, end := w.file, w.size-int64(w.wrote)
	err := w.begin(w.synced)
	if err == nil {
		_ = old.Truncate(end) // as far as the disk lets us; readers do not need it
		_ = old.Close()
		w.wrote = 0
		var n int
		n, err = w.file.Write(w.buf)
		w.wrote, w.size = n, int64(n)
	}
	if err == nil {
		err = syncData(w.file)
	}
	if err != nil {
		w.retryAt = now.Add(retryEvery)
		w.l.report(fmt.Errorf("heal receipts: %w", err))
		return false
	}
	w.l.store.rewritten(w.synced, w.buf)
	w.settle()
	w.bad, w.retryAt = nil, time.Time{}
	w.headAt = now.Add(w.l.opt.CheckpointWithin)
	w.l.mu.Lock()
	w.l.degraded = nil
	w.l.mu.Unlock()
	return true
}

// lost says what a log that could not write takes with it.
func (w *writer) lost() error {
	w.file.Close()
	w.heads.Close()
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	n := int64(w.l.n) + w.tree.n - w.synced
	return fmt.Errorf("close receipts: %w: %w; %d receipts in memory were not written", ErrDegraded, w.l.degraded, n)
}
