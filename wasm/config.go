package wasm

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/bench"
	"github.com/fusebox-dev/fusebox/wasm/meter"
)

// Profile says which toolchain made a module and therefore what it may import
// and how large it may be. The zero value is the careful one.
type Profile uint8

const (
	Pure Profile = iota // C, AssemblyScript, Rust, Zig, WAT: no imports
	Go                  // the Go toolchain: a deterministic, empty stand-in for WASI
)

func (p Profile) String() string {
	if p == Go {
		return "go"
	}
	return "pure"
}

// MarshalText returns the name.
func (p Profile) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a name; the empty text is pure.
func (p *Profile) UnmarshalText(t []byte) error {
	switch string(t) {
	case "", "pure":
		*p = Pure
	case "go":
		*p = Go
	default:
		return fmt.Errorf("profile %q is not one of pure, go", t)
	}
	return nil
}

// Kinds are the questions a module answers.
type Kinds uint8

const (
	Classifier Kinds = 1 << iota // fb_classify
	Fallback                     // fb_fallback
)

func (k Kinds) String() string { return strings.Join(k.Names(), "+") }

// Names lists the kinds in it.
func (k Kinds) Names() []string {
	var out []string
	if k&Classifier != 0 {
		out = append(out, "classifier")
	}
	if k&Fallback != 0 {
		out = append(out, "fallback")
	}
	return out
}

// ParseKinds reads names as [Kinds.Names] lists them.
func ParseKinds(names ...string) (Kinds, error) {
	var k Kinds
	for _, n := range names {
		switch n {
		case "classifier":
			k |= Classifier
		case "fallback":
			k |= Fallback
		default:
			return 0, fmt.Errorf("kind %q is not one of classifier, fallback", n)
		}
	}
	return k, nil
}

// Limits bound one module. A zero field takes the profile's default.
type Limits struct {
	ModuleBytes  int           // 8 MiB
	InputBytes   int           // 64 KiB
	OutputBytes  int           // 4 KiB
	MemoryBytes  int64         // 16 MiB, Go 64 MiB; whole pages of 64 KiB
	Fuel         int64         // of one call: 5 million, Go 200 million
	InitFuel     int64         // of starting: 50 million, Go 500 million
	StackBytes   int64         // native stack of recursive functions: 1 MiB, Go 8 MiB
	TableEntries int           // 65,536
	LogLines     int           // of one call: 16
	LogBytes     int           // of one call: 4 KiB
	Compile      time.Duration // how long Load waits for the compiler, by the wall clock, so that a busy machine still loads: 2 min
}

func (l Limits) withDefaults(p Profile) Limits {
	d := Limits{ModuleBytes: 8 << 20, InputBytes: 64 << 10, OutputBytes: 4 << 10, MemoryBytes: 16 << 20, Fuel: 5_000_000,
		InitFuel: 50_000_000, StackBytes: 1 << 20, TableEntries: 65_536, LogLines: 16, LogBytes: 4 << 10, Compile: 2 * time.Minute}
	if p == Go {
		d.MemoryBytes, d.Fuel, d.InitFuel, d.StackBytes = 64<<20, 200_000_000, 500_000_000, 8<<20
	}
	pick(&l.ModuleBytes, d.ModuleBytes)
	pick(&l.InputBytes, d.InputBytes)
	pick(&l.OutputBytes, d.OutputBytes)
	pick(&l.MemoryBytes, d.MemoryBytes)
	pick(&l.Fuel, d.Fuel)
	pick(&l.InitFuel, d.InitFuel)
	pick(&l.StackBytes, d.StackBytes)
	pick(&l.TableEntries, d.TableEntries)
	pick(&l.LogLines, d.LogLines)
	pick(&l.LogBytes, d.LogBytes)
	pick(&l.Compile, d.Compile)
	return l
}

func pick[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// check says which limit is impossible, in the words of policy.toml.
func (l Limits) check() error {
	for _, c := range []struct {
		name     string
		v, least int64
		most     int64
	}{
		{"module_bytes", int64(l.ModuleBytes), 8, 64 << 20},
		{"input_bytes", int64(l.InputBytes), 64, 16 << 20},
		{"output_bytes", int64(l.OutputBytes), 16, 1 << 20},
		{"memory_bytes", l.MemoryBytes, 64 << 10, 1 << 30},
		{"fuel", l.Fuel, 1, 1 << 50},
		{"init_fuel", l.InitFuel, 1, 1 << 50},
		{"stack_bytes", l.StackBytes, 1 << 10, 64 << 20},
		{"table_entries", int64(l.TableEntries), 1, 1 << 24},
		{"log_lines", int64(l.LogLines), 0, 1 << 16},
		{"log_bytes", int64(l.LogBytes), 0, 1 << 20},
		{"compile", int64(l.Compile), 1, int64(time.Hour)},
	} {
		if c.v < c.least || c.v > c.most {
			return fmt.Errorf("limits.%s must be between %d and %d, got %d", c.name, c.least, c.most, c.v)
		}
	}
	return nil
}

func (l Limits) meter(p Profile) meter.Limits {
	m := meter.Pure()
	if p == Go {
		m = meter.Go()
	}
	m.ModuleBytes, m.TableEntries = l.ModuleBytes, l.TableEntries
	m.MemoryPages = int(l.MemoryBytes >> 16)
	return m
}

// Vocabulary is what a module may say beside outcome and class.
type Vocabulary = taxonomy.Vocabulary

// BenchRule says when a module is left alone after failures.
type BenchRule = bench.Rule

// Config is one [[module]] of policy.toml: everything about a module that
// decides anything.
type Config struct {
	Name       string  // [a-z0-9-], unique in its bundle
	Version    string  // for people
	SHA256     string  // hex digest of the file
	Kinds      Kinds   // what it is used for; 0 is everything it can do
	Profile    Profile //
	Log        bool    // grants fusebox.log
	Limits     Limits
	Vocabulary Vocabulary
	Bench      BenchRule // when it is left alone after failures

	PublicKey ed25519.PublicKey // with it, Signature must verify
	Signature []byte            // ed25519 over the sha256 digest of the file; see [Sign]

	Fresh       bool          // a new instance for every call, instead of restoring one
	Instances   int           // pool size; 0 is GOMAXPROCS, at most 2 for Go
	Wait        time.Duration // longest wait for an instance; 0 is one second
	Interpreter bool          // run without native code: slow, for cross-checks and other platforms
	// Now is the process's monotonic instant; it times the bench and nothing
	// the module sees. nil is the real one.
	Now func() time.Duration

	anyWords bool // no vocabulary: for trying a module out, never from a policy
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// check completes the settings or says what is wrong with them.
func (c Config) check() (Config, error) {
	if !nameForm.MatchString(c.Name) {
		return c, fmt.Errorf("name must be 1 to 63 of a-z, 0-9 and -, got %q", c.Name)
	}
	if d, err := hex.DecodeString(c.SHA256); err != nil || len(d) != sha256.Size {
		return c, fmt.Errorf("sha256 must be 64 hex digits, got %q", c.SHA256)
	}
	c.Limits = c.Limits.withDefaults(c.Profile)
	if err := c.Limits.check(); err != nil {
		return c, err
	}
	if err := c.Vocabulary.Check(); err != nil {
		return c, err
	}
	c.Bench = c.Bench.Filled()
	if c.Instances == 0 {
		c.Instances = runtime.GOMAXPROCS(0)
		if c.Profile == Go {
			c.Instances = min(c.Instances, 2)
		}
	}
	if c.Instances < 0 || c.Instances > 1024 {
		return c, fmt.Errorf("instances must be between 1 and 1024, got %d", c.Instances)
	}
	if c.Wait == 0 {
		c.Wait = time.Second
	}
	if c.Now == nil {
		start := time.Now()
		c.Now = func() time.Duration { return time.Since(start) }
	}
	return c, nil
}
