package receipts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A signing key is one line of text, a note signer key (c2sp.org/signed-note),
// in a file outside the log folder: who can copy or rewrite the folder cannot
// sign.

// loadKey reads the signer, or makes a new one where there is no file yet.
func loadKey(path, origin string, create bool) (signer note.Signer, vkey string, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		return newKey(path, origin)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("read signing key %s: it is missing, although the log has checkpoints; "+
			"restore it, or move the log aside to begin a new one", path)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read signing key: %w", err)
	}
	if err := checkPrivate(path); err != nil {
		return nil, "", err
	}
	skey, vkey, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	signer, err = note.NewSigner(skey)
	if err != nil {
		return nil, "", fmt.Errorf("read signing key %s: %w", path, err)
	}
	v, err := note.NewVerifier(vkey)
	if err != nil || v.KeyHash() != signer.KeyHash() || v.Name() != signer.Name() {
		return nil, "", fmt.Errorf("read signing key %s: its second line is not the verifier key of its first", path)
	}
	if signer.Name() != origin {
		return nil, "", fmt.Errorf("read signing key %s: it is of log %q, this is %q", path, signer.Name(), origin)
	}
	return signer, vkey, nil
}

// newKey makes a key and writes both halves, the private one first.
func newKey(path, origin string) (note.Signer, string, error) {
	skey, vkey, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return nil, "", fmt.Errorf("make signing key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, "", fmt.Errorf("make signing key: %w", err)
	}
	if err := writeFile(path, []byte(skey+"\n"+vkey+"\n"), 0o600, true); err != nil {
		return nil, "", fmt.Errorf("make signing key: %w", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, "", fmt.Errorf("make signing key: %w", err)
	}
	signer, err := note.NewSigner(skey)
	return signer, vkey, err
}

// insideOf reports whether path lies in dir or below it.
func insideOf(dir, path string) bool {
	d, err1 := filepath.Abs(dir)
	p, err2 := filepath.Abs(path)
	if err1 != nil || err2 != nil {
		return true
	}
	rel, err := filepath.Rel(d, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
