package rego

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// The yardstick never changes.
func TestReferenceIsFixed(t *testing.T) {
	eval, err := ReferenceEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := eval(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"routing.rego": "6c68604bc912fcf89d2450d4108e8ec9ee10276689aada1d342199b0b036f0f4", "data.json": "788183d6d1237eb7c095a1788c9c65c794da4b8a54bf7d7877498078a2f16b58"} {
		b, err := reference.ReadFile("reference/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != want {
			t.Errorf("reference/%s has sha256 %s; figures would no longer be comparable", name, got)
		}
	}
}

func BenchmarkReferenceEval(b *testing.B) {
	eval, err := ReferenceEval(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := eval(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
