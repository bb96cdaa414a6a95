package enginetest

import (
	"slices"
	"strings"
	"testing"
)

// A case that leaves something out is told what, thing by thing (SPEC section 12).
func TestWhatACaseLeavesUnsaid(t *testing.T) {
	whole := []string{
		"want circuit provider:a CLOSED", "do model", "want outcome FAILED client_input", "want attempts 1", "want reached 1",
		"want circuit provider:a OPEN consecutive_failures", "want cooldown provider:a 30s", "want queue WAITING 0", "want receipt outcome 1",
		"want metric outcome.FAILED.client_input 1",
	}
	if got := unsaid(strings.Join(whole, "\n")); got != nil {
		t.Errorf("a whole case lacks %v", got)
	}
	for i, want := range map[int]string{0: "circuit before", 2: "outcome or rejected", 3: "attempts", 4: "reached", 5: "circuit after",
		6: "cooldown", 7: "queue", 8: "receipts or receipt", 9: "metric"} {
		text := strings.Join(slices.Delete(slices.Clone(whole), i, i+1), "\n")
		if got := unsaid(text); !slices.Equal(got, []string{want}) {
			t.Errorf("without %q the case lacks %v, want %s", whole[i], got, want)
		}
	}
	bare := strings.Replace(strings.Join(whole, "\n"), " consecutive_failures", "", 1)
	if got := unsaid(bare); !slices.Equal(got, []string{"the reason for OPEN of provider:a"}) {
		t.Errorf("an open circuit without its reason: %v", got)
	}
}
