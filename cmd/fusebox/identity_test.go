package main

import (
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/sdk/httpguard"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-OPS-9: which circuits one tenant may see, whatever anybody is called.
func TestVisibleCircuits(t *testing.T) {
	long := strings.Repeat("acme", 60)
	key := func(op taxonomy.Operation, scope ...string) string {
		s := breaker.Defaults("b", taxonomy.LayerTool, scope...)
		k, ok := s.Key(&op, scope[len(scope)-1])
		if !ok {
			t.Fatalf("no key of %v", scope)
		}
		return k
	}
	for _, c := range []struct {
		name, key, tenant string
		want              bool
	}{
		{"its own", key(taxonomy.Operation{Tool: "mail", Tenant: "acme"}, "tool", "tenant"), "acme", true},
		{"another's", key(taxonomy.Operation{Tool: "mail", Tenant: "globex"}, "tool", "tenant"), "acme", false},
		{"one that begins alike", key(taxonomy.Operation{Tool: "mail", Tenant: "acme2"}, "tool", "tenant"), "acme", false},
		{"nobody's", key(taxonomy.Operation{Tool: "mail"}, "tool", "tenant"), "acme", false},
		{"what all share", key(taxonomy.Operation{Provider: "openai", Model: "gpt-x"}, "provider", "model"), "acme", true},
		{"a tool that spells its tenant", key(taxonomy.Operation{Tool: "x|tenant=4:acme", Tenant: "globex"}, "tool", "tenant"), "acme", false},
		{"its own tool that spells another's", key(taxonomy.Operation{Tool: "x|tenant=6:globex", Tenant: "acme"}, "tool", "tenant"), "acme", true},
		{"a name with a bar", key(taxonomy.Operation{Tenant: "a|b"}, "tenant"), "a|b", true},
		{"a long name", key(taxonomy.Operation{Tool: "mail", Tenant: long}, "tenant", "tool"), long, true},
		{"another long name", key(taxonomy.Operation{Tool: "mail", Tenant: long + "x"}, "tenant", "tool"), long, false},
		{"an agent of nobody knows whom", key(taxonomy.Operation{Agent: "a-1", Tool: "mail"}, "agent", "tool"), "acme", false},
		{"a credential", key(taxonomy.Operation{Provider: "openai", Credential: "fp"}, "provider", "credential"), "acme", false},
		{"a run", key(taxonomy.Operation{RunID: "r-1"}, "run_id"), "acme", false},
		{"its own run", key(taxonomy.Operation{Tenant: "acme", RunID: "r-1"}, "tenant", "run_id"), "acme", true},
		{"anything, where nobody must prove it", key(taxonomy.Operation{Tenant: "globex", Tool: "mail"}, "tenant", "tool"), "", true},
	} {
		got := visible(httpguard.Caller{Tenant: c.tenant}, []circuitDoc{{Key: c.key}})
		if (len(got) == 1) != c.want {
			t.Errorf("%s (%s): seen %t, want %t", c.name, c.key, len(got) == 1, c.want)
		}
	}
}
