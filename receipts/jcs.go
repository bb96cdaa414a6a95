package receipts

import (
	"strconv"
	"unicode/utf8"
)

// Canonical JSON as RFC 8785 wants it: no white space, keys sorted, the
// shortest escapes, and integers a double can hold.

const hexDigits = "0123456789abcdef"

// maxInt is 2^53−1, the largest integer n for which n and n+1 are both doubles
// (RFC 8785, appendix D).
const maxInt = 1<<53 - 1

// clamp brings n into the range; cut reports that it was outside.
func clamp(n int64) (v int64, cut bool) {
	switch {
	case n > maxInt:
		return maxInt, true
	case n < -maxInt:
		return -maxInt, true
	}
	return n, false
}

func appendInt(b []byte, n int64) []byte {
	if n >= 0 && n < 10 {
		return append(b, '0'+byte(n))
	}
	return strconv.AppendInt(b, n, 10)
}

// plain marks the bytes a JSON string holds as they are.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return
}()

// isPlain looks at eight bytes at a time.
func isPlain(s string) bool {
	for ; len(s) >= 8; s = s[8:] {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		if special(x) {
			return false
		}
	}
	for i := 0; i < len(s); i++ {
		if !plain[s[i]] {
			return false
		}
	}
	return true
}

// special reports whether one of eight bytes is a control character, a quote,
// a backslash or not ASCII. Each term leaves the top bit of such a byte set: a
// byte minus 0x20, or minus 1 once what is looked for was made zero, borrows.
// A borrow may reach the byte above it too, but only from a byte that is
// special itself.
func special(x uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^ones*'"', x^ones*'\\'
	return (x|(x-ones*0x20)&^x|(quote-ones)&^quote|(slash-ones)&^slash)&tops != 0
}

// appendString writes s and the closing quote. Bytes that are not UTF-8 become U+FFFD, one
// each. At most limit bytes stand between the quotes; cut reports that s did
// not fit, and a rune is never cut in half.
func appendString(b []byte, s string, limit int) (out []byte, cut bool) {
	end := len(b) + limit
	var buf [utf8.UTFMax + 2]byte
	for i := 0; i < len(s); {
		e := buf[:0]
		size := 1
		switch c := s[i]; {
		case plain[c]:
			e = append(e, c)
		case c < utf8.RuneSelf:
			e = appendEscape(e, c)
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			e = utf8.AppendRune(e, r)
		}
		if len(b)+len(e) > end {
			return append(b, '"'), true
		}
		b = append(b, e...)
		i += size
	}
	return append(b, '"'), false
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\t':
		return append(b, '\\', 't')
	case '\n':
		return append(b, '\\', 'n')
	case '\f':
		return append(b, '\\', 'f')
	case '\r':
		return append(b, '\\', 'r')
	}
	return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

// fits reports whether appendString would write all of s.
func fits(s string, limit int) bool {
	if len(s)*6 <= limit || len(s) <= limit && isPlain(s) {
		return true
	}
	_, cut := appendString(nil, s, limit)
	return !cut
}

// code marks the bytes of a word: ASCII letters, digits and a few marks.
var code = func() (t [256]bool) {
	for c := range 256 {
		t[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	for _, c := range "_.:/-@+" {
		t[c] = true
	}
	return
}()

// isCode reports whether s is a word of a vocabulary and not a sentence.
func isCode(s string) bool {
	if len(s) > capCode {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !code[s[i]] {
			return false
		}
	}
	return true
}
