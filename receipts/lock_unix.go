//go:build unix

package receipts

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes the lock without waiting. The kernel frees it when the
// process ends, however it ends.
func lockFile(f *os.File) (taken bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// syncData makes written bytes durable.
func syncData(f *os.File) error { return fdatasync(f) }

// ignoreUnsupported passes over file systems that cannot sync a directory.
func ignoreUnsupported(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
