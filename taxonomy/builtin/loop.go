package builtin

import "github.com/fusebox-dev/fusebox/taxonomy"

// A LoopKind is a way of getting nowhere.
type LoopKind uint8

const (
	NoLoop    LoopKind = iota
	LoopSame           // the same call again and again, with the same result
	LoopError          // one tool, one error, under changing words or arguments
	LoopCycle          // a short cycle of calls, over and over
	LoopStale          // steps that brought no new evidence
)

var loopNames = [...]string{"none", "identical_call_repeated", "same_error_repeated", "ping_pong", "no_new_evidence"}

func (k LoopKind) String() string { return loopNames[min(int(k), len(loopNames)-1)] }

// A Loop is what a [Detector] found.
type Loop struct {
	Kind         LoopKind
	Calls        int // how many calls belong to it
	LastEvidence int // index of the last call that brought something new
}

// A Detector holds the thresholds of loop detection (SPEC R-AGT-1), values to
// tune. 0 means the default, a negative number that this is not looked for.
type Detector struct {
	Failures  int               // equal failing calls; 3
	Successes int               // equal succeeding calls whose result is not known to differ; 4, or 3 where the result is known to be the same
	Errors    int               // calls of one tool with other arguments and the same error; 4
	Cycles    int               // rounds of a cycle of 2 to 4 calls; 3
	Stale     int               // calls without new evidence; 6
	Insistent int               // equal failing calls although other things moved on in between; 6
	Exempt    func(string) bool // tools that may repeat themselves
}

// maxHistory is how many of the last calls are looked at.
const maxHistory = 64

// FindLoop looks at the calls of a run, oldest first, with the default
// thresholds.
func FindLoop(calls []taxonomy.Call) Loop { return Detector{}.Find(calls) }

// Find looks at the last 64 calls of a run, oldest first. Declared polling and
// exempt tools are left out, and a call whose result is known to have changed
// is progress, so that polling and exploration are no loops.
func (d Detector) Find(calls []taxonomy.Call) Loop {
	d = d.defaults()
	var kept [maxHistory]step
	n := 0
	for i := max(0, len(calls)-maxHistory); i < len(calls); i++ {
		c := &calls[i]
		if c.Declared == "" && c.Name != "" && (d.Exempt == nil || !d.Exempt(c.Name)) {
			kept[n] = stepOf(c, i)
			n++
		}
	}
	steps := kept[:n]
	if n == 0 || steps[n-1].at != len(calls)-1 {
		return Loop{LastEvidence: len(calls) - 1}
	}
	fresh := markFresh(steps)
	for _, find := range []func([]step) (LoopKind, int){d.same, d.cycle, d.errors, d.stale} {
		if kind, length := find(steps); kind != NoLoop {
			return Loop{kind, length, fresh}
		}
	}
	return Loop{LastEvidence: fresh}
}

func (d Detector) defaults() Detector {
	for _, v := range []struct {
		at   *int
		best int
	}{{&d.Failures, 3}, {&d.Successes, 4}, {&d.Errors, 4}, {&d.Cycles, 3}, {&d.Stale, 6}, {&d.Insistent, 6}} {
		switch {
		case *v.at < 0:
			*v.at = 1 << 20
		case *v.at == 0:
			*v.at = v.best
		}
	}
	d.Insistent = max(d.Insistent, d.Failures)
	return d
}

// A step is a call reduced to what is compared.
type step struct {
	call   uint64 // tool and arguments
	tool   uint64
	error  uint64 // normalised; 0 is none
	result uint64 // 0 is not known
	failed bool
	fresh  bool // brought something new
	at     int  // in the history
	args   bool // the arguments are known
}

func stepOf(c *taxonomy.Call, at int) step {
	s := step{tool: hashOf(c.Name), at: at, failed: c.Outcome != taxonomy.Succeeded, args: c.ArgsHash != ""}
	s.call = s.tool*fnvPrime ^ hashOf(c.ArgsHash)
	if c.ResultHash != "" {
		s.result = hashOf(c.ResultHash)
	}
	if c.Error != "" {
		s.error = NormalError(c.Error, nil)
	}
	return s
}

func hashOf(s string) uint64 {
	h := uint64(fnvOffset)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// equal reports whether two steps did the same and got the same.
func (a *step) equal(b *step) bool {
	return a.call == b.call && a.failed == b.failed && a.error == b.error && a.result == b.result && a.args && b.args
}

// markFresh marks steps that brought something new and returns the place of
// the last of them in the history. A call that was never made before is new,
// whatever came of it, unless its tool is known to have given that very result
// before; so is a known call with another result.
func markFresh(steps []step) int {
	last := -1
	for i := range steps {
		steps[i].fresh = true
		for j := range i {
			if steps[j].equal(&steps[i]) || steps[i].result != 0 && steps[j].tool == steps[i].tool && steps[j].result == steps[i].result || !steps[i].args && steps[j].tool == steps[i].tool && steps[j].error == steps[i].error {
				steps[i].fresh = false
				break
			}
		}
		if steps[i].fresh {
			last = steps[i].at
		}
	}
	return last
}

// same counts steps equal to the last one. Failing ones count also across other
// steps, as long as at least half of the gaps between them brought nothing new:
// a test that fails again after each edit is work, not a loop.
func (d Detector) same(steps []step) (LoopKind, int) {
	last := &steps[len(steps)-1]
	row, count, stuck := 0, 0, 0
	broken, moved := false, false
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		if !s.equal(last) {
			broken = true
			moved = moved || s.fresh
			continue
		}
		if count > 0 && !moved {
			stuck++
		}
		moved = false
		count++
		if !broken {
			row++
		}
	}
	need := d.Successes
	switch {
	case last.failed:
		if count >= d.Failures && 2*stuck >= count-1 || count >= d.Insistent {
			return LoopSame, count
		}
		return NoLoop, 0
	case last.result != 0:
		need = min(need, max(3, d.Failures))
	}
	if row >= need {
		return LoopSame, row
	}
	return NoLoop, 0
}

// cycle looks for the same 2 to 4 steps, over and over, up to the last one.
func (d Detector) cycle(steps []step) (LoopKind, int) {
	n := len(steps)
	for period := 2; period <= 4; period++ {
		run := period
		for i := n - 1 - period; i >= 0 && steps[i].equal(&steps[i+period]); i-- {
			run++
		}
		if run >= d.Cycles*period {
			return LoopCycle, run
		}
	}
	return NoLoop, 0
}

// errors counts calls of one tool that failed with one error. Errors that name
// their own target differ, so that three addresses failing once each are no
// loop.
func (d Detector) errors(steps []step) (LoopKind, int) {
	last := &steps[len(steps)-1]
	if !last.failed || last.error == 0 {
		return NoLoop, 0
	}
	n := 0
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		if s.tool != last.tool {
			if !s.failed && s.fresh {
				break // something else brought new evidence
			}
			continue
		}
		if !s.failed || s.error != last.error {
			break
		}
		n++
	}
	if n >= d.Errors {
		return LoopError, n
	}
	return NoLoop, 0
}

// stale counts the steps since something new came.
func (d Detector) stale(steps []step) (LoopKind, int) {
	n := 0
	for i := len(steps) - 1; i >= 0 && !steps[i].fresh; i-- {
		n++
	}
	if n >= d.Stale {
		return LoopStale, n
	}
	return NoLoop, 0
}
