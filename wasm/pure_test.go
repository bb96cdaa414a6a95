package wasm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/wasm/hostile"
)

// shared keeps modules that take a second to compile for all tests.
var shared sync.Map

// loadOnce loads a module or returns the one loaded before.
func loadOnce(t testing.TB, file []byte, c Config) *Module {
	t.Helper()
	key := fmt.Sprint(c.SHA256, c.Profile, c.Instances, c.Limits)
	if m, ok := shared.Load(key); ok {
		return m.(*Module)
	}
	m, err := Load(context.Background(), file, c)
	if err != nil {
		t.Fatal(err)
	}
	shared.Store(key, m)
	return m
}

func loadedGo(t testing.TB) *Module {
	file, c := acmeGo(t)
	return loadOnce(t, file, c)
}

// guest is one module of an SDK with a document it has an opinion on.
type guestModule struct {
	name string
	file []byte
	cfg  Config
	obs  *taxonomy.Observation
}

// guests are worked modules, one for each SDK.
func guests(t testing.TB) []guestModule {
	c, cc := acme(t)
	g, gc := acmeGo(t)
	out := []guestModule{{"c", c, cc, billing()}, {"go", g, gc, overdue()}}
	for _, m := range []struct{ name, path, body string }{
		{"assemblyscript", "../sdk/guest/assemblyscript/examples/block_page.wasm", strings.Repeat("words ", 500) + "<div id='cf-challenge'>"},
		{"wat", "../sdk/guest/wat/maintenance.wasm", "back soon"},
	} {
		file := read(t, m.path)
		cfg, err := ConfigFor(file)
		if err != nil {
			t.Fatal(err)
		}
		obs := billing()
		obs.Operation.Tool, obs.Operation.Effect, obs.Response.Body = "browser", taxonomy.ReadOnly, m.body
		if obs.Response.Status = 200; m.name == "wat" {
			obs.Response.Status = 503
		}
		out = append(out, guestModule{m.name, file, cfg, obs})
	}
	return out
}

// TestPure: the same input gives the same answer and the same fuel, whatever was
// asked before, on which instance, and with how many threads (R-WASM-5).
func TestPure(t *testing.T) {
	for _, g := range guests(t) {
		t.Run(g.name, func(t *testing.T) {
			g.cfg.Instances = 3
			m := loadOnce(t, g.file, g.cfg)
			want, err := m.AskClassifier(t.Context(), g.obs, forbidden)
			if err != nil {
				t.Fatal(err)
			}
			for _, procs := range []int{1, 2, 4} {
				old := runtime.GOMAXPROCS(procs)
				var wg sync.WaitGroup
				for w := range 3 {
					wg.Go(func() {
						for i := range 60 {
							other := *g.obs
							other.Operation.Tenant = strings.Repeat("t", (w*60+i)%100)
							if _, err := m.AskClassifier(t.Context(), &other, forbidden); err != nil {
								t.Error(err)
								return
							}
							a, err := m.AskClassifier(t.Context(), g.obs, forbidden)
							if err != nil || a.Info.Fuel != want.Info.Fuel || !bytes.Equal(a.Raw, want.Raw) || a.Info.Output != want.Info.Output {
								t.Errorf("procs %d: fuel %d answer %s (%v), want %d %s", procs, a.Info.Fuel, a.Raw, err, want.Info.Fuel, want.Raw)
								return
							}
						}
					})
				}
				wg.Wait()
				runtime.GOMAXPROCS(old)
			}
			if g.cfg.Profile == Go {
				return // a second load takes a second; the next test has one on another engine
			}
			again, err := load(t, g.file, g.cfg).AskClassifier(t.Context(), g.obs, forbidden)
			if err != nil || again.Info.Fuel != want.Info.Fuel || !bytes.Equal(again.Raw, want.Raw) {
				t.Errorf("loaded again: fuel %d answer %s (%v), want %d %s", again.Info.Fuel, again.Raw, err, want.Info.Fuel, want.Raw)
			}
		})
	}
}

// TestStateLeak: what a guest writes into memory or globals is gone before the
// next call, on both ways of restoring (R-WASM-2).
func TestStateLeak(t *testing.T) {
	for _, name := range []string{"state_leak_global", "state_leak_memory", "state_leak_float", "reads_earlier_input", "go_leak",
		"go_map_order", "go_clock", "go_goroutine_leak", "c_scribble"} {
		c, ok := hostile.Named(name)
		if !ok {
			t.Fatal(name)
		}
		m := loadOnce(t, c.Wasm, hostileConfig(c))
		for _, drop := range []bool{false, true} {
			in := taken(t, m)
			var first Answer
			obs, builtin := unknownWrite(c)
			for i := range 50 {
				doc := taxonomy.AppendClassifyInput(nil, obs, &builtin)
				if i%3 == 1 { // something else in between
					other := *obs
					other.Operation.Tool = "other"
					other.Response = &taxonomy.Response{Status: 418, Body: strings.Repeat("secret of another tenant ", 300)}
					doc = taxonomy.AppendClassifyInput(nil, &other, &builtin)
				}
				var a Answer
				f := in.call(Classifier, doc, &a)
				if f != nil {
					t.Fatalf("%s: %v", name, f)
				}
				if drop && in.mem.size == len(m.gen.image.bytes) && in.mem.dropAll() {
					in.restoreGlobals()
				} else if !in.restore() { // it grew, and is replaced
					in.close()
					next, err := m.gen.clone()
					if err != nil {
						t.Fatal(err)
					}
					in = next
				}
				if !bytes.Equal(in.mem.buf[:in.mem.size], m.gen.image.bytes) {
					t.Fatalf("%s: memory differs from the image after call %d", name, i)
				}
				if i == 0 {
					first = a
				} else if i%3 != 1 && (a.Info.Fuel != first.Info.Fuel || !bytes.Equal(a.Raw, first.Raw)) {
					t.Fatalf("%s: call %d: %d %s, then %d %s", name, i, first.Info.Fuel, first.Raw, a.Info.Fuel, a.Raw)
				}
			}
			m.keep(in)
		}
	}
}

// TestRefusedGrowth: that a memory could not grow explains a trap of the same
// call and of no later one.
func TestRefusedGrowth(t *testing.T) {
	grow, _ := hostile.Named("c_grow_refused")
	trap, _ := hostile.Named("c_trap_stack")
	m := loadOnce(t, grow.Wasm, hostileConfig(grow))
	for range 3 {
		if a, err := askCase(t, m, grow); err != nil || !a.OK {
			t.Fatal(err)
		}
		if _, err := askCase(t, m, trap); code(err) != "trap:unreachable" {
			t.Fatalf("%v, want trap:unreachable", err)
		}
	}
}

// TestStateLeakGuests: the memory of a worked module of every SDK is the same
// before and after each call, byte for byte.
func TestStateLeakGuests(t *testing.T) {
	for _, g := range guests(t) {
		m := loadOnce(t, g.file, g.cfg)
		in := taken(t, m)
		for i := range 20 {
			obs := *g.obs
			obs.Operation.Tenant = strings.Repeat("x", i)
			var a Answer
			if f := in.call(Classifier, taxonomy.AppendClassifyInput(nil, &obs, &forbidden), &a); f != nil || !a.OK {
				t.Fatalf("%s: %+v, ok %v", g.name, f, a.OK)
			}
			if !in.restore() || !bytes.Equal(in.mem.buf[:in.mem.size], m.gen.image.bytes) {
				t.Fatalf("%s: the memory differs after call %d", g.name, i)
			}
		}
		m.keep(in)
	}
}

// TestInterpreter: another engine gives the same answers and the same fuel, so
// that a receipt can be replayed on another platform.
func TestInterpreter(t *testing.T) {
	for _, g := range guests(t) {
		want, err := loadOnce(t, g.file, g.cfg).AskClassifier(t.Context(), g.obs, forbidden)
		if err != nil {
			t.Fatal(err)
		}
		g.cfg.Interpreter = true
		got, err := load(t, g.file, g.cfg).AskClassifier(t.Context(), g.obs, forbidden)
		if err != nil || got.Info.Fuel != want.Info.Fuel || !bytes.Equal(got.Raw, want.Raw) {
			t.Errorf("%s: interpreter %d %s (%v), compiler %d %s", g.name, got.Info.Fuel, got.Raw, err, want.Info.Fuel, want.Raw)
		}
	}
	for _, c := range hostile.Cases() {
		if c.Load != "" || c.Tool != "" || c.Go || c.Call == "fuel_exhausted" || c.Call == "stack_overflow" || c.Never { // the interpreter's own stack ends at 2,000 calls
			continue
		}
		cfg := hostileConfig(c)
		a, _ := askCase(t, load(t, c.Wasm, cfg), c)
		cfg.Interpreter = true
		b, _ := askCase(t, load(t, c.Wasm, cfg), c)
		if a.Info.Code != b.Info.Code || a.Info.Fuel != b.Info.Fuel || !bytes.Equal(a.Raw, b.Raw) {
			t.Errorf("%s: compiler %q %d, interpreter %q %d", c.Name, a.Info.Code, a.Info.Fuel, b.Info.Code, b.Info.Fuel)
		}
	}
}

// resident is the process's resident memory in bytes; ok is false where the
// platform does not tell.
func resident() (int64, bool) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(b))
	pages, err := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}

// mappings counts the process's memory mappings: a leaked memory shows here
// even when nobody touched it.
func mappings() int {
	b, _ := os.ReadFile("/proc/self/maps")
	return bytes.Count(b, []byte("\n"))
}

func files() int {
	e, _ := os.ReadDir("/proc/self/fd")
	return len(e)
}

// TestFlat: loads, calls and failures leave nothing behind. FUSEBOX_LONG=1 makes
// it the 1,000 loads and 100,000 calls that are promised.
func TestFlat(t *testing.T) {
	loads, calls := 60, 3_000
	if os.Getenv("FUSEBOX_LONG") != "" {
		loads, calls = 1_000, 100_000
	}
	if _, ok := resident(); !ok {
		t.Skip("this platform does not tell its resident memory")
	}
	file, cfg := acme(t)
	trap, _ := hostile.Named("c_trap_stack")
	trapObs, trapBuiltin := unknownWrite(trap)
	round := func(n int) {
		m, err := Load(context.Background(), file, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			if _, ok, err := m.Classify(context.Background(), billing(), forbidden); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		m.Close()
		h, err := Load(context.Background(), trap.Wasm, hostileConfig(trap))
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, _, err := h.Classify(context.Background(), trapObs, trapBuiltin); code(err) != "trap:unreachable" {
				t.Fatal(err)
			}
		}
		h.Close()
	}
	settle := func() (int64, int, int) {
		for range 3 {
			runtime.GC()
		}
		debug.FreeOSMemory()
		r, _ := resident()
		return r, mappings(), files()
	}
	for range 10 {
		round(calls / loads)
	}
	r0, m0, f0 := settle()
	for range loads {
		round(calls / loads)
	}
	r1, m1, f1 := settle()
	t.Logf("%d loads and %d calls: resident %d to %d KiB, mappings %d to %d, files %d to %d", 2*loads, calls, r0>>10, r1>>10, m0, m1, f0, f1)
	if r1 > r0+16<<20 {
		t.Errorf("resident memory grew from %d to %d KiB", r0>>10, r1>>10)
	}
	if m1 > m0+20 || f1 > f0+2 {
		t.Errorf("mappings grew from %d to %d, files from %d to %d", m0, m1, f0, f1)
	}
}

// proportional is the process's share of the memory that is resident for it: a
// page of a memory file that many instances map counts once, not once for each.
func proportional() (int64, bool) {
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, false
	}
	_, rest, ok := strings.Cut(string(b), "\nPss:")
	kb, err := strconv.ParseInt(strings.Fields(rest + " x")[0], 10, 64)
	return kb << 10, ok && err == nil
}

// TestInstanceMemory: a further instance of the Go example costs at most 512 KiB.
func TestInstanceMemory(t *testing.T) {
	if _, ok := proportional(); !ok {
		t.Skip("this platform does not tell its resident memory")
	}
	m := loadedGo(t)
	doc := taxonomy.AppendClassifyInput(nil, overdue(), &forbidden)
	var all []*instance
	more := func(n int) {
		for range n {
			in, err := m.gen.clone()
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				var a Answer
				if f := in.call(Classifier, doc, &a); f != nil || !in.restore() {
					t.Fatal(f)
				}
			}
			all = append(all, in)
		}
	}
	measure := func() int64 {
		runtime.GC()
		debug.FreeOSMemory()
		r, _ := proportional()
		return r
	}
	more(5)
	before := measure()
	const n = 40
	more(n)
	each := (measure() - before) / n
	t.Logf("memory per further instance: %d KiB", each>>10)
	if each > 512<<10 {
		t.Errorf("memory per further instance: %d KiB, at most 512", each>>10)
	}
	for _, in := range all {
		in.close()
	}
}

// TestHotSwap replaces the module under load: no call is lost, and none is
// answered by a generation that was closed (R-WASM-5).
func TestHotSwap(t *testing.T) {
	file, cfg := acme(t)
	current := make(chan *Module, 1) // stands for the atomic pointer and its acquire
	first, err := Load(t.Context(), file, cfg)
	if err != nil {
		t.Fatal(err)
	}
	current <- first
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered, before := 0, goroutines()
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				m := <-current
				ok := m.Acquire()
				current <- m
				if !ok {
					t.Error("the module in force is closed")
					return
				}
				a, err := m.AskClassifier(context.Background(), billing(), forbidden)
				m.Release()
				if err != nil || !a.OK {
					t.Errorf("a call was lost: ok %v, %v", a.OK, err)
					return
				}
				mu.Lock()
				answered++
				mu.Unlock()
			}
		})
	}
	for i := range 30 {
		c := cfg
		c.Version = fmt.Sprint(i)
		next, err := Load(t.Context(), file, c)
		if err != nil {
			t.Fatal(err)
		}
		old := <-current
		current <- next
		old.Close()
	}
	close(stop)
	wg.Wait()
	last := <-current
	last.Close()
	if last.Acquire() {
		t.Error("a closed module without users can be acquired")
	}
	if _, _, err := last.Classify(t.Context(), billing(), forbidden); code(err) != Closed {
		t.Errorf("a call after close: %v", err)
	}
	if answered == 0 {
		t.Error("no call was made")
	}
	t.Logf("%d calls over 30 swaps", answered)
	for range 100 { // refills end by themselves
		if goroutines() <= before+4 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func goroutines() int { return runtime.NumGoroutine() }
