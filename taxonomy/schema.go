package taxonomy

import (
	"strconv"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// A shape is the schema of one member.
type shape struct {
	kind    string // string, integer, boolean, object, array, scalar (string, integer or boolean)
	enum    []string
	items   *shape // of an array, or of every member of an open object
	members func() described
	null    bool // may be null also in what we write
	orBool  bool
	natural bool // never negative
	longest int  // in characters; 0 is no bound
	open    bool // any members
}

// describing hides the type of a table.
func describing[T any](fs func() fields[T]) func() described {
	return func() described { return fs() }
}

// described is a table seen without its type.
type described interface {
	describe(b []byte, o schemaOptions) []byte
}

type schemaOptions struct {
	written bool // the schema of what we write: every member is there; else of what we read
	indent  int
}

// SchemaDialect is the JSON Schema version of the published schemas.
const SchemaDialect = "https://json-schema.org/draft/2020-12/schema"

// A Document is one published document.
type Document struct {
	Name   string // file name without ".json": "observation.v1"
	Title  string
	append func([]byte, schemaOptions) []byte
	out    bool // we write it, so every member is there
}

// Documents lists the published documents. Those that we write name every
// member as required; those that we read leave them open, as the parsers do.
func Documents() []Document {
	return []Document{
		{"operation.v1", "what an agent wants done", operationFields().describe, false},
		{"observation.v1", "what came back from an attempt, as it is read", observationDocument().describe, false},
		{"observation.v1.canonical", "an observation as it is written", observationFields().describe, true},
		{"classify.v1", "what a classifier is asked", classifyInputFields().describe, true},
		{"classify.v1.answer", "what a classifier may answer", describeRequired(classifyAnswerFields(), "outcome", "class"), true},
		{"fallback.v1", "what a fallback chooser is asked", fallbackInputFields().describe, true},
		{"fallback.v1.answer", "what a fallback chooser may answer", describeRequired(choiceFields(), "choose"), true},
		{"reconcile.v1", "what a reconciler is asked", reconcileFields().describe, true},
		{"reconcile.v1.answer", "what a reconciler may answer", describeRequired(foundFields(), "finding"), true},
		{"approve.v1", "what an approver is asked", approveFields().describe, true},
		{"approve.v1.answer", "what an approver may answer", describeRequired(approveAnswerFields(), "ruling"), true},
		{"evaluate.v1", "what an evaluator is asked", evaluateFields().describe, true},
		{"evaluate.v1.answer", "what an evaluator may answer", describeRequired(evaluateAnswerFields(), "accepted"), true},
		{"receipts.v1", "what a receipt sink is told", batchFields().describe, true},
		{"verdict.v1", "a judged observation", verdictFields().describe, true},
		{"rejection.v1", "a local decision not to send", rejectionFields().describe, true},
	}
}

func observationDocument() fields[Observation] {
	return append(fields[Observation]{schemaField[Observation](ObservationSchema)}, observationFields()...)
}

// AppendSchema appends the JSON Schema of the document.
func (d Document) AppendSchema(b []byte) []byte {
	b = append(b, "{\n  \"$schema\": \""+SchemaDialect+"\",\n  \"$id\": \"https://fusebox.dev/schemas/"+d.Name+".json\",\n  \"title\": "...)
	b = jsonscan.AppendString(b, d.Title)
	b = append(b, ",\n  "...)
	b = d.append(b, schemaOptions{written: d.out, indent: 1})
	return append(b, "\n}\n"...)
}

func describeRequired[T any](fs fields[T], required ...string) func([]byte, schemaOptions) []byte {
	return func(b []byte, o schemaOptions) []byte { return fs.describeWith(b, o, required) }
}

// describe appends the members of an object schema, without its braces.
func (fs fields[T]) describe(b []byte, o schemaOptions) []byte {
	var required []string
	if o.written {
		for _, f := range fs {
			required = append(required, f.name)
		}
	}
	return fs.describeWith(b, o, required)
}

func (fs fields[T]) describeWith(b []byte, o schemaOptions, required []string) []byte {
	b = append(b, `"type": "object",`...)
	b = newline(b, o.indent)
	b = append(b, `"additionalProperties": false,`...)
	b = newline(b, o.indent)
	if len(required) > 0 {
		b = append(b, `"required": `...)
		b = appendNames(b, required)
		b = append(b, ',')
		b = newline(b, o.indent)
	}
	b = append(b, `"properties": {`...)
	for i, f := range fs {
		if i > 0 {
			b = append(b, ',')
		}
		b = newline(b, o.indent+1)
		b = jsonscan.AppendString(b, f.name)
		b = append(b, `: {`...)
		inner := o
		inner.indent += 2
		b = newline(b, inner.indent)
		b = append(b, `"description": `...)
		b = jsonscan.AppendString(b, f.doc)
		b = append(b, ',')
		b = newline(b, inner.indent)
		b = f.shape.describe(b, inner)
		b = newline(b, o.indent+1)
		b = append(b, '}')
	}
	b = newline(b, o.indent)
	return append(b, '}')
}

// describe appends the schema of one member, without its braces.
func (s *shape) describe(b []byte, o schemaOptions) []byte {
	null := s.null || !o.written
	switch {
	case s.kind == "scalar":
		return append(b, `"type": ["string", "integer", "boolean"]`...)
	case s.members != nil && null:
		b = append(b, `"anyOf": [{"type": "null"}, {`...)
		inner := o
		inner.indent++
		b = newline(b, inner.indent)
		b = s.members().describe(b, inner)
		b = newline(b, o.indent)
		return append(b, `}]`...)
	case s.members != nil:
		return s.members().describe(b, o)
	}
	types := []string{s.kind}
	if s.orBool && !o.written {
		types = append(types, "boolean")
	}
	if null {
		types = append(types, "null")
	}
	b = append(b, `"type": `...)
	if len(types) == 1 {
		b = jsonscan.AppendString(b, types[0])
	} else {
		b = appendNames(b, types)
	}
	return s.details(b, o, null)
}

func (s *shape) details(b []byte, o schemaOptions, null bool) []byte {
	if len(s.enum) > 0 {
		b = append(b, ',')
		b = newline(b, o.indent)
		b = append(b, `"enum": `...)
		b = appendNames(b, s.enum)
		if null {
			b = append(b[:len(b)-1], `, "", null]`...) // the parser takes both for the zero value
		}
	}
	if s.natural {
		b = append(b, ',')
		b = newline(b, o.indent)
		b = append(b, `"minimum": `+strconv.Itoa(0)...)
	}
	if s.longest > 0 {
		b = append(b, ',')
		b = newline(b, o.indent)
		b = append(b, `"maxLength": `+strconv.Itoa(s.longest)...)
	}
	if s.items != nil {
		b = append(b, ',')
		b = newline(b, o.indent)
		key := `"items": {`
		if s.kind == "object" {
			key = `"additionalProperties": {`
		}
		b = append(b, key...)
		inner := o
		inner.indent++
		b = newline(b, inner.indent)
		b = s.items.describe(b, inner)
		b = newline(b, o.indent)
		b = append(b, '}')
	}
	return b
}

func appendNames(b []byte, names []string) []byte {
	b = append(b, '[')
	for i, n := range names {
		if i > 0 {
			b = append(b, `, `...)
		}
		b = jsonscan.AppendString(b, n)
	}
	return append(b, ']')
}

func newline(b []byte, indent int) []byte {
	b = append(b, '\n')
	for range indent {
		b = append(b, "  "...)
	}
	return b
}
