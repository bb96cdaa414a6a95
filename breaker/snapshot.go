package breaker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Install puts a store's copy of a circuit in force, and reports whether it
// did. It only goes forward: an older version changes nothing, and of two with
// the same version the one that refuses more stands. The process keeps its own
// counts where both are in the same state. A circuit of which the store was not
// heard yet has no version to compare: there, the one that refuses more stands.
func (g *Registry) Install(key string, c Circuit, now Instant) (bool, []Change, error) {
	return g.install(key, c, now, false)
}

// Adopt puts a store's copy in force whatever this process took the circuit for:
// for the store's own word on a lease, and for a circuit that goes on under
// another rule, whose versions are not to be compared.
func (g *Registry) Adopt(key string, c Circuit, now Instant) ([]Change, error) {
	_, changes, err := g.install(key, c, now, true)
	return changes, err
}

func (g *Registry) install(key string, c Circuit, now Instant, force bool) (bool, []Change, error) {
	n, err := g.seat(key, &c, now)
	if err != nil || n == nil {
		return false, nil, wrap("install", err)
	}
	if n = g.lock(n, now); n == nil {
		return false, nil, fmt.Errorf("install: %w", ErrUnknownCircuit)
	}
	defer n.unlock()
	of := n.of.Load()
	was := n.c
	milder := c.State.severity() < was.State.severity()
	older := c.Version < was.Version && !n.unheard || c.Version <= was.Version && milder
	if older && !force {
		return false, nil, nil
	}
	// Between two closed ones nothing moved: calls that are out are not late, and
	// the version stays a guess.
	if n.unheard = n.unheard && !force && c.State == Closed && was.State == Closed; n.unheard {
		c.Version = max(c.Version, was.Version)
	}
	if c.Version == was.Version && c.State == was.State && !was.Idle(&of.Rule, now) {
		c.Window, c.Row = was.Window, was.Row
		c.Until = later(c.Until, was.Until)
	}
	if c.Decided < was.Decided { // the store does not know the latest decision yet
		c.Override, c.Decided = was.Override, was.Decided
	}
	c.High = later(was.High, now)
	n.c = c
	var changes []Change
	if c.State != was.State || c.Until != was.Until || c.Version != was.Version || c.forced() != was.forced() {
		var t Transitions
		t.N = 1
		t.List[0] = Transition{From: was.State, To: c.State, Reason: ByStore, Detail: c.Detail, At: now, Until: c.Until,
			Version: c.Version, Override: c.forced(), Facts: c.Facts(&of.Rule, now)}
		changes = n.publish(g, of, &t, nil)
		if c.Version != was.Version {
			n.seq.Store(g.seq.Load()) // calls admitted before are of an older generation
		}
	} else {
		n.expose(of)
		g.touch()
	}
	return true, changes, nil
}

// seat finds or makes the circuit for a stored copy; nil when there is none and
// the copy is as good as new. That one takes no place, only its version is kept:
// what happens here to the one that is made later must not look older. One that
// is not plainly closed has its place even in a full table.
func (g *Registry) seat(key string, c *Circuit, now Instant) (*node, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.nodes[key]; n != nil {
		return n, nil
	}
	k, prefixes, err := g.named(key)
	switch {
	case err != nil:
		return nil, err
	case c.Idle(&k.Rule, now):
		g.floorVersion = max(g.floorVersion, c.Version)
		return nil, nil
	case len(prefixes) == 0:
		return g.overflow(k), nil
	}
	return g.chain(k, prefixes, wordOf(c)&busy != 0, now)
}

// Circuit returns a copy of the circuit under this key; ok is false when it was
// never used, which is a new, closed one.
func (g *Registry) Circuit(key string) (c Circuit, ok bool) {
	g.mu.RLock()
	n := g.nodes[key]
	g.mu.RUnlock()
	if n == nil {
		return Circuit{}, false
	}
	n.lock()
	defer n.unlock()
	return n.c, true
}

// snapshotMagic begins a snapshot: the name, and the format.
const snapshotMagic = "fuseboxC\x01"

// Snapshot writes every circuit that is not as good as new: the magic, the
// number of circuits (u32), and for each its key and its stored form, both with
// a u32 length before them. at is the clock that [Registry.Restore] will be given again.
func (g *Registry) Snapshot(now Instant, at time.Time) []byte {
	g.mu.RLock()
	keys := make([]string, 0, len(g.nodes))
	for key := range g.nodes {
		keys = append(keys, key)
	}
	g.mu.RUnlock()
	slices.Sort(keys)
	le := binary.LittleEndian
	out := append([]byte(snapshotMagic), 0, 0, 0, 0)
	count := uint32(0)
	for _, key := range keys {
		g.mu.RLock()
		n := g.nodes[key]
		g.mu.RUnlock()
		if n == nil {
			continue
		}
		n.lock()
		idle := n.c.Idle(&n.of.Load().Rule, now)
		c := n.c
		n.unlock()
		if idle {
			continue
		}
		data := Encode(&c, now, at)
		out = le.AppendUint32(out, uint32(len(key)))
		out = append(out, key...)
		out = le.AppendUint32(out, uint32(len(data)))
		out = append(out, data...)
		count++
	}
	le.PutUint32(out[len(snapshotMagic):], count)
	return out
}

// Restore puts the circuits of a snapshot in force. A circuit whose breaker is
// no more is left out; one that cannot be read is an error, and the others are
// restored all the same.
func (g *Registry) Restore(data []byte, now Instant, at time.Time) (restored int, err error) {
	le := binary.LittleEndian
	if len(data) < len(snapshotMagic)+4 || string(data[:len(snapshotMagic)]) != snapshotMagic {
		return 0, fmt.Errorf("restore: %w: it is not a snapshot", ErrBadRecord)
	}
	count := le.Uint32(data[len(snapshotMagic):])
	rest := data[len(snapshotMagic)+4:]
	field := func() ([]byte, bool) {
		if len(rest) < 4 || uint64(le.Uint32(rest)) > uint64(len(rest)-4) {
			return nil, false
		}
		f := rest[4 : 4+le.Uint32(rest)]
		rest = rest[4+len(f):]
		return f, true
	}
	var errs []error
	for i := range count {
		key, ok := field()
		body, ok2 := field()
		if !ok || !ok2 {
			return restored, errors.Join(append(errs, fmt.Errorf("restore: %w: it ends inside circuit %d of %d", ErrBadRecord, i+1, count))...)
		}
		name, _, _ := parseKey(string(key))
		k := g.conf.Load().byName[name]
		if k == nil {
			continue
		}
		c, err := Decode(body, &k.Rule, now, at)
		if err != nil {
			errs = append(errs, fmt.Errorf("restore %s: %w", Scope(string(key)), err))
			continue
		}
		ok, _, err = g.Install(string(key), c, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("restore %s: %w", Scope(string(key)), err))
		} else if ok {
			restored++
		}
	}
	return restored, errors.Join(errs...)
}
