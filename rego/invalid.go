package rego

import (
	"unicode/utf8"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// invalid returns the path of the first field whose value no input may have,
// or "". OPA passes raw bytes through and lets one long string overrun a
// deadline (a 600 kB expansion took twice its 50 ms), so both stop here.
func (d *document[T]) invalid(in T) string {
	for i := range d.fields {
		if f := &d.fields[i]; f.invalid(in) {
			return f.path
		}
	}
	return ""
}

// invalidRest checks only the fields that rules do not read. On a memo hit the
// others equal those of an input that was checked before.
func (p *projection[T]) invalidRest(in T) string {
	for _, f := range p.rest {
		if f.invalid(in) {
			return f.path
		}
	}
	return ""
}

func (f *field[T]) invalid(in T) bool {
	switch f.kind {
	case text:
		return badText(f.text(in), f.part)
	case texts:
		return badTexts(f.texts(in), f.most)
	case rows:
		n := f.count(in)
		if n > f.most {
			return true
		}
		for row := range n {
			for c := range f.columns {
				switch col := &f.columns[c]; {
				case col.text != nil && badText(col.text(in, row), false),
					col.texts != nil && badTexts(col.texts(in, row), maxList):
					return true
				}
			}
		}
	case attributes:
		return badFacts(f.facts(in), f.most)
	}
	return false
}

func badTexts(list []string, most int) bool {
	if len(list) > most {
		return true
	}
	for _, s := range list {
		if badText(s, false) {
			return true
		}
	}
	return false
}

func badFacts(facts taxonomy.Attributes, most int) bool {
	if len(facts) > most {
		return true
	}
	for n, v := range facts {
		if badText(n, true) {
			return true
		}
		switch v := v.(type) {
		case string:
			if badText(v, false) {
				return true
			}
		case int64, bool:
		default:
			return true
		}
	}
	return false
}

// badText reports a string that is too long, not UTF-8, or, where it may
// become part of a scope, holds a control character.
func badText(s string, part bool) bool {
	if len(s) > maxText {
		return true
	}
	if plain(s) {
		return false
	}
	if !utf8.ValidString(s) {
		return true
	}
	if part {
		for _, r := range s {
			if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
				return true
			}
		}
	}
	return false
}

// plain reports whether every byte is in 0x20..0x7e. Nearly every text of an
// operation is, and this runs on the hit path, so it looks at eight bytes at a
// time.
func plain(s string) bool {
	const (
		high = 0x8080808080808080
		ones = 0x0101010101010101
	)
	for len(s) >= 8 {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		// A set high bit: not ASCII, below 0x20 (the subtraction borrows), or 0x7f
		// (the addition carries into it). A borrow can only mark a word that has
		// another bad byte, so plain never says yes wrongly.
		if (w|(w-ones*0x20)|(w+ones))&high != 0 {
			return false
		}
		s = s[8:]
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
