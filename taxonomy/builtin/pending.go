package builtin

import "github.com/fusebox-dev/fusebox/taxonomy"

// WithLoops returns the table with other thresholds of loop detection.
func (t *Table) WithLoops(d Detector) *Table {
	c := *t
	c.loops = d
	return &c
}

// Loop judges a call that is about to be made against the earlier calls of its
// run, oldest first: how many of the last ones are equivalent to it, and the
// reason when one more would go on with a loop. A run that turns to something
// else is not in a loop any more, whatever lies behind it.
func (t *Table) Loop(op *taxonomy.Operation, history []taxonomy.Call) (repeats int64, reason string) {
	if op.Kind == "model" {
		history = t.withoutFaults(op, history)
	}
	for i := len(history) - 1; i >= 0 && repeatedBy(op, &history[i]); i-- {
		repeats++
	}
	found := t.loops.Find(history)
	n := len(history)
	goesOn := false
	switch found.Kind {
	case LoopSame:
		goesOn = repeats > 0
	case LoopError:
		goesOn = history[n-1].Name == op.Name
	case LoopCycle:
		// The call that a cycle of two, three or four would make next is the one
		// that far back.
		for period := 2; period <= 4 && period <= n; period++ {
			goesOn = goesOn || repeatedBy(op, &history[n-period])
		}
	case LoopStale:
		goesOn = true
	}
	if !goesOn {
		return repeats, ""
	}
	return repeats, found.Kind.String()
}

// withoutFaults leaves out model calls that failed for a reason the provider
// answers for. A model is called with the same words again because it did not
// answer; that is a matter of its circuit and of the retry budget, and no sign
// that the run gets nowhere.
func (t *Table) withoutFaults(op *taxonomy.Operation, history []taxonomy.Call) []taxonomy.Call {
	kept := make([]taxonomy.Call, 0, len(history))
	for _, c := range history {
		if c.Name == op.Name && c.Outcome != taxonomy.Succeeded && (c.Error == "" || t.faults[c.Error]) {
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// faultReasons collects the reasons that dependencies answer for.
func (t *Table) faultReasons() map[string]bool {
	out := map[string]bool{lastSilent.reason: true, lastModelError.reason: true}
	for i := range t.rules {
		switch r := &t.rules[i]; r.class {
		case taxonomy.TransientTransport, taxonomy.PersistentDependency, taxonomy.RateLimit:
			out[r.reason] = true
		}
	}
	return out
}

// repeatedBy reports whether the call to come is the same as an earlier one.
// Without a fingerprint of its arguments nothing can be said about it.
func repeatedBy(op *taxonomy.Operation, c *taxonomy.Call) bool {
	return op.ArgsFP != "" && c.Name == op.Name && c.ArgsHash == op.ArgsFP
}
