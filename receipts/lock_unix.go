//go:build unix

package receipts

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes the lock without waiting. The kernel frees it when the
// process ends, however it ends.
func lockFile(f *os.File) (taken bool, err error) { return flock(f, unix.LOCK_EX) }

// shareFile takes it beside others who share it: whoever only asks whether
// somebody writes must not be taken for a writer by the next who asks.
func shareFile(f *os.File) (taken bool, err error) { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) (taken bool, err error) {
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
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
