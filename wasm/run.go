package wasm

import (
	"context"
	"strconv"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// FloorRefused begins the code of an answer that taxonomy.Floor does not let
// pass; what was refused follows.
const FloorRefused Code = "floor:"

// A Result is one call as an author sees it.
type Result struct {
	Answer Answer
	Code   Code   // "" when the answer stands, no_opinion, or what went wrong
	Detail string // for people
	Stack  []string
}

// Run asks a module about one document, given as it is, and holds the answer to
// the floor, as the engine would. The kind is the one the document's "schema"
// names.
func (m *Module) Run(ctx context.Context, document []byte) Result {
	kind := documentKind(document)
	a, err := m.Ask(ctx, kind, document)
	r := Result{Answer: a, Code: a.Info.Code}
	if e, ok := err.(*CallError); ok {
		r.Code, r.Detail, r.Stack = e.Fault, e.Detail, e.Stack
		return r
	}
	if kind == Classifier && a.OK {
		obs, builtin, err := taxonomy.ParseClassifyInput(document)
		if err != nil {
			r.Detail = "the document is not a complete " + taxonomy.ClassifySchema + ", so that the floor was not applied: " + printable(err.Error(), 200)
			return r
		}
		if _, refused := taxonomy.Floor(&obs.Operation, &obs, builtin, a.Verdict); refused != "" {
			r.Code = FloorRefused + Code(refused)
			r.Detail = "the built-in verdict stands: " + builtin.Outcome.String() + " " + builtin.Class.String()
		}
	}
	return r
}

// documentKind reads the "schema" member; anything else is asked as a
// classifier's.
func documentKind(document []byte) Kinds {
	s := jsonscan.Scan(string(document), jsonscan.Options{Lenient: true})
	if s.Kind() == jsonscan.Object && s.EnterObject() {
		for {
			key, more := s.NextKey()
			if !more {
				break
			}
			if key == "schema" && s.Kind() == jsonscan.String && s.Text() == taxonomy.FallbackSchema {
				return Fallback
			}
			if s.Err() != nil {
				break
			}
			if key != "schema" {
				s.Skip()
			}
		}
	}
	return Classifier
}

// AppendJSON appends {"result":…,"fuel":…}, or {"error":{"code":…,…},"fuel":…}. The
// result is the module's own document, null for no opinion.
func (r *Result) AppendJSON(b []byte) []byte {
	switch {
	case r.Code == "":
		b = append(b, `{"result":`...)
		b = append(b, r.Answer.Raw...)
	case r.Code == Declined:
		b = append(b, `{"result":null`...)
	default:
		b = append(b, `{"error":{"code":`...)
		b = jsonscan.AppendString(b, string(r.Code))
		if r.Detail != "" {
			b = jsonscan.AppendString(append(b, `,"detail":`...), r.Detail)
		}
		if len(r.Stack) > 0 {
			b = append(b, `,"stack":[`...)
			for i, s := range r.Stack {
				if i > 0 {
					b = append(b, ',')
				}
				b = jsonscan.AppendString(b, s)
			}
			b = append(b, ']')
		}
		b = append(b, '}')
	}
	b = strconv.AppendInt(append(b, `,"fuel":`...), r.Answer.Info.Fuel, 10)
	if lines := r.Answer.Info.Lines; len(lines) > 0 {
		b = append(b, `,"log":[`...)
		for i, l := range lines {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(append(b, `{"level":`...), int64(l.Level), 10)
			b = append(jsonscan.AppendString(append(b, `,"text":`...), l.Text), '}')
		}
		b = append(b, ']')
	}
	return append(b, '}')
}
