package receipts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Open takes the log in dir, or makes a new one. It takes the writer's lock,
// checks that everything under the last checkpoint is there, cuts off a torn
// tail, and writes a boot receipt. [ErrLocked] says that another process has
// the log, [ErrDamaged] that sealed receipts are missing or changed.
func Open(ctx context.Context, dir string, o Options) (*Log, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	for _, p := range []string{o.KeyFile, o.TrustedFile, o.InputKeys} {
		if p != "" && insideOf(dir, p) {
			return nil, fmt.Errorf("open receipts %s: %s must lie outside the log folder, or who rewrites one rewrites both", dir, p)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open receipts %s: %w", dir, err)
	}
	l, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open receipts %s: %w", dir, err)
	}
	return l, nil
}

func open(dir string, o Options) (l *Log, err error) {
	for _, d := range []string{dirWAL, dirSeg, dirKeys, dirObjects} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o750); err != nil {
			return nil, err
		}
	}
	lock, err := takeLock(dir, o.Incarnation)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	removeTemp(dir)
	about, err := about(dir, &o)
	if err != nil {
		return nil, err
	}
	l = &Log{dir: dir, origin: about.Origin, opt: o, lock: lock, boot: o.Now(), wake: make(chan struct{}, 1),
		ctl: make(chan control), done: make(chan struct{}), store: &store{dir: dir, live: true}, ring: make([]slot, o.Depth),
		sealable: make(chan struct{}, 1), chores: make(chan chore), stop: make(chan struct{}), kept: make(chan struct{})}
	if o.InputKeys != "" {
		l.inputs = OpenInputs(dir, o.InputKeys)
		l.inputs.now = o.Now
	}
	w := &writer{l: l, handOver: map[int64]bool{}, spare: make([]slot, o.Depth)}
	if err := w.recover(); err != nil {
		return nil, err
	}
	go w.run()
	go l.keeper()
	return l, nil
}

// takeLock waits a moment for the lock, because a reader that asks whether the
// log is live holds it for an instant.
func takeLock(dir, incarnation string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, fileLOCK), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		taken, err := lockFile(f)
		if err == nil && taken {
			break
		}
		if err == nil && try < 5 {
			time.Sleep(time.Millisecond << try)
			continue
		}
		f.Close()
		if err == nil {
			err = ErrLocked
		}
		return nil, err
	}
	// For people: who has it. Nothing reads this.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+" "+incarnation+"\n"), 0)
	return f, nil
}

// about reads LOG, or writes it for a new log.
func about(dir string, o *Options) (logFile, error) {
	f, err := readLogFile(dir)
	switch {
	case err == nil && o.Origin != "" && o.Origin != f.Origin:
		return f, fmt.Errorf("the log's origin is %q, not %q; an origin is fixed when the log is made", f.Origin, o.Origin)
	case err == nil:
		return f, nil
	case !errors.Is(err, fs.ErrNotExist) && fileExists(filepath.Join(dir, fileLOG)):
		return f, err
	}
	if files, _ := listWAL(dir); len(files) > 0 || fileExists(filepath.Join(dir, fileCheckpoint)) {
		return f, fmt.Errorf("%w: the file LOG is missing, although there are receipts; move the folder aside", ErrDamaged)
	}
	f = logFile{Format: format, Origin: o.Origin, Schema: Version}
	if f.Origin == "" {
		f.Origin = "fusebox.local/" + strings.ReplaceAll(NewID().String(), "-", "")[20:]
	}
	if err := checkOrigin(f.Origin); err != nil {
		return f, err
	}
	if err := writeFile(filepath.Join(dir, fileLOG), f.bytes(), 0o644, true); err != nil {
		return f, err
	}
	return f, syncDir(dir)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// recover brings the writer to the end of what is there.
func (w *writer) recover() error {
	head, err := w.openHeads()
	if err != nil {
		return err
	}
	note := BootNote{Incarnation: w.l.opt.Incarnation, Epoch: 1}
	tail, err := w.replay(head, &note)
	if err != nil {
		return err
	}
	if err := w.compareTrusted(); err != nil {
		return err
	}
	w.last, w.synced, note.Recovered = head, w.tree.n, w.tree.n
	if err := w.takeKey(&tail, head); err != nil {
		return err
	}
	l := w.l
	l.mu.Lock()
	l.seq = tail.seq
	own := []slot{l.own(Receipt{Kind: KindBoot, Boot: &note})}
	for _, g := range tail.holes.open() {
		own = append(own, l.own(Receipt{Kind: KindGap, Gap: &g, Reason: g.Cause}))
	}
	l.mu.Unlock()
	if w.file == nil {
		if err := w.begin(w.tree.n); err != nil {
			return err
		}
	}
	w.append(own)
	if err := w.checkpoint(); err != nil {
		return err
	}
	w.publish()
	return nil
}

// openHeads opens checkpoints.log, cuts a torn note off its end, and returns
// the newest head.
func (w *writer) openHeads() (Checkpoint, error) {
	path := filepath.Join(w.l.dir, fileCheckpoints)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
	if err != nil {
		return Checkpoint{}, err
	}
	w.heads = f
	b, err := os.ReadFile(path)
	if err != nil {
		return Checkpoint{}, err
	}
	list, rest, err := splitCheckpoints(b)
	if err == nil && len(rest) > 0 && !isTorn(rest, w.l.origin, list) {
		err = errCheckpoint
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: checkpoints.log after its note %d: %w", ErrDamaged, len(list), err)
	}
	w.headEnd, w.thinAt = int64(len(b)-len(rest)), maxHeads
	if len(rest) > 0 {
		if err := f.Truncate(int64(len(b) - len(rest))); err != nil {
			return Checkpoint{}, err
		}
	}
	var head Checkpoint
	if len(list) > 0 {
		head = list[len(list)-1]
	}
	b, err = os.ReadFile(filepath.Join(w.l.dir, fileCheckpoint))
	if errors.Is(err, fs.ErrNotExist) {
		w.headSize = head.Size
		return head, nil
	}
	if err != nil {
		return head, err
	}
	c, err := ParseCheckpoint(b)
	if err != nil {
		return head, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if c.Size > head.Size {
		head = c
		if err := w.appendHead(c.Note); err != nil {
			return head, err
		}
	}
	w.headSize = head.Size
	return head, nil
}

// tail is what the recovery learns from the files.
type tail struct {
	seq   int64
	holes holes
	kind  Kind         // of the last receipt
	keys  []segmentKey // key receipts so far

	keyRoot tlog.Hash // root just after the last of them, where it is not sealed
}

// replay feeds the block roots of segments and the write-ahead files to the
// tree and compares it with the head.
func (w *writer) replay(head Checkpoint, note *BootNote) (tail, error) {
	var t tail
	files, err := listWAL(w.l.dir)
	if err != nil {
		return t, err
	}
	if err := w.replaySegments(&t, head, note); err != nil {
		return t, err
	}
	for _, f := range files {
		if f.until >= 0 && f.until <= w.tree.n {
			continue // sealed; the keeper removes it
		}
		if f.first > w.tree.n {
			return t, fmt.Errorf("%w: receipts %d to %d are missing", ErrDamaged, w.tree.n, f.first-1)
		}
		end, err := f.scan(func(index, off int64, receipt []byte) error {
			if index < w.tree.n {
				return nil
			}
			return w.take(&t, note, f.first, index, off, receipt, head)
		})
		if err != nil {
			return t, err
		}
		if f.until >= 0 {
			if end.next < f.until {
				return t, fmt.Errorf("%w: receipt %d: %w", ErrDamaged, end.next, end.err)
			}
			continue // the next file says where this one ends
		}
		if end.torn > 0 {
			if end.next < head.Size {
				return t, fmt.Errorf("%w: receipt %d: %w", ErrDamaged, end.next, end.err)
			}
			note.CutBytes = end.torn
		}
		if err := w.reopen(f, end); err != nil {
			return t, err
		}
	}
	if w.tree.n < head.Size {
		return t, fmt.Errorf("%w: it ends at receipt %d, its checkpoint is of %d; verify it, and move it aside", ErrDamaged, w.tree.n, head.Size)
	}
	note.Unclean = w.tree.n > 0 && t.kind != KindShutdown
	return t, nil
}

// replaySegments takes the block roots as they are: Verify reads what is in
// the blocks. The work grows with the number of blocks, not of receipts.
func (w *writer) replaySegments(t *tail, head Checkpoint, note *BootNote) error {
	if err := w.l.store.loadSegments(); err != nil {
		return fmt.Errorf("%w: %w; verify it, and move it aside", ErrDamaged, err)
	}
	for _, s := range w.l.store.segs {
		for i := range s.blocks {
			w.tree.addPerfect(blockLevel, s.blocks[i].root)
			if err := w.compare(head); err != nil {
				return err
			}
		}
		t.seq, note.Epoch = s.about.LastSeq, s.about.BootEpoch+1
		t.keys = append(t.keys, s.about.Keys...)
		if err := t.kind.UnmarshalText([]byte(s.about.LastKind)); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDamaged, filepath.Base(s.path), err)
		}
	}
	if w.tree.n > 0 {
		t.holes = holes{started: true, last: t.seq}
	}
	return nil
}

// compare checks the root when the tree has the size of the head.
func (w *writer) compare(head Checkpoint) error {
	if w.tree.n == head.Size && w.tree.root() != head.Root {
		return fmt.Errorf("%w: the receipts do not give the root of the checkpoint of %d; verify it, and move it aside", ErrDamaged, head.Size)
	}
	return nil
}

// take adds one recovered receipt.
func (w *writer) take(t *tail, note *BootNote, file, index, off int64, receipt []byte, head Checkpoint) error {
	var g look
	if err := glance(&g, receipt); err != nil {
		return fmt.Errorf("%w: receipt %d: %w", ErrDamaged, index, err)
	}
	t.holes.see(g.seq, g.gap, 0)
	if g.key != nil {
		t.keys = append(t.keys, segmentKey{index, g.key.Epoch, g.key.VKey})
	}
	t.seq, t.kind = max(t.seq, g.seq), g.kind
	if g.boot != nil {
		note.Epoch = g.boot.Epoch + 1
	}
	w.l.store.add(file, index, off, g.idMS, g.timeUS)
	var h [32]byte
	h, w.leaf = leafHash(w.leaf, receipt)
	w.tree.add(h)
	if g.key != nil {
		t.keyRoot = w.tree.root()
	}
	return w.compare(head)
}

// reopen goes on in the last write-ahead file, without its torn end.
func (w *writer) reopen(f walFile, end walEnd) error {
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if end.torn > 0 {
		if err := file.Truncate(end.off); err != nil {
			return err
		}
	}
	if _, err := file.Seek(end.off, 0); err != nil {
		return err
	}
	// What a crash left in the page cache counts as written; make it durable
	// before a head covers it.
	if err := file.Sync(); err != nil {
		return err
	}
	w.file, w.first, w.size, w.opened = file, f.first, end.off, time.Now()
	return nil
}
