package wasm

import (
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
	"github.com/fusebox-dev/fusebox/wasm/hostile"
)

// FuzzPack: no bytes make the packer panic, and what it packs it finds again.
func FuzzPack(f *testing.F) {
	c, _ := hostile.Named("manifest_fine")
	f.Add(c.Wasm)
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x00\x05\x04name"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &Manifest{Name: "x", ABI: 1}
		once, err := Pack(b, m)
		if err != nil {
			return
		}
		twice, err := Pack(once, m)
		if err != nil || string(twice) != string(once) {
			t.Errorf("packing twice is not packing once: %v", err)
		}
	})
}

// FuzzManifest: what is read is written and read again as the same.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"abi":1,"kinds":["classifier"],"name":"x","profile":"pure","schemas":[],"source":"","version":"1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err != nil {
			return
		}
		text := m.Append(nil)
		again, err := ParseManifest(text)
		if err != nil || string(again.Append(nil)) != string(text) {
			t.Errorf("%s: %v", text, err)
		}
	})
}

// FuzzAnswer: whatever a module writes, the host reads a verdict inside the
// vocabulary or names a code; nothing in between, and no panic.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"outcome":"FAILED","class":"budget"}`, `{"outcome":"FAILED","class":"budget","facts":{"owner":"finance"}}`, `{`, `[]`, "\xff"} {
		f.Add([]byte(s))
	}
	m := &Module{config: Config{Vocabulary: Vocabulary{Reasons: hostile.Reasons, Facts: hostile.Facts}}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := m.readVerdict(raw, func() string { return "builtin_reason" })
		if err != nil {
			if f := answerFault(raw, err); f.code != BadJSON && f.code != SchemaViolation {
				t.Errorf("%q: code %q", raw, f.code)
			}
			return
		}
		if v.Outcome > taxonomy.Succeeded || int(v.Class) >= taxonomy.Classes || v.RetryAfter < 0 || v.RetryAfter > taxonomy.MaxRetryAfter {
			t.Errorf("%q: %+v", raw, v)
		}
		if v.Reason != "" && v.Reason != "builtin_reason" && v.Reason != hostile.Reasons[0] {
			t.Errorf("%q: reason %q", raw, v.Reason)
		}
		// The result document that people see is JSON whatever the module wrote.
		r := Result{Answer: Answer{Raw: raw, OK: true, Verdict: v}}
		if _, err := jsonscan.AppendCanonical(nil, string(r.AppendJSON(nil)), jsonscan.Options{}); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	})
}
