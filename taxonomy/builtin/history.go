package builtin

import (
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// readHistory looks at the earlier calls of the run.
func (e *evidence) readHistory() {
	o := e.obs
	last := &o.History[len(o.History)-1]
	if last.Declared == "poll" {
		e.mark(markPolling)
	}
	for i := range o.History {
		c := &o.History[i]
		if c.Name != o.Operation.Name {
			continue
		}
		switch c.Outcome {
		case taxonomy.Unknown:
			e.mark(markPriorUnknown)
		case taxonomy.Succeeded:
			e.mark(markRepeated)
		}
	}
	if o.Operation.Kind != "workflow" {
		return // a loop is a fact about the run, not about this call
	}
	switch e.table.loops.Find(o.History).Kind {
	case LoopSame:
		e.mark(markLoopSame)
	case LoopError:
		e.mark(markLoopError)
	case LoopCycle:
		e.mark(markLoopCycle)
	case LoopStale:
		e.mark(markLoopStale)
	}
}
