package sdk

import (
	"context"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestFault51 (breaker/README.md): the same failure on three credentials charges
// one scope of the shipped policy, and no credential.
func TestFault51(t *testing.T) {
	c := open(t, Config{}, Parts{Still: true})
	for _, credential := range []string{"k1", "k2", "k3"} {
		op := taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "gpt-x", Tenant: "acme",
			Credential: credential, Effect: taxonomy.ReadOnly}
		permit, err := c.Engine().Admit(t.Context(), op)
		if err != nil {
			t.Fatal(err)
		}
		obs, err := permit.Dispatch(t.Context(), func(_ context.Context, call engine.Call) taxonomy.Observation {
			return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes}, Response: &taxonomy.Response{Status: 503, Body: "{}"}}
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := permit.Settle(t.Context(), obs); err != nil {
			t.Fatal(err)
		}
	}
	charged := map[string]uint64{}
	for _, l := range c.Registry().List(true, engine.RealClock().Mono()) {
		if l.Facts.Failures > 0 || l.Circuit.Row > 0 {
			charged[l.Scope] = uint64(l.Circuit.Row)
		}
	}
	if len(charged) != 1 || charged["provider:openai/-/gpt-x"] != 3 {
		t.Errorf("one failure on three credentials charged %v", charged)
	}
}
