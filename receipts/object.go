package receipts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// PutObject keeps bytes that replay needs, such as a policy bundle or a module,
// under their digest "sha256:…". A receipt that names the digest in its Object
// field vouches for it: from then on verification misses it when it is gone.
func (l *Log) PutObject(b []byte) (digest string, err error) {
	sum := sha256.Sum256(b)
	name := hex.EncodeToString(sum[:])
	path := filepath.Join(l.dir, dirObjects, name)
	if have, err := os.ReadFile(path); err == nil && sha256.Sum256(have) == sum {
		return "sha256:" + name, nil
	}
	if err := writeFile(path, b, 0o640, true); err != nil {
		return "", fmt.Errorf("keep object %s: %w", name, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return "", fmt.Errorf("keep object %s: %w", name, err)
	}
	return "sha256:" + name, nil
}

// Object returns the stored bytes of a digest, after checking that they are.
func (r *Reader) Object(digest string) ([]byte, error) {
	return readObject(r.dir, digest)
}

var errObjectName = errors.New(`an object is named "sha256:" and 64 hexadecimal digits`)

func readObject(dir, digest string) ([]byte, error) {
	name, ok := strings.CutPrefix(digest, "sha256:")
	want, err := hex.DecodeString(name)
	if !ok || err != nil || len(want) != sha256.Size || strings.ToLower(name) != name {
		return nil, fmt.Errorf("object %q: %w", digest, errObjectName)
	}
	b, err := os.ReadFile(filepath.Join(dir, dirObjects, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("object %s: %w", digest, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", digest, err)
	}
	if sum := sha256.Sum256(b); string(sum[:]) != string(want) {
		return nil, fmt.Errorf("object %s: %w: it has other content", digest, ErrDamaged)
	}
	return b, nil
}
