package enginetest

import (
	"fmt"
	"slices"
	"strings"
)

// acts are the commands after which a circuit is no longer as it was before.
var acts = []string{"do", "burst", "admit", "nest", "fall", "override", "stop", "enqueue"}

// unsaid lists what SPEC section 12 wants every case to state and this one does
// not: the outcome, the decision and the attempts that reached the remote, the
// circuit before and after with reason and cooldown, the queue, the receipts and
// what was measured.
func unsaid(text string) (missing []string) {
	said := map[string]bool{}
	acted := false
	for line := range strings.SplitSeq(text, "\n") {
		w, err := split(line)
		if err != nil || len(w) == 0 {
			continue
		}
		if slices.Contains(acts, w[0]) {
			acted = true
		}
		if w[0] != "want" || len(w) < 2 {
			continue
		}
		said[w[1]] = true
		if w[1] != "circuit" || len(w) < 4 {
			continue
		}
		said["circuit before"] = said["circuit before"] || !acted
		said["circuit after"] = said["circuit after"] || acted
		if w[3] != "CLOSED" && len(w) < 5 {
			missing = append(missing, fmt.Sprintf("the reason for %s of %s", w[3], w[2]))
		}
	}
	for _, one := range [][]string{{"outcome", "rejected"}, {"attempts"}, {"reached"}, {"circuit before"}, {"circuit after"}, {"cooldown"},
		{"queue"}, {"receipts", "receipt"}, {"metric"}} {
		if !slices.ContainsFunc(one, func(what string) bool { return said[what] }) {
			missing = append(missing, strings.Join(one, " or "))
		}
	}
	return missing
}

// row is one line about a case that was played: how much of what it states held,
// and the last word on each thing.
func (s *Scene) row(name string) string {
	type last struct{ what, value string }
	var seen []last
	for _, h := range s.held {
		w := strings.Fields(h)
		what, value := w[0], strings.Join(w[1:], " ")
		if slices.Contains([]string{"circuit", "cooldown", "counted", "excluded", "metric", "intents"}, what) && len(w) > 2 {
			what, value = what+" "+w[1], strings.Join(w[2:], " ")
		}
		i := slices.IndexFunc(seen, func(l last) bool { return l.what == what })
		switch {
		case i < 0:
			seen = append(seen, last{what, value})
		case strings.HasPrefix(what, "circuit "):
			seen[i].value += " > " + value
		default:
			seen[i].value = value
		}
	}
	parts := make([]string, 0, len(seen))
	for _, l := range seen {
		parts = append(parts, l.what+" "+l.value)
	}
	return fmt.Sprintf("CASE %-38s %d of %d held: %s", name, len(s.held), len(s.held)+s.missed, strings.Join(parts, "; "))
}
