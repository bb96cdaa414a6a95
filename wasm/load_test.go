package wasm

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/wasm/hostile"
)

// TestPin: a file that is not the pinned one is never parsed (R-WASM-5).
func TestPin(t *testing.T) {
	b, c := acme(t)
	c.SHA256 = strings.Repeat("0", 64)
	_, err := Load(t.Context(), b, c)
	if code(err) != DigestMismatch || !strings.Contains(err.Error(), pin(b)) {
		t.Errorf("%v, want digest_mismatch with the file's digest", err)
	}
	c.SHA256 = strings.ToUpper(pin(b)) // hex digits of either case
	load(t, b, c)
}

func TestSignature(t *testing.T) {
	b, c := acme(t)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, _ := ed25519.GenerateKey(nil)
	good := Sign(private, b)
	for _, k := range []struct {
		name string
		key  ed25519.PublicKey
		sig  []byte
		want Code
	}{
		{"right", public, good, ""},
		{"missing", public, nil, Unsigned},
		{"of another file", public, Sign(private, b[1:]), Unsigned},
		{"of the bare digest", public, ed25519.Sign(private, b), Unsigned},
		{"of another key", other, good, Unsigned},
		{"key of a wrong length", public[:7], good, Unsigned},
	} {
		c.PublicKey, c.Signature = k.key, k.sig
		m, err := Load(t.Context(), b, c)
		if code(err) != k.want {
			t.Errorf("%s: %v, want %q", k.name, err, k.want)
		}
		if err == nil {
			if m.Info().Key == "" {
				t.Errorf("%s: the key is not in the info", k.name)
			}
			m.Close()
		}
	}
	if !Verify(public, b, good) || Verify(other, b, good) {
		t.Error("Verify")
	}
}

// TestConfig: settings that cannot be are refused in the words of policy.toml.
func TestConfig(t *testing.T) {
	b, ok := acme(t)
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Name = "" }, "name must be"},
		{func(c *Config) { c.Name = "Acme Mail" }, "name must be"},
		{func(c *Config) { c.SHA256 = "12" }, "sha256 must be 64 hex digits"},
		{func(c *Config) { c.Limits.Fuel = -1 }, "limits.fuel must be between"},
		{func(c *Config) { c.Limits.MemoryBytes = 1 }, "limits.memory_bytes must be between"},
		{func(c *Config) { c.Limits.OutputBytes = 1 << 30 }, "limits.output_bytes must be between"},
		{func(c *Config) { c.Limits.Compile = -time.Second }, "limits.compile must be between"},
		{func(c *Config) { c.Instances = -1 }, "instances must be between"},
		{func(c *Config) { c.Vocabulary.Reasons = []string{"Not snake"} }, "vocabulary.reasons"},
		{func(c *Config) { c.Vocabulary.Facts = map[string][]string{"a b": nil} }, "vocabulary.facts"},
		{func(c *Config) { c.Vocabulary.Facts = map[string][]string{"a": {""}} }, "vocabulary.facts.a"},
	} {
		cfg := ok
		c.change(&cfg)
		_, err := Load(t.Context(), b, cfg)
		if code(err) != BadConfig || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want bad_config %q", err, c.want)
		}
	}
}

// TestKinds: a module is asked only what it is used for.
func TestKinds(t *testing.T) {
	b, c := acme(t)
	c.Kinds = Fallback
	if _, err := Load(t.Context(), b, c); code(err) != MissingExport {
		t.Errorf("%v, want missing_export", err)
	}
	c.Kinds = Classifier
	m := load(t, b, c)
	_, ok, err := m.Fallback(t.Context(), rejection())
	if ok || code(err) != MissingExport || IsModuleFault(err) {
		t.Errorf("ok %v, %v", ok, err)
	}
	if k, err := ParseKinds("classifier", "fallback"); err != nil || k != Classifier|Fallback || k.String() != "classifier+fallback" {
		t.Errorf("%v %v", k, err)
	}
	if _, err := ParseKinds("oracle"); err == nil {
		t.Error("a kind that does not exist")
	}
}

// TestCancelledLoad: a load can be given up although a compile cannot.
func TestCancelledLoad(t *testing.T) {
	b, c := acme(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m, err := Load(ctx, b, c)
	if err == nil { // it was quicker
		m.Close()
	} else if code(err) != CompileBudget || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want compile_budget", err)
	}
}

// TestBusy: a caller waits for an instance as long as it may, and no longer.
func TestBusy(t *testing.T) {
	b, c := acme(t)
	c.Instances = 1
	m := load(t, b, c)
	in := taken(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, _, err := m.Classify(ctx, billing(), forbidden)
	if code(err) != Busy || IsModuleFault(err) {
		t.Errorf("%v, want busy", err)
	}
	m.keep(in)
	if _, ok, err := m.Classify(t.Context(), billing(), forbidden); !ok || err != nil {
		t.Errorf("afterwards: %v %v", ok, err)
	}
}

func TestInputTooLarge(t *testing.T) {
	b, c := acme(t)
	c.Limits.InputBytes = 500
	m := load(t, b, c)
	_, _, err := m.Classify(t.Context(), billing(), forbidden)
	if code(err) != InputTooLarge || m.Stats().Calls != 0 || IsModuleFault(err) {
		t.Errorf("%v, want input_too_large before the module is asked", err)
	}
}

// TestFresh: without restoring, every call has an instance of its own.
func TestFresh(t *testing.T) {
	b, c := acme(t)
	c.Fresh, c.Instances = true, 1
	m := load(t, b, c)
	for range 20 {
		if _, ok, err := m.Classify(t.Context(), billing(), forbidden); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if s := m.Stats(); s.Discarded != 20 {
		t.Errorf("%d instances were replaced, want 20", s.Discarded)
	}
}

// TestBenched: after repeated failures the module is left alone, then one call
// decides; other callers are not made to wait for it (R-WASM-3).
func TestBenched(t *testing.T) {
	c, _ := hostile.Named("trap_then_call")
	cfg := hostileConfig(c)
	now := time.Duration(0)
	var mu sync.Mutex
	cfg.Now = func() time.Duration { mu.Lock(); defer mu.Unlock(); return now }
	pass := func(d time.Duration) { mu.Lock(); now += d; mu.Unlock() }
	cfg.Bench = BenchRule{Failures: 3, Window: time.Minute, Rest: 10 * time.Second}
	m := load(t, c.Wasm, cfg)
	ask := func(bad bool) Code {
		if !bad {
			c.Bytes = 10
		} else {
			c.Bytes = 4000
		}
		_, err := askCase(t, m, c)
		return code(err)
	}
	const trap = Code("trap:unreachable")
	for i, s := range []struct {
		pass time.Duration
		bad  bool
		want Code
	}{
		{0, true, trap},
		{0, false, ""},
		{0, true, trap},
		{2 * time.Minute, true, trap}, // the window is over, it counts anew
		{0, true, trap},
		{0, true, trap},
		{0, false, Benched},
		{9 * time.Second, false, Benched},
		{2 * time.Second, true, trap}, // the call that decides
		{0, false, Benched},
		{15 * time.Second, false, Benched}, // the rest has doubled
		{6 * time.Second, false, ""},
		{0, true, trap},
		{0, false, ""},
	} {
		pass(s.pass)
		if got := ask(s.bad); got != s.want {
			t.Fatalf("step %d: %q, want %q", i, got, s.want)
		}
	}
	if s := m.Stats(); s.Benched != 4 || s.Failures != 7 || s.IsBenched {
		t.Errorf("%+v", s)
	}
}

// TestWait: the wait for an instance is the configured one, on a clock that no
// loaded machine can stretch.
func TestWait(t *testing.T) {
	b, c := acme(t)
	c.Instances, c.Wait = 1, 3*time.Second
	m := load(t, b, c)
	in := taken(t, m)
	real := m.pool
	defer func() { m.pool = real; m.keep(in) }()
	synctest.Test(t, func(t *testing.T) {
		m.pool = make(chan *instance, 1)
		start := time.Now()
		_, err := m.take(context.Background())
		if err == nil || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// TestRestoreAfterFailedRefill: an instance that could not be made is made by
// the next caller, who hears of a failure.
func TestRestoreAfterFailedRefill(t *testing.T) {
	b, c := acme(t)
	c.Instances = 1
	m := load(t, b, c)
	in := taken(t, m)
	in.close()
	m.pool <- nil
	if _, ok, err := m.Classify(t.Context(), billing(), forbidden); !ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
}

// TestWarmUpTrap: what a trap during the warm-up left behind is not in the state
// that calls start from.
func TestWarmUpTrap(t *testing.T) {
	c, _ := hostile.Named("warm_up_trap")
	m := load(t, c.Wasm, hostileConfig(c))
	a, err := askCase(t, m, c)
	if err != nil || a.Verdict.Class != taxonomy.Budget || m.gen.warm {
		t.Errorf("class %s, %v, warm %v", a.Verdict.Class, err, m.gen.warm)
	}
}

// TestHostWorkIsCharged: what a host function does for a module costs fuel in
// proportion, beside its flat price.
func TestHostWorkIsCharged(t *testing.T) {
	c, _ := hostile.Named("log_huge") // four lines of 128 KiB
	m := load(t, c.Wasm, hostileConfig(c))
	a, err := askCase(t, m, c)
	if want := int64(4*1000 + 4*131072/8); err != nil || a.Info.Fuel < want {
		t.Errorf("fuel %d, at least %d wanted (%v)", a.Info.Fuel, want, err)
	}
	if len(a.Info.Lines) != 0 || a.Info.Dropped != 4 {
		t.Errorf("%d lines, %d dropped", len(a.Info.Lines), a.Info.Dropped)
	}
}

// TestHints: a refusal says what to do about it.
func TestHints(t *testing.T) {
	for name, want := range map[string]string{
		"import_clock_random":  `profile = "go"`,
		"import_log_ungranted": "log = true",
		"import_unknown":       "is not offered",
		"missing_marker":       "every module exports it",
		"marker_from_future":   "ABI 2, this host 1",
		"mem_min_over":         "at most 256 allowed",
	} {
		c, _ := hostile.Named(name)
		if _, err := Load(t.Context(), c.Wasm, hostileConfig(c)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", name, err, want)
		}
	}
}

// TestLastWords: what is kept of a module's error output is its end, however it
// was written, in little memory.
func TestLastWords(t *testing.T) {
	var all []byte
	w := world{}
	for i := range 3 * stderrMost {
		b := fmt.Appendf(nil, "%d ", i)
		if i%1000 == 999 {
			b = bytes.Repeat(b, 1000)
		}
		all = append(all, b...)
		w.write(b)
		if i%997 == 0 && w.stderr() != strings.TrimSpace(string(all[max(0, len(all)-stderrMost):])) {
			t.Fatalf("after %d writes: %d bytes kept", i, len(w.stderr()))
		}
	}
	if cap(w.err) > 4*stderrMost {
		t.Errorf("%d bytes in use", cap(w.err))
	}
}
