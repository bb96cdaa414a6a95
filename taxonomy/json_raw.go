package taxonomy

import (
	"maps"
	"slices"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// KeyPresent stands for an idempotency key whose text is not told: a document
// that says `"idempotency_key": true` carried one.
const KeyPresent = "present"

// keyField is a text, or true for "carried one, text not told".
func keyField(name, doc string) field[Operation] {
	return field[Operation]{name, doc, shape{kind: "string", orBool: true},
		func(r *reader, v *Operation) {
			if r.Kind() != jsonscan.Bool {
				v.IdempotencyKey = r.text("a string, true or false")
			} else if r.Bool() {
				v.IdempotencyKey = KeyPresent
			}
		},
		func(b []byte, v *Operation) []byte { return jsonscan.AppendString(b, v.IdempotencyKey) }}
}

// attributesField holds strings, whole numbers and booleans.
func attributesField(name, doc string) field[Operation] {
	return field[Operation]{name, doc, shape{kind: "object", items: &shape{kind: "scalar"}},
		func(r *reader, v *Operation) {
			r.object(func(key string) {
				value := r.attribute()
				if !r.ok() {
					return
				}
				if v.Attributes == nil {
					v.Attributes = make(Attributes)
				}
				if _, twice := v.Attributes[key]; twice {
					r.refuse("this attribute once", "it twice")
					return
				}
				v.Attributes[key] = value
			})
		},
		func(b []byte, v *Operation) []byte { return AppendAttributes(b, v.Attributes) }}
}

func (r *reader) attribute() any {
	switch r.Kind() {
	case jsonscan.String:
		return r.Text()
	case jsonscan.Bool:
		return r.Bool()
	case jsonscan.Number:
		return r.whole()
	default:
		r.refuse("a string, a whole number or a boolean", r.Kind().String())
		return nil
	}
}

// AppendAttributes appends attributes with sorted keys. A value of a type that
// no document may carry is written as an empty string.
func AppendAttributes(b []byte, attributes Attributes) []byte {
	b = append(b, '{')
	for i, k := range slices.Sorted(maps.Keys(attributes)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendString(b, k)
		b = append(b, ':')
		switch x := attributes[k].(type) {
		case string:
			b = jsonscan.AppendString(b, x)
		case int64:
			b = jsonscan.AppendInt(b, x)
		case int:
			b = jsonscan.AppendInt(b, int64(x))
		case bool:
			b = jsonscan.AppendBool(b, x)
		default:
			b = append(b, `""`...)
		}
	}
	return append(b, '}')
}

// localField is a JSON object kept as its text; absent is an empty object.
func localField(name, doc string) field[Observation] {
	return field[Observation]{name, doc, shape{kind: "object", open: true},
		func(r *reader, v *Observation) {
			if r.is(jsonscan.Object, "an object") {
				if raw := r.Raw(); r.ok() {
					v.Local = Raw(raw)
				}
			}
		},
		func(b []byte, v *Observation) []byte { return appendObject(b, v.Local) }}
}

// appendObject appends raw in canonical form; what is not a JSON object, which
// no parsed document can hold, becomes an empty one.
func appendObject(b []byte, raw Raw) []byte {
	if len(raw) > 0 {
		out, err := jsonscan.AppendCanonical(b, string(raw), jsonscan.Options{})
		if err == nil && len(out) > len(b) && out[len(b)] == '{' {
			return out
		}
	}
	return append(b, "{}"...)
}

// factsField is an object of strings, kept in the order of the names.
func factsField(name, doc string) field[Verdict] {
	return field[Verdict]{name, doc, shape{kind: "object", items: &shape{kind: "string"}},
		func(r *reader, v *Verdict) {
			r.object(func(key string) {
				value := r.text("a string")
				if !r.ok() {
					return
				}
				if !addFact(&v.Facts, Fact{key, value}) {
					r.refuse("this fact once", "it twice")
				}
			})
		},
		func(b []byte, v *Verdict) []byte {
			b = append(b, '{')
			var facts []Fact
			for _, f := range v.Facts {
				addFact(&facts, f)
			}
			for i, f := range facts {
				if i > 0 {
					b = append(b, ',')
				}
				b = jsonscan.AppendString(b, f.Name)
				b = append(b, ':')
				b = jsonscan.AppendString(b, f.Value)
			}
			return append(b, '}')
		}}
}

// addFact keeps facts sorted by name; false when the name is there already.
func addFact(facts *[]Fact, f Fact) bool {
	at := len(*facts)
	for at > 0 && (*facts)[at-1].Name >= f.Name {
		at--
	}
	if at < len(*facts) && (*facts)[at].Name == f.Name {
		return false
	}
	*facts = append(*facts, Fact{})
	copy((*facts)[at+1:], (*facts)[at:])
	(*facts)[at] = f
	return true
}
