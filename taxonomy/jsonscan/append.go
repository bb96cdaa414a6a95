package jsonscan

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string in the form of RFC 8785: only what
// must be escaped is escaped. Invalid UTF-8, which that form cannot carry,
// becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = appendEscaped(dst, s)
	return append(dst, '"')
}

// Fit tells how many bytes of s fit between the quotes of a JSON string of at
// most so many bytes, without splitting a character.
func Fit(s string, most int) int {
	n, size := 0, 0
	for n < len(s) {
		r, w := utf8.DecodeRuneInString(s[n:])
		if size += escapedSize(r); size > most {
			break
		}
		n += w
	}
	return n
}

func escapedSize(r rune) int {
	switch {
	case r == '"' || r == '\\' || r == '\b' || r == '\t' || r == '\n' || r == '\f' || r == '\r':
		return 2
	case r < 0x20:
		return 6
	}
	return utf8.RuneLen(r)
}

func appendEscaped(dst []byte, s string) []byte {
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[from:i]...)
				dst = append(dst, "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(dst, s[from:]...)
}

// AppendInt appends a whole number.
func AppendInt(dst []byte, v int64) []byte { return strconv.AppendInt(dst, v, 10) }

// AppendBool appends true or false.
func AppendBool(dst []byte, v bool) []byte { return strconv.AppendBool(dst, v) }

// ErrRange reports a number that has no finite 64-bit form.
var ErrRange = errors.New("number out of range")

// AppendNumber appends the text of a JSON number in canonical form. A whole
// number that fits an int64 keeps its digits (RFC 8785 would round it to a
// double beyond 2^53; our documents carry nano-dollars, which must not be
// rounded); everything else is written as ECMAScript writes a double.
func AppendNumber(dst []byte, text string) ([]byte, error) {
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		return strconv.AppendInt(dst, v, 10), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return dst, ErrRange
	}
	return AppendFloat(dst, f), nil
}

// AppendFloat appends a finite double as ECMAScript's Number::toString does.
func AppendFloat(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0') // also for -0
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go writes at least two digits in the exponent, ECMAScript no zero.
	if n := len(dst); n-from > 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// AppendCanonical appends a JSON value in canonical form: no white space, keys
// sorted by UTF-16 code units, duplicate keys refused.
func AppendCanonical(dst []byte, text string, o Options) ([]byte, error) {
	s := Scan(text, o)
	out := canonical(dst, &s)
	if err := s.End(); err != nil {
		return dst, err
	}
	return out, nil
}

type member struct {
	key   string
	value []byte
}

func canonical(dst []byte, s *Scanner) []byte {
	switch s.Kind() {
	case Object:
		return canonicalObject(dst, s)
	case Array:
		dst = append(dst, '[')
		s.EnterArray()
		for n := 0; s.NextElement(); n++ {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = canonical(dst, s)
		}
		return append(dst, ']')
	case String:
		return AppendString(dst, s.Text())
	case Number:
		out, err := AppendNumber(dst, s.Number())
		if err != nil {
			s.fail("a number that a double can hold")
		}
		return out
	case Bool:
		return AppendBool(dst, s.Bool())
	default:
		s.Null()
		return append(dst, "null"...)
	}
}

func canonicalObject(dst []byte, s *Scanner) []byte {
	s.EnterObject()
	var members []member
	for {
		key, ok := s.NextKey()
		if !ok {
			break
		}
		members = append(members, member{key, canonical(nil, s)})
	}
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.key, b.key) })
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			if members[i-1].key == m.key {
				s.fail("no key twice")
			}
			dst = append(dst, ',')
		}
		dst = AppendString(dst, m.key)
		dst = append(dst, ':')
		dst = append(dst, m.value...)
	}
	return append(dst, '}')
}

// compareUTF16 orders as RFC 8785 section 3.2.3 asks. It differs from byte
// order only where a character beyond U+FFFF meets one of U+E000 to U+FFFF.
func compareUTF16(a, b string) int {
	for len(a) > 0 && len(b) > 0 {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			return int(firstUnit(ra)) - int(firstUnit(rb)) + sameUnit(ra, rb)
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}

func firstUnit(r rune) rune {
	if hi, _ := utf16.EncodeRune(r); r > 0xFFFF {
		return hi
	}
	return r
}

// sameUnit decides between two characters that share their first unit.
func sameUnit(a, b rune) int {
	if firstUnit(a) != firstUnit(b) {
		return 0
	}
	return int(a - b)
}
