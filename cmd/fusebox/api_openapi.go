package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// openAPI is GET /v1/openapi.json.
func (s *server) openAPI(w http.ResponseWriter, _ *http.Request) { s.writeAPI(w, decisionAPI()) }

// operatorAPI is GET /v1/openapi.json on the operator plane.
func (s *server) operatorAPI(w http.ResponseWriter, _ *http.Request) { s.writeAPI(w, operatorAPI()) }

// A plane is one of the two APIs, and how it is described.
type plane struct {
	title, url string
	security   object
	endpoints  func(*server) []endpoint
}

func decisionAPI() plane {
	return plane{"fusebox decision API", "http://127.0.0.1:4141",
		object{"client": object{"type": "apiKey", "in": "header", "name": tokenHeader}}, (*server).endpoints}
}

func operatorAPI() plane {
	return plane{"fusebox operator API", "http://127.0.0.1:4142",
		object{"bearer": object{"type": "http", "scheme": "bearer"}, "basic": object{"type": "http", "scheme": "basic"}}, (*server).operatorEndpoints}
}

func (s *server) writeAPI(w http.ResponseWriter, p plane) {
	doc, err := openAPIDocument(p, p.endpoints(s))
	if err != nil {
		writeProblem(w, http.StatusInternalServerError, problem{Code: "internal", Message: err.Error()})
		return
	}
	writeAnswer(w, http.StatusOK, doc)
}

// openAPIDocument describes a plane in OpenAPI 3.1
// (spec.openapis.org/oas/v3.1.1). Schemas of operations, observations and
// rejections are the published ones; those of answers are read off the types
// that are encoded, so that none is said twice.
func openAPIDocument(p plane, endpoints []endpoint) (object, error) {
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
		at, ok := paths[e.path].(object)
		if !ok {
			at = object{}
			paths[e.path] = at
		}
		at[strings.ToLower(e.method)] = e.describe()
	}
	security := []object{{}} // where the configuration names nobody
	for _, name := range slices.Sorted(maps.Keys(p.security)) {
		security = append(security, object{name: []string{}})
	}
	return object{
		"openapi":    "3.1.1",
		"info":       object{"title": p.title, "version": "1", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers":    []object{{"url": p.url}},
		"security":   security,
		"paths":      paths,
		"components": object{"schemas": schemas, "securitySchemes": p.security},
	}, nil
}

func (e *endpoint) describe() object {
	id := strings.Trim(strings.NewReplacer("/v1/", "", "/", "_", ".json", "", "{", "by_", "}", "").Replace(e.path), "_")
	op := object{"operationId": strings.ToLower(e.method) + "_" + id, "summary": e.summary, "responses": e.responses()}
	var parameters []object
	for _, m := range pathParameter.FindAllStringSubmatch(e.path, -1) {
		schema := object{"type": "string"}
		if m[1] == "step" {
			schema["enum"] = rolloutSteps
		}
		parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": schema})
	}
	for _, q := range e.query {
		parameters = append(parameters, object{"name": q, "in": "query", "schema": object{"type": "string"}})
	}
	if e.may != nil {
		op["description"] = "For the roles " + rolesOf(e.may) + "."
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if e.request != nil {
		op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": e.request}}}
	}
	return op
}

var (
	pathParameter = regexp.MustCompile(`\{(\w+)\}`)
	rolloutSteps  = []string{"start", "advance", "hold", "rollback"}
)

func rolesOf(may []sdk.Role) string {
	names := make([]string, len(may))
	for i, r := range may {
		names[i] = r.String()
	}
	return strings.Join(names, " and ")
}

func (e *endpoint) responses() object {
	out := object{}
	for status, a := range e.answers {
		r := object{"description": a.says}
		if status == http.StatusTooManyRequests {
			r["headers"] = object{"Retry-After": object{"description": "seconds", "schema": object{"type": "integer"}}}
		}
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
	case reflect.Array:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return object{"type": "object"}
		}
		return object{"type": []string{"object", "null"}, "additionalProperties": schemaOf(t.Elem())} // an empty one of Go is null
	case reflect.Struct:
		return schemaOfStruct(t)
	}
	return object{"type": "integer"}
}

func schemaOfStruct(t reflect.Type) object {
	properties, required := object{}, []string{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" { // its members stand among ours
			inner := f.Type
			if inner.Kind() == reflect.Pointer { // all of them, or none
				inner = inner.Elem()
			}
			members := schemaOfStruct(inner)
			for name, schema := range members["properties"].(object) {
				if _, outer := properties[name]; !outer {
					properties[name] = schema
				}
			}
			if inner == f.Type {
				required = append(required, members["required"].([]string)...)
			}
			continue
		}
		if name == "-" {
			continue
		}
		properties[name] = schemaOf(f.Type)
		if t == reflect.TypeFor[admitAnswer]() && name == "rejection" {
			properties[name] = schemaRef("rejection.v1")
		}
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	return object{"type": "object", "properties": properties, "required": slices.Compact(required)} // one of ours may stand before an embedded one
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
