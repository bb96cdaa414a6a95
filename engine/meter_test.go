package engine_test

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// R-OPS-3: how full a budget's fullest account is, told without its tenant, and
// only while its window lasts.
func TestBudgetUses(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Budgets = []engine.Budget{{Name: "hour", Scope: []string{"tenant"}, Window: time.Hour, Limit: state.Amounts{Attempts: 10}},
			{Name: "hour-2", Scope: []string{"tenant"}, Window: time.Hour, Limit: state.Amounts{Attempts: 100}}}
	})
	for i, tenant := range []string{"a", "b", "b", "b", "b"} {
		op := enginetest.Write(string(rune('k' + i)))
		op.Tenant = tenant
		if _, err := h.Do(t.Context(), op, enginetest.NewRemote(enginetest.HTTP(200, `{}`)).Send); err != nil {
			t.Fatal(err)
		}
		h.Clock.Advance(2 * time.Second)
	}
	check := func(want float64) {
		t.Helper()
		uses := h.BudgetUses()
		if len(uses) != 2 || uses[0] != (engine.BudgetUse{Budget: "hour", Unit: "attempts", Share: want}) || uses[1].Share != want/10 {
			t.Errorf("%+v, want a share of %g", uses, want)
		}
	}
	check(0.3) // as of the last call's admission
	h.Clock.Advance(2 * time.Hour)
	check(0)
}
