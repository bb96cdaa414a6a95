package guest

import (
	"math/bits"
	"strconv"
)

// A Document is a JSON value, read lazily: looking up a member walks over the
// text once and allocates nothing but what it returns. The zero value is
// absent, and every question to it has an empty answer.
//
// Documents from the host are valid. Others (a response body) may be anything:
// what is wrong in them gives empty answers, never a panic.
type Document struct {
	text string // begins with the value; an object or array may have more behind it
}

// Parse makes a document of text.
func Parse(text string) Document { return value(text, space(text, 0)) }

// Exists reports whether the value is there and is not null.
func (d Document) Exists() bool { return d.text != "" && d.text != "null" }

// Get follows members: in.Get("observation", "response").
func (d Document) Get(path ...string) Document {
	for _, key := range path {
		d = d.member(key)
	}
	return d
}

// member finds one member. Keys are compared as they are written. The walk is
// one function on purpose: calls cost more than the work here.
func (d Document) member(key string) Document {
	t := d.text
	if len(t) == 0 || t[0] != '{' {
		return Document{}
	}
	i := 1
	for {
		if i < len(t) && t[i] <= ' ' {
			i = space(t, i)
		}
		if i >= len(t) || t[i] != '"' {
			return Document{}
		}
		start := i + 1
		i = start
		for i < len(t) { // to the end of the key
			if i+8 <= len(t) {
				w := word(t, i)
				m := zeros(w^ones*'"') | zeros(w^ones*'\\')
				if m == 0 {
					i += 8
					continue
				}
				i += bits.TrailingZeros64(m) >> 3
			}
			if t[i] == '"' {
				break
			}
			if t[i] == '\\' {
				i++
			}
			i++
		}
		end := min(i, len(t))
		i++
		if i < len(t) && t[i] <= ' ' {
			i = space(t, i)
		}
		if i >= len(t) || t[i] != ':' {
			return Document{}
		}
		i++
		if i < len(t) && t[i] <= ' ' {
			i = space(t, i)
		}
		if end-start == len(key) && t[start:end] == key {
			return value(t, i)
		}
		if i = skip(t, i); i < len(t) && t[i] <= ' ' {
			i = space(t, i)
		}
		if i >= len(t) || t[i] != ',' {
			return Document{}
		}
		i++
	}
}

// Each calls f for every element of the array at the path until f says false.
func (d Document) Each(f func(i int, element Document) bool, path ...string) {
	t := d.Get(path...).text
	if len(t) == 0 || t[0] != '[' {
		return
	}
	for i, n := 1, 0; ; i, n = i+1, n+1 {
		i = space(t, i)
		if i >= len(t) || t[i] == ']' || !f(n, value(t, i)) {
			return
		}
		i = space(t, skip(t, i))
		if i >= len(t) || t[i] != ',' {
			return
		}
	}
}

// Text is the string at the path, or "".
func (d Document) Text(path ...string) string {
	t := d.Get(path...).text
	if len(t) < 2 || t[0] != '"' || t[len(t)-1] != '"' {
		return ""
	}
	return unescape(t[1 : len(t)-1])
}

// Int is the whole number at the path, or 0.
func (d Document) Int(path ...string) int64 {
	v, err := strconv.ParseInt(d.Get(path...).text, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// Bool is the boolean at the path, or false.
func (d Document) Bool(path ...string) bool { return d.Get(path...).text == "true" }

// Inner is the JSON document inside the string at the path: a response body.
func (d Document) Inner(path ...string) Document { return Parse(d.Text(path...)) }

// Raw is the value's JSON text.
func (d Document) Raw() string { return d.text[:skip(d.text, 0)] }
