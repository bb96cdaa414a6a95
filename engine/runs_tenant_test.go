package engine_test

import (
	"fmt"
	"testing"

	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-OPS-9, R-AGT-1: a tenant that guesses the id of another tenant's run, or
// names itself so that both together would spell it, neither stops that run nor
// trips its loop circuit, and its own run learns nothing of the other's calls.
func TestRunsOfTenantsAreApart(t *testing.T) {
	h := enginetest.New(t, nil)
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	call := func(tenant, run string, n int) error {
		op := taxonomy.Operation{Kind: "tool", Name: "docs.read", Provider: "docs", Tenant: tenant, RunID: run,
			ArgsFP: "k1:aa", Effect: taxonomy.ReadOnly, RequestID: fmt.Sprint(tenant, run, n)}
		_, err := h.Do(t.Context(), op, remote.Send)
		return err
	}
	guesses := [][2]string{{"evil", "run-1"}, {"", "run-1"}, {"", "4:acme|run-1"}, {"", "acme|run-1"}, {"acme/run-1", ""}, {"acm", "e|run-1"}}
	for _, g := range guesses {
		looped := g[1] == "" // without a run there is no loop
		for n := range 12 {
			looped = looped || call(g[0], g[1], n) != nil
		}
		if !looped {
			t.Fatalf("%q has no loop of its own", g)
		}
		if err := h.StopRun(t.Context(), g[0], g[1], "stopped"); err != nil {
			t.Fatal(err)
		}
	}
	if err := call("acme", "run-1", 0); err != nil {
		t.Errorf("another tenant's loop reaches this run: %v", err)
	}
	if got := h.CircuitState(t, "loop:acme/run-1"); got != "CLOSED" {
		t.Errorf("its loop circuit is %s", got)
	}
}
