package rego

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A projection shows rules exactly the fields that they read, and nothing
// else. Rules are evaluated on the projected input, never on the whole one, so
// a field that the analysis missed would be undefined to them, not stale.
type projection[T any] struct {
	doc    *document[T]
	fields []selected[T] // sorted by path, which is the order of the key
	rest   []*field[T]   // not read and not of the operation; still checked for what no input may hold
	root   []node
}

// A selected field is read. Attributes may be read by name; names is nil when
// they are read whole.
type selected[T any] struct {
	*field[T]
	names []string
}

// A node is one key of the projected object: a field, or an object of nodes.
type node struct {
	name     string
	key      *ast.Term
	children []node
	field    int // into projection.fields; -1 for an object
}

// project selects the fields with these dotted paths. A path below
// operation.attributes selects one attribute.
func project[T any](doc *document[T], paths []string) *projection[T] {
	p := &projection[T]{doc: doc}
	for i := range doc.fields {
		f := &doc.fields[i]
		s := selected[T]{field: f}
		read := false
		for _, path := range paths {
			switch {
			case path == "" || path == f.path || strings.HasPrefix(f.path, path+"."):
				read, s.names = true, nil
			case f.kind == attributes && strings.HasPrefix(path, f.path+"."):
				if !read || s.names != nil {
					s.names = append(s.names, path[len(f.path)+1:])
				}
				read = true
			case (f.kind == texts || f.kind == rows) && strings.HasPrefix(path, f.path+"."):
				read = true
			}
			if read && f.kind == attributes && s.names == nil {
				break
			}
		}
		if !read {
			if !strings.HasPrefix(f.path, "operation.") {
				p.rest = append(p.rest, f)
			}
			continue
		}
		slices.Sort(s.names)
		s.names = slices.Compact(s.names)
		p.fields = append(p.fields, s)
	}
	slices.SortFunc(p.fields, func(a, b selected[T]) int { return strings.Compare(a.path, b.path) })
	for i, f := range p.fields {
		p.root = plant(p.root, strings.Split(f.path, "."), i)
	}
	return p
}

// plant adds a field to a tree of nodes, kept in key order.
func plant(nodes []node, path []string, fieldAt int) []node {
	at, found := slices.BinarySearchFunc(nodes, path[0], func(n node, name string) int { return strings.Compare(n.name, name) })
	if !found {
		nodes = slices.Insert(nodes, at, node{name: path[0], key: ast.InternedTerm(path[0]), field: -1})
	}
	if len(path) == 1 {
		nodes[at].field = fieldAt
		return nodes
	}
	nodes[at].children = plant(nodes[at].children, path[1:], fieldAt)
	return nodes
}

// paths lists what the projection shows, for people.
func (p *projection[T]) paths() []string {
	var out []string
	for _, f := range p.fields {
		if f.names == nil {
			out = append(out, f.path)
			continue
		}
		for _, n := range f.names {
			out = append(out, f.path+"."+n)
		}
	}
	return out
}

// reads reports whether a field of this kind is read.
func (p *projection[T]) reads(k kind) bool {
	for _, f := range p.fields {
		if f.kind == k {
			return true
		}
	}
	return false
}

// appendKey appends an injective, length-prefixed, kind-tagged encoding of the
// projected input. Two inputs have equal keys if and only if rules see equal
// documents; agents control the strings, so the key is compared in full.
func (p *projection[T]) appendKey(b []byte, in T) []byte {
	for i := range p.fields {
		f := &p.fields[i]
		switch f.kind {
		case constant:
		case text:
			b = keyText(b, f.text(in))
		case number:
			b = binary.AppendVarint(b, f.number(in))
		case flag:
			b = keyFlag(b, f.flag(in))
		case texts:
			b = keyTexts(b, f.texts(in))
		case rows:
			n := f.count(in)
			b = binary.AppendUvarint(b, uint64(n))
			for row := range n {
				for c := range f.columns {
					switch col := &f.columns[c]; {
					case col.text != nil:
						b = keyText(b, col.text(in, row))
					case col.number != nil:
						b = binary.AppendVarint(b, col.number(in, row))
					default:
						b = keyTexts(b, col.texts(in, row))
					}
				}
			}
		case attributes:
			b = keyFacts(b, f.facts(in), f.names)
		}
	}
	return b
}

func keyText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func keyTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = keyText(b, s)
	}
	return b
}

func keyFlag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// keyFacts writes the named attributes, or all of them in the order of their
// names. A missing one has a tag of its own, so it equals no value.
func keyFacts(b []byte, facts taxonomy.Attributes, names []string) []byte {
	if names == nil {
		b = binary.AppendUvarint(b, uint64(len(facts)))
		for _, n := range sortedNames(facts) {
			b = keyFact(keyText(b, n), facts[n], true)
		}
		return b
	}
	for _, n := range names {
		v, ok := facts[n]
		b = keyFact(b, v, ok)
	}
	return b
}

func keyFact(b []byte, v any, present bool) []byte {
	switch v := v.(type) {
	case string:
		return keyText(append(b, 's'), v)
	case int64:
		return binary.AppendVarint(append(b, 'i'), v)
	case bool:
		return keyFlag(append(b, 'b'), v)
	}
	if present {
		return append(b, '?') // refused before it is evaluated
	}
	return append(b, '-')
}

func sortedNames(facts taxonomy.Attributes) []string {
	if len(facts) == 0 {
		return nil
	}
	out := make([]string, 0, len(facts))
	for n := range facts {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// value builds the projected input as Rego sees it.
func (p *projection[T]) value(in T) ast.Value { return p.object(p.root, in).Value }

func (p *projection[T]) object(nodes []node, in T) *ast.Term {
	items := make([][2]*ast.Term, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if n.field < 0 {
			items[i] = [2]*ast.Term{n.key, p.object(n.children, in)}
		} else {
			items[i] = [2]*ast.Term{n.key, p.fields[n.field].term(in)}
		}
	}
	return ast.NewTerm(ast.NewObject(items...))
}

func (f *selected[T]) term(in T) *ast.Term {
	switch f.kind {
	case constant, text:
		return ast.InternedTerm(f.text(in))
	case number:
		return numberTerm(f.number(in))
	case flag:
		return ast.InternedTerm(f.flag(in))
	case texts:
		return textsTerm(f.texts(in))
	case rows:
		items := make([]*ast.Term, f.count(in))
		for row := range items {
			items[row] = f.rowTerm(in, row)
		}
		return ast.NewTerm(ast.NewArray(items...))
	}
	return factsTerm(f.facts(in), f.names)
}

func (f *selected[T]) rowTerm(in T, row int) *ast.Term {
	items := make([][2]*ast.Term, len(f.columns))
	for c := range f.columns {
		col := &f.columns[c]
		items[c][0] = ast.InternedTerm(col.name)
		switch {
		case col.text != nil:
			items[c][1] = ast.InternedTerm(col.text(in, row))
		case col.number != nil:
			items[c][1] = numberTerm(col.number(in, row))
		default:
			items[c][1] = textsTerm(col.texts(in, row))
		}
	}
	return ast.NewTerm(ast.NewObject(items...))
}

func numberTerm(n int64) *ast.Term {
	if int64(int(n)) == n {
		return ast.InternedTerm(int(n))
	}
	return ast.NumberTerm(json.Number(strconv.FormatInt(n, 10)))
}

func textsTerm(list []string) *ast.Term {
	items := make([]*ast.Term, len(list))
	for i, s := range list {
		items[i] = ast.InternedTerm(s)
	}
	return ast.NewTerm(ast.NewArray(items...))
}

func factsTerm(facts taxonomy.Attributes, names []string) *ast.Term {
	if names == nil {
		names = sortedNames(facts)
	}
	items := make([][2]*ast.Term, 0, len(names))
	for _, n := range names {
		v, ok := facts[n]
		if !ok {
			continue
		}
		t := ast.NullTerm()
		switch v := v.(type) {
		case string:
			t = ast.InternedTerm(v)
		case int64:
			t = numberTerm(v)
		case bool:
			t = ast.InternedTerm(v)
		}
		items = append(items, [2]*ast.Term{ast.InternedTerm(n), t})
	}
	return ast.NewTerm(ast.NewObject(items...))
}
