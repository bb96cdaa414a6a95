package rego

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/version"
)

// Evaluator names the evaluator and its version, "opa/1.22.3". It stands beside
// a policy version in evidence, not in it: the same policy under another
// evaluator is still the same policy.
var Evaluator = "opa/" + version.Version

// Format writes a Rego file in the one form that `opa fmt` writes.
func Format(path string, source []byte) ([]byte, error) {
	out, err := format.SourceWithOpts(path, source, format.Opts{RegoVersion: ast.RegoV1, ParserOptions: &ast.ParserOptions{RegoVersion: ast.RegoV1}})
	if err != nil {
		return nil, fmt.Errorf("format %s: %w", path, err)
	}
	return out, nil
}
