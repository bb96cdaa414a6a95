package wasm

import (
	"fmt"

	"github.com/tetratelabs/wazero/experimental"
)

// An image is the memory every call starts from.
type image struct {
	bytes []byte // pristine memory, whole pages
	fd    int    // the same bytes as a sealed memory file, or -1; see memory_linux.go
}

// linear is the memory of one instance, outside the garbage collector's sight:
// its address never changes and its release is ours.
type linear struct {
	buf    []byte // reserved up to the maximum
	size   int    // in use
	mapped bool   // the pristine part is a private mapping of the image's file
	scan   pageScan
}

var _ experimental.LinearMemory = (*linear)(nil)

// Reallocate is called by the runtime to create and to grow the memory.
func (l *linear) Reallocate(size uint64) []byte {
	if size > uint64(len(l.buf)) {
		return nil
	}
	l.size = int(size)
	return l.buf[:size]
}

// Free releases the memory; calling it again does nothing.
func (l *linear) Free() {
	if l.buf != nil {
		release(l.buf)
		l.buf, l.size = nil, 0
	}
}

// allocator hands one memory to one instance and remembers it, so that a
// failed start leaks nothing. It is reserved before the runtime asks: a runtime
// that is given less than it wants panics.
type allocator struct{ mem *linear }

var _ experimental.MemoryAllocator = (*allocator)(nil)

func newAllocator(most uint64) (*allocator, error) {
	buf := reserve(most)
	if uint64(len(buf)) != most {
		return nil, fmt.Errorf("reserve %d bytes of address space for a module's memory", most)
	}
	return &allocator{&linear{buf: buf}}, nil
}

func (a *allocator) Allocate(_, _ uint64) experimental.LinearMemory { return a.mem }

// adopt makes the image the content of the memory.
func (l *linear) adopt(im *image) error {
	if im.fd >= 0 {
		if err := mapImage(l.buf[:len(im.bytes)], im.fd); err != nil {
			return err
		}
		l.mapped = true
		return nil
	}
	copy(l.buf[:len(im.bytes)], im.bytes)
	return nil
}

// restore brings the image back; ok is false when the memory has grown, which
// cannot be undone.
func (l *linear) restore(im *image) (ok bool) {
	switch {
	case l.size != len(im.bytes):
		return false
	case l.mapped:
		return l.rewind(im.bytes)
	}
	copy(l.buf[:l.size], im.bytes)
	return true
}
