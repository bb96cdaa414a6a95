package rego

import (
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"sort"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The published schemas. Those of the input documents are written from the
// field tables of this package (a test holds them equal); `opa check -s
// rego/schemas` and editors read them.
//
//go:embed schemas/*.json
var schemaFiles embed.FS

// Schemas returns the published JSON Schemas by file name: "outcome.json", ….
func Schemas() map[string][]byte {
	out := map[string][]byte{}
	entries, _ := fs.ReadDir(schemaFiles, "schemas")
	for _, e := range entries {
		b, _ := fs.ReadFile(schemaFiles, "schemas/"+e.Name())
		out[e.Name()] = b
	}
	return out
}

// SchemasDigest is the SHA-256 over the published schemas, by name.
func SchemasDigest() [32]byte {
	all := Schemas()
	list := make([]string, 0, len(all))
	for n := range all {
		list = append(list, n)
	}
	sort.Strings(list)
	h := sha256.New()
	for _, n := range list {
		fmt.Fprintf(h, "%s %x\n", n, sha256.Sum256(all[n]))
	}
	return [32]byte(h.Sum(nil))
}

// schemaSet is what annotations like `schemas: - input: schema.outcome` refer to.
func schemaSet() *ast.SchemaSet {
	set := ast.NewSchemaSet()
	for n, b := range Schemas() {
		var raw any
		if json.Unmarshal(b, &raw) == nil {
			set.Put(ast.MustParseRef("schema."+strings.TrimSuffix(n, ".json")), raw)
		}
	}
	return set
}

// object is a JSON Schema being written; keys come out sorted.
type object = map[string]any

// schema is the JSON Schema of a document. Every property is required and none
// is unknown, except for a team's own attributes.
func (d *document[T]) schema() object {
	root := closed(object{})
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = d.title
	for i := range d.fields {
		f := &d.fields[i]
		at := root
		path := strings.Split(f.path, ".")
		for _, p := range path[:len(path)-1] {
			inner, ok := at["properties"].(object)[p].(object)
			if !ok {
				inner = closed(object{})
				add(at, p, inner)
			}
			at = inner
		}
		add(at, path[len(path)-1], f.schema())
	}
	return root
}

func closed(properties object) object {
	return object{"type": "object", "additionalProperties": false, "properties": properties, "required": []string{}}
}

func add(to object, name string, property object) {
	to["properties"].(object)[name] = property
	to["required"] = append(to["required"].([]string), name)
}

func (f *field[T]) schema() object {
	s := object{"description": f.about}
	switch f.kind {
	case constant, text:
		s["type"] = "string"
		if f.enum != nil {
			s["enum"] = f.enum
		}
	case number:
		s["type"] = "integer"
	case flag:
		s["type"] = "boolean"
	case texts:
		s["type"], s["items"] = "array", object{"type": "string"}
	case rows:
		item := closed(object{})
		for _, c := range f.columns {
			p := object{"description": c.about, "type": "string"}
			switch {
			case c.number != nil:
				p["type"] = "integer"
			case c.texts != nil:
				p["type"], p["items"] = "array", object{"type": "string"}
			}
			add(item, c.name, p)
		}
		s["type"], s["items"] = "array", item
	case attributes:
		s["type"], s["additionalProperties"] = "object", object{"type": []string{"string", "integer", "boolean"}}
	}
	if f.id {
		s["$comment"] = "different in nearly every call; a rule that reads it makes answers hard to remember"
	}
	return s
}

// answerSchema describes what the four entrypoints may answer.
func answerSchema() object {
	str := func(enum ...string) object {
		s := object{"type": "string"}
		if enum != nil {
			s["enum"] = enum
		}
		return s
	}
	list := func(item object) object { return object{"type": "array", "items": item} }
	shape := func(optional []string, properties object) object {
		s := closed(object{})
		for _, n := range sortedKeys(properties) {
			add(s, n, properties[n].(object))
		}
		var required []string
		for _, n := range s["required"].([]string) {
			keep := true
			for _, o := range optional {
				keep = keep && o != n
			}
			if keep {
				required = append(required, n)
			}
		}
		s["required"] = required
		return s
	}
	feed := shape([]string{"breaker", "until_ms"}, object{
		"layer": str(names[taxonomy.Layer](taxonomy.Layers)[1:]...), "breaker": str(), "level": str(),
		"signal": str(names[taxonomy.Signal](4)...), "reason": str(), "until_ms": object{"type": "integer"}})
	authority := shape([]string{"observed"}, object{"decision": str(names[taxonomy.Authority](3)...), "reasons": list(str()),
		"obligations": list(str()), "observed": list(str())})
	admission := shape(nil, object{"action": str(names[taxonomy.AdmissionAction](4)...), "reason": str(), "expires_in_s": object{"type": "integer"}})
	choice := shape(nil, object{"choose": str(), "reason": str()})
	return object{
		"$schema":     "http://json-schema.org/draft-07/schema#",
		"title":       "What the four entrypoints answer",
		"definitions": object{"routing": list(feed), "authority": authority, "admission": admission, "fallback": list(choice)},
	}
}

func sortedKeys(o object) []string {
	out := make([]string, 0, len(o))
	for k := range o {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// writtenSchemas are the schemas as this package's tables have them.
func writtenSchemas() map[string]object {
	return map[string]object{
		"outcome.json":   outcomeDocument.schema(),
		"operation.json": operationDocument.schema(),
		"admission.json": admissionDocument.schema(),
		"fallback.json":  fallbackDocument.schema(),
		"decision.json":  answerSchema(),
	}
}
