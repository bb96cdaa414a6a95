package wasm

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/wasm/hostile"
)

// hostileConfig is how a case is loaded. One instance, so that every call meets
// what the last one left; no bench, so that every call reaches the module.
func hostileConfig(c hostile.Case) Config {
	cfg := Config{Name: "hostile", SHA256: pin(c.Wasm), Log: c.Log, Instances: 1, Bench: BenchRule{Failures: 1 << 30},
		Vocabulary: Vocabulary{Reasons: hostile.Reasons, Facts: hostile.Facts}}
	if c.Go {
		cfg.Profile = Go
		cfg.Limits.Fuel = 100_000_000
	}
	return cfg
}

// unknownWrite is a dispatched write that nobody knows the fate of: what a
// module must not touch.
func unknownWrite(c hostile.Case) (*taxonomy.Observation, taxonomy.Verdict) {
	o := billing()
	o.Operation.Effect, o.Operation.Tool = taxonomy.NonRepeatable, c.Tool
	o.Response.Status = 500
	if c.Bytes > 0 {
		o.Response.Body = strings.Repeat("x", c.Bytes)
	}
	return o, taxonomy.Verdict{Outcome: taxonomy.Unknown, Class: taxonomy.AmbiguousWrite, Reason: "http_500"}
}

func rejection() *taxonomy.FallbackInput {
	return &taxonomy.FallbackInput{Operation: &billing().Operation, Rejection: &taxonomy.Rejection{Breaker: "tool", Reason: "circuit_open"},
		Candidates: []taxonomy.Candidate{{ID: "a", Kind: "queued"}, {ID: "b", Kind: "human"}}}
}

func askCase(t testing.TB, m *Module, c hostile.Case) (Answer, error) {
	if c.Chooser {
		return m.AskFallback(t.Context(), rejection())
	}
	obs, builtin := unknownWrite(c)
	return m.AskClassifier(t.Context(), obs, builtin)
}

// healthy asks the question that hostile modules decline politely.
func healthy(t testing.TB, m *Module, c hostile.Case) {
	t.Helper()
	var err error
	ok := true
	if c.Never {
		return
	}
	if c.Chooser {
		_, ok, err = m.Classify(t.Context(), billing(), forbidden)
	} else {
		_, ok, err = m.Fallback(t.Context(), rejection())
	}
	if ok || err != nil {
		t.Errorf("the next call is not healthy: ok %v, %v", ok, err)
	}
}

func code(err error) Code {
	if e, ok := errors.AsType[*CallError](err); ok {
		return e.Fault
	}
	if e, ok := errors.AsType[*LoadError](err); ok {
		return e.Code
	}
	return ""
}

func allocated() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.TotalAlloc
}

// Most that refusing a file, or one call, may allocate on the host, its native
// stack included.
const hostMost = 192 << 20

// TestHostile meets every hostile module (R-WASM-2): the named error, bounded
// work and memory, the instance thrown away where anything ran off, the same
// again on the second call, and a healthy call after it (R-WASM-3).
func TestHostile(t *testing.T) {
	for _, c := range hostile.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			before := allocated()
			cfg := hostileConfig(c)
			if c.Tool != "" { // one file does many things; in Go it compiles for a second
				meet(t, loadOnce(t, c.Wasm, cfg), c)
				return
			}
			m, err := Load(t.Context(), c.Wasm, cfg)
			if code(err) != Code(c.Load) {
				t.Fatalf("load: %v, want %q", err, c.Load)
			}
			if used := allocated() - before; used > hostMost {
				t.Errorf("loading allocated %d MiB", used>>20)
			}
			if err != nil {
				printableText(t, err.Error())
				if n := len(err.Error()); n > 1000 {
					t.Errorf("a refusal of %d bytes", n)
				}
			}
			if err == nil {
				meet(t, m, c)
				m.Close()
			}
		})
	}
}

func meet(t *testing.T, m *Module, c hostile.Case) {
	before, discarded := allocated(), m.Stats().Discarded
	a, err := askCase(t, m, c)
	want := Code(c.Call)
	if got := a.Info.Code; c.Name != "go_recursion" && got != want {
		t.Fatalf("call: %q %v, want %q", got, err, want)
	}
	if want != "" && want != Declined && code(err) != want {
		t.Fatalf("call: %v, want %q", err, want)
	}
	if used := allocated() - before; used > hostMost {
		t.Errorf("the call allocated %d MiB", used>>20)
	}
	// Work is bounded by fuel; the last charge may overdraw it by its own size.
	if a.Info.Fuel <= 0 || a.Info.Fuel > m.gen.limits.Fuel+1<<29 {
		t.Errorf("fuel %d", a.Info.Fuel)
	}
	if int64(a.Info.Memory) > m.gen.limits.MemoryBytes {
		t.Errorf("memory %d", a.Info.Memory)
	}
	if a.Info.Input == (Digest{}) {
		t.Error("no input digest for the receipt")
	}
	threw := m.Stats().Discarded - discarded
	if failed := code(err) != ""; failed && c.Keeps != (threw == 0) {
		t.Errorf("%d instances thrown away, keeps %v", threw, c.Keeps)
	}
	bounded(t, m, a)
	if e, ok := errors.AsType[*CallError](err); ok {
		if e.Code() != string(e.Info.Code) || !errors.Is(err, &CallError{Fault: e.Fault}) {
			t.Errorf("the error says %q, its info %q", e.Code(), e.Info.Code)
		}
		printableText(t, e.Error())
		for _, s := range e.Stack {
			printableText(t, s)
		}
	}
	healthy(t, m, c)
	b, err2 := askCase(t, m, c)
	if a.Info.Code != b.Info.Code || a.Info.Fuel != b.Info.Fuel || string(a.Raw) != string(b.Raw) {
		t.Errorf("the second call differs: %q %d %q, then %q %d %q (%v)", a.Info.Code, a.Info.Fuel, a.Raw, b.Info.Code, b.Info.Fuel, b.Raw, err2)
	}
	if len(a.Info.Lines) != len(b.Info.Lines) || a.Info.Dropped != b.Info.Dropped || a.Info.Stderr != b.Info.Stderr {
		t.Errorf("the second call's log is another: %d lines, %d dropped, then %d and %d", len(a.Info.Lines), a.Info.Dropped, len(b.Info.Lines), b.Info.Dropped)
	}
	healthy(t, m, c)
	if c.Refused != "" {
		obs, builtin := unknownWrite(c)
		v, refused := taxonomy.Floor(&obs.Operation, obs, builtin, a.Verdict)
		if refused != c.Refused || v.Outcome != taxonomy.Unknown {
			t.Errorf("the floor refused %q and left %s, want %q and UNKNOWN", refused, v.Outcome, c.Refused)
		}
	}
}

// bounded checks what a module could write into logs.
func bounded(t *testing.T, m *Module, a Answer) {
	l := m.gen.limits
	total := 0
	for _, line := range a.Info.Lines {
		total += len(line.Text)
		printableText(t, line.Text)
	}
	// An escaped byte takes four, \x1b.
	if len(a.Info.Lines) > l.LogLines || total > 6*l.LogBytes || len(a.Info.Stderr) > 6*stderrMost {
		t.Errorf("%d log lines of %d bytes, %d bytes of stderr", len(a.Info.Lines), total, len(a.Info.Stderr))
	}
	printableText(t, a.Info.Stderr)
}

func printableText(t *testing.T, s string) {
	t.Helper()
	for _, r := range s {
		if r < 0x20 || r == 0x7f || r == '\u202e' || r == '\uFFFD' {
			t.Fatalf("unprintable %U in %q", r, s)
		}
	}
}

// TestHostileCollection keeps the collection whole: every source is a case, and
// there are at least the ninety that were promised.
func TestHostileCollection(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range hostile.Cases() {
		if seen[c.Name] {
			t.Errorf("%s is there twice", c.Name)
		}
		seen[c.Name] = true
	}
	for _, name := range hostile.Sources() {
		if !seen[name] {
			t.Errorf("wat/%s.wat is no case", name)
		}
	}
	if len(seen) < 90 {
		t.Errorf("%d cases", len(seen))
	}
	t.Logf("%d cases", len(seen))
}

// TestHostileTruncated cuts a good module at every byte.
func TestHostileTruncated(t *testing.T) {
	c, _ := hostile.Named("manifest_fine")
	for n := range len(c.Wasm) {
		cut := c.Wasm[:n]
		m, err := Load(t.Context(), cut, hostileConfig(hostile.Case{Wasm: cut}))
		if err == nil { // only where a whole number of sections is left, and they suffice
			if n < len(c.Wasm)-200 {
				t.Errorf("cut at %d of %d: loaded", n, len(c.Wasm))
			}
			m.Close()
		}
	}
}

// TestAtTheLimit: what lies just inside the limits loads and answers, so that
// the limits are not tighter than they say, and takes bounded memory to compile.
// BenchmarkAtTheLimit shows how long the worst of them takes.
func TestAtTheLimit(t *testing.T) {
	slow := map[string]bool{"limit_bulk": true, "limit_merge_deep": true, "limit_across": true}
	for _, c := range append(hostile.AtTheLimit(), hostile.AtTheLimitGo()...) {
		if testing.Short() || slow[c.Name] || c.Go {
			// These take a second and more each; admission is what is tested.
			cfg, _ := hostileConfig(c).check()
			if _, _, err := admit(c.Wasm, &cfg); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
			continue
		}
		before := allocated()
		m := load(t, c.Wasm, hostileConfig(c))
		if used := allocated() - before; used > hostMost {
			t.Errorf("%s: compiling allocated %d MiB", c.Name, used>>20)
		}
		if _, err := askCase(t, m, c); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// BenchmarkAtTheLimit loads the hardest modules that are admitted. A compile
// cannot be interrupted: that all of them end well inside the budget that Load
// gives the compiler is what makes a compile in a process of its own needless.
func BenchmarkAtTheLimit(b *testing.B) {
	worst, most := time.Duration(0), uint64(0)
	for _, c := range append(hostile.AtTheLimit(), hostile.AtTheLimitGo()...) {
		b.Run(c.Name, func(b *testing.B) {
			for b.Loop() {
				cfg := hostileConfig(c)
				cfg.Limits.Compile = 10 * time.Minute // whatever the machine; the bound is below
				before, start := allocated(), time.Now()
				m, err := Load(b.Context(), c.Wasm, cfg)
				if err != nil {
					b.Fatal(err)
				}
				m.Close()
				worst, most = max(worst, time.Since(start)), max(most, allocated()-before)
			}
		})
	}
	budget := Limits{}.withDefaults(Go).Compile.Seconds()
	ratio("wasm_worst_admitted_load_s", worst.Seconds(), budget)
	ratio("wasm_worst_admitted_load_mib", float64(most>>20), 512)
}

func ratio(name string, value, most float64) {
	verdict := "ok"
	if value > most {
		verdict = "short"
	}
	fmt.Printf("RATIO %s %.3g %g %s\n", name, value, most, verdict)
}
