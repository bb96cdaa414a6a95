package rego

import (
	"strconv"
	"unicode/utf8"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// appendJSON appends the projected input as canonical JSON: keys in order, no
// spaces, integers in decimal, only the escapes that RFC 8785 asks for. It is
// what a receipt keeps, and what [Snapshot.Replay] reads.
func (p *projection[T]) appendJSON(b []byte, in T) []byte {
	return p.appendNodes(b, p.root, in)
}

func (p *projection[T]) appendNodes(b []byte, nodes []node, in T) []byte {
	b = append(b, '{')
	for i := range nodes {
		n := &nodes[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonText(b, n.name), ':')
		if n.field < 0 {
			b = p.appendNodes(b, n.children, in)
		} else {
			b = p.fields[n.field].appendJSON(b, in)
		}
	}
	return append(b, '}')
}

func (f *selected[T]) appendJSON(b []byte, in T) []byte {
	switch f.kind {
	case constant, text:
		return jsonText(b, f.text(in))
	case number:
		return strconv.AppendInt(b, f.number(in), 10)
	case flag:
		return strconv.AppendBool(b, f.flag(in))
	case texts:
		return jsonTexts(b, f.texts(in))
	case rows:
		b = append(b, '[')
		for row := range f.count(in) {
			if row > 0 {
				b = append(b, ',')
			}
			b = f.appendRow(b, in, row)
		}
		return append(b, ']')
	}
	return jsonFacts(b, f.facts(in), f.names)
}

// appendRow writes one object of a list. Its columns are declared in no
// particular order, so they are written in the order of columnOrder.
func (f *selected[T]) appendRow(b []byte, in T, row int) []byte {
	b = append(b, '{')
	for i, c := range columnOrder(f.columns) {
		col := &f.columns[c]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonText(b, col.name), ':')
		switch {
		case col.text != nil:
			b = jsonText(b, col.text(in, row))
		case col.number != nil:
			b = strconv.AppendInt(b, col.number(in, row), 10)
		default:
			b = jsonTexts(b, col.texts(in, row))
		}
	}
	return append(b, '}')
}

func columnOrder[T any](columns []column[T]) []int {
	order := make([]int, len(columns))
	for i := range order {
		order[i] = i
		for j := i; j > 0 && columns[order[j]].name < columns[order[j-1]].name; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	return order
}

func jsonTexts(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonText(b, s)
	}
	return append(b, ']')
}

func jsonFacts(b []byte, facts taxonomy.Attributes, names []string) []byte {
	if names == nil {
		names = sortedNames(facts)
	}
	b = append(b, '{')
	first := true
	for _, n := range names {
		v, ok := facts[n]
		if !ok {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(jsonText(b, n), ':')
		switch v := v.(type) {
		case string:
			b = jsonText(b, v)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case bool:
			b = strconv.AppendBool(b, v)
		default:
			b = append(b, "null"...)
		}
	}
	return append(b, '}')
}

// jsonText appends a JSON string with the escapes of RFC 8785, section 3.2.2.2.
// Invalid UTF-8 was refused before; were it not, it would become U+FFFD.
func jsonText(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}
