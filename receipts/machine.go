package receipts

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// machine checks what receipts of all logs under a root say about each other:
// the transitions of a scope follow one another, and the outcome of a write
// answers an intent.
type machine struct {
	alone   bool // one log was named, others may lie beside it
	seed    maphash.Seed
	logs    map[int]*machineLog
	intents map[uint64]int // hash of an intent's id → its log
}

// machineLog is what one log contributed; a restart forgets it.
type machineLog struct {
	boot        int64
	transitions map[circuitLife][]step
	intents     []uint64
	answered    map[uint64]bool // intents with an outcome or a void
	orphans     []orphan        // outcomes whose parent was not met in this log
}

type step struct {
	version, index int64
	prev, state    State
}

type orphan struct {
	parent uint64
	index  int64
}

func newMachine(alone bool) *machine {
	return &machine{alone: alone, seed: maphash.MakeSeed(), logs: map[int]*machineLog{}, intents: map[uint64]int{}}
}

func (m *machine) restart(n int) {
	m.logs[n] = &machineLog{transitions: map[circuitLife][]step{}, answered: map[uint64]bool{}}
	for k, log := range m.intents {
		if log == n {
			delete(m.intents, k)
		}
	}
}

func (m *machine) see(n int, index int64, f *fact) {
	l := m.logs[n]
	switch f.kind {
	case KindBoot:
		l.boot++
	case KindIntent:
		m.intents[f.who] = n
		l.intents = append(l.intents, f.who)
	case KindIntentVoid, KindOutcome:
		_, ok := m.intents[f.who]
		if ok || f.needs {
			l.answered[f.who] = true
		}
		if f.needs && !ok {
			l.orphans = append(l.orphans, orphan{f.who, index})
		}
	case KindTransition:
		// Only steps of one process life are compared: a store may be restored
		// between two, and other processes write other logs.
		if f.vers > 0 {
			k := circuitLife{f.who, l.boot, f.epoch}
			l.transitions[k] = append(l.transitions[k], step{f.vers, index, f.prev, f.state})
		}
	}
}

// circuitLife is a circuit under one writer and one epoch of the store.
type circuitLife struct {
	circuit     uint64
	boot, epoch int64
}

// finish judges what needs all logs, and counts intents that wait.
func (m *machine) finish(judges []*judge) {
	live, pruned := false, false
	for _, j := range judges {
		live, pruned = live || j.out.Live, pruned || j.out.Pruned > 0
	}
	for _, j := range judges {
		l := m.logs[j.n]
		steps := l.steps(j)
		for _, o := range l.orphans {
			if _, ok := m.intents[o.parent]; ok || pruned || live && len(judges) > 1 {
				continue
			}
			if m.alone {
				j.states.unproven("elsewhere", "receipt %d answers an intent that is not in this log; verify all slots together", o.index)
			} else {
				j.states.fail("no intent", "receipt %d is the outcome of something sent, and no log has its intent", o.index)
			}
		}
		for _, k := range l.intents {
			if !m.answeredAnywhere(k) {
				j.out.Open++
			}
		}
		j.states.pass("%d transitions follow each other, %d intents, %d of them without an outcome so far", steps, len(l.intents), j.out.Open)
	}
}

func (m *machine) answeredAnywhere(k uint64) bool {
	for _, l := range m.logs {
		if l.answered[k] {
			return true
		}
	}
	return false
}

// steps compares the transitions of each circuit, by the version that orders
// them.
func (l *machineLog) steps(j *judge) (n int) {
	for _, list := range l.transitions {
		n += len(list)
		slices.SortStableFunc(list, func(a, b step) int { return cmp.Compare(a.version, b.version) })
		for i := 1; i < len(list); i++ {
			a, b := list[i-1], list[i]
			switch {
			case b.version == a.version && !a.agrees(b):
				j.states.fail("contradiction", "receipts %d and %d say different things about version %d of one circuit", a.index, b.index, a.version)
			case b.version == a.version+1 && !follows(a, b):
				j.states.fail("contradiction", "receipt %d leaves %s, but receipt %d before it led to %s", b.index, b.prev, a.index, a.state)
			}
		}
	}
	return n
}

// agrees reports whether two steps of one version can both be true: they are
// the same, or one corrects the other by what the store said.
func (a step) agrees(b step) bool {
	return a.prev == b.prev && a.state == b.state || follows(a, b) || follows(b, a)
}

// follows reports whether b can come after a. An override shows its own state
// over the one that goes on under it, so nothing follows from that.
func follows(a, b step) bool {
	return a.state == b.prev || !plainState(a.state) || !plainState(b.prev) || !plainState(b.state)
}

func plainState(s State) bool {
	return s == StateClosed || s == StateOpen || s == StateHalfOpen || s == StateRamp
}
