package breaker

import "strings"

// A Move is one way that a circuit can change its state.
type Move struct {
	From, To State
	Reason   Reason
	When     string // in plain words
}

// moves are all of them. Step does not read the table: the walk of every
// reachable state proves that Step makes these moves and no others.
var moves = []Move{
	{Closed, Open, ByFailureRatio, "enough of the counted outcomes failed"},
	{Closed, Open, ByConsecutive, "so many failed in a row, however far apart"},
	{Closed, Open, BySlowRatio, "enough of the successes were slow"},
	{Closed, Open, ByUnknown, "so many outcomes are UNKNOWN"},
	{Closed, Open, ByHardSignal, "told to open at once"},
	{Closed, Open, ByRetryAfter, "the server said how long to wait"},
	{Closed, Open, ByRollup, "enough narrower circuits are open"},

	{Open, HalfOpen, ByCooldownOver, "a call that can be a probe asks, or a tick"},
	{Open, Ramping, ByEvidence, "the evidence that the rule asks for arrived"},
	{Open, Closed, ByEvidence, "the same, without a ramp"},

	{HalfOpen, Ramping, ByProbesPassed, "enough probes succeeded"},
	{HalfOpen, Closed, ByProbesPassed, "the same, without a ramp"},
	{HalfOpen, Ramping, ByEvidence, "the evidence still missing arrived"},
	{HalfOpen, Closed, ByEvidence, "the same, without a ramp"},
	{HalfOpen, Open, ByProbeFailed, "a probe failed, was slow or ended UNKNOWN"},
	{HalfOpen, Open, ByProbesLost, "so many leases in a row ran out"},
	{HalfOpen, Open, ByHardSignal, "told to open at once"},
	{HalfOpen, Open, ByRetryAfter, "the server said how long to wait"},
	{HalfOpen, Open, ByRollup, "enough narrower circuits are open"},

	{Ramping, Closed, ByRampPassed, "time and successes enough in the last step"},
	{Ramping, Closed, ByRuleSwap, "the new settings have no ramp"},
	{Ramping, Open, ByRampFailed, "a limit of the ramp was reached"},
	{Ramping, Open, ByHardSignal, "told to open at once"},
	{Ramping, Open, ByRetryAfter, "the server said how long to wait"},
	{Ramping, Open, ByRollup, "enough narrower circuits are open"},
}

// Moves lists every way that a circuit can change its state.
func Moves() []Move { return append([]Move(nil), moves...) }

// Diagram draws the moves as a Mermaid state diagram.
func Diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> CLOSED\n")
	drawn := map[[2]State]bool{}
	for _, m := range moves {
		edge := [2]State{m.From, m.To}
		if drawn[edge] {
			continue
		}
		drawn[edge] = true
		b.WriteString("    " + m.From.String() + " --> " + m.To.String() + ": ")
		for i, n := range reasonsOf(edge) {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(n)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func reasonsOf(edge [2]State) (out []string) {
	for _, m := range moves {
		if m.From == edge[0] && m.To == edge[1] {
			out = append(out, m.Reason.String())
		}
	}
	return out
}
