package rego

import (
	"fmt"
	"strings"
)

// Sizes that a policy may not exceed. OPA's own limit for a bundle is 1 GiB;
// a policy that needs more than these decides slowly and is better split.
const (
	MaxRegoBytes = 8 << 20
	MaxDataBytes = 8 << 20
)

// A Module is one Rego file.
type Module struct {
	Path   string // as shown in errors: "fusebox/routing/routing.rego"
	Source []byte
}

// IsTest reports whether the file holds tests, which are compiled for [Test]
// only and never decide anything.
func (m Module) IsTest() bool { return strings.HasSuffix(m.Path, "_test.rego") }

// Files is what a snapshot is made of: Rego and one JSON object of data, the
// document that rules see as `data` beside the rules themselves.
type Files struct {
	Modules []Module
	Data    []byte   // a JSON object; nil is {}
	Roots   []string // packages and data must lie under one of these; nil is "fusebox"
}

// A Problem is one thing wrong with a policy.
type Problem struct {
	File string // "" where no file is meant
	Line int    // 1-based; 0 where no line is meant
	Code string // "parse", "type", "builtin", "entrypoint", "schema", "roots", "size", "data", "tests", "differential"
	Text string
}

func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Text
	case p.Line == 0:
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// A LoadError lists every problem that was found in a policy. Nothing of it
// takes effect.
type LoadError struct {
	Problems []Problem
}

func (e *LoadError) Error() string {
	if len(e.Problems) == 1 {
		return "load policy: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "load policy: %d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}
