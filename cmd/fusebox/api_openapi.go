package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// openAPI is GET /v1/openapi.json.
func (s *server) openAPI(w http.ResponseWriter, _ *http.Request) {
	doc, err := openAPIDocument(s.endpoints())
	if err != nil {
		writeProblem(w, http.StatusInternalServerError, problem{Code: "internal", Message: err.Error()})
		return
	}
	writeAnswer(w, http.StatusOK, doc)
}

// openAPIDocument describes the decision API in OpenAPI 3.1
// (spec.openapis.org/oas/v3.1.1). Schemas of operations, observations and
// rejections are the published ones; those of answers are read off the types
// that are encoded, so that none is said twice.
func openAPIDocument(endpoints []endpoint) (object, error) {
	schemas := object{}
	for _, d := range taxonomy.Documents() {
		switch d.Name {
		case "operation.v1", "observation.v1", "rejection.v1":
			var schema object
			if err := json.Unmarshal(d.AppendSchema(nil), &schema); err != nil {
				return nil, fmt.Errorf("schema %s: %w", d.Name, err)
			}
			delete(schema, "$schema") // of the whole document already
			delete(schema, "$id")     // or it would begin a document of its own
			schemas[d.Name] = schema
		}
	}
	paths := object{}
	for _, e := range endpoints {
		paths[e.path] = object{strings.ToLower(e.method): e.describe()}
	}
	return object{
		"openapi":    "3.1.1",
		"info":       object{"title": "fusebox decision API", "version": "1", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers":    []object{{"url": "http://127.0.0.1:4141"}},
		"security":   []object{{}, {"client": []string{}}},
		"paths":      paths,
		"components": object{"schemas": schemas, "securitySchemes": object{"client": object{"type": "apiKey", "in": "header", "name": tokenHeader}}},
	}, nil
}

func (e *endpoint) describe() object {
	id := strings.Trim(strings.NewReplacer("/v1/", "", "{id}/", "", "/{id}", "", "/", "_", ".json", "").Replace(e.path), "_")
	op := object{"operationId": strings.ToLower(e.method) + "_" + id, "summary": e.summary, "responses": e.responses()}
	var parameters []object
	if strings.Contains(e.path, "{id}") {
		parameters = append(parameters, object{"name": "id", "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, q := range e.query {
		parameters = append(parameters, object{"name": q, "in": "query", "schema": object{"type": "string"}})
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if e.request != nil {
		op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": e.request}}}
	}
	return op
}

func (e *endpoint) responses() object {
	out := object{}
	for status, a := range e.answers {
		r := object{"description": a.says}
		if a.body != nil {
			r["content"] = object{"application/json": object{"schema": schemaOf(reflect.TypeOf(a.body))}}
		}
		out[fmt.Sprint(status)] = r
	}
	return out
}

var (
	textType = reflect.TypeFor[encoding.TextMarshaler]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

// schemaOf reads a JSON Schema off the type of an answer, as encoding/json
// writes it.
func schemaOf(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == rawType:
		return object{"type": "object"}
	case t.Implements(textType) && t.Kind() == reflect.Uint8:
		return object{"enum": namesOf(t)}
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Pointer:
		return object{"anyOf": []object{schemaOf(t.Elem()), {"type": "null"}}}
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return object{"type": "object"}
		}
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		return schemaOfStruct(t)
	}
	return object{"type": "integer"}
}

func schemaOfStruct(t reflect.Type) object {
	properties, required := object{}, []string{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		properties[name] = schemaOf(f.Type)
		if t == reflect.TypeFor[admitAnswer]() && name == "rejection" {
			properties[name] = schemaRef("rejection.v1")
		}
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// namesOf lists the names of an enum: its values from zero, until they repeat.
func namesOf(t reflect.Type) []string {
	var names []string
	seen := map[string]bool{}
	for i := range uint64(256) {
		v := reflect.New(t).Elem()
		v.SetUint(i)
		text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if name := string(text); err != nil || seen[name] || i > 0 && name == "" {
			break
		} else {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}
