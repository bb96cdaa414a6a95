package receipts

import (
	"bytes"
	"fmt"
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
	transitions map[uint64][]step
	intents     []uint64
	answered    map[uint64]bool // intents with an outcome or a void
	orphans     []orphan        // outcomes whose parent was not met in this log
	fault       finding
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
	m.logs[n] = &machineLog{transitions: map[uint64][]step{}, answered: map[uint64]bool{}}
	for k, log := range m.intents {
		if log == n {
			delete(m.intents, k)
		}
	}
}

func (m *machine) hashID(id ID) uint64 { return maphash.Bytes(m.seed, id[:]) }

func (m *machine) see(n int, index int64, g *look) {
	l := m.logs[n]
	switch g.kind {
	case KindBoot:
		l.boot++
	case KindIntent:
		k := m.hashID(g.id)
		m.intents[k] = n
		l.intents = append(l.intents, k)
	case KindIntentVoid, KindOutcome:
		k := m.hashID(g.parent)
		l.answered[k] = true
		if _, ok := m.intents[k]; !ok && needsIntent(g) {
			l.orphans = append(l.orphans, orphan{k, index})
		}
	case KindTransition:
		m.transition(l, index, g)
	}
}

// needsIntent reports whether the receipt ends something that may have been
// sent and may have changed the world, as far as it was declared.
func needsIntent(g *look) bool {
	if g.kind == KindIntentVoid {
		return true
	}
	return g.attempted && len(g.effect) > 0 && string(g.effect) != "read_only" &&
		!bytes.Contains(g.flags, []byte(`"undeclared_dispatch"`))
}

// transition keeps a step. Only steps of one process life are compared: a
// store may be restored between two, and other processes write other logs.
func (m *machine) transition(l *machineLog, index int64, g *look) {
	if g.stateVersion == 0 {
		return
	}
	var h maphash.Hash
	h.SetSeed(m.seed)
	for _, part := range [][]byte{g.breaker, g.scope, g.cohort} {
		h.Write(part)
		h.WriteByte('"') // never inside the raw text of a string
	}
	fmt.Fprint(&h, l.boot, g.stateEpoch)
	k := h.Sum64()
	l.transitions[k] = append(l.transitions[k], step{g.stateVersion, index, g.prev, g.state})
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

// steps compares the transitions of each scope by the version that orders them.
func (l *machineLog) steps(j *judge) (n int) {
	for _, list := range l.transitions {
		n += len(list)
		slices.SortStableFunc(list, func(a, b step) int { return int(a.version - b.version) })
		for i := 1; i < len(list); i++ {
			a, b := list[i-1], list[i]
			switch {
			case b.version == a.version && (b.prev != a.prev || b.state != a.state):
				j.states.fail("contradiction", "receipts %d and %d say different things about version %d of one circuit", a.index, b.index, a.version)
			case b.version == a.version+1 && b.prev != a.state:
				j.states.fail("contradiction", "receipt %d leaves %s, but receipt %d before it led to %s", b.index, b.prev, a.index, a.state)
			}
		}
	}
	return n
}
