package rego

import (
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The smallest policy that compiles: each question with a constant answer.
var smallest = map[Entrypoint]string{
	Routing:   "package fusebox.routing\ndecision contains f if {\n\tfalse\n\tf := 1\n}\n",
	Authority: "package fusebox.authority\ndefault decision := {\"decision\": \"deny\", \"reasons\": [\"x\"], \"obligations\": []}\n",
	Admission: "package fusebox.admission\ndefault decision := {\"action\": \"reject\", \"reason\": \"x\", \"expires_in_s\": 0}\n",
	Fallback:  "package fusebox.fallback\ndefault decision := []\n",
}

// policy is the smallest policy with some modules of it replaced, and more
// added under their own names.
func policy(replace map[Entrypoint]string, more ...Module) *Files {
	f := &Files{}
	for _, ep := range Entrypoints {
		src, ok := replace[ep]
		if !ok {
			src = smallest[ep]
		}
		f.Modules = append(f.Modules, Module{Path: string(ep) + ".rego", Source: []byte(src)})
	}
	f.Modules = append(f.Modules, more...)
	return f
}

func compile(t testing.TB, f *Files, o Options) *Snapshot {
	t.Helper()
	s, err := Compile(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// authority compiles a policy whose authority module has this body.
func authority(t testing.TB, body string, o Options) *Snapshot {
	t.Helper()
	return compile(t, policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + body}), o)
}

func ask() *taxonomy.AuthorityInput {
	return &taxonomy.AuthorityInput{Operation: goldenOperation("tool", taxonomy.NonRepeatable), AgentID: "agent-a",
		Clock: taxonomy.Clock{Date: "2026-11-30", Hour: 10, Weekday: "monday"}}
}

func routed() *taxonomy.RouteInput {
	return &taxonomy.RouteInput{Operation: goldenOperation("model", taxonomy.ReadOnly), Outcome: taxonomy.Failed,
		Class: taxonomy.TransientTransport, Reason: "read_timeout", Attempt: 1}
}

const denyByDefault = `default decision := {"decision": "deny", "reasons": ["x"], "obligations": []}
`

func problemsOf(t testing.TB, f *Files, o Options) []Problem {
	t.Helper()
	_, err := Compile(t.Context(), f, o)
	if err == nil {
		t.Fatal("the policy was accepted")
	}
	le, ok := err.(*LoadError)
	if !ok {
		t.Fatalf("not a LoadError: %v", err)
	}
	return le.Problems
}

// wantProblem looks for one problem by file, line, code and words.
func wantProblem(t testing.TB, got []Problem, file string, line int, code, words string) {
	t.Helper()
	for _, p := range got {
		if p.File == file && p.Line == line && p.Code == code && strings.Contains(p.Text, words) {
			return
		}
	}
	t.Errorf("no problem %s:%d [%s] %q in:\n%+v", file, line, code, words, got)
}
