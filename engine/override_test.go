package engine_test

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-BRK-9, R-RCP-1: the receipts of an override and of its release say what,
// over which circuit, who, why and until when.
func TestOverrideReceipts(t *testing.T) {
	h := enginetest.New(t, nil)
	const scope = "tool:mail/send/acme"
	end := h.Clock.Now().Add(time.Hour)
	if err := h.Override(t.Context(), scope, breaker.Override{Kind: breaker.ForcedClosed, By: "ann", Why: "ticket 4711", Until: h.Clock.Mono().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(t.Context(), scope, "bob", "all well"); err != nil {
		t.Fatal(err)
	}
	var got []receipts.Receipt
	for _, r := range h.Receipts(t) {
		if r.Kind == receipts.KindOverride {
			got = append(got, r)
		}
	}
	if len(got) != 2 {
		t.Fatalf("%d receipts of an override and its release", len(got))
	}
	for i, want := range []receipts.OverrideNote{
		{By: "ann", Ticket: "ticket 4711", Reason: "forced_closed", ExpiresUS: end.UnixMicro()},
		{By: "bob", Ticket: "all well", Reason: "released"},
	} {
		r := got[i]
		if r.Override == nil || *r.Override != want || r.By != want.By || r.Reason != want.Reason || r.Scope != scope || r.Breaker != "tool" || r.Layer != taxonomy.LayerTool {
			t.Errorf("receipt %d: %+v, %+v, want %+v", i, r, r.Override, want)
		}
	}
}

// R-BRK-8, R-BRK-9: an override that is in force does not end because the wall
// clock jumps, and one that ended while every process was down stays ended.
func TestOverrideAndTheWallClock(t *testing.T) {
	h := enginetest.New(t, nil)
	const scope = "provider:acme-ai/-/large"
	err := h.Override(t.Context(), scope, breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "maintenance", Until: h.Clock.Mono().Add(20 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	forced := func(h *enginetest.House) bool {
		key, _ := h.Breakers().Find(scope)
		c, _ := h.Breakers().Circuit(key)
		c, _, _ = breaker.Step(&enginetest.Breakers()[0].Rule, c, breaker.Event{Kind: breaker.Settle}, h.Clock.Mono())
		return c.Override != nil
	}
	h.Clock.Step(23 * time.Hour) // the wall clock alone
	key, _ := h.Breakers().Find(scope)
	if err := h.Evidence(t.Context(), key, breaker.Reconciled, "ann"); err != nil { // anything that rewrites the document
		t.Fatal(err)
	}
	if !forced(h) {
		t.Fatal("a wall clock that jumped ended an override")
	}
	h.Clock.Advance(23 * time.Hour) // nobody ran meanwhile
	if next := h.Restart(t, "next"); forced(next) {
		t.Error("an override that ended while nobody ran is in force again")
	}
}
