package taxonomy

import (
	"strconv"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// A FieldError says which member of a document is wrong and what would have
// been right.
type FieldError struct {
	Document string // "observation", "operation", "classify answer", "fallback answer"
	Field    string // "operation.effect", "history[2].outcome"; "" is the document itself
	Want     string
	Got      string
}

func (e *FieldError) Error() string {
	s := e.Document
	if e.Field != "" {
		s += " " + e.Field
	}
	return s + ": expected " + e.Want + ", found " + e.Got
}

// A reader fills Go values from one document and keeps the first error with
// the path of the member it stands at.
type reader struct {
	jsonscan.Scanner
	document string
	strict   bool // nothing may be left out by null, and unknown members have no excuse
	path     []string
	err      error
}

// maxPathPart is how much of one key an error repeats.
const maxPathPart = 40

func (r *reader) ok() bool { return r.err == nil && r.Err() == nil }

func (r *reader) field() string {
	out := ""
	for _, p := range r.path {
		if p == "" || len(p) > maxPathPart {
			p = quote(p) // a key of the sender's own
		}
		if out != "" && p[0] != '[' {
			out += "."
		}
		out += p
	}
	return out
}

// refuse records what is wrong at the current member.
func (r *reader) refuse(want, got string) {
	if r.ok() {
		r.err = &FieldError{r.document, r.field(), want, got}
	}
}

// is reports whether the next value has the kind; a null counts as absent
// where the document allows it, and anything else is refused.
func (r *reader) is(k jsonscan.Kind, want string) bool {
	got := r.Kind()
	switch {
	case !r.ok():
		return false
	case got == k:
		return true
	case got == jsonscan.Null && !r.strict:
		r.Null()
		return false
	case got == jsonscan.Invalid:
		r.Fail(want)
		return false
	}
	r.refuse(want, got.String())
	return false
}

func (r *reader) text(want string) string {
	if !r.is(jsonscan.String, want) {
		return ""
	}
	return r.Text()
}

func (r *reader) whole() int64 {
	const want = "a whole number"
	if !r.is(jsonscan.Number, want) {
		return 0
	}
	t := r.Number()
	v, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		r.refuse(want+" of at most 64 bits", t)
	}
	return v
}

func (r *reader) boolean() bool {
	return r.is(jsonscan.Bool, "true or false") && r.Bool()
}

// object calls member for each key, which must read the value.
func (r *reader) object(member func(key string)) {
	if !r.is(jsonscan.Object, "an object") {
		return
	}
	r.EnterObject()
	for {
		key, more := r.NextKey()
		if !more || !r.ok() {
			return
		}
		r.path = append(r.path, key)
		member(key)
		if r.err != nil {
			return
		}
		if r.Err() != nil {
			return // the path stays for the message
		}
		r.path = r.path[:len(r.path)-1]
	}
}

// array calls element for each element, which must read it.
func (r *reader) array(element func(i int)) {
	if !r.is(jsonscan.Array, "an array") {
		return
	}
	r.EnterArray()
	for i := 0; r.NextElement() && r.ok(); i++ {
		r.path = append(r.path, "["+strconv.Itoa(i)+"]")
		element(i)
		if !r.ok() {
			return
		}
		r.path = r.path[:len(r.path)-1]
	}
}

// finish returns the first error, with the member it belongs to.
func (r *reader) finish() error {
	if r.err != nil {
		return r.err
	}
	if err := r.End(); err != nil {
		if s, ok := err.(*jsonscan.SyntaxError); ok {
			return &FieldError{r.document, r.field(), s.Want + " at byte " + strconv.Itoa(s.Offset), s.Got}
		}
		return err
	}
	return nil
}
