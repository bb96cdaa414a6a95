package wasm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reserve maps address space; pages take memory when they are touched.
func reserve(n uint64) []byte {
	if n == 0 {
		return nil
	}
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil // the runtime refuses the instance
	}
	return b
}

func release(b []byte) { _ = unix.Munmap(b) }

// newImage keeps the pristine memory: large ones as a sealed memory file that
// all instances map privately, so that each costs only the pages it writes.
func newImage(mem []byte) (*image, error) {
	if len(mem) <= copyMost {
		return &image{bytes: append([]byte(nil), mem...), fd: -1}, nil
	}
	fd, err := unix.MemfdCreate("fusebox-wasm", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	for at := 0; at < len(mem); {
		n, err := unix.Pwrite(fd, mem[at:], int64(at))
		if err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("write memory file: %w", err)
		}
		at += n
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("seal memory file: %w", err)
	}
	b, err := unix.Mmap(fd, 0, len(mem), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map memory file: %w", err)
	}
	return &image{bytes: b, fd: fd}, nil
}

func (im *image) close() {
	if im.fd >= 0 {
		release(im.bytes)
		unix.Close(im.fd)
		im.fd = -1
	}
	im.bytes = nil
}

// mapImage replaces the pages of b by a private mapping of the file, at the
// same address.
func mapImage(b []byte, fd int) error {
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("map memory file: %w", err)
	}
	return nil
}

// dropPages forgets what was written; the next touch reads the file again.
func dropPages(b []byte) error { return unix.Madvise(b, unix.MADV_DONTNEED) }
