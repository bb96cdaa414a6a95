package wasm

import (
	"bytes"
	"testing"

	"github.com/fusebox-dev/fusebox/wasm/hostile"
)

// TestNoAddressSpace: a memory that cannot be reserved is an error of one
// instance, not the end of the process.
func TestNoAddressSpace(t *testing.T) {
	if _, err := newAllocator(1 << 62); err == nil {
		t.Error("half of all address space was handed out")
	}
	b, c := acme(t)
	m := load(t, b, c)
	m.gen.memMax = 1 << 62
	if _, err := m.gen.clone(); err == nil {
		t.Error("an instance without memory")
	}
}

// TestRewind: written pages are brought back, few by copying, many by dropping,
// wherever they lie.
func TestRewind(t *testing.T) {
	c, _ := hostile.Named("init_grows") // 16 MiB
	m := load(t, c.Wasm, hostileConfig(c))
	in := taken(t, m)
	defer m.keep(in)
	b := in.mem.buf[:in.mem.size]
	for _, pages := range []int{0, 1, 3, 63, 64, 65, 66, 200, 3000} {
		for i := range pages {
			b[i*len(b)/max(pages, 1)&^4095+i%4096] ^= 0xff
		}
		if !in.restore() {
			t.Fatal("not restored")
		}
		if !bytes.Equal(b, m.gen.image.bytes) {
			t.Fatalf("%d written pages: the memory differs from the image", pages)
		}
	}
	// One region of many pages.
	for i := range b[:1<<20] {
		b[i] = 7
	}
	if !in.restore() || !bytes.Equal(b, m.gen.image.bytes) {
		t.Error("a megabyte in one place: the memory differs from the image")
	}
}
