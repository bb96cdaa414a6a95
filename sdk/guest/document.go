package guest

import "strconv"

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

// member finds one member. Keys are compared as they are written.
func (d Document) member(key string) Document {
	t := d.text
	if len(t) == 0 || t[0] != '{' {
		return Document{}
	}
	for i := 1; ; i++ {
		i = space(t, i)
		if i >= len(t) || t[i] != '"' {
			return Document{}
		}
		end := skipString(t, i)
		found := end-i == len(key)+2 && t[i+1:end-1] == key
		i = space(t, end)
		if i >= len(t) || t[i] != ':' {
			return Document{}
		}
		i = space(t, i+1)
		if found {
			return value(t, i)
		}
		i = space(t, skip(t, i))
		if i >= len(t) || t[i] != ',' {
			return Document{}
		}
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
