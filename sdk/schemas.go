package sdk

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// schemas judge outputs against declared JSON Schemas before classification.
// What they find are facts for the classifier (observation.local): a failed
// schema is a failure of the model's answer and never of the provider.
type schemas struct {
	byName map[string]*jsonschema.Schema
	more   engine.Checker
}

// nowhere refuses to load a schema that another one refers to: schemas are
// complete in themselves, so that judging never waits for a network.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s lies outside; put what it defines under $defs", url)
}

func newSchemas(texts map[string][]byte, more engine.Checker) (*schemas, error) {
	s := &schemas{byName: make(map[string]*jsonschema.Schema, len(texts)), more: more}
	var errs []error
	for name, text := range texts {
		c := jsonschema.NewCompiler()
		c.UseLoader(nowhere{})
		url := "schema:///" + strings.ReplaceAll(name, "#", "")
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = c.AddResource(url, doc)
		}
		var compiled *jsonschema.Schema
		if err == nil {
			compiled, err = c.Compile(url)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("schema %s: %w", name, err))
			continue
		}
		s.byName[name] = compiled
	}
	return s, errors.Join(errs...)
}

const maxSchemaErrors = 8

// Check returns what is known of an output as a JSON object, or nothing.
func (s *schemas) Check(op *taxonomy.Operation, obs *taxonomy.Observation) taxonomy.Raw {
	if s.more != nil {
		if facts := s.more.Check(op, obs); len(facts) > 0 {
			return facts
		}
	}
	schema := s.byName[op.Schema]
	if schema == nil || obs.Response == nil || obs.Response.Status >= 300 || obs.Transport.ErrorKind != "" {
		return nil
	}
	text, ok := outputOf(op, obs.Response.Body)
	if !ok {
		return nil // no output to judge: the table says what that means
	}
	b := append([]byte(nil), `{"schema_id":`...)
	b = jsonscan.AppendString(b, op.Schema)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return append(b, `,"schema_valid":false,"errors":["/: not JSON"]}`...)
	}
	err = schema.Validate(v)
	if err == nil {
		return append(b, `,"schema_valid":true}`...)
	}
	b = append(b, `,"schema_valid":false,"errors":[`...)
	for i, e := range wheres(err) {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendString(b, e)
	}
	return append(b, `]}`...)
}

// wheres says where an output does not fit and by which keyword. Values stay
// out: they are the output.
func wheres(err error) []string {
	top, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []string{"/: not judged"}
	}
	var out []string
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, c := range e.Causes {
			walk(c)
		}
		if len(e.Causes) == 0 && len(out) < maxSchemaErrors {
			out = append(out, "/"+strings.Join(e.InstanceLocation, "/")+": "+strings.Join(e.ErrorKind.KeywordPath(), "."))
		}
	}
	walk(top)
	return out
}

// outputOf finds the text that a schema is about: a model's answer inside the
// envelope of its API, or a tool's result as it is.
func outputOf(op *taxonomy.Operation, body string) (string, bool) {
	if op.Kind != "model" {
		return body, strings.TrimSpace(body) != ""
	}
	s := jsonscan.Scan(body, jsonscan.Options{Lenient: true})
	if s.Kind() != jsonscan.Object {
		return "", false
	}
	var found finder
	s.EnterObject()
	for key, more := s.NextKey(); more; key, more = s.NextKey() {
		switch key {
		case "choices":
			found.first(&s)
		case "content", "output":
			found.value(&s)
		default:
			s.Skip()
		}
	}
	return found.text.String(), found.some && s.Err() == nil
}

// finder gathers the text parts of the first choice.
type finder struct {
	text strings.Builder
	some bool
}

// first takes the first of several choices: it is the one that is used.
func (f *finder) first(s *jsonscan.Scanner) {
	if s.Kind() != jsonscan.Array {
		s.Skip()
		return
	}
	s.EnterArray()
	for i := 0; s.NextElement(); i++ {
		if i == 0 {
			f.value(s)
		} else {
			s.Skip()
		}
	}
}

func (f *finder) value(s *jsonscan.Scanner) {
	switch s.Kind() {
	case jsonscan.Array:
		s.EnterArray()
		for s.NextElement() {
			f.value(s)
		}
	case jsonscan.Object:
		s.EnterObject()
		for key, more := s.NextKey(); more; key, more = s.NextKey() {
			switch key {
			case "message", "content":
				f.value(s)
			case "text":
				f.string(s)
			default:
				s.Skip()
			}
		}
	case jsonscan.String:
		f.string(s)
	default:
		s.Skip()
	}
}

func (f *finder) string(s *jsonscan.Scanner) {
	if s.Kind() != jsonscan.String {
		s.Skip()
		return
	}
	f.text.WriteString(s.Text())
	f.some = true
}
