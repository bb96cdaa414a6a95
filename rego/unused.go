package rego

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Unused lists what of a policy no question can reach: rules, such as a team's
// `denies` where `deny` is read, and data that no rule refers to. It loads, and
// it decides nothing.
func (s *Snapshot) Unused() []Problem {
	r := &reader{compiler: s.compiler, seen: map[*ast.Rule]bool{}, builtins: map[string]bool{}}
	var refs [][]string
	r.each = func(_ *ast.Rule, _ []read, data []ast.Ref) {
		for _, ref := range data {
			refs = append(refs, constants(ref[1:]))
		}
	}
	for _, ep := range Entrypoints {
		r.all(ast.MustParseRef("data.fusebox." + string(ep) + ".decision"))
	}
	r.all(rolloutDecision)
	out := []Problem{}
	for path, m := range s.compiler.Modules {
		for _, rule := range m.Rules {
			if !r.seen[rule] && !rule.Default {
				out = append(out, Problem{File: path, Line: rule.Location.Row, Code: "unreached_rule",
					Text: fmt.Sprintf("no question reaches %s, so this rule decides nothing; %s", strings.TrimPrefix(rule.Path().String(), "data."), s.hint(rule))})
			}
		}
	}
	out = append(out, unread(s.data, nil, refs)...)
	slices.SortFunc(out, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Text, b.Text))
	})
	return slices.Compact(out)
}

// hint says what is probably wrong with a rule that nothing reaches.
func (s *Snapshot) hint(rule *ast.Rule) string {
	if strings.HasPrefix(rule.Path().String(), "data.fusebox.authority.rules.") {
		return "of a team's rules only deny and require_approval are read"
	}
	return "call it from a rule that is reached, or take it out"
}

// unread finds the data that no reference touches, each subtree once.
func unread(o ast.Object, at []string, refs [][]string) (out []Problem) {
	for _, k := range o.Keys() {
		name, ok := k.Value.(ast.String)
		if !ok {
			continue
		}
		path := append(slices.Clone(at), string(name))
		within, above := false, false // some reference reads this or all around it; something in it
		for _, r := range refs {
			n := min(len(r), len(path))
			if slices.Equal(r[:n], path[:n]) {
				within = within || len(r) <= len(path)
				above = above || len(r) > len(path)
			}
		}
		inner, object := o.Get(k).Value.(ast.Object)
		switch {
		case within:
		case above && object:
			out = append(out, unread(inner, path, refs)...)
		case !above:
			out = append(out, Problem{Code: "unread_data", Text: fmt.Sprintf("no rule reads data.%s, so it decides nothing", strings.Join(path, "."))})
		}
	}
	return out
}

// Fed lists the breakers that routing rules name, and the layers they feed
// without naming one. all is false where a rule computes what it feeds, so that
// the list may lack some.
func (s *Snapshot) Fed() (breakers, layers []string, all bool) {
	all = true
	r := &reader{compiler: s.compiler, seen: map[*ast.Rule]bool{}, builtins: map[string]bool{}}
	r.each = func(rule *ast.Rule, _ []read, _ []ast.Ref) {
		ast.WalkTerms(rule, func(t *ast.Term) bool {
			o, ok := t.Value.(ast.Object)
			if !ok || o.Get(ast.InternedTerm("signal")) == nil {
				return false
			}
			if b := o.Get(ast.InternedTerm("breaker")); b != nil {
				name, constant := b.Value.(ast.String)
				all = all && constant
				breakers = append(breakers, string(name))
			} else if l := o.Get(ast.InternedTerm("layer")); l != nil {
				name, constant := l.Value.(ast.String)
				all = all && constant
				layers = append(layers, string(name))
			}
			return false
		})
	}
	r.all(ast.MustParseRef("data.fusebox.routing.decision"))
	slices.Sort(breakers)
	slices.Sort(layers)
	return slices.Compact(breakers), slices.Compact(layers), all
}
