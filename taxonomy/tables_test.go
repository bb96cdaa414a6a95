package taxonomy

import (
	"slices"
	"strings"
	"testing"
)

// TestTablesAreSorted: canonical documents have sorted keys because the tables
// have, and readers find a member by its place.
func TestTablesAreSorted(t *testing.T) {
	check(t, "operation", operationFields())
	check(t, "estimate", estimateFields())
	check(t, "observation", observationFields())
	check(t, "transport", transportFields())
	check(t, "response", responseFields())
	check(t, "stream", streamFields())
	check(t, "call", callFields())
	check(t, "verdict", verdictFields())
	check(t, "classify answer", classifyAnswerFields())
	check(t, "rejection", rejectionFields())
	check(t, "candidate", candidateFields())
	check(t, "choice", choiceFields())
	check(t, "classify input", classifyInputFields())
	check(t, "fallback input", fallbackInputFields())
}

func check[T any](t *testing.T, name string, fs fields[T]) {
	t.Helper()
	if !slices.IsSortedFunc(fs, func(a, b field[T]) int { return strings.Compare(a.name, b.name) }) {
		t.Errorf("%s is not sorted: %s", name, fs.names())
	}
	if len(fs) > 64 {
		t.Errorf("%s has more members than a reader can remember", name)
	}
	for _, f := range fs {
		if f.doc == "" || f.shape.kind == "" || f.read == nil || f.write == nil {
			t.Errorf("%s.%s is half a field", name, f.name)
		}
	}
}
