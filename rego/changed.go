package rego

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	oparego "github.com/open-policy-agent/opa/v1/rego"
)

// Two policies are compared where they differ. A decision can change only if
// some rule does, or the data it refers to, so the rules that changed are looked
// at by themselves first: they read few fields, all of whose values can be
// combined. Only where one of them says something else is the whole decision
// asked for.

// reached is a rule that a question can reach.
type reached struct {
	rule *ast.Rule
	key  string // its path, its text and the data it refers to
	refs []ast.Ref
}

// A changedDoc is a virtual document, all rules of one path, some of which
// changed.
type changedDoc struct {
	path  string
	parts bool // its rules contribute to a set one by one, so the unchanged ones can be left out
}

var localName = regexp.MustCompile(`__local\d+__`)

// textOfRule is a rule as the compiler has it, its locals numbered by
// themselves: the compiler numbers them through a whole policy.
func textOfRule(r *ast.Rule) string {
	names := map[string]string{}
	return localName.ReplaceAllStringFunc(r.String(), func(s string) string {
		if names[s] == "" {
			names[s] = "_" + strconv.Itoa(len(names))
		}
		return names[s]
	})
}

// reachedBy lists the rules that a question can reach. with reports that one of
// them replaces input or data: then a rule may be asked about other inputs than
// the question was.
func (s *Snapshot) reachedBy(ep Entrypoint) (out []reached, with bool) {
	r := &reader{compiler: s.compiler, seen: map[*ast.Rule]bool{}, builtins: map[string]bool{}}
	r.each = func(rule *ast.Rule, _ []read, data []ast.Ref) {
		key := []string{rule.Path().String(), textOfRule(rule)}
		for _, ref := range data {
			if len(constants(ref[1:])) == 0 {
				key = append(key, s.data.String())
			} else if v := valueAt(s.data, ref); v != nil {
				key = append(key, ref.ConstantPrefix().String()+" = "+v.String())
			}
		}
		out = append(out, reached{rule, strings.Join(key, "\n"), slices.Clone(data)})
		ast.WalkWiths(rule, func(*ast.With) bool { with = true; return with })
	}
	r.all(ast.MustParseRef("data.fusebox." + string(ep) + ".decision"))
	return out, with
}

// changes are the documents of a question that differ between two policies.
type changes struct {
	docs []changedDoc
	keys map[string]bool // of the rules that changed, or see that one did
	with bool
}

func changesOf(old, new *Snapshot, ep Entrypoint) changes {
	c := changes{keys: map[string]bool{}}
	var sides [2][]reached
	var with [2]bool
	sides[0], with[0] = old.reachedBy(ep)
	sides[1], with[1] = new.reachedBy(ep)
	c.with = with[0] || with[1]
	count, paths := map[string]int{}, [2]map[string]bool{{}, {}}
	for i, side := range sides {
		for _, r := range side {
			count[r.key] |= 1 << i
			paths[i][r.rule.Path().String()] = true
		}
	}
	for k, n := range count {
		if n != 3 {
			c.keys[k] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for i, s := range []*Snapshot{old, new} {
			for _, r := range sides[i] {
				if !c.keys[r.key] && c.sees(s, &r, sides[i], paths) {
					c.keys[r.key], grown = true, true
				}
			}
		}
	}
	seen := map[string]bool{}
	for _, side := range sides {
		for _, r := range side {
			path := r.rule.Path().String()
			if c.keys[r.key] && len(r.rule.Head.Args) == 0 && !seen[path] {
				seen[path] = true
				c.docs = append(c.docs, changedDoc{path, additive(r.rule)})
			}
		}
	}
	slices.SortFunc(c.docs, func(a, b changedDoc) int { return strings.Compare(a.path, b.path) })
	return c
}

// additive reports that a rule adds elements to a set of a fixed name.
func additive(r *ast.Rule) bool {
	return r.Head.RuleKind() == ast.MultiValue && r.Head.Ref().IsGround()
}

// sees reports that an unchanged rule may answer differently although every
// document it refers to has the same value: it calls a function that changed, or
// it can tell a set that is empty from one that is not there.
func (c *changes) sees(s *Snapshot, r *reached, side []reached, paths [2]map[string]bool) bool {
	for _, ref := range r.refs {
		for _, called := range s.compiler.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true}) {
			i := slices.IndexFunc(side, func(x reached) bool { return x.rule == called })
			if i < 0 || !c.keys[side[i].key] {
				continue
			}
			path := called.Path()
			oneSided := paths[0][path.String()] != paths[1][path.String()]
			if len(called.Head.Args) > 0 || oneSided && additive(called) && len(ref) <= len(path) {
				return true
			}
		}
	}
	return false
}

// A place is where a rule stands in its file.
type place struct {
	file     string
	row, col int
}

// contributions compiles a policy once more, with the rules of these keys under
// names of their own: what the changed rules of a set contribute to it, without
// the others. It returns, by document, the reference to ask.
func (s *Snapshot) contributions(ctx context.Context, ep Entrypoint, c *changes) (*ast.Compiler, map[string]ast.Ref, error) {
	modules := map[string]*ast.Module{}
	for _, m := range s.files.Modules {
		if m.IsTest() {
			continue
		}
		parsed, err := ast.ParseModuleWithOpts(m.Path, string(m.Source), ast.ParserOptions{Capabilities: s.loader.caps, RegoVersion: ast.RegoV1})
		if err != nil {
			return nil, nil, err
		}
		modules[m.Path] = parsed
	}
	wanted := map[place]int{}
	list, _ := s.reachedBy(ep)
	for i, d := range c.docs {
		for _, r := range list {
			if d.parts && c.keys[r.key] && r.rule.Path().String() == d.path {
				wanted[placeOf(r.rule)] = i
			}
		}
	}
	refs := map[string]ast.Ref{}
	for _, m := range modules {
		for _, rule := range slices.Clone(m.Rules) {
			i, ok := wanted[placeOf(rule)]
			if !ok {
				continue
			}
			name := fmt.Sprintf("fusebox_changed_%d", i)
			part := rule.Copy()
			part.Module, part.Annotations = m, nil
			part.Head.Name = ast.Var(name)
			part.Head.Reference = ast.Ref{ast.VarTerm(name)}
			m.Rules = append(m.Rules, part)
			refs[c.docs[i].path] = m.Package.Path.Append(ast.StringTerm(name))
		}
	}
	for _, d := range c.docs {
		if !d.parts {
			refs[d.path] = ast.MustParseRef(d.path)
		}
	}
	compiler := s.loader.newCompiler(ctx)
	if compiler.Compile(modules); compiler.Failed() {
		return nil, nil, compiler.Errors
	}
	return compiler, refs, nil
}

func placeOf(r *ast.Rule) place { return place{r.Location.File, r.Location.Row, r.Location.Col} }

// ask prepares a query of one reference, with the input fields that it reads.
func (s *Snapshot) ask(ctx context.Context, compiler *ast.Compiler, ref ast.Ref, like *query) (*query, []string, error) {
	reads, _ := readsOf(compiler, ref)
	var paths []string
	for _, r := range reads {
		paths = append(paths, strings.Join(r.path, "."))
	}
	prepared, err := oparego.New(oparego.ParsedQuery(ast.NewBody(ast.NewExpr(ast.NewTerm(ref)))),
		oparego.Compiler(compiler), oparego.Store(s.loader.store), oparego.Transaction(s.loader.txn)).PrepareForEval(ctx)
	if err != nil {
		return nil, nil, err
	}
	q := *like
	q.prepared = prepared
	slices.Sort(paths)
	return &q, slices.Compact(paths), nil
}
