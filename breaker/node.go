package breaker

import (
	"sync"
	"sync/atomic"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A node is one circuit in use: Step's value under a lock, and beside it the
// few words that admission reads without the lock.
type node struct {
	word    atomic.Uint64           // see the bits below
	refusal atomic.Pointer[Refusal] // what to answer without the lock before its holds; nil otherwise
	of      atomic.Pointer[kept]    // the breaker it belongs to; swapped with the settings

	key    string   // locks of several nodes are taken in the order of their keys
	parent *node    // of the next wider scope; nil for the widest
	kids   *[]*node // circuits one part narrower; guarded by Registry.mu

	seq       atomic.Uint64 // the registry's sequence at the latest change of State; written under mu
	beside    atomic.Uint64 // successes counted without the lock, see quiet.go
	bucketEnd atomic.Int64  // until when they may be

	mu sync.Mutex // taken with lock and given up with unlock only
	c  Circuit

	planted uint64 // the version that it was made with; never changed
}

// Bits of node.word. A word of which no bit of busy is set admits everything.
const (
	wordState  = 0b0011
	wordForced = 0b1100
	wordDead   = 1 << 4 // evicted: look the key up again
	busy       = wordState | wordForced | wordDead

	wordVersion = 8 // above this bit: the circuit's version
)

func wordOf(c *Circuit) uint64 {
	return uint64(c.State) | uint64(c.forced())<<2 | c.Version<<wordVersion
}

// kept is a breaker's settings as the registry holds them.
type kept struct {
	Setting
	parts    []taxonomy.Part
	counts   classSet // empty is all
	excludes classSet
	rank     uint8   // order of admission and of decisive refusals
	index    int     // in the order of the settings
	nodes    []*node // every live circuit; guarded by Registry.mu
	hand     int     // where the next search for an idle one begins
	full     *node   // shared by new keys when there is no room; nil until needed
}

type classSet uint32

func classes(list []taxonomy.Class) (s classSet) {
	for _, c := range list {
		s |= 1 << c
	}
	return s
}

func (s classSet) has(c taxonomy.Class) bool { return s&(1<<c) != 0 }

// rankOf is the fixed order in which layers answer: who may act, what it may
// cost, whether an earlier attempt is still unresolved, and only then health.
func rankOf(s *Setting) uint8 {
	switch s.Layer {
	case taxonomy.LayerAuthority:
		return 0
	case taxonomy.LayerBudget:
		return 1
	case taxonomy.LayerTool:
		if s.Ambiguity() {
			return 2
		}
		return 5
	case taxonomy.LayerWorkflow:
		return 3
	case taxonomy.LayerSemantic:
		return 4
	}
	return 6
}

// apply steps the circuit in place and publishes what admission reads.
func (n *node) apply(g *Registry, ev *Event, now Instant, changes []Change) (Decision, []Change) {
	of := n.of.Load()
	var d Decision
	if t := step(&of.Rule, &n.c, ev, now, &d); t != nil {
		changes = n.publish(g, of, t, changes)
	}
	return d, changes
}

// publish makes a change visible: first what goes with the word, then the
// word, and last the sequence, which ends every cached "all closed". A call
// that read the old sequence before sees its result counted as late at worst;
// it can never be counted toward the new state. n.mu is held.
func (n *node) publish(g *Registry, of *kept, t *Transitions, changes []Change) []Change {
	n.expose(of)
	first := len(changes)
	moved := false
	for i := range t.All() {
		changes = append(changes, Change{Key: n.key, Scope: Scope(n.key), Layer: of.Layer, Breaker: of.Name,
			Rule: &of.Rule, Transition: t.List[i]})
		moved = moved || t.List[i].Moved()
	}
	seq := g.deliver(n, changes[first:])
	if moved {
		n.seq.Store(seq)
	}
	return changes
}

// expose writes the words that admission reads without the lock.
func (n *node) expose(of *kept) {
	c := &n.c
	var refusal *Refusal
	var until Instant
	switch {
	case c.forced() == ForcedOpen:
		until = c.Override.Until
		refusal = n.refuse(of, Decision{Reason: ForceOpened, RetryAt: until}, c.High)
	case c.forced() == ForcedClosed:
	case c.State == Open && !of.Rule.Probe.byCalls():
		until = 1<<63 - 1
		refusal = n.refuse(of, Decision{Reason: AwaitsEvidence}, c.High)
	case c.State == Open:
		until = c.Until
		refusal = n.refuse(of, Decision{Reason: CircuitOpen, RetryAt: until}, c.High)
	}
	if refusal != nil {
		refusal.holds = until
	}
	n.refusal.Store(refusal)
	n.word.Store(wordOf(c))
}

// refuse writes down a refusal with the figures behind it.
func (n *node) refuse(of *kept, d Decision, now Instant) *Refusal {
	c := &n.c
	r := &Refusal{Layer: of.Layer, Breaker: of.Name, Scope: Scope(n.key), Key: n.key, State: c.State, Version: c.Version,
		Reason: d.Reason, Cause: c.Reason, Detail: c.Detail, RetryAt: d.RetryAt, Since: c.Since, Until: c.Until,
		Fallback: of.Fallback, Rule: &of.Rule, Facts: c.Facts(&of.Rule, now),
		binds: of.Rule.Mode == enforce || d.Reason == ForceOpened}
	if c.Override != nil {
		r.Override = *c.Override
	}
	return r
}
