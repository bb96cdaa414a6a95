package builtin

import "github.com/fusebox-dev/fusebox/taxonomy"

// Loop judges a call that is about to be made against the earlier calls of its
// run, oldest first: how many of the last ones are equivalent to it, and the
// reason when one more would go on with a loop. A run that turns to something
// else is not in a loop any more, whatever lies behind it.
func (t *Table) Loop(op *taxonomy.Operation, history []taxonomy.Call) (repeats int64, reason string) {
	for i := len(history) - 1; i >= 0 && repeatedBy(op, &history[i]); i-- {
		repeats++
	}
	found := FindLoop(history)
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

// repeatedBy reports whether the call to come is the same as an earlier one.
// Without a fingerprint of its arguments nothing can be said about it.
func repeatedBy(op *taxonomy.Operation, c *taxonomy.Call) bool {
	return op.ArgsFP != "" && c.Name == op.Name && c.ArgsHash == op.ArgsFP
}
