package jsonscan

import (
	"math/bits"
	"unicode/utf8"
)

// RawText reads a string and returns what stands between its quotes, escapes
// as they are. escaped says that there are some; see [Unescape].
func (s *Scanner) RawText() (raw string, escaped bool) {
	if s.Kind() != String {
		s.fail("a string")
		return "", false
	}
	s.pos++
	from := s.pos
	wide := false // some byte is not ASCII
	for {
		var w bool
		s.pos, w = plain(s.text, s.pos)
		wide = wide || w
		if s.pos >= len(s.text) {
			s.fail("'\"' at the end of a string")
			return "", false
		}
		switch c := s.text[s.pos]; {
		case c == '"':
			raw = s.text[from:s.pos]
			if wide && !s.lenient && !utf8.ValidString(raw) {
				s.pos = from
				s.fail("valid UTF-8 in a string")
				return "", false
			}
			s.pos++
			return raw, escaped
		case c == '\\':
			escaped = true
			if !s.escape() {
				return "", false
			}
		case s.lenient:
			s.pos++
		default:
			s.fail("no control character in a string")
			return "", false
		}
	}
}

// plain moves over bytes that need no attention, eight at a time, and stops at
// a quote, a backslash or a control character, or at the end. wide says that
// some byte was not ASCII.
func plain(t string, i int) (at int, wide bool) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	high := uint64(0)
	for i+8 <= len(t) {
		b := t[i : i+8]
		w := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// A byte is below n when subtracting n borrows; bytes with the top bit
		// set are masked out by the &^ of the value itself.
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w) & tops
		if hit != 0 {
			n := bits.TrailingZeros64(hit) / 8
			high |= w & (1<<(8*n) - 1)
			return i + n, high&tops != 0
		}
		high |= w
		i += 8
	}
	wide = high&tops != 0
	for ; i < len(t); i++ {
		c := t[i]
		if c == '"' || c == '\\' || c < 0x20 {
			break
		}
		wide = wide || c >= 0x80
	}
	return i, wide
}

// escape reads one escape sequence; the backslash stands at pos.
func (s *Scanner) escape() bool {
	if s.pos+1 >= len(s.text) {
		s.fail("a whole escape")
		return false
	}
	switch s.text[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return true
	case 'u':
		r, ok := hex4(s.text, s.pos+2)
		if !ok {
			s.fail("four hexadecimal digits after \\u")
			return false
		}
		if r >= 0xD800 && r < 0xE000 && !s.lenient {
			low, ok := lowSurrogate(s.text, s.pos+6)
			if r >= 0xDC00 || !ok || low == 0 {
				s.fail("a whole surrogate pair")
				return false
			}
			s.pos += 6
		}
		s.pos += 6
		return true
	}
	s.fail("a known escape")
	return false
}

func lowSurrogate(t string, i int) (rune, bool) {
	if i+1 >= len(t) || t[i] != '\\' || t[i+1] != 'u' {
		return 0, false
	}
	r, ok := hex4(t, i+2)
	return r, ok && r >= 0xDC00 && r < 0xE000
}

func hex4(t string, i int) (rune, bool) {
	if i+4 > len(t) {
		return 0, false
	}
	var r rune
	for _, c := range []byte(t[i : i+4]) {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// Text reads a string. It is a slice of the input where the input has no
// escapes, and a fresh string otherwise.
func (s *Scanner) Text() string {
	raw, escaped := s.RawText()
	if !escaped {
		return raw
	}
	s.extra += len(raw)
	return string(Unescape(make([]byte, 0, len(raw)), raw))
}

// Unescape appends raw, which came from [Scanner.RawText], with its escapes
// resolved. A lone surrogate becomes U+FFFD.
func Unescape(dst []byte, raw string) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' || i+1 >= len(raw) {
			dst = append(dst, c)
			i++
			continue
		}
		r, n := Escape(raw[i:])
		if r < utf8.RuneSelf {
			dst = append(dst, byte(r))
		} else {
			dst = utf8.AppendRune(dst, r)
		}
		i += n
	}
	return dst
}

// Escape reads the escape sequence at the start of raw and says how many bytes
// it takes. raw must begin with a backslash and have come from RawText.
func Escape(raw string) (r rune, size int) {
	if len(raw) < 2 {
		return utf8.RuneError, len(raw)
	}
	switch raw[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, ok := hex4(raw, 2)
		if !ok {
			return utf8.RuneError, 2
		}
		if r < 0xD800 || r >= 0xE000 {
			return r, 6
		}
		if low, ok := lowSurrogate(raw, 6); ok && r < 0xDC00 {
			return (r-0xD800)<<10 | (low - 0xDC00) + 0x10000, 12
		}
		return utf8.RuneError, 6
	}
	return rune(raw[1]), 2
}
