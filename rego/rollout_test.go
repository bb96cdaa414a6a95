package rego

import (
	"os"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/policies"
)

// R-POL-8: gates as Rego. A policy may say more about a candidate than its
// settings do; what is no answer is an error, and no rule no opinion.
func TestRolloutGate(t *testing.T) {
	for name, c := range map[string]struct {
		rule    string
		figures string
		asked   bool
		verdict string
		err     string
	}{
		"nothing defined": {"", `{}`, false, "", ""},
		"it holds": {`default decision := {"verdict": "promote", "reasons": []}
decision := {"verdict": "hold", "reasons": ["too many opens"]} if input.candidate.opens > 3`, `{"candidate":{"opens":4}}`, true, "hold", ""},
		"it agrees": {`default decision := {"verdict": "promote", "reasons": []}
decision := {"verdict": "hold", "reasons": ["too many opens"]} if input.candidate.opens > 3`, `{"candidate":{"opens":3}}`, true, "promote", ""},
		"it takes back":     {`decision := {"verdict": "roll_back", "reasons": ["friday"]}`, `{}`, true, "roll_back", ""},
		"undefined":         {`decision := {"verdict": "promote", "reasons": []} if input.absent`, `{}`, true, "", "policy_undefined"},
		"a conflict":        {`decision := {"verdict": "hold", "reasons": []}` + "\n" + `decision := {"verdict": "promote", "reasons": []} if 1 == 1`, `{}`, true, "", "policy_conflict"},
		"no verdict":        {`decision := {"reasons": []}`, `{}`, true, "", "verdict must be"},
		"another form":      {`decision := "promote"`, `{}`, true, "", "must be {verdict, reasons}"},
		"another verdict":   {`decision := {"verdict": "yes", "reasons": []}`, `{}`, true, "", "verdict must be"},
		"figures not JSON":  {`decision := {"verdict": "hold", "reasons": []}`, `{`, true, "", "the figures"},
		"a builtin's error": {`decision := {"verdict": sprintf("%s", [to_number(input.x)]), "reasons": []}`, `{"x":"y"}`, true, "", "policy_"},
	} {
		f := gateFiles(t)
		if c.rule != "" {
			f.Modules = append(f.Modules, Module{Path: "fusebox/rollout/team.rego", Source: []byte("package fusebox.rollout\n\n" + c.rule + "\n")})
		}
		s, err := Compile(t.Context(), f, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		a, asked, err := s.Rollout(t.Context(), []byte(c.figures))
		if asked != c.asked || a.Verdict != c.verdict || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, asked %v, %v", name, a, asked, err)
		}
	}
	// It is as hermetic as the rest.
	f := gateFiles(t)
	f.Modules = append(f.Modules, Module{Path: "fusebox/rollout/team.rego", Source: []byte("package fusebox.rollout\n\ndecision := http.send({\"url\": \"http://example.com\", \"method\": \"GET\"})\n")})
	if _, err := Compile(t.Context(), f, Options{}); err == nil {
		t.Error("a gate may use the network")
	}
}

// gateFiles are the shipped policy.
func gateFiles(t *testing.T) *Files {
	t.Helper()
	b, err := policies.Open(os.DirFS("../policies"), policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &Files{Data: b.Data, Roots: b.Roots}
	for _, m := range b.Rego {
		if !m.IsTest() {
			f.Modules = append(f.Modules, Module{Path: m.Path, Source: m.Bytes})
		}
	}
	return f
}
