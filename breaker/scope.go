package breaker

import (
	"slices"
	"sync/atomic"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// ScopeOf is the readable scope of the circuit that a feed names on this path;
// "" when it names none, or none that the operation has a part of.
func (p *Path) ScopeOf(f taxonomy.Feed) string {
	k, err := p.conf.breakerOf(&f)
	if err != nil {
		return ""
	}
	level := slices.Index(k.Scope, f.Level)
	if level < 0 {
		return ""
	}
	at := &p.spans[k.index]
	if at.n == 0 {
		return "" // the operation has no part of that breaker's scope
	}
	return p.scope(int(at.at[level]))
}

// scope is the readable scope of a circuit on the path, made once.
func (p *Path) scope(place int) string {
	names := p.names.Load()
	if names == nil {
		fresh := make([]atomic.Pointer[string], len(p.nodes))
		p.names.CompareAndSwap(nil, &fresh)
		names = p.names.Load()
	}
	name := &(*names)[place]
	if s := name.Load(); s != nil {
		return *s
	}
	s := Scope(p.nodes[place].key)
	name.Store(&s)
	return s
}

// Key is the key of an operation's circuit at this level of the breaker's
// scope, a field's name. ok is false when the scope has no such field.
func (s *Setting) Key(op *taxonomy.Operation, level string) (key string, ok bool) {
	b := []byte(s.Name)
	for _, field := range s.Scope {
		read, _ := taxonomy.PartNamed(field)
		b = appendPart(b, field, read(op))
		if field == level {
			return string(b), true
		}
	}
	return "", false
}
