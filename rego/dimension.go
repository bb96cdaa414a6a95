package rego

import (
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A dimension is one field of an input with the values that a decision table
// walks through. The first value is the neutral one.
type dimension[T any] struct {
	name   string   // the field, as in the document
	values []string // as printed
	set    func(T, int)
	core   bool // walked in every combination; others one at a time over the core
}

// A constantSet holds the values that rules compare a field with. A table that
// tried others would find nothing.
type constantSet struct {
	texts   []string
	numbers []int64
}

func (c *constantSet) add(o constantSet) {
	c.texts = append(c.texts, o.texts...)
	c.numbers = append(c.numbers, o.numbers...)
	slices.Sort(c.texts)
	slices.Sort(c.numbers)
	c.texts, c.numbers = slices.Compact(c.texts), slices.Compact(c.numbers)
}

// comparisons knows for each rule what it reads and what it compares with.
type comparisons struct {
	rules []ruleConstants
}

type ruleConstants struct {
	reads []string // dotted
	set   constantSet
}

// comparisonsOf finds, for the rules of an entrypoint, the constants that stand
// beside the fields they read: literals in the same rule and in the functions
// that it calls, and the data that they refer to.
func (s *Snapshot) comparisonsOf(ep Entrypoint) comparisons {
	return comparisonsAt(s.compiler, s.data, ast.MustParseRef("data.fusebox."+string(ep)+".decision"))
}

// comparisonsAt does so for the rules that a reference can reach.
func comparisonsAt(compiler *ast.Compiler, data ast.Object, ref ast.Ref) comparisons {
	type found struct {
		reads  []string
		set    constantSet
		calls  []*ast.Rule // functions: what they compare with is compared here
		values []*ast.Rule // rules whose value is used here: what they read is compared here
	}
	rules := map[*ast.Rule]*found{}
	var order []*ast.Rule
	r := &reader{compiler: compiler, seen: map[*ast.Rule]bool{}, builtins: map[string]bool{}}
	r.each = func(rule *ast.Rule, reads []read, refs []ast.Ref) {
		f := &found{}
		for _, rd := range reads {
			f.reads = append(f.reads, strings.Join(rd.path, "."))
		}
		for chain := rule; chain != nil; chain = chain.Else {
			f.set.add(literals(chain.Body))
			for _, a := range chain.Head.Args {
				f.set.add(literals(a))
			}
		}
		for _, ref := range refs {
			if v := valueAt(data, ref); v != nil {
				f.set.add(dataConstants(v))
			}
			for _, called := range compiler.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true}) {
				switch {
				case len(called.Head.Args) > 0:
					f.calls = append(f.calls, called)
				case called.Head.RuleKind() == ast.MultiValue || called.Head.Value == nil || !called.Head.Value.Equal(ast.BooleanTerm(true)):
					f.values = append(f.values, called)
				}
			}
		}
		rules[rule] = f
		order = append(order, rule)
	}
	r.all(ref)
	for range 4 { // functions that call functions
		for _, f := range rules {
			for _, called := range f.calls {
				if g := rules[called]; g != nil && g != f {
					f.set.add(g.set)
				}
			}
			for _, used := range f.values {
				if g := rules[used]; g != nil && g != f {
					f.reads = append(f.reads, g.reads...)
					slices.Sort(f.reads)
					f.reads = slices.Compact(f.reads)
				}
			}
		}
	}
	var out comparisons
	for _, rule := range order {
		out.rules = append(out.rules, ruleConstants{rules[rule].reads, rules[rule].set})
	}
	return out
}

// with gives the constants beside a field, in either policy.
func (c comparisons) with(field string) constantSet {
	var out constantSet
	for _, r := range c.rules {
		if slices.ContainsFunc(r.reads, func(p string) bool {
			return p == "" || p == field || strings.HasPrefix(field, p+".") || strings.HasPrefix(p, field+".")
		}) {
			out.add(r.set)
		}
	}
	return out
}

// all gives the constants of every rule.
func (c comparisons) all() constantSet {
	var out constantSet
	for _, r := range c.rules {
		out.add(r.set)
	}
	return out
}

// literals collects the strings and whole numbers of an expression, but for the
// names inside references.
func literals(x any) constantSet {
	var out constantSet
	var visit func(any) bool
	visit = func(x any) bool {
		switch v := x.(type) {
		case ast.Ref:
			for _, t := range v[1:] {
				if _, name := t.Value.(ast.String); !name {
					ast.NewGenericVisitor(visit).Walk(t)
				}
			}
			return true
		case ast.Object:
			// The words of an answer are not compared with anything.
			for _, k := range []string{"layer", "decision", "action", "choose"} {
				if v.Get(ast.InternedTerm(k)) != nil {
					return true
				}
			}
		case ast.String:
			if len(v) <= 64 {
				out.texts = append(out.texts, string(v))
			}
		case ast.Number:
			if n, ok := v.Int64(); ok {
				out.numbers = append(out.numbers, n)
			}
		}
		return false
	}
	ast.NewGenericVisitor(visit).Walk(x)
	out.add(constantSet{})
	return out
}

// dataConstants collects the values of some data, and the keys at its top, by
// which it is looked up.
func dataConstants(v ast.Value) constantSet {
	var out constantSet
	var visit func(v ast.Value, top bool)
	visit = func(v ast.Value, top bool) {
		switch v := v.(type) {
		case ast.Object:
			for _, k := range v.Keys() {
				if top {
					visit(k.Value, false)
				}
				visit(v.Get(k).Value, false)
			}
		case *ast.Array:
			for i := range v.Len() {
				visit(v.Elem(i).Value, false)
			}
		default:
			out.add(literals(v))
		}
	}
	visit(v, true)
	return out
}

// valueAt is the data below a reference's constant prefix, or nil.
func valueAt(data ast.Object, ref ast.Ref) ast.Value {
	var at ast.Value = data
	path := constants(ref[1:])
	for _, name := range path {
		o, ok := at.(ast.Object)
		if !ok {
			return nil
		}
		t := o.Get(ast.StringTerm(name))
		if t == nil {
			return nil
		}
		at = t.Value
	}
	if len(path) == 0 {
		return nil
	}
	return at
}

// edges are the numbers at which a comparison can turn: each constant, one less
// and one more.
func (c constantSet) edges(least int64) []int64 {
	out := []int64{least}
	for _, n := range c.numbers {
		for _, e := range []int64{n - 1, n, n + 1} {
			if e > least {
				out = append(out, e)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// weekdays are looked at in a dimension of their own.
var weekdays = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// otherText stands for a text that no rule knows.
const otherText = "(other)"

func textDimension[T any](name string, core bool, neutral string, known []string, set func(T, string)) dimension[T] {
	values := []string{neutral}
	for _, k := range append([]string{"", otherText}, known...) {
		if !slices.Contains(values, k) && !slices.Contains(weekdays, k) {
			values = append(values, k)
		}
	}
	return dimension[T]{name: name, values: values, core: core, set: func(in T, i int) { set(in, values[i]) }}
}

func numberDimension[T any](name string, core bool, edges []int64, set func(T, int64)) dimension[T] {
	values := make([]string, len(edges))
	for i, e := range edges {
		values[i] = strconv.FormatInt(e, 10)
	}
	return dimension[T]{name: name, values: values, core: core, set: func(in T, i int) { set(in, edges[i]) }}
}

func enumDimension[T any, E interface {
	~uint8
	String() string
}](name string, core bool, n int, set func(T, E)) dimension[T] {
	return dimension[T]{name: name, values: names[E](n), core: core, set: func(in T, i int) { set(in, E(i)) }}
}

func flagDimension[T any](name string, core bool, set func(T, bool)) dimension[T] {
	return dimension[T]{name: name, values: []string{"false", "true"}, core: core, set: func(in T, i int) { set(in, i == 1) }}
}

// operationDimensions are those of the operation. The core is what the question
// always depends on.
func operationDimensions[T any](c comparisons, op func(T) *taxonomy.Operation, core ...string) []dimension[T] {
	in := func(name string) bool { return slices.Contains(core, name) }
	text := func(name string, neutral string, field func(*taxonomy.Operation) *string) dimension[T] {
		return textDimension("operation."+name, in(name), neutral, c.with("operation."+name).texts, func(x T, v string) { *field(op(x)) = v })
	}
	kind := dimension[T]{name: "operation.kind", values: kinds, core: in("kind"), set: func(x T, i int) { op(x).Kind = kinds[i] }}
	return []dimension[T]{
		kind,
		enumDimension("operation.effect", in("effect"), 4, func(x T, e taxonomy.Effect) { op(x).Effect = e }),
		text("action_class", "", func(o *taxonomy.Operation) *string { return &o.ActionClass }),
		text("task_class", "", func(o *taxonomy.Operation) *string { return &o.TaskClass }),
		text("tenant", otherText, func(o *taxonomy.Operation) *string { return &o.Tenant }),
		text("user", otherText, func(o *taxonomy.Operation) *string { return &o.User }),
		text("agent", "", func(o *taxonomy.Operation) *string { return &o.Agent }),
		text("credential", otherText, func(o *taxonomy.Operation) *string { return &o.Credential }),
		text("provider", otherText, func(o *taxonomy.Operation) *string { return &o.Provider }),
		text("model", otherText, func(o *taxonomy.Operation) *string { return &o.Model }),
		text("region", otherText, func(o *taxonomy.Operation) *string { return &o.Region }),
		text("tool", otherText, func(o *taxonomy.Operation) *string { return &o.Tool }),
		text("action", otherText, func(o *taxonomy.Operation) *string { return &o.Action }),
		text("name", otherText, func(o *taxonomy.Operation) *string { return &o.Name }),
		text("workflow", otherText, func(o *taxonomy.Operation) *string { return &o.Workflow }),
		text("workflow_version", otherText, func(o *taxonomy.Operation) *string { return &o.WorkflowVersion }),
		text("prompt_version", otherText, func(o *taxonomy.Operation) *string { return &o.PromptVersion }),
		text("schema", otherText, func(o *taxonomy.Operation) *string { return &o.Schema }),
		text("impact", "", func(o *taxonomy.Operation) *string { return &o.Impact }),
		text("idempotency_key", "", func(o *taxonomy.Operation) *string { return &o.IdempotencyKey }),
		text("parent_id", "", func(o *taxonomy.Operation) *string { return &o.ParentID }),
		enumDimension("operation.origin", in("origin"), 9, func(x T, v taxonomy.Origin) { op(x).Origin = v }),
		flagDimension("operation.prior_unknown", in("prior_unknown"), func(x T, v bool) { op(x).PriorUnknown = v }),
		numberDimension("operation.priority", in("priority"), c.with("operation.priority").edges(0), func(x T, v int64) { op(x).Priority = v }),
		numberDimension("operation.attempt", in("attempt"), c.with("operation.attempt").edges(1), func(x T, v int64) { op(x).Attempt = v }),
		numberDimension("operation.amount", in("amount"), append(c.with("operation.amount").edges(0), -1), func(x T, v int64) { op(x).Amount = v }),
		numberDimension("operation.estimate.cost_nano_usd", false, c.with("operation.estimate.cost_nano_usd").edges(0), func(x T, v int64) { op(x).Estimate.CostNanoUSD = v }),
		numberDimension("operation.estimate.input_tokens", false, c.with("operation.estimate.input_tokens").edges(0), func(x T, v int64) { op(x).Estimate.InputTokens = v }),
		numberDimension("operation.estimate.output_tokens", false, c.with("operation.estimate.output_tokens").edges(0), func(x T, v int64) { op(x).Estimate.OutputTokens = v }),
	}
}

// attributeDimensions are one for each attribute that rules read by name.
func attributeDimensions[T any](c comparisons, names []string, op func(T) *taxonomy.Operation) []dimension[T] {
	var out []dimension[T]
	for _, n := range names {
		values := []any{nil, true, false, "", otherText}
		near := c.with("operation.attributes." + n)
		for _, e := range near.edges(0) {
			values = append(values, e)
		}
		for _, t := range near.texts {
			values = append(values, t)
		}
		d := dimension[T]{name: "operation.attributes." + n, set: func(x T, i int) {
			o := op(x)
			if o.Attributes == nil {
				o.Attributes = taxonomy.Attributes{}
			}
			delete(o.Attributes, n)
			if values[i] != nil {
				o.Attributes[n] = values[i]
			}
		}}
		for _, v := range values {
			switch v := v.(type) {
			case nil:
				d.values = append(d.values, "(absent)")
			case string:
				d.values = append(d.values, strconv.Quote(v))
			case int64:
				d.values = append(d.values, strconv.FormatInt(v, 10))
			case bool:
				d.values = append(d.values, strconv.FormatBool(v))
			}
		}
		out = append(out, d)
	}
	return out
}
