package receipts

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes the lock without waiting. The system frees it when the
// process ends, however it ends.
func lockFile(f *os.File) (taken bool, err error) { return lock(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// shareFile takes it beside others who share it: whoever only asks whether
// somebody writes must not be taken for a writer by the next who asks.
func shareFile(f *os.File) (taken bool, err error) { return lock(f, 0) }

func lock(f *os.File, how uint32) (taken bool, err error) {
	err = windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// syncData makes written bytes durable.
func syncData(f *os.File) error { return f.Sync() }

// ignoreUnsupported passes over everything: Windows does not sync directories.
func ignoreUnsupported(error) error { return nil }
