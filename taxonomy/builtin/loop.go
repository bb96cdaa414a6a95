package builtin

import "github.com/fusebox-dev/fusebox/taxonomy"

// A LoopKind is a way of getting nowhere.
type LoopKind uint8

const (
	NoLoop    LoopKind = iota
	LoopSame           // the same call again and again
	LoopError          // one tool, one error, under changing words or arguments
	LoopCycle          // a short cycle of calls, over and over
	LoopStale          // steps that brought no new evidence
)

var loopNames = [...]string{"none", "identical_call_repeated", "same_error_repeated", "ping_pong", "no_new_evidence"}

func (k LoopKind) String() string { return loopNames[k] }

// A Loop is what [FindLoop] found.
type Loop struct {
	Kind  LoopKind
	Calls int // how many of the last calls belong to it
}

// FindLoop looks at the calls of a run, oldest first.
func FindLoop(calls []taxonomy.Call) Loop {
	n := len(calls)
	if n == 0 || calls[n-1].Declared == "poll" {
		return Loop{}
	}
	last := &calls[n-1]
	same := 1
	for i := n - 2; i >= 0 && equivalent(&calls[i], last); i-- {
		same++
	}
	if same >= 3 {
		return Loop{LoopSame, same}
	}
	for period := 2; period <= 4; period++ {
		run := period
		for i := n - 1 - period; i >= 0 && equivalent(&calls[i], &calls[i+period]); i-- {
			run++
		}
		if run >= 3*period {
			return Loop{LoopCycle, run}
		}
	}
	return Loop{}
}

func equivalent(a, b *taxonomy.Call) bool {
	return a.Name == b.Name && a.ArgsHash == b.ArgsHash && a.Outcome == b.Outcome && a.Error == b.Error && a.ResultHash == b.ResultHash
}
