package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is one thing wrong with a bundle.
type Problem struct {
	File string // "policy.toml"
	Line int    // 1-based; 0 where no line is meant
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

// A LoadError lists every problem that was found in a bundle. Nothing of it
// takes effect.
type LoadError struct {
	Source   string // where the bundle came from
	Problems []Problem
}

func (e *LoadError) Error() string {
	from := "open policy " + e.Source + ": "
	if len(e.Problems) == 1 {
		return from + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d problems", from, len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// problems collects what is wrong.
type problems []Problem

func (p *problems) add(file string, line int, format string, args ...any) {
	*p = append(*p, Problem{File: file, Line: line, Text: fmt.Sprintf(format, args...)})
}

func (p problems) err(source string) error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return &LoadError{Source: source, Problems: slices.Compact(p)}
}

// nearest returns the known name that looks most like an unknown one, or "".
func nearest(name string, known []string) string {
	best, least := "", len(name)/2+2
	for _, k := range known {
		if n := edits(name, k); n < least {
			best, least = k, n
		}
	}
	return best
}

// edits is the number of single-character changes between two short names.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, change)
		}
	}
	return row[len(b)]
}
