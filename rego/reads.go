package rego

import (
	"cmp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A read is one path of the input that some rule reads, and where.
type read struct {
	path []string // constant prefix; nil is the whole input
	file string
	line int
}

// A ReadSet says which input fields an entrypoint's answers depend on.
type ReadSet struct {
	Paths []string // dotted, sorted: "operation.tenant"
	Whole []string // "file:line" of every read of the whole input; the memo is off while there is one
}

// reader collects what the rules reachable from an entrypoint read. It works
// on compiled modules, where imports and locals are resolved.
type reader struct {
	compiler *ast.Compiler
	seen     map[*ast.Rule]bool
	queue    []*ast.Rule
	reads    []read
	builtins map[string]bool // names of all builtins called

	each func(*ast.Rule, []read, []ast.Ref) // told of every rule: its reads, and what of data it refers to
	data []ast.Ref
}

// readsOf returns every read of the rules that ref can reach, and the builtins
// that they call.
func readsOf(c *ast.Compiler, ref ast.Ref) ([]read, map[string]bool) {
	r := &reader{compiler: c, seen: map[*ast.Rule]bool{}, builtins: map[string]bool{}}
	r.all(ref)
	slices.SortFunc(r.reads, func(a, b read) int {
		return cmp.Or(slices.Compare(a.path, b.path), strings.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	r.reads = slices.CompactFunc(r.reads, func(a, b read) bool {
		return slices.Equal(a.path, b.path) && a.file == b.file && a.line == b.line
	})
	return r.reads, r.builtins
}

// all visits every rule that ref can reach.
func (r *reader) all(ref ast.Ref) {
	r.follow(ref)
	for len(r.queue) > 0 {
		rule := r.queue[0]
		r.queue = r.queue[1:]
		before := len(r.reads)
		r.data = r.data[:0]
		r.rule(rule)
		if r.each != nil {
			r.each(rule, r.reads[before:], r.data)
		}
	}
}

// follow queues the rules that a reference into data may reach; a variable in
// it matches every name.
func (r *reader) follow(ref ast.Ref) {
	r.data = append(r.data, ref)
	for _, rule := range r.compiler.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true}) {
		if !r.seen[rule] {
			r.seen[rule] = true
			r.queue = append(r.queue, rule)
		}
	}
}

// rule collects the reads of one rule, its else chain included. A local that
// only stands for a part of the input (op := input.operation) is followed: what
// counts is what is read through it (op.tenant). If it is used in any other
// way, the whole part counts.
func (r *reader) rule(rule *ast.Rule) {
	l := &locals{bound: map[ast.Var][]ast.Ref{}, plain: map[ast.Var]bool{}}
	l.collect(rule)
	for chain := rule; chain != nil; chain = chain.Else {
		r.walk(chain.Head, l, chain)
		r.walk(chain.Body, l, chain)
	}
}

func (r *reader) walk(x any, l *locals, rule *ast.Rule) {
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.With:
			// The target is replaced, not read.
			r.walk(x.Value, l, rule)
			return true
		case *ast.Expr:
			if v, ref, ok := alias(x); ok && l.follows(v) {
				r.inside(ref, l, rule)
				r.withs(x, l, rule)
				return true
			}
			if local, keys, ok := get(x); ok && l.follows(local) {
				r.through(local, keys, l, rule, x.Location, 0)
				for _, t := range x.Terms.([]*ast.Term)[2:] {
					r.walk(t, l, rule)
				}
				r.builtins["object.get"] = true
				r.withs(x, l, rule)
				return true
			}
			if x.IsCall() {
				r.builtins[x.Operator().String()] = true
			}
		case ast.Call:
			if len(x) > 0 {
				r.builtins[x[0].Value.String()] = true
			}
		case ast.Ref:
			r.ref(x, l, rule)
			r.inside(x, l, rule)
			return true
		case ast.Var:
			if x.Equal(ast.InputRootDocument.Value) {
				r.add(nil, nil, rule)
			}
		}
		return false
	}).Walk(x)
}

func (r *reader) withs(x *ast.Expr, l *locals, rule *ast.Rule) {
	for _, w := range x.With {
		r.walk(w, l, rule)
	}
}

// inside visits what is written inside a reference's brackets.
func (r *reader) inside(ref ast.Ref, l *locals, rule *ast.Rule) {
	for _, t := range ref[1:] {
		if !ast.IsConstant(t.Value) {
			r.walk(t, l, rule)
		}
	}
}

// ref counts one reference.
func (r *reader) ref(ref ast.Ref, l *locals, rule *ast.Rule) {
	switch head := ref[0].Value.(type) {
	case ast.Var:
		switch {
		case head.Equal(ast.InputRootDocument.Value):
			r.add(constants(ref[1:]), ref[0].Location, rule)
		case head.Equal(ast.DefaultRootDocument.Value):
			r.follow(ref)
		case l.follows(head):
			r.through(head, constants(ref[1:]), l, rule, ref[0].Location, 0)
		}
	default:
		r.walk(ref[0], l, rule)
	}
}

// through counts what is read of the input through a local.
func (r *reader) through(v ast.Var, keys []string, l *locals, rule *ast.Rule, at *ast.Location, depth int) {
	for _, ref := range l.bound[v] {
		prefix, exact := prefixOf(ref)
		path := prefix
		if exact {
			path = append(slices.Clone(prefix), keys...)
		}
		head := ref[0].Value.(ast.Var)
		switch {
		case head.Equal(ast.InputRootDocument.Value):
			r.add(path, at, rule)
		case l.follows(head) && depth < 16:
			r.through(head, path, l, rule, at, depth+1)
		}
	}
}

func (r *reader) add(path []string, at *ast.Location, rule *ast.Rule) {
	if at == nil || at.File == "" {
		at = rule.Location
	}
	rd := read{path: path}
	if at != nil {
		rd.file, rd.line = at.File, at.Row
	}
	r.reads = append(r.reads, rd)
}

// constants is the constant-string prefix of a reference; what comes after the
// first other element is dropped, so the part above it counts as read whole.
func constants(terms []*ast.Term) []string {
	var out []string
	for _, t := range terms {
		s, ok := t.Value.(ast.String)
		if !ok {
			break
		}
		out = append(out, string(s))
	}
	return out
}

// prefixOf is the constant prefix of a reference, and whether that is all of it.
func prefixOf(ref ast.Ref) (path []string, exact bool) {
	path = constants(ref[1:])
	return path, len(path) == len(ref)-1
}

// locals knows which variables of a rule only stand for parts of the input.
type locals struct {
	bound map[ast.Var][]ast.Ref // what they were made equal to
	plain map[ast.Var]bool      // used by themselves, as a whole value
	used  map[ast.Var]bool      // used to reach further
}

// follows reports whether everything that is read through v is seen at its uses.
func (l *locals) follows(v ast.Var) bool { return len(l.bound[v]) > 0 && !l.plain[v] && l.used[v] }

func (l *locals) collect(rule *ast.Rule) {
	l.used = map[ast.Var]bool{}
	for chain := rule; chain != nil; chain = chain.Else {
		l.walk(chain.Head)
		l.walk(chain.Body)
	}
	// A local bound to another local that is not followed cannot be followed.
	for changed := true; changed; {
		changed = false
		for v, refs := range l.bound {
			for _, ref := range refs {
				head := ref[0].Value.(ast.Var)
				if !l.plain[v] && !head.Equal(ast.InputRootDocument.Value) && !l.follows(head) {
					l.plain[v], changed = true, true
				}
			}
		}
	}
}

func (l *locals) walk(x any) {
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.With:
			l.walk(x.Value)
			return true
		case *ast.Expr:
			if v, ref, ok := alias(x); ok {
				l.bound[v] = append(l.bound[v], ref)
				if head := ref[0].Value.(ast.Var); !head.Equal(ast.InputRootDocument.Value) {
					l.used[head] = true
				}
				l.rest(ref[1:])
				l.withs(x)
				return true
			}
			if v, _, ok := get(x); ok {
				l.used[v] = true
				l.rest(x.Terms.([]*ast.Term)[2:])
				l.withs(x)
				return true
			}
		case ast.Ref:
			if head, ok := x[0].Value.(ast.Var); ok && len(x) > 1 {
				l.used[head] = true
				l.rest(x[1:])
				return true
			}
		case ast.Var:
			l.plain[x] = true
		}
		return false
	}).Walk(x)
}

func (l *locals) rest(terms []*ast.Term) {
	for _, t := range terms {
		l.walk(t)
	}
}

func (l *locals) withs(x *ast.Expr) {
	for _, w := range x.With {
		l.walk(w)
	}
}

// alias recognises "local = input.a.b" and "local = otherlocal.a.b".
func alias(x *ast.Expr) (ast.Var, ast.Ref, bool) {
	if !x.IsEquality() || x.Negated {
		return "", nil, false
	}
	terms := x.Terms.([]*ast.Term)
	for _, pair := range [2][2]*ast.Term{{terms[1], terms[2]}, {terms[2], terms[1]}} {
		v, ok := pair[0].Value.(ast.Var)
		if !ok || v.Equal(ast.InputRootDocument.Value) {
			continue
		}
		switch ref := pair[1].Value.(type) {
		case ast.Ref:
			head, ok := ref[0].Value.(ast.Var)
			if ok && !head.Equal(ast.DefaultRootDocument.Value) && head != v {
				return v, ref, true
			}
		case ast.Var:
			if ref.Equal(ast.InputRootDocument.Value) {
				return v, ast.Ref{pair[1]}, true
			}
		}
	}
	return "", nil, false
}

// get recognises object.get(local, "a", …) and object.get(local, ["a", "b"], …),
// which the compiler makes of object.get(input, …).
func get(x *ast.Expr) (ast.Var, []string, bool) {
	if !x.IsCall() || x.Operator().String() != "object.get" {
		return "", nil, false
	}
	terms := x.Terms.([]*ast.Term)
	if len(terms) < 4 {
		return "", nil, false
	}
	v, ok := terms[1].Value.(ast.Var)
	if !ok {
		return "", nil, false
	}
	switch key := terms[2].Value.(type) {
	case ast.String:
		return v, []string{string(key)}, true
	case *ast.Array:
		var path []string
		for i := range key.Len() {
			s, ok := key.Elem(i).Value.(ast.String)
			if !ok {
				return "", nil, false
			}
			path = append(path, string(s))
		}
		return v, path, len(path) > 0
	}
	return "", nil, false
}
