package guest

import (
	"math/bits"
	"unsafe"
)

// The functions below move over JSON text without looking closer than they
// must: what is skipped is not checked. They look at eight bytes at a time,
// because a taken branch is what costs in code that the Go toolchain makes for
// WebAssembly: measured, a byte-wise loop takes five times as long.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// zeros marks the bytes of x that are zero. The lowest mark is exact; above it
// there may be false ones (Mycroft 1987).
func zeros(x uint64) uint64 { return (x - ones) &^ x & highs }

func word(t string, i int) uint64 {
	return *(*uint64)(unsafe.Add(unsafe.Pointer(unsafe.StringData(t)), i))
}

func space(t string, i int) int {
	for i < len(t) && t[i] <= ' ' {
		i++
	}
	return i
}

// value is the document that begins at i. The end of an object or array is not
// looked for: often only one member of it is wanted.
func value(t string, i int) Document {
	if i >= len(t) {
		return Document{}
	}
	if t[i] == '{' || t[i] == '[' {
		return Document{t[i:]}
	}
	return Document{t[i:skip(t, i)]}
}

// skip returns the index after the value that begins at i.
func skip(t string, i int) int {
	if i >= len(t) {
		return len(t)
	}
	switch t[i] {
	case '{', '[':
		return skipContainer(t, i)
	case '"':
		i++
		for i < len(t) {
			if i+8 <= len(t) {
				w := word(t, i)
				m := zeros(w^ones*'"') | zeros(w^ones*'\\')
				if m == 0 {
					i += 8
					continue
				}
				i += bits.TrailingZeros64(m) >> 3
			}
			if t[i] == '"' {
				return i + 1
			}
			if t[i] == '\\' {
				i++
			}
			i++
		}
		return len(t)
	}
	for i < len(t) {
		if c := t[i]; c == ',' || c == '}' || c == ']' || c <= ' ' {
			break
		}
		i++
	}
	return i
}

// skipContainer returns the index after the object or array that begins at i.
func skipContainer(t string, i int) int {
	depth := 0
	for i < len(t) {
		if i+8 <= len(t) {
			w := word(t, i) | ones*0x20 // '[' and '{', ']' and '}' differ in this bit
			m := zeros(w^ones*'"') | zeros(w^ones*'{') | zeros(w^ones*'}')
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		}
		c := t[i]
		i++
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i
			}
		case '"':
			for i < len(t) {
				if i+8 <= len(t) {
					w := word(t, i)
					m := zeros(w^ones*'"') | zeros(w^ones*'\\')
					if m == 0 {
						i += 8
						continue
					}
					i += bits.TrailingZeros64(m) >> 3
				}
				c := t[i]
				i++
				if c == '"' {
					break
				}
				if c == '\\' {
					i++
				}
			}
		}
	}
	return len(t)
}

// next returns the index of the first backslash at or after i, or len(t).
func next(t string, i int) int {
	for ; i+8 <= len(t); i += 8 {
		if m := zeros(word(t, i) ^ ones*'\\'); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for i < len(t) && t[i] != '\\' {
		i++
	}
	return i
}
