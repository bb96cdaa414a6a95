package main

import (
	"strings"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A stateKey is a state set: the circuits of one breaker at one scope class.
type stateKey struct{ layer, breaker, class, mode string }

// badness orders states for a person who is woken: the worst of several counts.
var badness = []breaker.State{breaker.Closed, breaker.Ramping, breaker.HalfOpen, breaker.Open}

// census counts circuits by what may be a label: never by their scopes.
type census struct {
	m         *meter
	worst     map[stateKey]int // place in badness
	scopes    map[[3]string]int
	overrides map[string]int
}

// circuits counts the circuits of the version in force, and of a candidate
// beside it. Breakers beyond the cap share the name "other".
func (g *gauges) circuits() {
	c := &census{m: g.s.meter, worst: map[stateKey]int{}, scopes: map[[3]string]int{}, overrides: map[string]int{}}
	settings := g.s.engine.Breakers().Settings()
	info := map[[4]string]bool{}
	for i := range settings {
		b := &settings[i]
		name, mode := c.m.name(b.Name), b.Rule.Mode.String()
		owner := b.Owner.Alerts
		if unfit(owner) {
			owner = other
		}
		if name == other { // several share it
			owner = ""
		}
		info[[4]string{name, b.Layer.String(), mode, owner}] = true
		for _, class := range b.Scope {
			c.state(b, class, mode, breaker.Closed)
		}
		for _, s := range badness {
			c.scopes[[3]string{name, mode, s.String()}] += 0
		}
		c.overrides[name] += 0
	}
	named := func(name string) *breaker.Setting {
		for i := range settings {
			if settings[i].Name == name {
				return &settings[i]
			}
		}
		return nil
	}
	for _, l := range g.s.engine.Breakers().List(false, g.s.clock.Mono()) {
		c.count(&l, named(l.Breaker), l.Rule.Mode.String())
		if l.Circuit.Override != nil {
			c.overrides[c.m.name(l.Breaker)]++
		}
	}
	if t, ok := g.s.engine.TrialReport(); ok && t.Candidate != "" {
		for _, l := range g.s.engine.TrialCircuits() {
			c.count(&l, named(l.Breaker), t.Stage.String())
		}
	}
	for k := range info {
		g.set("breaker_info", 1, k[0], k[1], k[2], k[3])
	}
	for k, worst := range c.worst {
		for i, s := range badness {
			g.set("breaker_state", truth(i == worst), k.layer, k.breaker, k.class, k.mode, s.String())
		}
	}
	for k, n := range c.scopes {
		g.set("breaker_scopes", float64(n), k[0], k[1], k[2])
	}
	for name, n := range c.overrides {
		g.set("overrides_active", float64(n), name)
	}
}

// count adds one circuit. A person's decision counts as the state that it makes.
func (c *census) count(l *breaker.Listing, b *breaker.Setting, mode string) {
	s := l.Circuit.State
	if o := l.Circuit.Override; o != nil {
		s = breaker.Closed
		if o.Kind == breaker.ForcedOpen {
			s = breaker.Open
		}
	}
	c.scopes[[3]string{c.m.name(l.Breaker), mode, s.String()}]++
	if b == nil { // of a candidate that has a breaker more
		var layer taxonomy.Layer
		_ = layer.UnmarshalText([]byte(l.Layer)) // of our own listing
		b = &breaker.Setting{Name: l.Breaker, Layer: layer}
	}
	c.state(b, scopeClass(b, l.Scope), mode, s)
}

func (c *census) state(b *breaker.Setting, class, mode string, s breaker.State) {
	key := stateKey{b.Layer.String(), c.m.name(b.Name), class, mode}
	at := 0
	for i := range badness {
		if badness[i] == s {
			at = i
		}
	}
	c.worst[key] = max(c.worst[key], at)
}

// scopeClass is the field that a circuit's scope ends in: "provider", "model".
func scopeClass(b *breaker.Setting, scope string) string {
	_, parts, ok := strings.Cut(scope, ":")
	depth := strings.Count(parts, "/") // a slash inside a value is escaped
	if !ok || depth >= len(b.Scope) {
		return other // what shares the one circuit of a full table
	}
	return b.Scope[depth]
}
