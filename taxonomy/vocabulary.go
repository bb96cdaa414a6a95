package taxonomy

import (
	"slices"
	"strconv"
	"strings"
)

// A Vocabulary lists what a module or plugin may say beside the enums. Without
// one it could write a value of the request into labels and receipts.
type Vocabulary struct {
	Reasons []string            // snake_case words it may give as reason
	Facts   map[string][]string // names, and for each the values it may have; an empty list allows a whole number only
}

// A VocabularyError is a word that is none, or an answer that says something
// policy did not declare.
type VocabularyError struct{ What string }

func (e *VocabularyError) Error() string { return e.What }

// Check says which word is none.
func (v *Vocabulary) Check() error {
	for _, r := range v.Reasons {
		if !Word(r) {
			return &VocabularyError{"vocabulary.reasons: " + strconv.Quote(r) + " is not snake_case of at most 64"}
		}
	}
	for name, values := range v.Facts {
		if !Word(name) {
			return &VocabularyError{"vocabulary.facts: " + strconv.Quote(name) + " is not snake_case of at most 64"}
		}
		for _, s := range values {
			if s == "" || len(s) > 64 {
				return &VocabularyError{"vocabulary.facts." + name + ": a value must have 1 to 64 bytes, got " + strconv.Quote(s)}
			}
		}
	}
	return nil
}

// Word reports whether s is snake_case of at most 64 bytes that begins with a
// letter.
func Word(s string) bool {
	return s != "" && len(s) <= 64 && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// Allows refuses a reason, fact or value that is not declared; the built-in
// reason may always be kept. Errors are [*VocabularyError].
func (v *Vocabulary) Allows(verdict *Verdict, builtin func() string) error {
	if r := verdict.Reason; r != "" && !slices.Contains(v.Reasons, r) && r != builtin() {
		return &VocabularyError{"reason " + Printable(r, 64) + " is not in the declared vocabulary"}
	}
	for _, f := range verdict.Facts {
		values, ok := v.Facts[f.Name]
		if !ok {
			return &VocabularyError{"fact " + Printable(f.Name, 64) + " is not in the declared vocabulary"}
		}
		if len(values) == 0 && !wholeNumber(f.Value) || len(values) > 0 && !slices.Contains(values, f.Value) {
			return &VocabularyError{"fact " + f.Name + " has a value that is not in the declared vocabulary"}
		}
	}
	return nil
}

// wholeNumber reports whether s is a whole number of at most 18 digits.
func wholeNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && len(s) <= 18 && strings.Trim(s, "0123456789") == ""
}

// Printable makes text from outside fit for a log: one line, no control
// characters, no invalid UTF-8, at most most bytes of source.
func Printable(s string, most int) string {
	cut := ""
	if len(s) > most {
		s, cut = s[:most], "…"
	}
	var b strings.Builder
	hex := func(prefix string, r rune, digits int) {
		n := strconv.FormatInt(int64(r), 16)
		b.WriteString(prefix + strings.Repeat("0", max(digits-len(n), 0)) + n)
	}
	for _, r := range s {
		switch {
		case r == '\uFFFD':
			b.WriteByte('?')
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r < 0x80:
			hex("\\x", r, 2)
		default:
			hex("\\u", r, 4)
		}
	}
	return b.String() + cut
}
