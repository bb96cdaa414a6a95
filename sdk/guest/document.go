package guest

import (
	"strconv"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// A Document is a JSON value, read lazily: looking up a member walks over the
// text and allocates nothing but what it returns. The zero value is absent, and
// every question to it has an empty answer.
type Document struct{ text string }

// Parse makes a document of text, for example of a response body. What is not
// JSON gives empty answers.
func Parse(text string) Document { return Document{text} }

// Exists reports whether the value is there and is not null.
func (d Document) Exists() bool { return d.text != "" && d.text != "null" }

// Get follows members: in.Get("observation", "response").
func (d Document) Get(path ...string) Document {
	for _, key := range path {
		d = d.member(key)
	}
	return d
}

func (d Document) member(key string) Document {
	s := jsonscan.Scan(d.text, jsonscan.Options{Lenient: true})
	if s.Kind() != jsonscan.Object || !s.EnterObject() {
		return Document{}
	}
	for {
		k, more := s.NextKey()
		if !more {
			return Document{}
		}
		if k == key {
			return Document{s.Raw()}
		}
		s.Skip()
	}
}

// Text is the string at the path, or "".
func (d Document) Text(path ...string) string {
	d = d.Get(path...)
	s := jsonscan.Scan(d.text, jsonscan.Options{Lenient: true})
	if s.Kind() != jsonscan.String {
		return ""
	}
	return s.Text()
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
func (d Document) Inner(path ...string) Document { return Document{d.Text(path...)} }

// Each calls f for every element of the array at the path until f says false.
func (d Document) Each(f func(i int, element Document) bool, path ...string) {
	d = d.Get(path...)
	s := jsonscan.Scan(d.text, jsonscan.Options{Lenient: true})
	if s.Kind() != jsonscan.Array || !s.EnterArray() {
		return
	}
	for i := 0; s.NextElement(); i++ {
		if raw := s.Raw(); s.Err() != nil || !f(i, Document{raw}) {
			return
		}
	}
}

// Raw is the value's JSON text.
func (d Document) Raw() string { return d.text }
