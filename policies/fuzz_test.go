package policies

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// Whatever text is given as policy.toml: no panic, and every problem has a file
// and a line inside it.
func FuzzParseSettings(f *testing.F) {
	shipped, err := os.ReadFile(SettingsFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(shipped))
	f.Add(minimal)
	f.Add("[[breaker]]\nname = 1\n[breaker.window]\nkind = 'x'\n")
	f.Add("a = \"\"\"\n[b]\n\"\"\"\n'q k'.x = [ { y = 1 }, # ]\n 2]\n")
	f.Add("[[tool]]\n[[tool.reconcile]]\n[tool]\n")
	f.Add("breaker = 5\nmodule = [1, {name = 2}]\n[queue]\nexpires = 1979-05-27\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, found := parseSettings(SettingsFile, []byte(text))
		if s == nil && len(found) == 0 {
			t.Error("neither settings nor a reason")
		}
		lines := strings.Count(text, "\n") + 1
		for _, p := range found {
			if p.File != SettingsFile || p.Line < 0 || p.Line > lines+1 || p.Text == "" {
				t.Errorf("%+v in a text of %d lines", p, lines)
			}
		}
	})
}

// Whatever bytes are given as an archive: no panic, no bundle without content.
func FuzzOpenArchive(f *testing.F) {
	b, err := Embedded()
	if err != nil {
		f.Fatal(err)
	}
	raw, err := b.Build(BuildOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if b, err := OpenArchive(raw, Options{}); err == nil && (len(b.Rego) == 0 || b.Settings == nil || b.Revision == "") {
			t.Errorf("%+v", b)
		}
	})
}

// Canonical data is JSON, and writing it again changes nothing.
func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"b":[1.0,1e2,-0,12345678901234567890,0.1],"a":"\u00e9"}`))
	f.Add([]byte(`{"a":{"a":{"a":[[],{}]}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := parseJSON(raw)
		if err != nil {
			return
		}
		once := canonical(v)
		again, err := parseJSON(once)
		if err != nil {
			t.Fatalf("%v in %s", err, once)
		}
		if twice := canonical(again); !bytes.Equal(once, twice) {
			t.Errorf("%s\n%s", once, twice)
		}
	})
}

// The package of a module is found as a Rego parser finds it: one line, no blanks.
func FuzzPackageOf(f *testing.F) {
	f.Add([]byte("# c\n\npackage a.b # d\n"))
	f.Add([]byte("package a[\"b c\"]\n"))
	f.Fuzz(func(t *testing.T, source []byte) {
		if p := packageOf(source); strings.ContainsAny(p, " \t\r\n#;") {
			t.Errorf("%q", p)
		}
	})
}
