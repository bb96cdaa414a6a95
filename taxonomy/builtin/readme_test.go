package builtin_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/builtin"
)

// TestNewcomerAddsAPack does what README.md says: take the pack on the page,
// put it beside the shipped ones, and see it answer.
func TestNewcomerAddsAPack(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := indented(string(page), "pack   acme")
	packs, err := builtin.ReadPacks(fstest.MapFS{"packs/acme.rules": {Data: []byte(text)}}, "packs")
	if err != nil || len(packs) != 1 || packs[0].Name != "acme" || packs[0].Rules() != 3 {
		t.Fatalf("%+v: %v", packs, err)
	}
	shipped, err := builtin.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	table, err := builtin.New(append(shipped, packs...)...)
	if err != nil {
		t.Fatal(err)
	}
	if table.Digest() == builtin.Default().Digest() {
		t.Error("the pack does not change the version")
	}
	for _, c := range []struct {
		status     int
		body, rule string
		effect     taxonomy.Effect
		want       taxonomy.Outcome
	}{
		{429, `{"error":{"code":"credit_exhausted"}}`, "acme/out_of_credit", taxonomy.ReadOnly, taxonomy.Failed},
		{503, `{"error":{"code":"model_not_ready"}}`, "acme/model_asleep", taxonomy.NonRepeatable, taxonomy.Failed},
		{200, `{"error":{"message":"Too many requests for your team"}}`, "acme/per_team", taxonomy.ReadOnly, taxonomy.Failed},
		{503, `{"error":{"message":"unavailable"}}`, "http/unavailable", taxonomy.NonRepeatable, taxonomy.Unknown},
	} {
		o := taxonomy.Observation{Operation: taxonomy.Operation{Kind: "model", Provider: "acme", Effect: c.effect},
			Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes}, Response: &taxonomy.Response{Status: c.status, Body: c.body}}
		if x := table.Explain(&o); x.Rule.ID != c.rule || x.Verdict.Outcome != c.want || x.Verdict.By != "table:"+c.rule {
			t.Errorf("%s: %s %v, want %s %v (%q)", c.body, x.Rule.ID, x.Verdict.Outcome, c.rule, c.want, x.Evidence)
		}
	}
}

// TestCopyAndRename is step 1: a copy of a shipped pack under another name is
// a pack.
func TestCopyAndRename(t *testing.T) {
	text, err := os.ReadFile("packs/models.rules")
	if err != nil {
		t.Fatal(err)
	}
	p, err := builtin.ParsePack("novita.rules", strings.Replace(string(text), "pack   models", "pack   novita", 1))
	if err != nil || p.Name != "novita" || p.Rules() == 0 {
		t.Errorf("%+v: %v", p, err)
	}
}

// TestReadmeNamesEverything: the page lists every key, section and result that
// the parser knows.
func TestReadmeNamesEverything(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range builtin.Vocabulary() {
		for _, word := range list {
			if !strings.Contains(string(page), "`"+word) && !strings.Contains(string(page), word+"`") && !strings.Contains(string(page), "`["+word+"]`") {
				t.Errorf("README.md does not explain %s", word)
			}
		}
	}
}

// indented returns the indented block of a page that begins with a line.
func indented(page, first string) string {
	var out []string
	in := false
	for line := range strings.Lines(page) {
		code, is := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		switch {
		case is && strings.HasPrefix(code, first):
			in = true
		case in && !is && strings.TrimSpace(line) != "":
			return strings.Join(out, "\n")
		}
		if in {
			out = append(out, code)
		}
	}
	return strings.Join(out, "\n")
}
