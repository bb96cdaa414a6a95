package breaker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Options are the parts of a [Registry]. The zero value works.
type Options struct {
	Settings []Setting
	// MaxCircuits bounds the circuits of each breaker that sets no bound of its
	// own; 0 is [DefaultCircuits]. When all are in use, new keys share their parent's, and
	// those without a parent one more, whose key is the breaker's name.
	MaxCircuits int
	// MaxOverride is the longest an override may last; 0 is 24 hours.
	MaxOverride time.Duration
	// Shared says that leases, and OPEN to HALF_OPEN, come from a store: Tick
	// then takes no circuit there by itself. Roll-ups are asked for with RollUp.
	Shared bool
	// Tokens gives lease tokens, unique in the fleet and never 0; nil draws
	// random ones.
	Tokens func() uint64
	// Draw gives the jitter of a cooldown, uniform below One; nil draws it.
	// The share of a ramp is drawn from the request instead, so that a replay
	// decides the same; a call without a request id draws here too.
	Draw func() PPM
	// Listeners are told of every change, each in order and on its own.
	Listeners []func(Change)
	// FirstSequence lies above every sequence of an earlier life, and below
	// 2^63; 0 is fine where none was kept.
	FirstSequence uint64
}

// A Registry is the process's working copy of all circuits. Every method may
// be called from many goroutines.
type Registry struct {
	seq atomic.Uint64 // of changes, of any circuit; its own cache line in effect: read by every admit
	_   [56]byte

	opts  Options
	emit  sync.Mutex // numbering of changes; taken after a node's lock
	awake map[*node]struct{}
	mail  []*mailbox

	mu    sync.RWMutex // the maps below; taken before a node's lock
	conf  atomic.Pointer[config]
	nodes map[string]*node
	paths map[string]*Path

	// The highest figures of evicted circuits: one that comes again starts
	// there, so that neither its version nor its sequence ever falls.
	floorVersion, floorSeq uint64
}

// config is one set of settings, compiled.
type config struct {
	list   []*kept // in the order of the policy
	order  []*kept // in the order of admission
	byName map[string]*kept
	only   [taxonomy.Layers]*kept // the layer's only breaker; nil where it has none or several
	fields []taxonomy.Part        // every field that some scope reads
	depth  int                    // circuits on one path
}

// DefaultCircuits is how many circuits a breaker may have where nobody says.
const DefaultCircuits = 10_000

// maxPath is the most circuits on one path: a ticket keeps a bit for each.
const maxPath = 64

// NewRegistry builds a registry. It starts nothing and reads no clock.
func NewRegistry(o Options) (*Registry, error) {
	if o.MaxCircuits < 0 || o.MaxOverride < 0 {
		return nil, fmt.Errorf("breaker registry: max_circuits and max_override must not be negative")
	}
	if o.MaxCircuits == 0 {
		o.MaxCircuits = DefaultCircuits
	}
	if o.MaxOverride == 0 {
		o.MaxOverride = 24 * time.Hour
	}
	if o.Tokens == nil {
		o.Tokens = func() uint64 { return max(rand.Uint64(), 1) }
	}
	if o.Draw == nil {
		o.Draw = func() PPM { return PPM(rand.Uint32N(uint32(One))) }
	}
	if o.FirstSequence >= 1<<63 {
		return nil, fmt.Errorf("breaker registry: the first sequence %d leaves no room for changes; it must be below 2^63", o.FirstSequence)
	}
	conf, err := compile(o.Settings, o.MaxCircuits)
	if err != nil {
		return nil, err
	}
	g := &Registry{opts: o, awake: map[*node]struct{}{}, nodes: map[string]*node{}, paths: map[string]*Path{}}
	g.seq.Store(max(o.FirstSequence, 1))
	for _, hear := range o.Listeners {
		if hear != nil {
			g.mail = append(g.mail, &mailbox{hear: hear})
		}
	}
	g.conf.Store(conf)
	return g, nil
}

// compile checks settings and puts them in order. room is how many circuits a
// breaker may have that sets no bound of its own.
func compile(settings []Setting, room int) (*config, error) {
	c := &config{byName: map[string]*kept{}}
	var errs []error
	layers := [taxonomy.Layers]int{}
	seen := map[string]bool{}
	for i := range settings {
		s := settings[i]
		if err := s.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		if c.byName[s.Name] != nil {
			errs = append(errs, fmt.Errorf("breaker %q: the name is used twice", s.Name))
			continue
		}
		if s.MaxCircuits == 0 {
			bad := complaints{prefix: fmt.Sprintf("breaker %q", s.Name)}
			s.checkRoom(&bad, room)
			errs = append(errs, bad.errs...)
		}
		k := &kept{Setting: s, counts: classes(s.Counts), excludes: classes(s.Excludes), rank: rankOf(&s), index: i}
		k.Scope = slices.Clone(s.Scope)
		for _, field := range s.Scope {
			read, _ := taxonomy.PartNamed(field)
			k.parts = append(k.parts, read)
			if !seen[field] {
				seen[field] = true
				c.fields = append(c.fields, read)
			}
		}
		c.list = append(c.list, k)
		c.byName[s.Name] = k
		c.depth += len(s.Scope)
		layers[s.Layer]++
		c.only[s.Layer] = k
	}
	for l, n := range layers {
		if n != 1 {
			c.only[l] = nil
		}
	}
	if c.depth > maxPath {
		errs = append(errs, fmt.Errorf("the scopes of all breakers have %d parts together; one operation may touch at most %d circuits", c.depth, maxPath))
	}
	c.order = slices.Clone(c.list)
	slices.SortStableFunc(c.order, func(a, b *kept) int { return int(a.rank) - int(b.rank) })
	return c, errors.Join(errs...)
}

// A Swapped says what a change of settings did to the circuits in use.
type Swapped struct {
	Kept    int // circuits that went on, counts and all
	Cleared int // that went on with empty windows, because the window's shape changed
	Gone    int // whose breaker, or whose scope, is no more
	Changes []Change
}

// Swap puts other settings in force. A circuit goes on where its breaker still
// exists over the same scope: its state always, its counts where the window has
// the same shape.
func (g *Registry) Swap(settings []Setting, now Instant) (Swapped, error) {
	conf, err := compile(settings, g.opts.MaxCircuits)
	if err != nil {
		return Swapped{}, err
	}
	out, reopened := g.exchange(conf, now)
	for _, n := range reopened {
		out.Changes = g.rollUp(n, now, out.Changes)
	}
	return out, nil
}

// exchange puts compiled settings in force and lists the circuits that opened
// while it looked at them.
func (g *Registry) exchange(conf *config, now Instant) (out Swapped, reopened []*node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, n := range g.nodes {
		old := n.of.Load()
		k := conf.byName[old.Name]
		if k == nil || k.Layer != old.Layer || !slices.Equal(k.Scope, old.Scope) {
			g.bury(n)
			delete(g.nodes, key)
			out.Gone++
			continue
		}
		k.nodes = append(k.nodes, n)
		if old.full == n {
			k.full = n
		}
		if old.Rule.Window.sameShape(k.Rule.Window) {
			out.Kept++
		} else {
			out.Cleared++
		}
		first := len(out.Changes)
		n.lock()
		n.of.Store(k)
		_, out.Changes = n.apply(g, &Event{Kind: RuleSwap, Old: &old.Rule}, now, out.Changes)
		n.expose(k)
		n.unlock()
		if opened(out.Changes[first:]) {
			reopened = append(reopened, n)
		}
	}
	g.conf.Store(conf)
	clear(g.paths)
	g.touch()
	return out, reopened
}

// touch ends every cached answer without a change to deliver.
func (g *Registry) touch() {
	g.emit.Lock()
	g.seq.Add(1)
	g.emit.Unlock()
}

// Settings are those in force, in the order of the policy.
func (g *Registry) Settings() []Setting {
	c := g.conf.Load()
	out := make([]Setting, len(c.list))
	for i, k := range c.list {
		out[i] = k.Setting
	}
	return out
}

// Sequence is the number of the latest change.
func (g *Registry) Sequence() uint64 { return g.seq.Load() }

// Undelivered reports how many changes listeners missed because they fell more
// than 65,536 behind, and how often a listener panicked or ended its goroutine.
func (g *Registry) Undelivered() (lost, failed uint64) {
	for _, b := range g.mail {
		b.mu.Lock()
		lost, failed = lost+b.lost, failed+b.failed
		b.mu.Unlock()
	}
	return lost, failed
}

// node finds or makes the circuit of a key. shared reports that there was no
// room and the parent's, or the breaker's common one, stands in. g.mu is held.
func (g *Registry) node(k *kept, key string, parent *node, now Instant) (n *node, shared bool) {
	if n = g.nodes[key]; n != nil {
		return n, false
	}
	limit := k.MaxCircuits
	if limit == 0 {
		limit = g.opts.MaxCircuits
	}
	if k.full != nil {
		limit++ // it stands for those without room, and takes nobody's
	}
	if len(k.nodes) >= limit && !g.evict(k, parent, now) {
		if parent != nil {
			return parent, true
		}
		return g.overflow(k), true
	}
	return g.plant(k, key, parent), false
}

// overflow is the circuit that the keys without room share, made when there is
// none. Its key is the breaker's name: one without parts is nobody else's. g.mu
// is held.
func (g *Registry) overflow(k *kept) *node {
	if k.full == nil {
		k.full = g.plant(k, k.Name, nil)
	}
	return k.full
}

// crowded is the overflow circuit while it is not plainly closed, else nil.
// Nobody knows whose failures opened it, so until it has recovered, a key
// without a circuit of its own shares it even where there is room again. g.mu
// is held.
func (k *kept) crowded() *node {
	if k.full == nil || k.full.word.Load()&busy == 0 {
		return nil
	}
	return k.full
}

// plant adds a new circuit. g.mu is held.
func (g *Registry) plant(k *kept, key string, parent *node) *node {
	n := &node{key: key, parent: parent}
	n.seq.Store(g.floorSeq)
	n.c.Version, n.planted = g.floorVersion, g.floorVersion
	n.word.Store(wordOf(&n.c))
	n.beside.Store(shut)
	n.of.Store(k)
	g.nodes[key] = n
	k.nodes = append(k.nodes, n)
	if parent != nil {
		if parent.kids == nil {
			parent.kids = new([]*node)
		}
		*parent.kids = append(*parent.kids, n)
	}
	return n
}

// evict makes room by forgetting one circuit that is as good as new, but not
// the one that is about to become a parent. It looks at a bounded number, so
// that a full table costs a bounded time. g.mu is held.
func (g *Registry) evict(k *kept, parent *node, now Instant) bool {
	const look = 64
	for range min(look, len(k.nodes)) {
		k.hand++
		if k.hand >= len(k.nodes) {
			k.hand = 0
		}
		n := k.nodes[k.hand]
		if n == k.full || n == parent || n.kids != nil && len(*n.kids) > 0 || n.word.Load()&busy != 0 || !n.tryLock() {
			continue // a circuit with narrower ones stays as long as they do
		}
		idle := n.c.Idle(&k.Rule, now)
		if idle {
			n.word.Store(n.word.Load() | wordDead)
			g.floorVersion = max(g.floorVersion, n.c.Version)
			g.floorSeq = max(g.floorSeq, n.seq.Load())
		}
		n.unlock()
		if !idle {
			continue
		}
		last := len(k.nodes) - 1
		k.nodes[k.hand] = k.nodes[last]
		k.nodes[last] = nil
		k.nodes = k.nodes[:last]
		delete(g.nodes, n.key)
		if p := n.parent; p != nil && p.kids != nil {
			if i := slices.Index(*p.kids, n); i >= 0 {
				*p.kids = slices.Delete(*p.kids, i, i+1)
			}
		}
		return true
	}
	return false
}

// bury takes a circuit out of use for good. g.mu is held.
func (g *Registry) bury(n *node) {
	n.lock()
	n.word.Store(n.word.Load() | wordDead)
	n.unlock()
	g.emit.Lock()
	delete(g.awake, n)
	g.emit.Unlock()
}

// alive is the circuit that stands for n now: n, or the one that took its key
// after n was evicted; nil when the key is unused, which is a closed circuit.
func (g *Registry) alive(n *node) *node {
	if n.word.Load()&wordDead == 0 {
		return n
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.nodes[n.key]
}
