package meter

import (
	"fmt"
	"unicode/utf8"
)

// reader walks over module bytes. The first error sticks; what is read after
// it is zero, so that callers check once per item.
type reader struct {
	b   []byte
	at  int // offset of b[0] in the module
	pos int
	err *Error
}

func (r *reader) fail(code Code, format string, args ...any) {
	if r.err == nil {
		r.err = &Error{Code: code, Offset: r.at + r.pos, Detail: fmt.Sprintf(format, args...)}
	}
	r.pos = len(r.b)
}

func (r *reader) bad(format string, args ...any) { r.fail(Malformed, format, args...) }

func (r *reader) done() bool { return r.pos >= len(r.b) }

func (r *reader) byte() byte {
	if r.pos >= len(r.b) {
		r.bad("the bytes end too early")
		return 0
	}
	c := r.b[r.pos]
	r.pos++
	return c
}

// bytes returns the next n bytes without copying.
func (r *reader) bytes(n uint32) []byte {
	if r.err != nil || uint64(n) > uint64(len(r.b)-r.pos) {
		r.bad("the bytes end too early: %d wanted, %d left", n, len(r.b)-r.pos)
		return nil
	}
	s := r.b[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return s
}

// sub returns a reader over the next n bytes.
func (r *reader) sub(n uint32) reader {
	at := r.at + r.pos
	return reader{b: r.bytes(n), at: at, err: r.err}
}

// u32 reads an unsigned LEB128 number. Padding with zero bits up to five bytes
// is legal (linkers do it), more is not.
func (r *reader) u32() uint32 {
	if r.pos < len(r.b) && r.b[r.pos] < 0x80 { // the common case
		r.pos++
		return uint32(r.b[r.pos-1])
	}
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		c := r.byte()
		if r.err != nil {
			return 0
		}
		if shift == 28 && c > 0x0f {
			break
		}
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.bad("a number is longer than 32 bits")
	return 0
}

// signed reads a signed LEB128 number of at most n bits.
func (r *reader) signed(n int) int64 {
	var v int64
	for shift := 0; ; shift += 7 {
		c := r.byte()
		if r.err != nil {
			return 0
		}
		v |= int64(c&0x7f) << shift
		if left := n - shift; left <= 7 {
			// The last byte: no continuation, and its unused bits repeat the sign.
			sign := int8(c<<1) >> left // all bits from the sign bit up
			if c >= 0x80 || (sign != 0 && sign != -1) {
				r.bad("a number is longer than %d bits", n)
				return 0
			}
		}
		if c < 0x80 {
			if shift+7 < 64 && c&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

// count reads the length of a vector and refuses one beyond most, or one that
// cannot fit in the bytes left (each item takes at least one).
func (r *reader) count(which string, most int) int {
	n := r.u32()
	if r.err != nil {
		return 0
	}
	if uint64(n) > uint64(most) {
		r.fail(OverLimit(which), "%d %s, at most %d allowed", n, which, most)
		return 0
	}
	if int(n) > len(r.b)-r.pos {
		r.bad("%d %s do not fit in the %d bytes left", n, which, len(r.b)-r.pos)
		return 0
	}
	return int(n)
}

// name reads a length-prefixed UTF-8 string.
func (r *reader) name(most int) string {
	n := r.u32()
	if r.err != nil {
		return ""
	}
	if uint64(n) > uint64(most) && uint64(n) <= uint64(len(r.b)-r.pos) {
		r.fail(OverLimit("name_bytes"), "a name of %d bytes, at most %d allowed", n, most)
		return ""
	}
	s := r.bytes(n)
	if r.err == nil && !utf8.Valid(s) {
		r.bad("a name is not UTF-8")
		return ""
	}
	return string(s)
}
