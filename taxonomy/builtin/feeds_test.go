package builtin_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// layerOf is what the labelling conventions say about a verdict: the one layer
// that a fault feeds, or "". Routing itself is policy; this checks that class
// and reason carry enough for a policy to be right (SPEC R-TAX-7).
func layerOf(kind string, v taxonomy.Verdict) string {
	own := map[string]string{"model": "provider", "tool": "tool", "workflow": "workflow"}[kind]
	for _, p := range []string{"local_", "contention_", "pending_"} {
		if strings.HasPrefix(v.Reason, p) {
			return ""
		}
	}
	switch v.Class {
	case taxonomy.TransientTransport, taxonomy.PersistentDependency, taxonomy.RateLimit:
		return own
	case taxonomy.AmbiguousWrite:
		return "tool"
	case taxonomy.Authentication, taxonomy.Authorization:
		return "authority"
	case taxonomy.Budget:
		return "budget"
	case taxonomy.SemanticQuality, taxonomy.Validation:
		return "semantic"
	case taxonomy.NoProgress:
		return "workflow"
	case taxonomy.PolicyDenial:
		if strings.HasPrefix(v.Reason, "denied_") {
			return "authority"
		}
	}
	return ""
}

// TestVerdictsCarryWhatRoutingNeeds proves R-TAX-4 and R-TAX-7 as far as a
// verdict can: what must not teach a provider breaker is told apart.
func TestVerdictsCarryWhatRoutingNeeds(t *testing.T) {
	for _, r := range readCorpus(t, "testdata/handed.jsonl") {
		t.Run(r.ID, func(t *testing.T) {
			var o struct{ Operation struct{ Kind string } }
			if err := json.Unmarshal(r.Observation, &o); err != nil {
				t.Fatal(err)
			}
			v, x := judge(t, r.Observation)
			fed := layerOf(o.Operation.Kind, v)
			exact := v.Class.String() == r.Expected.Class
			if fed != "" && slices.Contains(r.Expected.NotLayers, fed) && (exact || fed == "provider" || fed == "tool") {
				t.Errorf("feeds %s, which must not be fed (%s, %v %s)", fed, x.Rule.ID, v.Class, v.Reason)
			}
			for _, need := range r.Expected.Layers {
				if exact && need != fed {
					t.Errorf("feeds %q, must feed %s (%s, %v %s)", fed, need, x.Rule.ID, v.Class, v.Reason)
				}
			}
		})
	}
}
