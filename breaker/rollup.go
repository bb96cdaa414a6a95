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
// parent may follow.
func (g *Registry) rollUp(n *node, now Instant, changes []Change) []Change {
	for p := n.parent; p != nil; p = p.parent {
		if p = g.alive(p); p == nil {
			return changes
		}
		of := p.of.Load()
		if of.Rollup.Children == 0 || p.word.Load()&wordState == uint64(Open) {
			return changes
		}
		open, active := g.census(p, now)
		if open < of.Rollup.Children || !of.Rollup.Share.reached(uint64(open), uint64(active)) {
			return changes
		}
		before := len(changes)
		ev := Event{Kind: HardSignal, Reason: ByRollup, Unbound: true, Draw: g.opts.Draw(),
			Detail: fmt.Sprintf("%d of %d active circuits are open", open, active)}
		p.lock()
		_, changes = p.apply(g, &ev, now, changes)
		p.unlock()
		if len(changes) == before {
			return changes
		}
	}
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
