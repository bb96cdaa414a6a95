package wasm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// On Linux the pristine memory of a module is a sealed memory file that every
// instance maps privately: an instance costs only the pages it writes, and
// after a call only those are brought back.

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

// newImage keeps the pristine memory as a memory file; where that is not to be
// had, as a copy.
func newImage(mem []byte) (*image, error) {
	if len(mem) == 0 {
		return &image{fd: -1}, nil
	}
	fd, err := unix.MemfdCreate("fusebox-wasm", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return &image{bytes: append([]byte(nil), mem...), fd: -1}, nil
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

// keepMost is how many written bytes an instance may keep as its own pages. A
// page that a call writes is most likely written by the next one too, and
// copying 4 KiB back costs a tenth of dropping the page and faulting it in
// again.
const keepMost = 256 << 10

// rewind makes a private mapping equal to the image again: by copying what was
// written where that is little, else by dropping all written pages. The kernel
// knows which pages were written; nothing is guessed.
func (l *linear) rewind(pristine []byte) bool {
	b := l.buf[:l.size]
	dirty, ok := l.scan.written(b)
	total := uint64(0)
	for _, r := range dirty {
		total += r.end - r.start
	}
	if !ok || total > keepMost {
		return l.dropAll()
	}
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	for _, r := range dirty {
		copy(b[r.start-base:r.end-base], pristine[r.start-base:r.end-base])
	}
	return true
}

// dropAll is the other way of restoring, whatever was written.
func (l *linear) dropAll() bool { return unix.Madvise(l.buf[:l.size], unix.MADV_DONTNEED) == nil }
