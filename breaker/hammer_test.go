package breaker

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// atOnce runs f on n goroutines that begin at the same moment.
func atOnce(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-begin
			f(i)
		})
	}
	ready.Wait()
	close(begin)
	done.Wait()
}

// oneProvider is a registry with one circuit, and its path.
func oneProvider(t testing.TB, o Options, change ...func(*Setting)) (*Registry, *Path, Ask) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	for _, f := range change {
		f(&s)
	}
	o.Settings = []Setting{s}
	g := newRegistry(t, o)
	op := modelOp()
	return g, g.Path(op, second), Ask{Operation: op}
}

var (
	failure = feed(taxonomy.LayerProvider, "provider", taxonomy.SignalFailure)
	success = feed(taxonomy.LayerProvider, "provider", taxonomy.SignalSuccess)
	failed  = Result{Outcome: taxonomy.Failed, Class: taxonomy.TransientTransport}
	fine    = Result{Outcome: taxonomy.Succeeded}
)

// TestFault13: 100 goroutines record failures at once: one transition.
func TestFault13(t *testing.T) {
	g, p, ask := oneProvider(t, Options{})
	var changes atomic.Int64
	atOnce(100, func(int) {
		tk, no := p.Admit(ask, second)
		if no == nil {
			r := p.Record(tk, failure, failed, second)
			changes.Add(int64(len(r.Changes)))
		}
	})
	if n := changes.Load(); n != 1 || g.Sequence() != 2 {
		t.Fatalf("%d transitions, sequence %d", n, g.Sequence())
	}
}

// TestFault14 (R-FLT-8): two hundred goroutines at the end of the cooldown take
// one lease, and there is one transition to half-open.
func TestFault14(t *testing.T) {
	for range 20 {
		g, p, ask := oneProvider(t, Options{})
		key, _ := g.Find("provider:openai")
		if _, err := g.Signal(key, "down", "test", 0, second); err != nil {
			t.Fatal(err)
		}
		now := second + 60*second
		var leases, changes atomic.Int64
		atOnce(200, func(int) {
			tk, no := p.Admit(ask, now)
			if no != nil {
				return
			}
			ch, no := p.Lease(&tk, ask, now)
			changes.Add(int64(len(ch)))
			if no == nil && tk.Held != 0 {
				leases.Add(1)
			}
		})
		if leases.Load() != 1 || changes.Load() != 1 {
			t.Fatalf("%d leases, %d transitions", leases.Load(), changes.Load())
		}
	}
}

// TestFault10: a probe fails while others ask: whoever sees OPEN sees its new
// end too, so nobody slips in between.
func TestFault10(t *testing.T) {
	g, p, ask := oneProvider(t, Options{})
	key, _ := g.Find("provider:openai")
	now := second
	for range 200 {
		if _, err := g.Signal(key, "down", "test", 0, now); err != nil {
			t.Fatal(err)
		}
		c, _ := g.Circuit(key)
		now = c.Until
		tk, _ := p.Admit(ask, now)
		if _, no := p.Lease(&tk, ask, now); no != nil {
			t.Fatal(no)
		}
		atOnce(4, func(i int) {
			if i == 0 {
				p.Record(tk, failure, failed, now)
				return
			}
			for range 20 {
				if tk, no := p.Admit(ask, now); no == nil {
					if _, no = p.Lease(&tk, ask, now); no == nil {
						t.Error("a call slipped in beside the probe")
					}
				}
			}
		})
	}
}

// TestFault11: a transition that is taken back was never counted: what the
// listener heard is what happened.
func TestFault11(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []Change
		quota := enforced("quota", taxonomy.LayerProvider, "credential")
		prov := enforced("provider", taxonomy.LayerProvider, "provider")
		g := newRegistry(t, Options{Settings: []Setting{prov, quota}, Listeners: []func(Change){func(c Change) { heard = append(heard, c) }}})
		op := modelOp()
		op.Credential = "k"
		p := g.Path(op, second)
		for _, scope := range []string{"provider:openai", "quota:k"} {
			key, _ := g.Find(scope)
			if _, err := g.Signal(key, "down", "test", 0, second); err != nil {
				t.Fatal(err)
			}
		}
		now := 100 * second
		ask := Ask{Operation: op}
		a, _ := p.Admit(ask, now)
		b, _ := p.Admit(ask, now)
		if _, no := p.Lease(&a, ask, now); no != nil {
			t.Fatal(no)
		}
		if _, no := p.Lease(&b, ask, now); no == nil {
			t.Fatal("two leases")
		}
		synctest.Wait()
		half := 0
		for _, c := range heard {
			if c.To == HalfOpen {
				half++
			}
		}
		if len(heard) != 4 || half != 2 {
			t.Fatalf("heard %d changes, %d of them to half-open", len(heard), half)
		}
	})
}

// TestFault15: however many contend, an answer takes a bounded number of steps:
// counting beside the lock gives up after four tries and takes the lock.
func TestFault15(t *testing.T) {
	g, p, ask := oneProvider(t, Options{})
	const each, workers = 2000, 16
	atOnce(workers, func(int) {
		for range each {
			tk, no := p.Admit(ask, second)
			if no != nil {
				t.Error("refused")
				return
			}
			p.Record(tk, success, fine, second)
		}
	})
	if l := g.List(true, second); l[0].Facts.Tally.OK != each*workers {
		t.Fatalf("%d successes counted of %d", l[0].Facts.Tally.OK, each*workers)
	}
}

// TestFault28 (also property 26): a listener that reads state, admits and
// records does not deadlock, and hears changes in the order of their numbers.
func TestFault28(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *Registry
		var heard []uint64
		ask := Ask{Operation: modelOp()}
		g, p, _ := oneProvider(t, Options{Listeners: []func(Change){func(c Change) {
			heard = append(heard, c.Sequence)
			g.List(true, second)
			q := g.Path(modelOp(), second)
			if tk, no := q.Admit(ask, second); no == nil {
				q.Record(tk, success, fine, second)
			}
			if _, err := g.Show(c.Key, second); err != nil {
				t.Error(err)
			}
		}}})
		atOnce(8, func(i int) {
			for n := range 50 {
				key, _ := g.Find("provider:p" + strconv.Itoa((i*50+n)%40))
				_, _ = g.Signal(key, "down", "test", 0, second)
			}
			tk, _ := p.Admit(ask, second)
			p.Record(tk, failure, failed, second)
		})
		synctest.Wait()
		if !slices.IsSorted(heard) || len(heard) < 40 {
			t.Fatalf("%d heard, in order: %v", len(heard), slices.IsSorted(heard))
		}
	})
}

// TestFault29: one listener panics, one ends its goroutine, one blocks; the
// others and the callers notice nothing, and what comes later still arrives.
func TestFault29(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := [4]int{}
		unblock := make(chan struct{})
		g, _, _ := oneProvider(t, Options{Listeners: []func(Change){
			func(Change) { heard[0]++; panic("listener") },
			func(Change) { heard[1]++; runtime.Goexit() },
			func(Change) { <-unblock; heard[2]++ },
			func(Change) { heard[3]++ },
		}})
		for i := range 10 {
			key, _ := g.Find("provider:p" + strconv.Itoa(i))
			if _, err := g.Signal(key, "down", "test", 0, second); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if heard != [4]int{10, 10, 0, 10} {
			t.Fatalf("heard %v", heard)
		}
		close(unblock)
		synctest.Wait()
		if heard[2] != 10 {
			t.Fatalf("heard %v", heard)
		}
		if lost, bad := g.Undelivered(); lost != 0 || bad != 20 {
			t.Fatalf("lost %d, failed %d", lost, bad)
		}
	})
}

// TestBlockedListenerIsBounded: a listener that never returns costs a bounded
// backlog, and what it missed is counted.
func TestBlockedListenerIsBounded(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	b := &mailbox{hear: func(Change) { <-block }}
	for range 70 {
		b.post(make([]Change, 1000))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count != maxWaiting || len(b.waiting) != maxWaiting || b.lost < 70_000-maxWaiting-1 {
		t.Fatalf("%d waiting in %d places, %d lost", b.count, len(b.waiting), b.lost)
	}
}

// TestFault31: 100,000 keys come and go; no goroutine stays.
func TestFault31(t *testing.T) {
	g, _, _ := oneProvider(t, Options{MaxCircuits: 1000})
	before := runtime.NumGoroutine()
	op := modelOp()
	for i := range 100_000 {
		op.Provider = "p" + strconv.Itoa(i)
		p := g.Path(op, Instant(i)*ms)
		if i%1000 == 0 {
			p.Record(Ticket{Sequence: g.Sequence()}, success, fine, Instant(i)*ms)
		}
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Fatalf("%d goroutines, %d before", n, before)
	}
	if n := g.Len(); n > 1001 {
		t.Fatalf("%d circuits kept", n)
	}
}

// TestFault32 (R-BRK-2): ten times as many keys as there is room for, a tenth of
// them open: every side table stays bounded, and no open circuit is forgotten.
func TestFault32(t *testing.T) {
	const room = 500
	s := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	g := newRegistry(t, Options{Settings: []Setting{s}, MaxCircuits: room})
	op := modelOp()
	var opened []string
	shared := 0
	now := second
	for i := range 10 * room {
		op.Model = "m" + strconv.Itoa(i)
		p := g.Path(op, now)
		if p.Shared {
			shared++
		}
		if i%10 == 0 && len(opened) < room/4 {
			key, _ := g.Find("provider:openai/" + op.Model)
			if _, err := g.Signal(key, "down", "test", 0, now); err == nil {
				opened = append(opened, key)
			}
		} else {
			tk, _ := p.Admit(Ask{Operation: op}, now)
			p.Record(tk, feed(taxonomy.LayerProvider, "model", taxonomy.SignalSuccess), fine, now)
		}
		now += 200 * ms
	}
	for _, key := range opened {
		if c, ok := g.Circuit(key); !ok || c.State != Open {
			t.Fatalf("%s was forgotten", Scope(key))
		}
	}
	k := g.conf.Load().list[0]
	if g.Len() > room+1 || len(k.nodes) > room+1 || len(g.paths) > maxPaths || len(g.awake) != len(opened) {
		t.Fatalf("%d circuits, %d listed, %d paths, %d awake", g.Len(), len(k.nodes), len(g.paths), len(g.awake))
	}
	parent := g.nodes["provider|provider=6:openai"]
	if len(*parent.kids) > room {
		t.Fatalf("%d children", len(*parent.kids))
	}
	if len(opened) == 0 || shared > 5*room {
		t.Fatalf("%d opened, %d shared", len(opened), shared)
	}
}

// TestParentShared (R-BRK-2): with no room and nothing idle, a new key shares
// its parent's circuit, says so, and is refused when that one is open.
func TestParentShared(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	g := newRegistry(t, Options{Settings: []Setting{s}, MaxCircuits: 3})
	op := modelOp()
	for i := range 6 {
		op.Model = "m" + strconv.Itoa(i)
		p := g.Path(op, second)
		tk, _ := p.Admit(Ask{Operation: op}, second)
		p.Record(tk, feed(taxonomy.LayerProvider, "model", taxonomy.SignalFailure), failed, second)
		if p.Shared != (i >= 2) {
			t.Fatalf("key %d: shared is %v", i, p.Shared)
		}
	}
	p := g.Path(op, second)
	if c, _ := g.Circuit("provider|provider=6:openai"); c.Row != 4 {
		t.Fatalf("the parent counted %d failures of 4", c.Row)
	}
	tk, _ := p.Admit(Ask{Operation: op}, second)
	p.Record(tk, feed(taxonomy.LayerProvider, "model", taxonomy.SignalFailure), failed, second)
	if _, no := p.Admit(Ask{Operation: op}, second); no == nil || no.Scope != "provider:openai" {
		t.Fatalf("%+v", no)
	}
	op.Provider = "other"
	if q := g.Path(op, second); !q.Shared || len(q.nodes) != 1 || q.nodes[0].key != "provider" {
		t.Fatalf("a key without a parent: %+v", q)
	}
}

// TestEvictedUnderAPath: a circuit is forgotten while a path still names it;
// what the path records goes to the one that took its key, and no answer is
// lost or misplaced (property 20 in the registry).
func TestEvictedUnderAPath(t *testing.T) {
	g, old, ask := oneProvider(t, Options{MaxCircuits: 1})
	now := second
	tk, _ := old.Admit(ask, now)
	now = now.Add(2 * time.Hour)
	other := modelOp()
	other.Provider = "other"
	g.Path(other, now) // takes the only place
	if _, ok := g.Circuit(old.nodes[0].key); ok {
		t.Fatal("not evicted")
	}
	for range 5 {
		r := old.Record(tk, failure, failed, now)
		if r.Err() != nil || len(r.Touched()) != 1 {
			t.Fatalf("%+v", r)
		}
	}
	if _, no := old.Admit(ask, now); no == nil || no.Scope != "provider:openai" || old.Current() {
		t.Fatalf("the old path does not see the circuit that took the key: %+v", no)
	}
	if l := g.List(false, now); len(l) != 1 || l[0].Circuit.State != Open {
		t.Fatalf("%+v", l)
	}
}

// TestHammer: everything at once, under -race; afterwards the books balance.
func TestHammer(t *testing.T) {
	var heard atomic.Int64
	s := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	s.Rollup = Rollup{Children: 3, Share: One / 2}
	g := newRegistry(t, Options{Settings: []Setting{s}, MaxCircuits: 8, Listeners: []func(Change){func(c Change) { heard.Add(1) }}})
	var clock atomic.Int64
	clock.Store(int64(second))
	var live [8]atomic.Int64
	atOnce(8, func(i int) {
		op := modelOp()
		for n := range 400 {
			now := Instant(clock.Add(int64(50 * ms)))
			op.Model, op.Attempt = "m"+strconv.Itoa((i+n)%6), int64(n)
			p := g.Path(op, now)
			ask := Ask{Operation: op}
			tk, no := p.Admit(ask, now)
			if no != nil {
				continue
			}
			if tk.Needs() {
				if _, no := p.Lease(&tk, ask, now); no != nil {
					continue
				}
			}
			fs, res := feed(taxonomy.LayerProvider, "model", taxonomy.SignalSuccess), fine
			switch (n + i) % 5 {
			case 0:
				fs, res = feed(taxonomy.LayerProvider, "model", taxonomy.SignalFailure), failed
			case 1:
				p.Release(tk, now)
				continue
			case 2:
				p.Renew(tk, 0, now)
			}
			p.Record(tk, fs, res, now)
			switch n % 50 {
			case 7:
				g.Tick(now)
			case 13:
				g.List(true, now)
			case 19:
				key, _ := g.Find("provider:openai/" + op.Model)
				_, _ = g.Override(key, Override{Kind: ForcedOpen, Until: now + second, By: "ann", Why: "x"}, now)
			case 23:
				_, _ = g.Swap([]Setting{s}, now)
			case 29:
				g.Snapshot(now, time.Unix(1, 0))
			}
		}
		live[i].Store(1)
	})
	now := Instant(clock.Load())
	for _, l := range g.List(true, now) {
		var sum Tally
		for _, b := range l.Circuit.Window.Ring {
			sum = Tally{sum.OK + b.OK, sum.Slow + b.Slow, sum.Failed + b.Failed, sum.Unknown + b.Unknown}
		}
		if sum != l.Circuit.Window.Sum {
			t.Errorf("%s: sums %+v, buckets %+v", l.Scope, l.Circuit.Window.Sum, sum)
		}
		if n := l.Circuit.live(); n > 1 || n > 0 && l.Circuit.State != HalfOpen {
			t.Errorf("%s: %d leases in %s", l.Scope, n, l.Circuit.State)
		}
	}
}
