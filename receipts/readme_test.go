package receipts

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReadme: the Go code of the page is code of examples that run, and its
// tables name the verdicts and exit codes there are.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) < 4 {
		t.Fatalf("%d blocks of Go", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(examples), string(b[1])) {
			t.Errorf("no example runs this:\n%s", b[1])
		}
	}
	for _, name := range []string{VerdictSignature, VerdictRoot, VerdictConsistency, VerdictCoverage, VerdictSequence, VerdictStates, VerdictObjects} {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("the page does not explain the verdict %q", name)
		}
	}
	if ExitPass != 0 || ExitTampered != 1 || ExitMalformed != 2 || ExitUnproven != 3 {
		t.Error("the page gives other exit codes")
	}
	for _, k := range []string{"ledger", "audit", "sample"} {
		if !strings.Contains(string(page), "| `"+k+"` |") {
			t.Errorf("the page does not explain the class %q", k)
		}
	}
}
