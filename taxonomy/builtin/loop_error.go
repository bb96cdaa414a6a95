package builtin

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// NormalError is the fingerprint of an error's meaning: letters in lower case;
// numbers, ids, timestamps and everything that changes from call to call left
// out. Values that come from the call's own arguments (a JSON text, or nil)
// are kept, because they tell one target from another, and so are addresses
// and paths.
func NormalError(text string, args []byte) uint64 {
	own := ownValues(args)
	text = text[:min(len(text), maxMessage)]
	h := uint64(fnvOffset)
	for word := range strings.FieldsFuncSeq(text, separator) {
		word = strings.Trim(word, ".:'\"`-")
		if word == "" || volatile(word) && !own[word] {
			continue
		}
		for i := 0; i < len(word); i++ {
			c := word[i]
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			h = (h ^ uint64(c)) * fnvPrime
		}
		h = (h ^ ' ') * fnvPrime
	}
	return h
}

func separator(r rune) bool {
	switch r {
	case ' ', '\t', '\n', '\r', ',', ';', '(', ')', '[', ']', '{', '}', '<', '>', '=', '"', '\'', '|':
		return true
	}
	return false
}

// volatile reports whether a word is a number, an id or a time: it has a digit,
// and it is no address or path.
func volatile(word string) bool {
	if strings.Contains(word, "://") || strings.HasPrefix(word, "/") {
		return false
	}
	hexadecimal := len(word) >= 8
	for i := 0; i < len(word); i++ {
		c := word[i]
		if c >= '0' && c <= '9' {
			return true
		}
		if c|0x20 < 'a' || c|0x20 > 'f' {
			hexadecimal = false
		}
	}
	return hexadecimal
}

// maxOwn is how many values of the arguments are remembered.
const maxOwn = 64

// ownValues collects the words of all values of the arguments.
func ownValues(args []byte) map[string]bool {
	if len(args) == 0 {
		return nil
	}
	own := make(map[string]bool)
	r := bodyReader{Scanner: jsonscan.ScanBytes(args, jsonscan.Options{Lenient: true, Depth: bodyDepth})}
	r.values(func(v string) {
		for word := range strings.FieldsFuncSeq(v, separator) {
			if len(own) < maxOwn {
				own[strings.Trim(word, ".:'\"`-")] = true
			}
		}
	})
	return own
}

// values calls f with every string and number below the next value.
func (r *bodyReader) values(f func(string)) {
	switch r.Kind() {
	case jsonscan.Object:
		r.members(func(string) { r.values(f) })
	case jsonscan.Array:
		r.elements(func() { r.values(f) })
	case jsonscan.String:
		f(r.Text())
	case jsonscan.Number:
		f(r.Number())
	default:
		r.Skip()
	}
}

// CanonicalArgs is the canonical form of a call's arguments (RFC 8785: sorted
// keys, one form of numbers and strings), so that equivalent calls have one
// fingerprint. Arguments that are not JSON are taken as they are.
func CanonicalArgs(args []byte) []byte {
	out, err := jsonscan.AppendCanonical(nil, string(args), jsonscan.Options{Lenient: true})
	if err != nil {
		return args
	}
	return out
}
