//go:build unix

package sdk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockServer takes DIR/serve.lock until release is called or the process ends,
// however it ends.
func lockServer(dir string) (release func() error, err error) {
	path := filepath.Join(dir, "serve.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		who := make([]byte, 32)
		n, _ := f.ReadAt(who, 0) // for people; an empty file says less
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
		}
		return nil, fmt.Errorf("data directory %s %w (process %s); stop that one, or start this one with --data and another directory",
			dir, ErrServed, strings.TrimSpace(string(who[:n])))
	}
	_ = f.Truncate(0)
	_, _ = fmt.Fprintf(f, "%d\n", os.Getpid()) // nothing depends on it
	return f.Close, nil
}
