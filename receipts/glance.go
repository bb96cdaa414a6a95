package receipts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
)

// A look is what verification and indexes need of a receipt. Taking it costs a
// fraction of decoding all of it.
type look struct {
	idText       []byte
	idMS         int64
	parent       ID
	seq          int64
	timeUS       int64
	monoUS       int64
	kind         Kind
	attempted    bool
	prev, state  State
	stateEpoch   int64
	stateVersion int64
	breaker      []byte // slices of the receipt's bytes
	scope        []byte
	cohort       []byte
	object       []byte
	log          []byte
	effect       []byte
	flags        []byte
	gap          *GapNote
	boot         *BootNote
	key          *KeyNote
	retention    *RetentionNote
}

var errLook = errors.New("not canonical JSON of a receipt")

// glance picks fields out of a receipt's bytes. It trusts that they are
// canonical JSON, as the log's writer made them; bytes that are not give an
// error or nonsense, never a panic. [Decode] is the strict reader.
//
// It is [eachField] written out for speed: verification spends its time here
// and in SHA-256, in equal parts.
func glance(g *look, b []byte) error {
	if len(b) < 2 || b[0] != '{' {
		return errLook
	}
	for i := 1; ; i++ {
		if i >= len(b) || b[i] != '"' {
			return errLook
		}
		i++
		end := quoteAt(b, i) // keys have no escapes
		if end+2 >= len(b) || b[end+1] != ':' {
			return errLook
		}
		key, v, next, ok := b[i:end], []byte(nil), 0, false
		switch i = end + 2; {
		case b[i] == '"':
			if n := quoteAt(b, i+1); n < len(b) && b[n-1] != '\\' {
				v, next, ok = b[i+1:n], n+1, true
			} else {
				v, next, ok = quoted(b, i)
			}
		case b[i] <= '9': // a number
			for next = i; next < len(b) && b[next] <= '9' && b[next] != ','; {
				next++
			}
			v, ok = b[i:next], true
		default:
			v, next, ok = flatList(b, i, key)
			if !ok {
				v, next, ok = value(b, i)
			}
		}
		if !ok || next >= len(b) {
			return errLook
		}
		if err := g.take(key, v); err != nil {
			return err
		}
		switch i = next; {
		case b[i] == ',':
		case b[i] == '}' && i == len(b)-1:
			return nil
		default:
			return errLook
		}
	}
}

// eachField calls f for each field: with the text between the quotes where the
// value is a string, with the value as it stands where not.
func eachField(b []byte, f func(key, v []byte) error) error {
	if len(b) < 2 || b[0] != '{' {
		return errLook
	}
	for i := 1; ; {
		key, at, ok := quoted(b, i)
		if !ok || at >= len(b) || b[at] != ':' {
			return errLook
		}
		v, end, ok := value(b, at+1)
		if !ok || end >= len(b) {
			return errLook
		}
		if err := f(key, v); err != nil {
			return err
		}
		switch {
		case b[end] == ',':
			i = end + 1
		case b[end] == '}' && end == len(b)-1:
			return nil
		default:
			return errLook
		}
	}
}

// flatList finds the end of the lists that make up a third of many receipts:
// their objects hold no lists. The bytes }]," before a letter are structure:
// inside a string a quote has a backslash, and after one comes no letter.
func flatList(b []byte, i int, key []byte) (v []byte, end int, ok bool) {
	if string(key) != "circuits" && string(key) != "feeds" {
		return nil, 0, false
	}
	for from := i; ; {
		n := bytes.Index(b[from:], listEnd)
		if n < 0 || from+n+len(listEnd) >= len(b) {
			return nil, 0, false
		}
		end = from + n + 2
		if c := b[end+2]; c >= 'a' && c <= 'z' {
			return b[i:end], end, true
		}
		from = end
	}
}

var listEnd = []byte(`}],"`)

// quoted returns what stands between the quotes at i, and where it ends.
func quoted(b []byte, i int) (text []byte, end int, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return nil, 0, false
	}
	start := i + 1
	for i = start; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return nil, 0, false
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		i++
		if slashes&1 == 0 {
			return b[start : i-1], i, true
		}
	}
}

// value returns the value at i: a string without its quotes, anything else as
// it stands.
func value(b []byte, i int) (v []byte, end int, ok bool) {
	if i >= len(b) {
		return nil, 0, false
	}
	if b[i] == '"' {
		return quoted(b, i)
	}
	if b[i] != '{' && b[i] != '[' {
		for k := i; k < len(b); k++ {
			if c := b[k]; c == ',' || c == '}' || c == ']' {
				return b[i:k], k, true
			}
		}
		return nil, 0, false
	}
	depth := 0
	for k := i; k < len(b); {
		switch c := b[k]; {
		case !bracket[c]:
			k++
		case c == '"':
			n := quoteAt(b, k+1)
			if n == len(b) {
				return nil, 0, false
			}
			if b[n-1] != '\\' {
				k = n + 1
			} else if _, k, ok = quoted(b, k); !ok {
				return nil, 0, false
			}
		case c == '{' || c == '[':
			depth++
			k++
		default:
			k++
			if depth--; depth == 0 {
				return b[i:k], k, true
			}
		}
	}
	return nil, 0, false
}

// quoteAt is the place of the first quote from i on, or the length of b. Keys
// and values are short: eight bytes at a time beat a call to a vectored search.
func quoteAt(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		const ones, tops = 0x0101010101010101, 0x8080808080808080
		x := binary.LittleEndian.Uint64(b[i:]) ^ ones*'"'
		if hit := (x - ones) &^ x & tops; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b) && b[i] != '"'; i++ {
	}
	return i
}

// bracket marks the bytes that nested values are taken apart by.
var bracket = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

func (g *look) take(key, v []byte) (err error) {
	switch string(key) {
	case "boot":
		d := decoder{scanner{b: v}}
		g.boot = d.boot()
		return d.end()
	case "breaker":
		g.breaker = v
	case "cohort":
		g.cohort = v
	case "effect":
		g.effect = v
	case "flags":
		g.flags = v
	case "gap":
		d := decoder{scanner{b: v}}
		g.gap = d.gap()
		return d.end()
	case "id":
		g.idText = v
		g.idMS, err = idMillis(v)
	case "key":
		d := decoder{scanner{b: v}}
		g.key = d.keyNote()
		return d.end()
	case "kind":
		return g.kind.UnmarshalText(v)
	case "log":
		g.log = v
	case "mono_us":
		g.monoUS, err = number(v)
	case "object":
		g.object = v
	case "parent":
		g.parent, err = parseID(v)
	case "prev_state":
		return g.prev.UnmarshalText(v)
	case "remote_call_attempted":
		g.attempted = len(v) == 4
	case "retention":
		d := decoder{scanner{b: v}}
		g.retention = d.retention()
		return d.end()
	case "scope":
		g.scope = v
	case "seq":
		g.seq, err = number(v)
	case "state":
		return g.state.UnmarshalText(v)
	case "state_epoch":
		g.stateEpoch, err = number(v)
	case "state_version":
		g.stateVersion, err = number(v)
	case "time_us":
		g.timeUS, err = number(v)
	}
	return err
}

func number(v []byte) (int64, error) {
	s := scanner{b: v}
	n := s.int()
	return n, s.end()
}
