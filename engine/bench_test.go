package engine_test

import (
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
)

// BenchmarkReadDecision is what the path itself costs for a read: admit,
// dispatch, classify by the table, route by Go rules, record, receipts handed
// over. Compare with one evaluation of a policy engine (package sdk).
func BenchmarkReadDecision(b *testing.B) {
	h := enginetest.New(b, func(p *engine.Parts) { p.Clock = nil })
	op := enginetest.Model("r1")
	obs := enginetest.HTTP(200, ok).Observation
	b.ReportAllocs()
	for b.Loop() {
		p, err := h.Admit(b.Context(), op)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Mark(b.Context()); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Settle(b.Context(), obs); err != nil {
			b.Fatal(err)
		}
	}
}
