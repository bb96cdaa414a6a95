package receipts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Keys are used in epochs. A key receipt announces the next verifier key; the
// old key signs one last head, the one that covers this receipt, and is
// destroyed. Who steals a key can therefore sign nothing that lies before it:
// verification asks each head for the key of its own epoch.

// nextKeyFile holds the next key until the head that announces it is signed.
func nextKeyFile(path string) string { return path + ".next" }

// RotateKey begins a new key epoch.
func (l *Log) RotateKey(ctx context.Context) error {
	if err := l.do(ctx, (*writer).rotateKey); err != nil {
		return fmt.Errorf("rotate signing key: %w", err)
	}
	return nil
}

// rotateKey runs to its end or leaves files from which takeKey goes on: the
// next key, then the receipt, then the head, and only then the old key goes.
func (w *writer) rotateKey() error {
	if w.owed != nil {
		return w.checkpoint() // one at a time
	}
	next := nextKeyFile(w.l.opt.KeyFile)
	skey, vkey, err := note.GenerateKey(rand.Reader, w.l.origin)
	if err != nil {
		return err
	}
	if err := writeFile(next, []byte(skey+"\n"+vkey+"\n"), 0o600, true); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(next)); err != nil {
		return err
	}
	if err := w.fault("next key written"); err != nil {
		return err
	}
	w.drain(Receipt{Kind: KindKey, Key: &KeyNote{Epoch: w.epoch + 1, VKey: vkey}})
	w.owed = &owedHead{Checkpoint{Origin: w.l.origin, Size: w.tree.n, Root: w.tree.root()}, vkey}
	if err := w.sync(); err != nil {
		return err
	}
	if err := w.fault("receipt written"); err != nil {
		return err
	}
	return w.checkpoint()
}

// An owedHead is the head that the old key still has to sign: it covers exactly
// the receipts up to the key receipt, however many have followed.
type owedHead struct {
	head Checkpoint
	vkey string // of the next key
}

// pay signs the owed head and changes the key. Where it fails it is tried
// again before any other head is signed.
func (w *writer) pay() error {
	if w.owed == nil {
		return nil
	}
	c := w.owed.head
	if err := w.sign(&c); err != nil {
		return err
	}
	// It must outlast the old key: nobody else can sign it.
	if err := w.heads.Sync(); err != nil {
		return err
	}
	if err := w.fault("head signed"); err != nil {
		return err
	}
	if err := w.changeKey(w.owed.vkey); err != nil {
		return err
	}
	w.owed = nil
	w.handOver[c.Size] = true
	w.became(c)
	return nil
}

// changeKey puts the next key in the place of the old one.
func (w *writer) changeKey(vkey string) error {
	path := w.l.opt.KeyFile
	if fileExists(nextKeyFile(path)) {
		if err := overwrite(path); err != nil {
			return err
		}
		if err := w.fault("old key overwritten"); err != nil {
			return err
		}
		if err := os.Rename(nextKeyFile(path), path); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(path)); err != nil {
			return err
		}
	}
	signer, have, err := loadKey(path, w.l.origin, false)
	if err != nil {
		return err
	}
	if have != vkey {
		return fmt.Errorf("signing key %s is not the one that was announced", path)
	}
	public := filepath.Join(w.l.dir, dirKeys, keyName(w.epoch+1))
	if err := writeFile(public, []byte(vkey+"\n"), 0o644, true); err != nil {
		return err
	}
	w.signer, w.epoch, w.keyAt = signer, w.epoch+1, time.Now()
	return nil
}

// overwrite makes a best effort that the old key cannot be read from the disk.
func overwrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(strings.Repeat("#", int(st.Size()))), 0); err != nil {
		return err
	}
	return f.Sync()
}

// takeKey loads the signing key of the log's epoch, and finishes a rotation
// that a crash interrupted.
func (w *writer) takeKey(t *tail, head Checkpoint) error {
	path, origin := w.l.opt.KeyFile, w.l.origin
	w.epoch, w.keyAt = int64(len(t.keys))+1, time.Now()
	for _, k := range t.keys {
		w.handOver[k.Index+1] = true
	}
	if st, err := os.Stat(path); err == nil {
		w.keyAt = st.ModTime()
	}
	if len(t.keys) == 0 {
		_ = os.Remove(nextKeyFile(path)) // of a rotation that was not announced
		return w.firstKey(head.Size > 0)
	}
	last := t.keys[len(t.keys)-1]
	if fileExists(nextKeyFile(path)) {
		_, vkey, err := loadKey(nextKeyFile(path), origin, false)
		if err == nil && vkey == last.VKey {
			return w.finishRotation(t, last, head)
		}
		_ = os.Remove(nextKeyFile(path))
	}
	signer, vkey, err := loadKey(path, origin, false)
	if err != nil {
		return err
	}
	if vkey != last.VKey {
		return fmt.Errorf("signing key %s is not the one that receipt %d announced", path, last.Index)
	}
	w.signer = signer
	return w.publishKeys(t.keys)
}

// finishRotation signs the head that covers the key receipt with the old key,
// where that is still to be done.
func (w *writer) finishRotation(t *tail, last segmentKey, head Checkpoint) error {
	w.epoch = last.Epoch - 1
	if head.Size > last.Index {
		return w.changeKey(last.VKey)
	}
	signer, _, err := loadKey(w.l.opt.KeyFile, w.l.origin, false)
	if err != nil {
		return err
	}
	w.signer = signer
	w.owed = &owedHead{Checkpoint{Origin: w.l.origin, Size: last.Index + 1, Root: t.keyRoot}, last.VKey}
	return w.checkpoint()
}

// firstKey loads or makes the key of the first epoch.
func (w *writer) firstKey(mustExist bool) error {
	signer, vkey, err := loadKey(w.l.opt.KeyFile, w.l.origin, !mustExist)
	if err != nil {
		return err
	}
	w.signer = signer
	path := filepath.Join(w.l.dir, dirKeys, keyName(1))
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !mustExist {
		return writeFile(path, []byte(vkey+"\n"), 0o644, true)
	}
	if err != nil {
		return err
	}
	if string(b) != vkey+"\n" && !mustExist {
		// A first start that ended before its first head: nothing was signed.
		return writeFile(path, []byte(vkey+"\n"), 0o644, true)
	}
	if string(b) != vkey+"\n" {
		return fmt.Errorf("signing key %s does not belong to this log: keys/%s names another", w.l.opt.KeyFile, keyName(1))
	}
	return nil
}

// publishKeys writes verifier keys that a crash kept from the folder.
func (w *writer) publishKeys(keys []segmentKey) error {
	for _, k := range keys {
		path := filepath.Join(w.l.dir, dirKeys, keyName(k.Epoch))
		if fileExists(path) {
			continue
		}
		if err := writeFile(path, []byte(k.VKey+"\n"), 0o644, true); err != nil {
			return err
		}
	}
	return nil
}

func keyName(epoch int64) string { return fmt.Sprintf("%04d.vkey", epoch) }
