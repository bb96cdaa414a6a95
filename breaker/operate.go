package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors of operators' requests.
var (
	ErrUnknownCircuit = errors.New("no such circuit")
	ErrBadOverride    = errors.New("not a valid override")
)

// lookup finds a circuit by key, making it when its breaker exists: an operator
// may decide about a scope that no call has used yet.
func (g *Registry) lookup(key string, now Instant) (*node, error) {
	g.mu.RLock()
	n := g.nodes[key]
	g.mu.RUnlock()
	if n != nil {
		return n, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	k, prefixes, err := g.named(key)
	if err != nil {
		return nil, err
	}
	if len(prefixes) == 0 { // the key of an overflow circuit, and there is none
		return nil, fmt.Errorf("circuit %s: %w", Scope(key), ErrUnknownCircuit)
	}
	return g.chain(k, prefixes, false, now)
}

// chain finds or makes the circuits of these keys, each below the one before
// it, and returns the last. Without room that is an error, unless it must be.
// g.mu is held.
func (g *Registry) chain(k *kept, keys []string, must bool, now Instant) (n *node, err error) {
	for _, key := range keys {
		parent, shared := n, false
		switch n, shared = g.node(k, key, parent, now); {
		case shared && must:
			n = g.plant(k, key, parent)
		case shared:
			return nil, fmt.Errorf("circuit %s: breaker %q has no room for another circuit, so it shares %s: %w",
				Scope(keys[len(keys)-1]), k.Name, Scope(n.key), ErrUnknownCircuit)
		}
	}
	return n, nil
}

// named reads a key: its breaker, and the keys of every circuit from the widest
// down to it. There are none for the breaker's name alone, which is the key of
// its overflow circuit. g.mu is held.
func (g *Registry) named(key string) (*kept, []string, error) {
	name, parts, err := parseKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnknownCircuit, err)
	}
	k := g.conf.Load().byName[name]
	if k == nil || len(parts) > len(k.Scope) {
		return nil, nil, fmt.Errorf("circuit %s: %w", Scope(key), ErrUnknownCircuit)
	}
	b := []byte(name)
	var prefixes []string
	for i, p := range parts {
		if p.field != k.Scope[i] {
			return nil, nil, fmt.Errorf("circuit %s: part %d is %q, the scope of %q says %q: %w", Scope(key), i+1, p.field, name, k.Scope[i], ErrUnknownCircuit)
		}
		if p.hashed {
			b = append(append(append(append(b, '|'), p.field...), '='), p.value...)
		} else {
			b = appendPart(b, p.field, p.value)
		}
		prefixes = append(prefixes, string(b))
	}
	if string(b) != key {
		return nil, nil, fmt.Errorf("circuit key %.60q is not written as fusebox writes it: %w", key, ErrUnknownCircuit)
	}
	return k, prefixes, nil
}

// Find turns a readable scope ("provider:openai/eu") or a key into the key. The
// name of a breaker alone is its overflow circuit, once there is one.
func (g *Registry) Find(scope string) (string, error) {
	if name, parts, err := parseKey(scope); err == nil && g.conf.Load().byName[name] != nil {
		if _, used := g.Circuit(scope); used || len(parts) > 0 {
			return scope, nil
		}
	}
	name, _, _ := strings.Cut(scope, ":")
	if k := g.conf.Load().byName[name]; k != nil && strings.Contains(scope, ":") {
		key, err := k.KeyOf(scope)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrUnknownCircuit, err)
		}
		return key, nil
	}
	var names []string
	for _, k := range g.conf.Load().list {
		names = append(names, k.Name)
	}
	return "", fmt.Errorf("circuit %.100q: %w; write breaker:value/value, widest first, with one of the breakers %s",
		scope, ErrUnknownCircuit, strings.Join(names, ", "))
}

// Override lays a human decision over a circuit. It says who, why and until
// when, and ends by itself.
func (g *Registry) Override(key string, o Override, now Instant) ([]Change, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("override %s: %w: %s", Scope(key), ErrBadOverride, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Kind != ForcedOpen && o.Kind != ForcedClosed:
		return nil, bad("it must force open or closed")
	case o.By == "" || o.Why == "":
		return nil, bad("it must say who and why")
	case o.Until <= now:
		return nil, bad("it must end in the future")
	case o.Until.Sub(now) > g.opts.MaxOverride:
		return nil, bad("it may last %s at most, asked for %s", g.opts.MaxOverride, o.Until.Sub(now))
	}
	o.By, o.Why = short(o.By), short(o.Why)
	return g.event(key, Event{Kind: SetOverride, Override: &o}, now)
}

// ClearOverride takes a decision back before its end.
func (g *Registry) ClearOverride(key, by, why string, now Instant) ([]Change, error) {
	if by == "" || why == "" {
		return nil, fmt.Errorf("release %s: %w: it must say who and why", Scope(key), ErrBadOverride)
	}
	return g.event(key, Event{Kind: ClearOverride, By: short(by), Detail: short(why)}, now)
}

// Evidence tells a circuit what was proved and by whom. It moves nothing unless
// the circuit's rule names that kind of evidence. A circuit that was never used
// has nothing to prove, and is not made for it.
func (g *Registry) Evidence(key string, kind Evidence, by string, now Instant) (Fate, []Change, error) {
	n, err := g.accused(key)
	if err != nil || n == nil {
		return Ignored, nil, wrap("evidence "+kind.String(), err)
	}
	n, d, changes := g.hand(n, Event{Kind: EvidenceSeen, Gives: kind, By: short(by)}, now)
	if n == nil {
		return Ignored, nil, fmt.Errorf("evidence %s: %w", kind, ErrUnknownCircuit)
	}
	return d.Fate, changes, nil
}

// accused is the circuit that a proof about this key is for; nil where there is
// none. Where an open circuit is shared, the proof for one key says nothing
// about the others.
func (g *Registry) accused(key string) (*node, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if n := g.nodes[key]; n != nil {
		return n, nil
	}
	k, prefixes, err := g.named(key)
	if err != nil {
		return nil, err
	}
	if len(prefixes) == 0 {
		return nil, fmt.Errorf("circuit %s: %w", Scope(key), ErrUnknownCircuit)
	}
	if full := k.crowded(); full != nil && g.nodes[prefixes[0]] == nil {
		return nil, fmt.Errorf("circuit %s shares the circuit %s, which is %s; give it to that one: %w",
			Scope(key), full.key, State(full.word.Load()&wordState), ErrUnknownCircuit)
	}
	return nil, nil
}

func wrap(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
}

// Signal opens a circuit at once, for a cause that belongs to no call: a
// credential revoked elsewhere, a budget that ran out. until 0 is the cooldown.
func (g *Registry) Signal(key, detail, by string, until, now Instant) ([]Change, error) {
	return g.event(key, Event{Kind: HardSignal, Unbound: true, Until: until, Detail: short(detail), By: short(by)}, now)
}

func (g *Registry) event(key string, ev Event, now Instant) ([]Change, error) {
	n, err := g.lookup(key, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ev.Kind, err)
	}
	n, _, changes := g.hand(n, ev, now)
	if n == nil {
		return nil, fmt.Errorf("%s: %w", ev.Kind, ErrUnknownCircuit)
	}
	return changes, nil
}

// hand applies an event to one circuit.
func (g *Registry) hand(n *node, ev Event, now Instant) (*node, Decision, []Change) {
	if n = g.lock(n, now); n == nil {
		return nil, Decision{}, nil
	}
	ev.Draw = g.opts.Draw()
	d, changes := n.apply(g, &ev, now, nil)
	n.unlock()
	return n, d, g.settled(n, now, changes, 0)
}

// Tick lets time pass in every circuit that is not plainly closed: overrides
// and leases end, ramps go on, and without a store a cooldown that is over
// becomes HALF_OPEN. Call it about once a second.
func (g *Registry) Tick(now Instant) []Change {
	g.emit.Lock()
	awake := make([]*node, 0, len(g.awake))
	for n := range g.awake {
		awake = append(awake, n)
	}
	g.emit.Unlock()
	slices.SortFunc(awake, byKey)
	ev := Event{Kind: Tick}
	if g.opts.Shared {
		ev.Kind = Settle
	}
	var changes []Change
	var reopened []*node
	for _, n := range awake {
		first := len(changes)
		n.lock()
		if n.word.Load()&wordDead == 0 {
			ev.Draw = g.opts.Draw()
			_, changes = n.apply(g, &ev, now, changes)
		}
		n.unlock()
		if opened(changes[first:]) {
			reopened = append(reopened, n)
		}
	}
	for _, n := range reopened { // once time has passed in all of them: their order means nothing
		changes = g.rollUp(n, now, changes)
	}
	return changes
}

// A Listing shows one circuit.
type Listing struct {
	Key     string
	Layer   string
	Breaker string
	Scope   string
	Circuit Circuit // its window as of now
	Facts   Facts
	Rule    *Rule
	Owner   Owner
	RetryAt Instant // of OPEN, or of a forced open; 0: it waits for evidence, and no time is known
}

// List shows every circuit that is not as good as new, or all of them, by key.
func (g *Registry) List(all bool, now Instant) []Listing {
	g.mu.RLock()
	nodes := make([]*node, 0, len(g.nodes))
	for _, n := range g.nodes {
		nodes = append(nodes, n)
	}
	g.mu.RUnlock()
	out := make([]Listing, 0, 16)
	for _, n := range nodes {
		n.lock()
		of := n.of.Load()
		if all || !n.c.Idle(&of.Rule, now) {
			out = append(out, n.list(of, now))
		}
		n.unlock()
	}
	slices.SortFunc(out, func(a, b Listing) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// Show is one circuit of the list.
func (g *Registry) Show(key string, now Instant) (Listing, error) {
	g.mu.RLock()
	n := g.nodes[key]
	g.mu.RUnlock()
	if n == nil {
		return Listing{}, fmt.Errorf("circuit %s: %w", Scope(key), ErrUnknownCircuit)
	}
	n.lock()
	defer n.unlock()
	return n.list(n.of.Load(), now), nil
}

func (n *node) list(of *kept, now Instant) Listing {
	l := Listing{Key: n.key, Layer: of.Layer.String(), Breaker: of.Name, Scope: Scope(n.key), Circuit: n.c,
		Facts: n.c.Facts(&of.Rule, now), Rule: &of.Rule, Owner: of.Owner}
	if n.c.State == Open && of.Rule.Timed() {
		l.RetryAt = n.c.Until
	}
	if n.c.forced() == ForcedOpen {
		l.RetryAt = n.c.Override.Until
	}
	return l
}

// Len is how many circuits are kept.
func (g *Registry) Len() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.nodes)
}

// maxText bounds what people write into a circuit.
const maxText = 200

func short(s string) string {
	if len(s) > maxText {
		return s[:maxText]
	}
	return s
}
