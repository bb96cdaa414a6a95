package breaker

import (
	"os"
	"strings"
	"testing"
)

// TestDiagram: the state diagram and the table of moves in README.md are those
// of the code. FUSEBOX_UPDATE=1 writes them.
func TestDiagram(t *testing.T) {
	const begin, end = "./breaker -->\n", "<!-- /generated -->"
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	have, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("README.md has no place for the diagram")
	}
	want := "```mermaid\n" + Diagram() + "```\n\n| from | to | reason | when |\n|---|---|---|---|\n"
	for _, m := range Moves() {
		want += "| `" + m.From.String() + "` | `" + m.To.String() + "` | `" + m.Reason.String() + "` | " + m.When + " |\n"
	}
	if have == want {
		return
	}
	if os.Getenv("FUSEBOX_UPDATE") == "" {
		t.Fatalf("README.md shows another machine; FUSEBOX_UPDATE=1 go test -run Diagram ./breaker writes this:\n%s", want)
	}
	if err := os.WriteFile("README.md", []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
