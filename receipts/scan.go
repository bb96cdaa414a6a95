package receipts

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// scanner reads canonical JSON and nothing else: no white space, keys in
// strictly rising order, integers only, each string in its one spelling. Two
// documents that differ in bytes therefore differ in meaning. The first fault
// stops it.
type scanner struct {
	b   []byte
	i   int
	err error
}

func (s *scanner) fail(what string) {
	if s.err == nil {
		s.err = fmt.Errorf("%s at byte %d", what, s.i)
	}
}

// begin enters an object or a list; more says that it has an entry.
func (s *scanner) begin(left, right byte) (more bool) {
	if s.err != nil || s.i >= len(s.b) || s.b[s.i] != left {
		s.fail("want " + string(left))
		return false
	}
	s.i++
	if s.i < len(s.b) && s.b[s.i] == right {
		s.i++
		return false
	}
	return true
}

// next goes to the following entry, or out.
func (s *scanner) next(right byte) (more bool) {
	if s.err != nil {
		return false
	}
	if s.i < len(s.b) {
		switch s.b[s.i] {
		case ',':
			s.i++
			return true
		case right:
			s.i++
			return false
		}
	}
	s.fail("want , or " + string(right))
	return false
}

// key reads a key and its colon, and checks that it rises above the last one.
// Keys are plain ASCII, whose byte order is the order RFC 8785 asks for.
func (s *scanner) key(last *[]byte) []byte {
	raw, escaped := s.raw()
	if s.err != nil {
		return nil
	}
	if escaped || !isPlain(string(raw)) {
		s.fail("key is not plain ASCII")
		return nil
	}
	if *last != nil && bytes.Compare(*last, raw) >= 0 {
		s.fail("keys are not in rising order")
		return nil
	}
	*last = raw
	if s.i >= len(s.b) || s.b[s.i] != ':' {
		s.fail("want :")
		return nil
	}
	s.i++
	return raw
}

// raw reads a string and returns what stands between the quotes.
func (s *scanner) raw() (raw []byte, escaped bool) {
	if s.err != nil || s.i >= len(s.b) || s.b[s.i] != '"' {
		s.fail("want a string")
		return nil, false
	}
	b, i := s.b, s.i+1
	for start := i; i < len(b); {
		switch c := b[i]; {
		case plain[c]:
			i++
		case c == '"':
			s.i = i + 1
			return b[start:i], escaped
		case c == '\\':
			n := escapeLen(b[i:])
			if n == 0 {
				s.i = i
				s.fail("escape is not canonical")
				return nil, false
			}
			i, escaped = i+n, true
		default:
			r, n := utf8.DecodeRune(b[i:])
			if c < utf8.RuneSelf || r == utf8.RuneError && n == 1 {
				s.i = i
				s.fail("byte does not belong in a string")
				return nil, false
			}
			i += n
		}
	}
	s.fail("string does not end")
	return nil, false
}

// escapeLen is the length of the canonical escape at the start of b, or 0.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', 'b', 't', 'n', 'f', 'r':
		return 2
	case 'u':
		if len(b) < 6 || b[2] != '0' || b[3] != '0' {
			return 0
		}
		hi, lo := unhex(b[4]), unhex(b[5])
		if hi < 0 || hi > 1 || lo < 0 {
			return 0
		}
		switch hi<<4 | lo {
		case '\b', '\t', '\n', '\f', '\r':
			return 0 // these have a shorter form
		}
		return 6
	}
	return 0
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

func unescape(raw []byte) string {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		switch raw[i] {
		case 'b':
			out = append(out, '\b')
		case 't':
			out = append(out, '\t')
		case 'n':
			out = append(out, '\n')
		case 'f':
			out = append(out, '\f')
		case 'r':
			out = append(out, '\r')
		case 'u':
			out = append(out, byte(unhex(raw[i+3])<<4|unhex(raw[i+4])))
			i += 4
		default:
			out = append(out, raw[i])
		}
	}
	return string(out)
}

func (s *scanner) text() string {
	raw, escaped := s.raw()
	if escaped {
		return unescape(raw)
	}
	return string(raw)
}

// int reads an integer in its one spelling, within ±(2^53−1).
func (s *scanner) int() int64 {
	if s.err != nil {
		return 0
	}
	b, i := s.b, s.i
	neg := i < len(b) && b[i] == '-'
	if neg {
		i++
	}
	start := i
	var n int64
	for i < len(b) && b[i] >= '0' && b[i] <= '9' && i-start < 17 {
		n = n*10 + int64(b[i]-'0')
		i++
	}
	digits := i - start
	if digits == 0 || n > maxInt || digits > 1 && b[start] == '0' || neg && n == 0 {
		s.fail("want an integer within ±(2^53−1)")
		return 0
	}
	s.i = i
	if neg {
		return -n
	}
	return n
}

func (s *scanner) bool() bool {
	switch {
	case s.err != nil:
		return false
	case bytes.HasPrefix(s.b[s.i:], []byte("true")):
		s.i += 4
		return true
	case bytes.HasPrefix(s.b[s.i:], []byte("false")):
		s.i += 5
		return false
	}
	s.fail("want true or false")
	return false
}

// maxDepth bounds nesting in fields that this version does not know.
const maxDepth = 8

// skip passes over a value of an unknown field.
func (s *scanner) skip(depth int) {
	if s.err != nil {
		return
	}
	if depth > maxDepth || s.i >= len(s.b) {
		s.fail("value is too deep or missing")
		return
	}
	switch c := s.b[s.i]; {
	case c == '"':
		s.raw()
	case c == '{':
		var last []byte
		for more := s.begin('{', '}'); more; more = s.next('}') {
			s.key(&last)
			s.skip(depth + 1)
		}
	case c == '[':
		for more := s.begin('[', ']'); more; more = s.next(']') {
			s.skip(depth + 1)
		}
	case c == 't' || c == 'f':
		s.bool()
	default:
		s.int()
	}
}

// end requires that everything was read.
func (s *scanner) end() error {
	if s.err == nil && s.i != len(s.b) {
		s.fail("more follows the receipt")
	}
	return s.err
}
