package guest

import (
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

var escapes = [256]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', '"': '"', '\\': '\\', '/': '/'}

// unescape is the text a JSON string stands for; t is what is between the
// quotes. What is not a valid escape is left as it is.
func unescape(t string) string {
	i := next(t, 0)
	if i == len(t) {
		return t
	}
	out := room(len(t))
	for from := 0; ; {
		out = append(out, t[from:i]...)
		if i >= len(t) {
			return unsafe.String(unsafe.SliceData(out), len(out))
		}
		from = i
		if i+1 < len(t) {
			if c := escapes[t[i+1]]; c != 0 {
				out = append(out, c)
				from = i + 2
			} else if t[i+1] == 'u' {
				r, n := unicode(t[i:])
				out = utf8.AppendRune(out, r)
				from = i + n
			}
		}
		if from == i { // not an escape
			out = append(out, '\\')
			from++
		}
		i = next(t, from)
	}
}

// scratch holds unescaped texts, so that the common call allocates nothing; used
// is how much of it this call took.
var (
	scratch [maxInput]byte
	used    int
)

// room returns an empty slice that n bytes fit into.
func room(n int) []byte {
	if n > len(scratch)-used {
		return make([]byte, 0, n)
	}
	b := scratch[used : used : used+n]
	used += n
	return b
}

// unicode reads \uXXXX, or two of them that form one character.
func unicode(t string) (rune, int) {
	hi, ok := hex4(t)
	if !ok {
		return utf8.RuneError, min(len(t), 2)
	}
	if utf16.IsSurrogate(hi) {
		if lo, ok := hex4(t[6:]); ok {
			if r := utf16.DecodeRune(hi, lo); r != utf8.RuneError {
				return r, 12
			}
		}
		return utf8.RuneError, 6
	}
	return hi, 6
}

func hex4(t string) (rune, bool) {
	if len(t) < 6 || t[0] != '\\' || t[1] != 'u' {
		return 0, false
	}
	v := rune(0)
	for _, c := range []byte(t[2:6]) {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			v = v<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// quoted appends s as a JSON string. Most are plain words.
func quoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			return jsonscan.AppendString(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
