package breaker

import (
	"fmt"
	"slices"
)

// opened reports whether a circuit opened.
func opened(changes []Change) bool {
	return slices.ContainsFunc(changes, func(c Change) bool { return c.To == Open && c.Moved() })
}

// rollUp opens a parent when enough of its children are open. The parent's own
// parent may follow. Over a store it does nothing: see [Registry.RollUp].
func (g *Registry) rollUp(n *node, now Instant, changes []Change) []Change {
	if g.opts.Shared {
		return changes
	}
	for p := g.rolled(n); p != nil; p = g.rolled(p) {
		before := len(changes)
		if changes = g.rollInto(p, now, changes); len(changes) == before {
			break
		}
	}
	return changes
}

// settled continues a list of changes, the latest of which (from first on) are
// of n, with what they open that is wider. No circuit is locked.
func (g *Registry) settled(n *node, now Instant, changes []Change, first int) []Change {
	if opened(changes[first:]) {
		return g.rollUp(n, now, changes)
	}
	return changes
}

// RollUp opens the circuit one part wider than an open one where its declared
// roll-up is reached, and reports the change. Over a store, whoever opened or
// installed the circuit asks for it, once the siblings that other processes use
// have been installed too: a share of those that this process happens to know
// is not a share of the active ones. RolledUp says which they are.
func (g *Registry) RollUp(key string, now Instant) []Change {
	g.mu.RLock()
	n := g.nodes[key]
	g.mu.RUnlock()
	if n == nil || n.word.Load()&wordState != uint64(Open) {
		return nil
	}
	if p := g.rolled(n); p != nil {
		return g.rollInto(p, now, nil)
	}
	return nil
}

// RolledUp is the key of the circuit that a roll-up of this one could open:
// the keys of its siblings are that one with "|" and more after it. "" is none.
func (g *Registry) RolledUp(key string) string {
	g.mu.RLock()
	n := g.nodes[key]
	g.mu.RUnlock()
	if n == nil {
		return ""
	}
	if p := g.rolled(n); p != nil {
		return p.key
	}
	return ""
}

// rolled is the parent that a roll-up of this circuit could open; nil is none.
func (g *Registry) rolled(n *node) *node {
	p := n.parent
	if p == nil {
		return nil
	}
	if p = g.alive(p); p == nil || p.of.Load().Rollup.Children == 0 || p.word.Load()&wordState == uint64(Open) {
		return nil
	}
	return p
}

// rollInto opens a parent whose roll-up is reached.
func (g *Registry) rollInto(p *node, now Instant, changes []Change) []Change {
	of := p.of.Load()
	open, active := g.census(p, now)
	if open < of.Rollup.Children || !of.Rollup.Share.reached(uint64(open), uint64(active)) {
		return changes
	}
	ev := Event{Kind: HardSignal, Reason: ByRollup, Unbound: true, Draw: g.opts.Draw(),
		Detail: fmt.Sprintf("%d of %d active circuits are open", open, active)}
	p.lock()
	defer p.unlock()
	if p.c.State == Open {
		return changes // somebody else was first, and it is theirs to lengthen
	}
	_, changes = p.apply(g, &ev, now, changes)
	return changes
}

// census counts the children of a circuit that are open, and those that are in
// use: open, or with an outcome in their window.
func (g *Registry) census(p *node, now Instant) (open, active uint32) {
	g.mu.RLock()
	var kids []*node
	if p.kids != nil {
		kids = slices.Clone(*p.kids)
	}
	g.mu.RUnlock()
	for _, n := range kids {
		n.lock()
		r := &n.of.Load().Rule
		switch {
		case n.c.State == Open:
			open++
			active++
		case n.c.State != Closed || n.c.Window.At(&r.Window, now).Sum != Tally{}:
			active++
		}
		n.unlock()
	}
	return open, active
}
