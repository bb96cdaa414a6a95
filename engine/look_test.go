package engine_test

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Look tells what policy declares and what is open, and leaves nothing behind.
func TestLookAsksForNothing(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) {
		p.Policy.Tools = []engine.Tool{{Tool: "crm", Action: "read", Effect: taxonomy.ReadOnly, Key: "argument:id"}}
	})
	op := taxonomy.Operation{Kind: "tool", Name: "crm.read", Tool: "crm", Action: "read", Tenant: "acme"}
	p, err := h.Engine.Look(op)
	if err != nil || !p.Declared || p.Tool.Key != "argument:id" || p.Operation.Effect != taxonomy.ReadOnly || p.Blocked {
		t.Errorf("declared: %+v, %v", p, err)
	}
	if err := h.Engine.Override(t.Context(), "tool:crm/read/acme", breaker.Override{Kind: breaker.ForcedOpen, Until: h.Clock.Mono().Add(time.Hour), By: "ann", Why: "test"}); err != nil {
		t.Fatal(err)
	}
	before := len(h.Receipts(t))
	if p, err = h.Engine.Look(op); err != nil || !p.Blocked {
		t.Errorf("open: %+v, %v", p, err)
	}
	if p, err = h.Engine.Look(taxonomy.Operation{Kind: "tool", Tool: "crm", Action: "write"}); err != nil || p.Declared || p.Operation.Effect != taxonomy.NonRepeatable {
		t.Errorf("undeclared: %+v, %v", p, err)
	}
	if after := len(h.Receipts(t)); after != before {
		t.Errorf("a look left %d receipts", after-before)
	}
}
