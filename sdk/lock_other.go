//go:build !unix

package sdk

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockServer takes DIR/serve.lock by creating it. Where the system has no file
// locks a server that was killed leaves the file behind.
func lockServer(dir string) (release func() error, err error) {
	path := filepath.Join(dir, "serve.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s %w; stop that one, or delete %s if none runs", dir, ErrServed, path)
	}
	return func() error { _ = f.Close(); return os.Remove(path) }, nil
}
