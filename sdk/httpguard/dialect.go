package httpguard

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Dialect is the family of APIs that an upstream speaks. The zero value is any
// HTTP API.
type Dialect uint8

const (
	Plain Dialect = iota
	OpenAI
	Anthropic
)

var dialectNames = [...]string{"plain", "openai", "anthropic"}

func (d Dialect) String() string { return dialectNames[min(int(d), len(dialectNames)-1)] }

// ParseDialect reads a dialect's name.
func ParseDialect(s string) (Dialect, bool) {
	for i, n := range dialectNames {
		if n == s {
			return Dialect(i), true
		}
	}
	return Plain, false
}

// endpoint is one operation of a model API.
type endpoint struct {
	path string // after the version: "chat/completions"
	name string // as operations are called
	json bool   // its request is JSON that names the model
}

// The endpoints that are a pure model call: repeating one changes nothing but
// the bill (SPEC R-TAX-3). Whatever is not listed is judged by its method.
var openaiEndpoints = []endpoint{
	{"chat/completions", "chat.completions", true},
	{"responses", "responses", true},
	{"completions", "completions", true},
	{"embeddings", "embeddings", true},
	{"moderations", "moderations", true},
	{"rerank", "rerank", true},
	{"images/generations", "images.generate", true},
	{"images/edits", "images.edit", false},
	{"images/variations", "images.vary", false},
	{"audio/speech", "audio.speech", true},
	{"audio/transcriptions", "audio.transcribe", false},
	{"audio/translations", "audio.translate", false},
	{"responses/input_tokens", "responses.count", true},
}

var anthropicEndpoints = []endpoint{
	{"messages", "messages", true},
	{"messages/count_tokens", "messages.count", true},
	{"complete", "completions", true},
}

func (d Dialect) endpoints() []endpoint {
	switch d {
	case OpenAI:
		return openaiEndpoints
	case Anthropic:
		return anthropicEndpoints
	}
	return nil
}

// find returns the model endpoint that a path ends in. Gateways put the API
// under prefixes of their own ("/v1", "/openai/deployments/x"), so the end
// decides, and the longest match wins.
func (d Dialect) find(path string) (endpoint, bool) {
	path = strings.TrimSuffix(path, "/")
	best, found := endpoint{}, false
	for _, e := range d.endpoints() {
		if len(e.path) > len(best.path) && strings.HasSuffix(path, e.path) && strings.HasSuffix(strings.TrimSuffix(path, e.path), "/") {
			best, found = e, true
		}
	}
	return best, found
}

// dialectOf guesses what an address speaks, for a Go program that did not say.
func dialectOf(host, path string) Dialect {
	switch {
	case strings.HasSuffix(host, "anthropic.com"):
		return Anthropic
	case strings.HasSuffix(host, "openai.com"), strings.HasSuffix(host, "openai.azure.com"):
		return OpenAI
	}
	if _, ok := Anthropic.find(path); ok && strings.Contains(path, "/v1/") {
		return Anthropic
	}
	if e, ok := OpenAI.find(path); ok && (strings.Contains(path, "/v1/") || e.name == "chat.completions") {
		return OpenAI
	}
	return Plain
}

// describePath fills in what method and path say about an operation that is no
// model call. Parts that look like identifiers are left out, so that actions
// stay few.
func describePath(op *taxonomy.Operation, method, path string) {
	action := strings.ToLower(method)
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "":
		case identifier(part):
			action += "/{id}"
		default:
			action += "/" + strings.ToLower(part)
		}
		if len(action) > 120 {
			break
		}
	}
	op.Kind = "tool"
	op.Name = action
	op.Tool = op.Provider
	op.Action = action
	op.ActionClass = "write"
	op.Effect = taxonomy.NonRepeatable
	switch method {
	case "GET", "HEAD", "OPTIONS":
		op.ActionClass = "read"
		op.Effect = taxonomy.ReadOnly
	}
}

// identifier reports whether a part of a path names one thing rather than a
// kind of thing: long, or with a digit and longer than a version.
func identifier(part string) bool {
	return len(part) > 32 || len(part) > 3 && strings.ContainsAny(part, "0123456789") || strings.ContainsAny(part, "@%:=")
}
