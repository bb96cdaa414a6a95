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

// invalidRest checks what rules do not read. On a memo hit the fields that they
// read equal those of an input that was checked before.
func (p *projection[T]) invalidRest(in T) string {
	if ordinary(p.doc.operation(in)) && !p.odd(in) {
		return ""
	}
	return p.doc.invalid(in)
}

// odd checks the unread fields beside the operation.
func (p *projection[T]) odd(in T) bool {
	for _, f := range p.rest {
		if f.invalid(in) {
			return true
		}
	}
	return false
}

// ordinary reports whether an operation is certainly valid: all its texts are
// short and plain, and it has few lists and no attributes. Nearly all are, and
// this answers without a table; the others are looked at field by field.
func ordinary(o *taxonomy.Operation) bool {
	return len(o.DependsOn) == 0 && len(o.Attributes) == 0 &&
		fine(o.Kind) && fine(o.Name) && fine(o.Provider) && fine(o.Model) && fine(o.Region) && fine(o.Credential) &&
		fine(o.Tool) && fine(o.Action) && fine(o.ActionClass) && fine(o.Tenant) && fine(o.User) && fine(o.Agent) &&
		fine(o.Workflow) && fine(o.WorkflowVersion) && fine(o.TaskClass) && fine(o.PromptVersion) && fine(o.Schema) &&
		fine(o.Impact) && fine(o.IdempotencyKey) && fine(o.RunID) && fine(o.RequestID) && fine(o.ParentID) && fine(o.ArgsFP)
}

func fine(s string) bool { return s == "" || len(s) <= maxText && plain(s) }

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
