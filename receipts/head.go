package receipts

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// checkpoint makes everything durable and signs a head over it. The order
// matters: a head that is newer than the data would look like a truncation
// after a power loss.
func (w *writer) checkpoint() error {
	if err := w.sync(); err != nil {
		return err
	}
	w.headAt = time.Time{}
	if err := w.pay(); err != nil {
		w.headAt = time.Now().Add(retryEvery)
		return err
	}
	if w.tree.n == w.last.Size {
		return w.remember(false)
	}
	c := Checkpoint{Origin: w.l.origin, Size: w.tree.n, Root: w.tree.root()}
	if err := w.sign(&c); err != nil {
		w.headAt = time.Now().Add(retryEvery)
		return err
	}
	w.became(c)
	if err := w.remember(false); err != nil {
		return err
	}
	if age := w.l.opt.KeyAge; age > 0 && time.Since(w.keyAt) >= age {
		w.keyAt = time.Now() // whatever comes of it, not at every head
		return w.rotateKey()
	}
	return nil
}

// became notes the newest head.
func (w *writer) became(c Checkpoint) {
	w.last, w.lastAt, w.stale = c, time.Now(), true
	w.l.opt.OnCheckpoint(c)
}

// sign makes the note and puts it into checkpoints.log.
func (w *writer) sign(c *Checkpoint) error {
	if err := c.sign(w.signer); err != nil {
		return err
	}
	if w.headEnd > w.thinAt {
		w.thinAt = 2 * w.headEnd // whatever comes of it, not at every head
		w.l.report(w.thinHeads())
	}
	if c.Size > w.headSize { // the owed head of a rotation may be signed twice
		if err := w.appendHead(c.Note); err != nil {
			return fmt.Errorf("write %s: %w", w.heads.Name(), err)
		}
		w.headSize = c.Size
	}
	return nil
}

// appendHead writes a note to checkpoints.log. What a write on a full disk left
// of one is cut off before the next.
func (w *writer) appendHead(text []byte) error {
	if w.headTorn {
		if err := w.heads.Truncate(w.headEnd); err != nil {
			return err
		}
		w.headTorn = false
	}
	n, err := w.heads.Write(append(text[:len(text):len(text)], '\n'))
	if err != nil {
		w.headTorn = n > 0
		return err
	}
	w.headEnd += int64(n)
	return nil
}

// maxHeads is the size at which checkpoints.log is thinned out: about a day of
// one head a second would make 20 MB.
const maxHeads = 4 << 20

const (
	keepHeads  = 1024 // the newest, all of them
	headBucket = 4096 // one in so many receipts before
)

// thinHeads leaves of the older heads one in headBucket receipts, and those that
// handed over from key to key. Every head is worth the same as long as a later
// one stands; older ones only say more exactly where a log was changed.
func (w *writer) thinHeads() error {
	path := filepath.Join(w.l.dir, fileCheckpoints)
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("thin out heads: %w", err)
	}
	list, _, err := splitCheckpoints(b)
	if err != nil {
		return fmt.Errorf("thin out heads: %w", err)
	}
	var out []byte
	for i, c := range list {
		last := i == len(list)-1 || list[i+1].Size/headBucket != c.Size/headBucket
		if i >= len(list)-keepHeads || last || w.handOver[c.Size] {
			out = append(append(out, c.Note...), '\n')
		}
	}
	if err := writeFile(path, out, 0o640, true); err != nil {
		return fmt.Errorf("thin out heads: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("thin out heads: %w", err)
	}
	w.heads.Close()
	w.heads, w.headEnd, w.thinAt = f, int64(len(out)), max(maxHeads, 2*int64(len(out)))
	return nil
}

// remember makes the newest head durable in the folder and writes it outside,
// at most once in a CheckpointWithin, and always at the end.
func (w *writer) remember(now bool) error {
	o := &w.l.opt
	if !w.stale {
		return nil
	}
	if wait := o.CheckpointWithin - time.Since(w.remembered); wait > 0 && !now {
		w.headAt = time.Now().Add(wait) // so that the last head of a burst gets there too
		return nil
	}
	if err := syncData(w.heads); err != nil {
		return fmt.Errorf("write %s: %w", w.heads.Name(), err)
	}
	if err := writeFile(filepath.Join(w.l.dir, fileCheckpoint), w.last.Note, 0o644, true); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	if o.TrustedFile != "" {
		if err := writeFile(o.TrustedFile, w.last.Note, 0o644, true); err != nil {
			return fmt.Errorf("remember checkpoint: %w", err)
		}
	}
	w.stale, w.remembered = false, time.Now()
	return nil
}

// compareTrusted refuses a log that is not the one whose head was remembered
// outside, before that memory is written over.
func (w *writer) compareTrusted() error {
	path := w.l.opt.TrustedFile
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if !fileExists(path) {
		return nil
	}
	list, err := ReadCheckpoints(path)
	if err != nil {
		return fmt.Errorf("%w; move it aside", err)
	}
	for _, t := range list {
		switch root, err := w.rootAt(t.Size); {
		case t.Origin != w.l.origin:
			err = fmt.Errorf("it remembers log %s, this is %s", t.Origin, w.l.origin)
			fallthrough
		case err != nil:
			return fmt.Errorf("%w: %s: %w; find out what became of the log, and move the file aside", ErrDamaged, path, err)
		case root != t.Root:
			return fmt.Errorf("%w: %s remembers other receipts than the first %d here; verify the log with it, and move both aside", ErrDamaged, path, t.Size)
		}
	}
	return nil
}

// rootAt is the head of the first n receipts.
func (w *writer) rootAt(n int64) (tlog.Hash, error) {
	if n > w.tree.n {
		return tlog.Hash{}, fmt.Errorf("it remembers %d receipts, the log has %d", n, w.tree.n)
	}
	if n == w.tree.n {
		return w.tree.root(), nil
	}
	return tlog.TreeHash(n, newTreeReader(w.l.store))
}
