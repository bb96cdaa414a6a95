package rego

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// kind says how the value of a field is read, keyed and shown to Rego.
type kind uint8

const (
	constant   kind = iota // the document's schema name
	text                   // a string
	number                 // an int64
	flag                   // a bool
	texts                  // a list of strings
	rows                   // a list of objects, read whole
	attributes             // a team's own facts, by name
)

// A field is one value of an input document. T is the Go input it is read from.
// Exactly one of the readers is set, as the kind says.
type field[T any] struct {
	path  string // dotted: "operation.tenant"
	kind  kind
	about string

	enum []string // the only texts there are; nil is any
	part bool     // a scope may name it, so control characters are refused
	id   bool     // nearly every call has its own value: a rule that reads it makes the memo useless
	most int      // list length above which the input is refused; 0 is no bound of its own

	text    func(T) string
	number  func(T) int64
	flag    func(T) bool
	texts   func(T) []string
	count   func(T) int // rows
	columns []column[T]
	facts   func(T) taxonomy.Attributes
}

// A column is one value of each object in a list.
type column[T any] struct {
	name   string
	about  string
	text   func(T, int) string
	number func(T, int) int64
	texts  func(T, int) []string
}

// A document lists the fields of one input. It is the only place where they
// are named: the projection, the memo key, the published schema, the check of
// what rules may read and the reader used by replay are all made from it.
type document[T any] struct {
	name      string // "fusebox.outcome/v1"
	title     string
	fields    []field[T]
	operation func(T) *taxonomy.Operation
}

// find returns the fields at or below a path, and whether the path runs past a
// field that has no parts of its own.
func (d *document[T]) find(path []string) (at []int, known bool) {
	p := strings.Join(path, ".")
	for i := range d.fields {
		f := &d.fields[i]
		switch {
		case p == "" || f.path == p || strings.HasPrefix(f.path, p+"."):
			at = append(at, i)
		case strings.HasPrefix(p, f.path+"."):
			// Inside a list or an attribute map; a scalar has no inside.
			if f.kind == texts || f.kind == rows || f.kind == attributes {
				at = append(at, i)
			}
		}
	}
	return at, len(at) > 0
}

// near returns the known path that looks most like an unknown one.
func (d *document[T]) near(path []string) string {
	want := strings.Join(path, ".")
	best, least := "", 4
	for i := range d.fields {
		if n := distance(want, d.fields[i].path); n < least {
			best, least = d.fields[i].path, n
		}
	}
	return best
}

// distance is the number of single-character edits between two short texts.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// operationFields are the fields of the flat operation document, the same in
// all four inputs.
func operationFields[T any](op func(T) *taxonomy.Operation) []field[T] {
	str := func(name, about string, get func(*taxonomy.Operation) string) field[T] {
		_, part := taxonomy.PartNamed(name)
		return field[T]{path: "operation." + name, kind: text, about: about, part: part,
			text: func(in T) string { return get(op(in)) }}
	}
	num := func(name, about string, get func(*taxonomy.Operation) int64) field[T] {
		return field[T]{path: "operation." + name, kind: number, about: about,
			number: func(in T) int64 { return get(op(in)) }}
	}
	id := func(f field[T]) field[T] { f.id = true; return f }
	type o = *taxonomy.Operation

	effect := str("effect", "whether it may be repeated; undeclared is non_repeatable", func(o o) string { return o.Effect.String() })
	effect.enum = names[taxonomy.Effect](4)
	origin := str("origin", "which road the call took to the dependency", func(o o) string { return o.Origin.String() })
	origin.enum = names[taxonomy.Origin](9)

	return []field[T]{
		str("kind", "model, tool or workflow", func(o o) string { return o.Kind }),
		str("name", "the call: chat.completions, orders.create", func(o o) string { return o.Name }),
		str("provider", "who runs the model or the tool", func(o o) string { return o.Provider }),
		str("model", "the model", func(o o) string { return o.Model }),
		str("region", "where it runs", func(o o) string { return o.Region }),
		str("credential", "keyed fingerprint of the credential, never the secret", func(o o) string { return o.Credential }),
		str("tool", "the tool", func(o o) string { return o.Tool }),
		str("action", "what the tool is asked to do", func(o o) string { return o.Action }),
		str("action_class", "what kind of act it is: mail.send, payment", func(o o) string { return o.ActionClass }),
		str("tenant", "whose work it is, from the authenticated caller", func(o o) string { return o.Tenant }),
		str("user", "on whose behalf", func(o o) string { return o.User }),
		str("agent", "the agent", func(o o) string { return o.Agent }),
		str("workflow", "the workflow", func(o o) string { return o.Workflow }),
		str("workflow_version", "its version", func(o o) string { return o.WorkflowVersion }),
		str("task_class", "what kind of task", func(o o) string { return o.TaskClass }),
		str("prompt_version", "version of the prompt", func(o o) string { return o.PromptVersion }),
		str("schema", "name of the output schema", func(o o) string { return o.Schema }),
		effect,
		str("impact", "high where the caller marks it so", func(o o) string { return o.Impact }),
		id(str("idempotency_key", "the same on every attempt", func(o o) string { return o.IdempotencyKey })),
		id(str("run_id", "the run", func(o o) string { return o.RunID })),
		id(str("request_id", "the request", func(o o) string { return o.RequestID })),
		id(str("parent_id", "the request that caused it", func(o o) string { return o.ParentID })),
		num("attempt", "1 is the first", func(o o) int64 { return o.Attempt }),
		origin,
		num("priority", "higher is more urgent", func(o o) int64 { return o.Priority }),
		id(num("deadline", "Unix milliseconds; 0 is none", func(o o) int64 { return o.Deadline })),
		{path: "operation.depends_on", kind: texts, about: "requests that must be settled first", most: maxList,
			texts: func(in T) []string { return op(in).DependsOn }},
		id(str("args_fp", "keyed fingerprint of the canonical arguments", func(o o) string { return o.ArgsFP })),
		num("estimate.input_tokens", "at most", func(o o) int64 { return o.Estimate.InputTokens }),
		num("estimate.output_tokens", "at most", func(o o) int64 { return o.Estimate.OutputTokens }),
		num("estimate.cost_nano_usd", "at most; 1e9 is one dollar", func(o o) int64 { return o.Estimate.CostNanoUSD }),
		num("amount", "in the smallest unit of its currency", func(o o) int64 { return o.Amount }),
		{path: "operation.attributes", kind: attributes, about: "a team's own declared facts: strings, integers and booleans", most: maxList,
			facts: func(in T) taxonomy.Attributes { return op(in).Attributes }},
		{path: "operation.prior_unknown", kind: flag, about: "an earlier attempt's outcome is UNKNOWN",
			flag: func(in T) bool { return op(in).PriorUnknown }},
	}
}

// names lists the texts of an enum with n values.
func names[E interface {
	~uint8
	String() string
}](n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = E(i).String()
	}
	return out
}

// Bounds of one input.
const (
	maxText = 4 << 10 // bytes of one string
	maxList = 64      // elements of one list
)
