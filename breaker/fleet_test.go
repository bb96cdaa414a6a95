package breaker

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A shelf is a store as the engine uses one: versioned documents, each changed
// by a pure function under compare-and-swap, with a clock of its own.
type shelf struct {
	mu   sync.Mutex
	docs map[string][]byte
	wall time.Time
	down bool
}

var errDown = errors.New("store is down")

func (s *shelf) update(key string, f func(doc []byte, at time.Time) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errDown
	}
	if out := f(s.docs[key], s.wall); out != nil {
		s.docs[key] = out
	}
	return nil
}

// A worker is one process: its own registry, and a clock with its own origin.
type worker struct {
	g      *Registry
	s      *shelf
	origin Instant
	start  time.Time
}

func newWorker(t testing.TB, s *shelf, id uint64, set Setting) *worker {
	token := id << 32
	g := newRegistry(t, Options{Settings: []Setting{set}, Shared: true, Draw: func() PPM { return 0 },
		Tokens: func() uint64 { token++; return token }})
	return &worker{g: g, s: s, origin: Instant(id) * 977 * second, start: s.wall}
}

func (w *worker) now() Instant { return w.origin.Add(w.s.wall.Sub(w.start)) + 1 }

// stored steps the store's copy of a circuit and takes the result over.
func (w *worker) stored(key string, r *Rule, ev Event) (Decision, error) {
	var d Decision
	var c Circuit
	err := w.s.update(key, func(doc []byte, at time.Time) []byte {
		now := w.now()
		var err error
		c, err = Decode(doc, r, now, at)
		gone := errors.Is(err, ErrNoRecord)
		if err != nil && !gone {
			return nil
		}
		// No record is not "closed": a lease is asked of one's own copy, and
		// what happened is told to a new one unless one's own has moved on.
		local, _ := w.g.Circuit(key)
		if gone && ev.Kind == Admit {
			c = local
		}
		c, d, _ = Step(r, c, ev, now)
		if gone && local.Version > c.Version {
			c = local
		}
		return Encode(&c, now, at)
	})
	if err == nil {
		_, _, err = w.g.Install(key, c, w.now())
	}
	return d, err
}

// dispatch admits and takes the leases from the store.
func (w *worker) dispatch(op *taxonomy.Operation) (*Path, Ticket, bool) {
	p := w.g.Path(op, w.now())
	ask := Ask{Operation: op}
	t, no := p.Admit(ask, w.now())
	if no != nil {
		return p, t, false
	}
	for _, need := range p.Leases(&t, ask) {
		d, err := w.stored(need.Key, need.Rule, need.Event)
		if err != nil || !d.Allow {
			return p, t, false
		}
		t.Answer(need, d)
	}
	return p, t, true
}

// settle records a result here and in the store.
func (w *worker) settle(p *Path, t Ticket, s taxonomy.Signal) {
	res := fine
	if s != taxonomy.SignalSuccess {
		res = failed
	}
	r := p.Record(t, feed(taxonomy.LayerProvider, "provider", s), res, w.now())
	for _, x := range r.Touched() {
		if _, err := w.stored(x.Key, x.Rule, x.Event); err != nil && !errors.Is(err, errDown) {
			panic(err)
		}
	}
	for _, c := range r.Changes {
		if ev, ok := c.Assert(); ok {
			_, _ = w.stored(c.Key, c.Rule, ev)
		}
	}
}

// load takes over what the store says.
func (w *worker) load(key string, r *Rule) {
	_ = w.s.update(key, func(doc []byte, at time.Time) []byte {
		if c, err := Decode(doc, r, w.now(), at); err == nil {
			_, _, _ = w.g.Install(key, c, w.now())
		}
		return nil
	})
}

func newFleet(t testing.TB, n int, change ...func(*Setting)) ([]*worker, *shelf, *Rule, string) {
	set := enforced("provider", taxonomy.LayerProvider, "provider")
	for _, f := range change {
		f(&set)
	}
	s := &shelf{docs: map[string][]byte{}, wall: time.Unix(1_000_000, 0)}
	var all []*worker
	for i := range n {
		all = append(all, newWorker(t, s, uint64(i+1), set))
	}
	key, _ := all[0].g.Find("provider:openai")
	return all, s, &set.Rule, key
}

// live counts the leases that the store's record holds.
func (s *shelf) live(key string, r *Rule, now Instant) int {
	c, err := Decode(s.docs[key], r, now, s.wall)
	if err != nil {
		return 0
	}
	c, _, _ = Step(r, c, Event{Kind: Settle}, now)
	return int(c.live())
}

// TestFault35 (R-BRK-5): 1,000 callers in five processes at the end of the
// cooldown hold one lease together.
func TestFault35(t *testing.T) {
	fleet, s, r, key := newFleet(t, 5)
	for _, w := range fleet {
		for range 5 {
			if p, tk, ok := w.dispatch(modelOp()); ok {
				w.settle(p, tk, taxonomy.SignalFailure)
			}
		}
		w.load(key, r)
	}
	s.wall = s.wall.Add(time.Minute)
	var mu sync.Mutex
	held := 0
	atOnce(1000, func(i int) {
		if _, tk, ok := fleet[i%5].dispatch(modelOp()); ok && tk.Held != 0 {
			mu.Lock()
			held++
			mu.Unlock()
		}
	})
	if held != 1 || s.live(key, r, fleet[0].now()) != 1 {
		t.Fatalf("%d leases were handed out, the store holds %d", held, s.live(key, r, fleet[0].now()))
	}
}

// TestProperty27Fleet (R-BRK-5, R-FLT-8): whatever the order of admissions,
// results, crashes, restarts and lost records, no more probes with a live lease
// are out in the whole fleet than the budget.
func TestProperty27Fleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := uint8(rapid.IntRange(1, 3).Draw(t, "budget"))
		set := enforced("provider", taxonomy.LayerProvider, "provider")
		set.Rule.Probe.Budget = budget
		set.Rule.Ramp = Ramp{}
		s := &shelf{docs: map[string][]byte{}, wall: time.Unix(1_000_000, 0)}
		r := &set.Rule
		next := uint64(1)
		spawn := func() *worker {
			o := newWorkerRapid(t, s, next, set)
			next++
			return o
		}
		fleet := []*worker{spawn(), spawn(), spawn()}
		key, _ := fleet[0].g.Find("provider:openai")
		type flight struct {
			w     *worker
			p     *Path
			t     Ticket
			until time.Time // of its lease; zero without
		}
		var out []flight
		for i := range 60 {
			w := fleet[rapid.IntRange(0, 2).Draw(t, "who")]
			switch rapid.IntRange(0, 6).Draw(t, fmt.Sprint("what ", i)) {
			case 0, 1:
				p, tk, ok := w.dispatch(modelOp())
				if !ok {
					break
				}
				f := flight{w, p, tk, time.Time{}}
				if tk.Held != 0 {
					f.until = s.wall.Add(r.Probe.Lease)
				}
				out = append(out, f)
			case 2, 3:
				if len(out) > 0 {
					n := rapid.IntRange(0, len(out)-1).Draw(t, "which")
					f := out[n]
					out = append(out[:n], out[n+1:]...)
					sig := taxonomy.SignalFailure
					if rapid.IntRange(0, 3).Draw(t, "good") == 0 {
						sig = taxonomy.SignalSuccess
					}
					f.w.settle(f.p, f.t, sig)
				}
			case 4: // crash and restart under a new identity; its calls stay out
				for n := range fleet {
					if fleet[n] == w {
						fleet[n] = spawn()
						fleet[n].load(key, r)
					}
				}
			case 5:
				s.wall = s.wall.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
			case 6:
				w.load(key, r)
			}
			probes := 0
			for _, f := range out {
				if f.until.After(s.wall) {
					probes++
				}
			}
			// A circuit that closed or opened again has voided the leases of
			// its probes; those still out are late and move nothing.
			if live := s.live(key, r, w.now()); live > int(budget) || live > probes {
				t.Fatalf("%d leases in the store, %d probes out, budget %d", live, probes, budget)
			}
		}
	})
}

func newWorkerRapid(t *rapid.T, s *shelf, id uint64, set Setting) *worker {
	token := id << 32
	g, err := NewRegistry(Options{Settings: []Setting{set}, Shared: true, Draw: func() PPM { return 0 },
		Tokens: func() uint64 { token++; return token }})
	if err != nil {
		t.Fatal(err)
	}
	return &worker{g: g, s: s, origin: Instant(id) * 977 * second, start: s.wall}
}

// trip opens the circuit in one process and lets all know.
func trip(fleet []*worker, r *Rule, key string) {
	for range 5 {
		if p, tk, ok := fleet[0].dispatch(modelOp()); ok {
			fleet[0].settle(p, tk, taxonomy.SignalFailure)
		}
	}
	for _, w := range fleet {
		w.load(key, r)
	}
}

// TestFault40: the process with the probe restarts under another identity; when
// its lease has run out, another process may probe.
func TestFault40(t *testing.T) {
	fleet, s, r, key := newFleet(t, 2)
	trip(fleet, r, key)
	s.wall = s.wall.Add(time.Minute)
	if _, tk, ok := fleet[0].dispatch(modelOp()); !ok || tk.Held == 0 {
		t.Fatal("no probe")
	}
	set := enforced("provider", taxonomy.LayerProvider, "provider")
	fleet[0] = newWorker(t, s, 9, set)
	fleet[0].load(key, r)
	for _, w := range fleet {
		w.load(key, r)
		if _, _, ok := w.dispatch(modelOp()); ok {
			t.Fatal("two probes")
		}
	}
	s.wall = s.wall.Add(r.Probe.Lease + r.Probe.Gap)
	if _, tk, ok := fleet[1].dispatch(modelOp()); !ok || tk.Held == 0 {
		t.Fatal("nobody may probe")
	}
}

// TestFault42: the record vanishes from the store while the circuit is open
// here: it does not turn closed. And keys with any byte survive.
func TestFault42(t *testing.T) {
	fleet, s, r, key := newFleet(t, 1)
	trip(fleet, r, key)
	delete(s.docs, key)
	fleet[0].load(key, r)
	if _, _, ok := fleet[0].dispatch(modelOp()); ok {
		t.Fatal("a lost record closed the circuit")
	}
	if d, err := fleet[0].stored(key, r, Event{Kind: Admit, Gives: ModelCall, Token: 5}); err != nil || d.Allow {
		t.Fatalf("the store was given a closed circuit: %+v, %v", d, err)
	}
	rapid.Check(t, func(t *rapid.T) {
		set := Defaults("b", taxonomy.LayerTool, "tool", "tenant", "agent")
		var k []byte
		k = append(k, set.Name...)
		var want []string
		for _, f := range set.Scope {
			v := string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, f))
			k = appendPart(k, f, v)
			want = append(want, v)
		}
		_, parts, err := parseKey(string(k))
		if err != nil || len(parts) != 3 {
			t.Fatal(err)
		}
		for i, p := range parts {
			if p.value != want[i] || p.absent != (want[i] == "") {
				t.Fatalf("part %d: %q became %q", i, want[i], p.value)
			}
		}
		if back, err := set.KeyOf(Scope(string(k))); err != nil || back != string(k) {
			t.Fatalf("%q is shown as %q, which is read as %q, %v", k, Scope(string(k)), back, err)
		}
	})
}

// TestFault43: a probe is out when the shared record vanishes: no second probe
// begins before the first one's lease has ended.
func TestFault43(t *testing.T) {
	fleet, s, r, key := newFleet(t, 2)
	trip(fleet, r, key)
	s.wall = s.wall.Add(time.Minute)
	if _, tk, ok := fleet[0].dispatch(modelOp()); !ok || tk.Held == 0 {
		t.Fatal("no probe")
	}
	fleet[1].load(key, r)
	delete(s.docs, key)
	for range 3 {
		for _, w := range fleet {
			w.load(key, r)
			if _, _, ok := w.dispatch(modelOp()); ok {
				t.Fatal("a second probe beside the first")
			}
		}
		s.wall = s.wall.Add(r.Probe.Lease / 4)
	}
}

// TestFault44: the store fails; the process goes on counting by itself and
// opens, and when the store is back the stricter of the two stands. (What each
// layer admits meanwhile is the engine's rule.)
func TestFault44(t *testing.T) {
	fleet, s, r, key := newFleet(t, 2)
	s.down = true
	trip(fleet, r, key)
	if c, _ := fleet[0].g.Circuit(key); c.State != Open {
		t.Fatalf("it counted nothing: %+v", c)
	}
	s.down = false
	var ev Event
	c, _ := fleet[0].g.Circuit(key)
	ch := Change{Key: key, Rule: r, Transition: Transition{From: Closed, To: Open, Reason: ByConsecutive, Until: c.Until, Version: c.Version}}
	ev, _ = ch.Assert()
	if _, err := fleet[0].stored(key, r, ev); err != nil {
		t.Fatal(err)
	}
	fleet[1].load(key, r)
	if c, _ := fleet[1].g.Circuit(key); c.State != Open {
		t.Fatalf("the fleet does not know: %+v", c)
	}
}

// TestFault45: eight processes, five failures each: the shared record holds 40,
// and no process waits for another one's call.
func TestFault45(t *testing.T) {
	fleet, s, r, key := newFleet(t, 8, func(s *Setting) { s.Rule.Trip.Consecutive = 100; s.Rule.Window.MinSamples = 1000 })
	type out struct {
		w *worker
		p *Path
		t Ticket
	}
	var all []out
	for range 5 { // all 40 are out at once
		for _, w := range fleet {
			p, tk, ok := w.dispatch(modelOp())
			if !ok {
				t.Fatal("refused")
			}
			all = append(all, out{w, p, tk})
		}
	}
	atOnce(len(all), func(i int) { all[i].w.settle(all[i].p, all[i].t, taxonomy.SignalFailure) })
	c, err := Decode(s.docs[key], r, fleet[0].now(), s.wall)
	if err != nil || c.Window.Sum.Failed != 40 || c.Row != 40 {
		t.Fatalf("%v: %+v", err, c.Window.Sum)
	}
}

// TestFault33 (R-BRK-8, R-FLT-10): the wall clock jumps an hour either way while
// the circuit is open: a process that stays up notices nothing, and one that
// reads the record waits at most what the rule could have set.
func TestFault33(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		g := newRig(t)
		g.open()
		wall := time.Unix(1_000_000, 0)
		data := Encode(&g.c, g.now, wall)
		back, err := Decode(data, &g.r, 5*second, wall.Add(jump))
		if err != nil {
			t.Fatal(err)
		}
		left := back.Until.Sub(5 * second)
		if jump < 0 && left != g.r.Cooldown.Base || jump > 0 && left > 0 {
			t.Errorf("clock by %s: %s left", jump, left)
		}
		if back.State != Open {
			t.Error("a jump closed the circuit")
		}
		// Written by a clock that was an hour ahead, with a deadline far off:
		c := g.c
		c.Until = g.now.Add(1000 * time.Hour)
		back, _ = Decode(Encode(&c, g.now, wall), &g.r, 5*second, wall)
		if left := back.Until.Sub(5 * second); left > g.r.Cooldown.longest() {
			t.Errorf("parked for %s", left)
		}
	}
}

// TestRestart (R-BRK-8): a snapshot of many circuits comes back in a process
// with another clock, less the time that passed.
func TestRestart(t *testing.T) {
	set := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	g := newRegistry(t, Options{Settings: []Setting{set}})
	op := modelOp()
	for i := range 50 {
		op.Model = "m" + strconv.Itoa(i)
		p := g.Path(op, second)
		tk, _ := p.Admit(Ask{Operation: op}, second)
		for range i % 6 {
			p.Record(tk, feed(taxonomy.LayerProvider, "model", taxonomy.SignalFailure), failed, second)
		}
	}
	wall := time.Unix(5_000_000, 0)
	data := g.Snapshot(second, wall)
	h := newRegistry(t, Options{Settings: []Setting{set}, FirstSequence: 1000})
	n, err := h.Restore(data, 900*second, wall.Add(10*time.Second))
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	before, after := g.List(false, second), h.List(false, 900*second)
	if len(before) != len(after) {
		t.Fatalf("%d circuits became %d", len(before), len(after))
	}
	for i := range before {
		a, b := before[i], after[i]
		if a.Key != b.Key || a.Circuit.State != b.Circuit.State || a.Circuit.Row != b.Circuit.Row || a.Facts.Tally != b.Facts.Tally {
			t.Errorf("%s: %+v\nbecame %+v", a.Scope, a.Facts, b.Facts)
		}
		if a.Circuit.State == Open && a.RetryAt.Sub(second)-b.RetryAt.Sub(900*second) != 10*time.Second {
			t.Errorf("%s: the cooldown lost something else than 10 s", a.Scope)
		}
	}
	for cut := range data {
		fresh := newRegistry(t, Options{Settings: []Setting{set}})
		if _, err := fresh.Restore(data[:cut], 900*second, wall); err == nil {
			t.Fatalf("a snapshot cut at %d was restored without an error", cut)
		}
	}
}
