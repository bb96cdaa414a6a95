package wasm

import (
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PAGEMAP_SCAN (Linux 6.7, Documentation/admin-guide/mm/pagemap.rst) lists the
// pages of a range that have certain properties. In a private file mapping the
// pages that are present or swapped and do not belong to the file are the
// written ones.

// pageRegion is struct page_region.
type pageRegion struct{ start, end, categories uint64 }

// scanArg is struct pm_scan_arg.
type scanArg struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages uint64
	inverted, mask, anyOf, returned                         uint64
}

const (
	pagemapScan = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)
	pageIsFile  = 1 << 2
	pagePresent = 1 << 3
	pageSwapped = 1 << 4
)

// pagemap is the process's page map, or nil where the scan does not work: then
// all pages are dropped after each call. It stays open for the process's life.
var pagemap = sync.OnceValue(func() *os.File {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	if !scanWorks(int(f.Fd())) {
		f.Close()
		return nil
	}
	return f
})

// A pageScan is the kernel's argument and answer. It lives in the heap, where
// it does not move while the kernel writes.
type pageScan struct {
	arg     scanArg
	regions [64]pageRegion
}

// written lists the written pages of a private mapping. ok false means that
// they are in more places than fit, or not known.
func (s *pageScan) written(b []byte) (_ []pageRegion, ok bool) {
	f := pagemap()
	if f == nil || len(b) == 0 {
		return nil, len(b) == 0
	}
	return s.scan(int(f.Fd()), b)
}

func (s *pageScan) scan(fd int, b []byte) (_ []pageRegion, ok bool) {
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	end := start + uint64(len(b))
	s.arg = scanArg{size: uint64(unsafe.Sizeof(scanArg{})), start: start, end: end,
		vec: uint64(uintptr(unsafe.Pointer(&s.regions))), vecLen: uint64(len(s.regions)),
		inverted: pageIsFile, mask: pageIsFile, anyOf: pagePresent | pageSwapped, returned: pagePresent | pageSwapped}
	// A raw call: it takes about a microsecond and never waits.
	n, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), pagemapScan, uintptr(unsafe.Pointer(&s.arg)))
	if errno != 0 || s.arg.walkEnd != end || n > uintptr(len(s.regions)) {
		return nil, false
	}
	return s.regions[:n], true
}

// scanWorks tries the scan on a mapping with one written, one read and one
// untouched page: the answer must be the written one.
func scanWorks(fd int) bool {
	page := os.Getpagesize()
	file, err := unix.MemfdCreate("fusebox-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(file)
	if unix.Ftruncate(file, int64(3*page)) != nil {
		return false
	}
	b, err := unix.Mmap(file, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return false
	}
	defer unix.Munmap(b)
	b[page]++
	touched := b[2*page]
	dirty, ok := new(pageScan).scan(fd, b)
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	return touched == 0 && ok && len(dirty) == 1 &&
		dirty[0].start == base+uint64(page) && dirty[0].end == base+uint64(2*page)
}
