package receipts

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// An InputReader opens many sealed inputs of one log, in the order in which
// they were sealed: it keeps files and keys at hand. It serves one goroutine.
type InputReader struct {
	in    *Inputs
	days  map[string]cipher.AEAD // by <tenant>/<day>
	files map[string]*inputWindow
}

// inputWindow is the part of one file that was read last.
type inputWindow struct {
	f    *os.File
	from int64
	buf  []byte
}

// maxInputFiles bounds the files that one reader holds open.
const maxInputFiles = 64

// Reader opens inputs one after the other. Close it.
func (in *Inputs) Reader() *InputReader {
	return &InputReader{in: in, days: map[string]cipher.AEAD{}, files: map[string]*inputWindow{}}
}

// Close closes the files.
func (ir *InputReader) Close() {
	for _, w := range ir.files {
		w.f.Close()
	}
	ir.files = map[string]*inputWindow{}
}

// Open is [Inputs.Open]. A key that was read stays in use until Close, so an
// erasure meanwhile may be noticed late.
func (ir *InputReader) Open(r *Receipt) ([]byte, error) {
	b, err := ir.open(r)
	if errors.Is(err, ErrNotFound) && ir.in.Flush() == nil { // it may not have reached the file yet
		b, err = ir.open(r)
	}
	if err != nil {
		return nil, fmt.Errorf("open input of receipt %s: %w", r.ID, err)
	}
	return b, nil
}

func (ir *InputReader) open(r *Receipt) ([]byte, error) {
	name, day, path, off, err := ir.in.place(r.InputRef)
	if err != nil {
		return nil, err
	}
	aead, err := ir.key(name, day)
	if err != nil {
		return nil, err
	}
	sealed, err := ir.frame(path, off)
	if err != nil {
		return nil, err
	}
	return unseal(aead, sealed, r)
}

func (ir *InputReader) key(name, day string) (cipher.AEAD, error) {
	if aead, ok := ir.days[name+"/"+day]; ok {
		return aead, nil
	}
	secret, err := ir.in.secret(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrErased
	}
	if err != nil {
		return nil, err
	}
	aead, err := dayKey(secret, day)
	if err == nil {
		ir.days[name+"/"+day] = aead
	}
	return aead, err
}

// frame reads the frame at off, and what follows it for the next calls.
func (ir *InputReader) frame(path string, off int64) ([]byte, error) {
	w, err := ir.file(path)
	if err != nil {
		return nil, err
	}
	if off >= w.from && off < w.from+int64(len(w.buf)) {
		if b, _, err := nextFrame(w.buf[off-w.from:]); !errors.Is(err, errTorn) {
			return b, err
		}
	}
	if cap(w.buf) == 0 {
		w.buf = make([]byte, frameHead+maxFrame)
	}
	n, err := w.f.ReadAt(w.buf[:cap(w.buf)], off)
	w.from, w.buf = off, w.buf[:n]
	if n == 0 {
		return nil, fmt.Errorf("%w: its file ends before it (%v)", ErrNotFound, err)
	}
	b, _, err := nextFrame(w.buf)
	return b, err
}

func (ir *InputReader) file(path string) (*inputWindow, error) {
	if w, ok := ir.files[path]; ok {
		return w, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	w := &inputWindow{f: f}
	if len(ir.files) >= maxInputFiles {
		for old, gone := range ir.files { // any: its place is found again
			gone.f.Close()
			w.buf = gone.buf[:0]
			delete(ir.files, old)
			break
		}
	}
	ir.files[path] = w
	return w, nil
}
