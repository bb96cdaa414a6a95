package wasm

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// A GoldenResult is one golden file compared.
type GoldenResult struct {
	Name string
	OK   bool
	Got  string // canonical: an answer, null for no opinion, or {"error":"<code>"}
	Want string
	Fuel int64
}

// Golden runs an author's golden files: for each NAME.input.json in dir, the
// module's answer must equal NAME.want.json, compared as canonical JSON. The
// wanted document is an answer, null where the module is to have no opinion, or
// {"error":"<code>"}.
func Golden(ctx context.Context, m *Module, dir fs.FS) ([]GoldenResult, error) {
	names, err := fs.Glob(dir, "*.input.json")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no *.input.json files")
	}
	slices.Sort(names)
	var out []GoldenResult
	for _, file := range names {
		name := strings.TrimSuffix(file, ".input.json")
		input, err := fs.ReadFile(dir, file)
		if err != nil {
			return nil, err
		}
		wanted, err := fs.ReadFile(dir, name+".want.json")
		if err != nil {
			return nil, err
		}
		want, err := jsonscan.AppendCanonical(nil, string(wanted), jsonscan.Options{})
		if err != nil {
			return nil, fmt.Errorf("%s.want.json: %w", name, err)
		}
		r := m.Run(ctx, bytes.TrimSpace(input))
		g := GoldenResult{Name: name, Want: string(want), Got: r.canonical(), Fuel: r.Answer.Info.Fuel}
		g.OK = g.Got == g.Want
		out = append(out, g)
	}
	return out, nil
}

// canonical is the result as a golden file spells it.
func (r *Result) canonical() string {
	switch r.Code {
	case "":
		if b, err := jsonscan.AppendCanonical(nil, string(r.Answer.Raw), jsonscan.Options{}); err == nil {
			return string(b)
		}
	case Declined:
		return "null"
	}
	return `{"error":` + string(jsonscan.AppendString(nil, string(r.Code))) + `}`
}

// A RecordedResult is what a module would have said about one recorded
// observation.
type RecordedResult struct {
	Builtin taxonomy.Verdict
	Result  Result
	Changed bool // the module has another outcome, class or reason than the built-in table
}

// Recorded asks a classifier about an observation that was recorded earlier, with
// what the built-in table says of it.
func Recorded(ctx context.Context, m *Module, obs *taxonomy.Observation, builtin taxonomy.Verdict) RecordedResult {
	r := m.Run(ctx, taxonomy.AppendClassifyInput(nil, obs, &builtin))
	v := r.Answer.Verdict
	return RecordedResult{Builtin: builtin, Result: r,
		Changed: r.Code == "" && (v.Outcome != builtin.Outcome || v.Class != builtin.Class || v.Reason != builtin.Reason)}
}
