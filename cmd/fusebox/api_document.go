package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// A problem is what the API answers when it cannot decide: a request that
// cannot be read, a permit that cannot be used, a part that is down. It is
// never how a "no" is said: a rejection is a decision, answered with 200.
type problem struct {
	Code    string `json:"code"`            // "bad_request", "not_found", "permit_used", …
	Field   string `json:"field,omitempty"` // the member that is wrong: "operation.effect"
	Message string `json:"message"`         // what is wrong and what would be right
	Receipt string `json:"receipt,omitempty"`

	RetryAfterMS int64 `json:"retry_after_ms,omitempty"` // of rate_limited; the Retry-After header has it in seconds
}

func (p *problem) Error() string {
	if p.Field != "" {
		return p.Field + ": " + p.Message
	}
	return p.Message
}

func writeProblem(w http.ResponseWriter, status int, p problem) {
	writeAnswer(w, status, errorDoc{p})
}

func writeAnswer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // a value of ours that cannot be encoded is a fault of ours
		http.Error(w, `{"error":{"code":"internal","message":"the answer could not be encoded"}}`, http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that went away hears nothing
}

// badRequest turns the errors of our parsers into a problem that names the
// member.
func badRequest(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	p := &problem{Code: "bad_request", Message: err.Error()}
	if f, ok := errors.AsType[*taxonomy.FieldError](err); ok {
		p.Field = join(f.Document, f.Field)
		p.Message = "expected " + f.Want + ", found " + f.Got
	}
	if f, ok := errors.AsType[*engine.InputError](err); ok {
		p.Field = join("operation", f.Field)
		p.Message = f.Reason
	}
	return p
}

func join(parent, field string) string {
	switch {
	case field == "":
		return parent
	case strings.HasPrefix(field, parent+".") || field == parent:
		return field
	case strings.HasPrefix(field, "["):
		return parent + field
	}
	return parent + "." + field
}

// readBody reads a whole request body under a limit.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, int, *problem) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil {
		return body, 0, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, http.StatusRequestEntityTooLarge, &problem{Code: "too_large", Message: fmt.Sprintf("the body is larger than %d bytes", most)}
	}
	return nil, http.StatusBadRequest, &problem{Code: "bad_request", Message: "the body did not arrive whole"}
}

// A member of a request document, and how to read its value.
type member struct {
	name string
	read func(raw string) error
}

// readMembers reads one JSON object whose members are all known, each at most
// once: what two parsers could read differently is refused.
func readMembers(body []byte, members ...member) error {
	s := jsonscan.ScanBytes(body, jsonscan.Options{})
	seen := make([]bool, len(members))
	if s.Kind() != jsonscan.Object {
		return &problem{Code: "bad_request", Message: "the body must be one JSON object"}
	}
	for s.EnterObject(); ; {
		key, more := s.NextKey()
		if !more {
			break
		}
		i := slices.IndexFunc(members, func(m member) bool { return m.name == key })
		if i < 0 {
			return &problem{Code: "bad_request", Field: printable(key), Message: "no such member; known are " + memberNames(members)}
		}
		if seen[i] {
			return &problem{Code: "bad_request", Field: key, Message: "is given twice"}
		}
		seen[i] = true
		raw := s.Raw()
		if s.Err() != nil {
			break
		}
		if err := members[i].read(raw); err != nil {
			return fieldProblem(key, err)
		}
	}
	if err := s.End(); err != nil {
		return &problem{Code: "bad_request", Message: "the body is not valid JSON: " + err.Error()}
	}
	return nil
}

func memberNames(members []member) string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	return strings.Join(names, ", ")
}

// fieldProblem gives an error of a member's reader the member's name.
func fieldProblem(field string, err error) error {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if f, ok := errors.AsType[*taxonomy.FieldError](err); ok {
		return &problem{Code: "bad_request", Field: join(field, strings.TrimPrefix(strings.TrimPrefix(f.Field, f.Document), ".")),
			Message: "expected " + f.Want + ", found " + f.Got}
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &problem{Code: "bad_request", Field: join(field, t.Field), Message: "expected " + goodType(t.Type.Kind().String()) + ", found " + t.Value}
	}
	return &problem{Code: "bad_request", Field: field, Message: err.Error()}
}

func goodType(kind string) string {
	switch kind {
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	case "struct", "map":
		return "an object"
	}
	return "a whole number"
}

// value reads a member into a Go value; objects must not have unknown members.
func value(into any) func(raw string) error {
	return func(raw string) error {
		dec := json.NewDecoder(strings.NewReader(raw))
		dec.DisallowUnknownFields()
		err := dec.Decode(into)
		if err != nil && strings.HasPrefix(err.Error(), "json: unknown field ") {
			return fmt.Errorf("has no member %s", strings.TrimPrefix(err.Error(), "json: unknown field "))
		}
		return err
	}
}

// versionOne accepts the only version of the API that there is.
func versionOne(raw string) error {
	if raw != "1" {
		return fmt.Errorf("must be 1, found %s", printable(raw))
	}
	return nil
}
