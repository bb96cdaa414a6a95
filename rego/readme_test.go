package rego

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fence = regexp.MustCompile("(?ms)^```(rego|json) (\\S+)\\n(.*?)^```$")

// The five worked rules of policies/README.md are put into the shipped bundle as
// they stand there: they compile as a server compiles them, and every test of
// theirs and of the bundle passes. (R-POL-2; the page is what a security
// engineer follows.)
func TestWorkedRules(t *testing.T) {
	page, err := os.ReadFile("../policies/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, ok := strings.Cut(string(page), "## Five rules, worked")
	if !ok {
		t.Fatal("the page has no worked rules")
	}
	rules, _, _ = strings.Cut(rules, "\n## ")
	before := compileShipped(t, Options{RequireTests: true}).Tests().Passed
	sections := strings.Split(rules, "\n### ")[1:]
	if len(sections) != 5 {
		t.Fatalf("%d worked rules", len(sections))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		t.Run(title, func(t *testing.T) {
			f := shipped(t)
			var data map[string]any
			if err := json.Unmarshal(f.Data, &data); err != nil {
				t.Fatal(err)
			}
			tests := 0
			for _, m := range fence.FindAllStringSubmatch(section, -1) {
				if m[1] == "json" {
					put(t, data, m[2], m[3])
					continue
				}
				f.Modules = append(f.Modules, Module{Path: m[2], Source: []byte(m[3])})
				tests += strings.Count(m[3], "\ntest_")
			}
			f.Data, err = json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Compile(t.Context(), f, Options{RequireTests: true})
			if err != nil {
				t.Fatal(err)
			}
			if tests < 2 || s.Tests().Passed != before+tests {
				t.Errorf("%d tests passed, before %d, in the text %d", s.Tests().Passed, before, tests)
			}
			if len(s.Warnings()) > 0 {
				t.Errorf("warnings: %v", s.Warnings())
			}
		})
	}
}

// put lays a data file of the page into the data: a/b/data.json is data.a.b,
// and "#name" replaces one member of it.
func put(t *testing.T, data map[string]any, name, text string) {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	path, member, _ := strings.Cut(name, "#")
	at := data
	for _, seg := range strings.Split(strings.TrimSuffix(path, "/data.json"), "/") {
		next, ok := at[seg].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[seg] = next
		}
		at = next
	}
	if member != "" {
		at[member] = v
		return
	}
	for k, x := range v {
		at[k] = x
	}
}

// The worked rules are formatted and type-checked as the stock tool wants them.
func TestWorkedRulesPassStockOPA(t *testing.T) {
	opa := stockOPA(t)
	page, err := os.ReadFile("../policies/README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, b []byte) {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := shipped(t)
	for _, m := range f.Modules {
		write(m.Path, m.Source)
	}
	var data map[string]any
	if err := json.Unmarshal(f.Data, &data); err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
		if m[1] == "json" {
			put(t, data, m[2], m[3])
			continue
		}
		write(m[2], []byte(m[3]))
	}
	raw, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	write("data.json", raw)
	for _, args := range [][]string{
		{"fmt", "--fail", "-d", dir},
		{"check", "--strict", "--capabilities", "capabilities.json", "-s", "schemas", dir},
		{"test", "--timeout", "5m", dir},
	} {
		if out, err := run(t, opa, args...); err != nil {
			t.Errorf("opa %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
