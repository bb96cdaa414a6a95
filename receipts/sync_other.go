//go:build unix && !linux

package receipts

import "os"

// fdatasync is fsync where the kernel has no cheaper call that can be trusted.
func fdatasync(f *os.File) error { return f.Sync() }
