package receipts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxSegment bounds the blocks of one segment: 262,144 receipts.
const maxSegment = 1024

// keeper is the goroutine that does what takes long: it seals closed
// write-ahead files into segments and carries out retention. It only touches
// receipts that are under a head.
func (l *Log) keeper() {
	defer close(l.kept)
	for {
		select {
		case <-l.sealable:
			l.report(l.sealTo(l.closedEnd()))
		case c := <-l.chores:
			c.done <- c.f()
		case <-l.stop:
			return
		}
	}
}

// chore is a request to the keeper.
type chore struct {
	f    func() error
	done chan error
}

// keep runs f on the keeper's goroutine.
func (l *Log) keep(ctx context.Context, f func() error) error {
	c := chore{f: f, done: make(chan error, 1)}
	select {
	case l.chores <- c:
	case <-l.kept:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maySeal tells the keeper that a write-ahead file was closed, or that a head
// now covers it.
func (l *Log) maySeal() {
	select {
	case l.sealable <- struct{}{}:
	default:
	}
}

// closedEnd is up to where receipts lie in closed files under a head.
func (l *Log) closedEnd() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.fileFirst, l.stats.Sealed)
}

// Seal puts everything under the newest head into segments, as far as whole
// blocks of 256 receipts reach. The writer does so by itself whenever a
// write-ahead file is full or old.
func (l *Log) Seal(ctx context.Context) error {
	c, err := l.Checkpoint(ctx)
	if err != nil {
		return err
	}
	return l.keep(ctx, func() error { return l.sealTo(c.Size) })
}

// sealTo makes segments of the whole blocks below end, and removes the
// write-ahead files that lie in them completely.
func (l *Log) sealTo(end int64) error {
	for {
		first := l.store.sealed()
		n := min((end-first)/blockSize, maxSegment)
		if n <= 0 {
			return l.removeSealed()
		}
		if err := l.sealOne(first, first+n*blockSize); err != nil {
			return fmt.Errorf("seal receipts %d to %d: %w", first, first+n*blockSize-1, err)
		}
	}
}

func (l *Log) sealOne(first, end int64) error {
	about := segmentAbout{First: first}
	l.store.mu.RLock()
	if n := len(l.store.segs); n > 0 {
		about.BootEpoch = l.store.segs[n-1].about.BootEpoch
	}
	l.store.mu.RUnlock()
	w, err := newSegment(l.dir, about)
	if err != nil {
		return err
	}
	defer w.drop() // what remains of it, when it was not finished
	next := first
	for next < end {
		s, ok := l.store.at(next)
		if !ok {
			return fmt.Errorf("receipt %d: %w", next, ErrNotFound)
		}
		from := next
		err := l.store.read(s, func(index int64, r record) error {
			if index < from || index >= end {
				return nil
			}
			next = index + 1
			return w.add(r.body)
		})
		if err != nil {
			return err
		}
		if next == from {
			return fmt.Errorf("receipt %d: %w", next, ErrNotFound)
		}
	}
	seg, err := w.finish(l.dir, 0o640)
	if err != nil {
		return err
	}
	l.store.seal(seg)
	return nil
}

// removeSealed deletes the write-ahead files whose receipts all lie in
// segments. The current file has no end and stays.
func (l *Log) removeSealed() error {
	files, err := listWAL(l.dir)
	if err != nil {
		return err
	}
	sealed := l.store.sealed()
	for _, f := range files {
		if f.until < 0 || f.until > sealed {
			break
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove sealed %s: %w", filepath.Base(f.path), err)
		}
	}
	return nil
}

// removeTemp deletes what a crash left half written.
func removeTemp(dir string) {
	for _, pattern := range []string{filepath.Join(dir, dirSeg, ".seg-*"), filepath.Join(dir, ".*.tmp-*")} {
		names, _ := filepath.Glob(pattern)
		for _, n := range names {
			_ = os.Remove(n)
		}
	}
}
