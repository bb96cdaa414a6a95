package jsonscan

import (
	"strconv"
	"unsafe"
)

// Kind is what a JSON value is. The zero value is Invalid.
type Kind uint8

const (
	Invalid Kind = iota // no value: bad text, the end of the input, or an earlier error
	Null
	Bool
	Number
	String
	Array
	Object
)

var kindNames = [...]string{"nothing valid", "null", "a boolean", "a number", "a string", "an array", "an object"}

func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return kindNames[Invalid]
	}
	return kindNames[k]
}

// MaxDepth is the deepest nesting any scanner accepts.
const MaxDepth = 64

// Options of a scanner. The zero value is the careful one: strict text, and
// the largest depth.
type Options struct {
	Depth   int  // deepest nesting; 0 or more than MaxDepth means MaxDepth
	Lenient bool // accept control characters and invalid UTF-8 inside strings, and lone surrogates
}

// A SyntaxError says where the text stopped being what was asked for.
type SyntaxError struct {
	Offset int    // in bytes from the start
	Want   string // what would have been right
	Got    string // what stood there
}

func (e *SyntaxError) Error() string {
	return "json offset " + strconv.Itoa(e.Offset) + ": expected " + e.Want + ", found " + e.Got
}

// A Scanner walks one JSON text. The first error sticks: afterwards every call
// answers its zero value, so that a caller may check [Scanner.Err] once.
type Scanner struct {
	text    string
	pos     int
	first   uint64 // bit per open container: no element was read yet
	object  uint64 // bit per open container: it is an object
	depth   int
	most    int
	lenient bool
	extra   int // work beyond one look per byte
	err     *SyntaxError
}

// Scan returns a scanner over text.
func Scan(text string, o Options) Scanner {
	most := o.Depth
	if most <= 0 || most > MaxDepth {
		most = MaxDepth
	}
	return Scanner{text: text, most: most, lenient: o.Lenient}
}

// ScanBytes is Scan without a copy; b must not change while slices of it are in
// use.
func ScanBytes(b []byte, o Options) Scanner {
	if len(b) == 0 {
		return Scan("", o)
	}
	return Scan(unsafe.String(&b[0], len(b)), o)
}

// Err returns the first error, or nil.
func (s *Scanner) Err() error {
	if s.err == nil {
		return nil
	}
	return s.err
}

// Offset is how many bytes were read.
func (s *Scanner) Offset() int { return s.pos }

// Depth is how many containers are open.
func (s *Scanner) Depth() int { return s.depth }

// Steps counts the work so far, in bytes looked at and tokens given out. It
// never exceeds a small multiple of the length of the text.
func (s *Scanner) Steps() int { return s.pos + s.extra }

// Fail makes the scanner stop with an error of the caller's.
func (s *Scanner) Fail(want string) { s.fail(want) }

func (s *Scanner) fail(want string) {
	if s.err == nil {
		s.err = &SyntaxError{Offset: s.pos, Want: want, Got: s.found()}
	}
}

// found names what stands at the current place.
func (s *Scanner) found() string {
	if s.pos >= len(s.text) {
		return "the end of the text"
	}
	switch k := kindOf(s.text[s.pos]); k {
	case Invalid:
		if c := s.text[s.pos]; c > 0x20 && c < 0x7f {
			return "'" + string(rune(c)) + "'"
		}
		return "byte " + strconv.Itoa(int(s.text[s.pos]))
	default:
		return k.String()
	}
}

func kindOf(c byte) Kind {
	switch c {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return Number
	}
	return Invalid
}

func (s *Scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// Kind tells what the next value is without reading it.
func (s *Scanner) Kind() Kind {
	if s.err != nil {
		return Invalid
	}
	s.extra++
	s.space()
	if s.pos >= len(s.text) {
		return Invalid
	}
	return kindOf(s.text[s.pos])
}

// End reports an error unless the text is used up.
func (s *Scanner) End() error {
	if s.err == nil {
		s.space()
		if s.pos < len(s.text) || s.depth != 0 {
			s.fail("the end of the text")
		}
	}
	return s.Err()
}

func (s *Scanner) enter(open byte, want string) bool {
	if s.err != nil {
		return false
	}
	s.extra++
	s.space()
	if s.pos >= len(s.text) || s.text[s.pos] != open {
		s.fail(want)
		return false
	}
	if s.depth >= s.most {
		s.fail("nesting of at most " + strconv.Itoa(s.most))
		return false
	}
	bit := uint64(1) << s.depth
	s.first |= bit
	if open == '{' {
		s.object |= bit
	} else {
		s.object &^= bit
	}
	s.depth++
	s.pos++
	return true
}

// EnterObject begins an object; read it with [Scanner.NextKey].
func (s *Scanner) EnterObject() bool { return s.enter('{', "an object") }

// EnterArray begins an array; read it with [Scanner.NextElement].
func (s *Scanner) EnterArray() bool { return s.enter('[', "an array") }

// more moves to the next member of the innermost container, or closes it.
func (s *Scanner) more(end byte, want string) bool {
	if s.err != nil || s.depth == 0 {
		return false
	}
	s.extra++
	s.space()
	bit := uint64(1) << (s.depth - 1)
	fresh := s.first&bit != 0
	s.first &^= bit
	switch {
	case s.pos < len(s.text) && s.text[s.pos] == end:
		s.pos++
		s.depth--
		return false
	case fresh:
		return true
	case s.pos < len(s.text) && s.text[s.pos] == ',':
		s.pos++
		return true
	}
	s.fail(want)
	return false
}

// NextElement reports whether another element follows; read it before asking
// again. At the end of the array it answers false and the array is closed.
func (s *Scanner) NextElement() bool { return s.more(']', "',' or ']'") }

// NextKey returns the next key of the object; read its value before asking
// again. At the end of the object ok is false and the object is closed.
func (s *Scanner) NextKey() (key string, ok bool) {
	if !s.more('}', "',' or '}'") {
		return "", false
	}
	key = s.Text()
	s.space()
	if s.err == nil && (s.pos >= len(s.text) || s.text[s.pos] != ':') {
		s.fail("':' after a key")
	}
	if s.err != nil {
		return "", false
	}
	s.pos++
	return key, true
}

func (s *Scanner) literal(word string) bool {
	if len(s.text)-s.pos < len(word) || s.text[s.pos:s.pos+len(word)] != word {
		s.fail(word)
		return false
	}
	s.pos += len(word)
	return true
}

// Null reads a null.
func (s *Scanner) Null() bool {
	if s.Kind() != Null {
		s.fail("null")
		return false
	}
	return s.literal("null")
}

// Bool reads a boolean.
func (s *Scanner) Bool() bool {
	if s.Kind() != Bool {
		s.fail("a boolean")
		return false
	}
	if s.text[s.pos] == 't' {
		return s.literal("true")
	}
	s.literal("false")
	return false
}

// Skip reads over the next value, whatever it is.
func (s *Scanner) Skip() {
	floor := s.depth
	for s.err == nil {
		switch s.Kind() {
		case Object:
			s.EnterObject()
		case Array:
			s.EnterArray()
		case String:
			s.RawText()
		case Number:
			s.Number()
		case Bool:
			s.Bool()
		case Null:
			s.Null()
		default:
			s.fail("a value")
		}
		for s.err == nil && s.depth > floor && !s.member() {
		}
		if s.depth == floor {
			return
		}
	}
}

// member moves Skip to the next value of the innermost container, keys read.
// It answers false when that container closed.
func (s *Scanner) member() bool {
	if s.object&(1<<(s.depth-1)) == 0 {
		return s.NextElement()
	}
	if !s.more('}', "',' or '}'") {
		return false
	}
	s.RawText()
	s.space()
	if s.err == nil && (s.pos >= len(s.text) || s.text[s.pos] != ':') {
		s.fail("':' after a key")
	}
	if s.err != nil {
		return false
	}
	s.pos++
	return true
}

// Raw reads over the next value and returns its text.
func (s *Scanner) Raw() string {
	s.Kind() // moves over white space
	from := s.pos
	s.Skip()
	if s.err != nil {
		return ""
	}
	return s.text[from:s.pos]
}
