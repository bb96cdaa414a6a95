package breaker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Whatever order workers tell a store in that went back in time, what they agree
// on refuses as much as the most restrictive of them, holds no lease, lets nobody
// probe before a lease's length has passed, and does not change when it is told
// again.
func TestRewound(t *testing.T) {
	r := Defaults("provider", taxonomy.LayerProvider, "provider").Rule
	const now = Instant(10 * time.Hour)
	draw := rand.New(rand.NewPCG(1, 2))
	any := func() Circuit {
		c := Circuit{State: State(draw.IntN(4)), Version: uint64(draw.IntN(6)), Decided: uint32(draw.IntN(3))}
		if c.State == Open {
			c.Until = now.Add(time.Duration(draw.IntN(120)-60) * time.Second)
		}
		if c.State == HalfOpen && draw.IntN(2) == 0 {
			c.Leases[0] = Lease{Token: 7, Until: now.Add(r.Probe.Lease)}
		}
		if c.Decided > 0 {
			c.Override = &Override{Kind: OverrideKind(1 + draw.IntN(2)), Until: now.Add(time.Hour)}
		}
		return c
	}
	for range 20_000 {
		stored, workers := any(), []Circuit{any(), any(), any()}
		c := Rewound(&r, stored, workers[0], true, now)
		for _, w := range workers[1:] {
			c = Rewound(&r, c, w, false, now)
		}
		most, version, decided := stored.State.severity(), stored.Version, stored.Decided
		for _, w := range workers {
			most, version, decided = max(most, w.State.severity()), max(version, w.Version), max(decided, w.Decided)
		}
		if most == HalfOpen.severity() {
			most = Open.severity() // until the leases that are out have ended
		}
		if c.State.severity() != most || c.live() != 0 || c.Version < version || c.Decided != decided {
			t.Fatalf("%+v\njoined with %+v\ngive %+v", stored, workers, c)
		}
		if c.State == Open && c.Until < now.Add(r.Probe.Lease) && (stored.State == Open || stored.State == HalfOpen || workers[0].State == Open || workers[0].State == HalfOpen) {
			t.Fatalf("probes go %s after the store went back:\n%+v\n%+v", c.Until.Sub(now), stored, workers)
		}
		if again := Rewound(&r, c, c, false, now.Add(time.Second)); again != c {
			t.Fatalf("told again, %+v becomes %+v", c, again)
		}
		for _, w := range workers {
			if w.Version == c.Version && w.State != c.State {
				t.Fatalf("version %d is %s here and %s there", c.Version, w.State, c.State)
			}
		}
	}
}

// R-BRK-2: the version that a circuit begins with here, so that it never falls, is
// no version of the store's: a circuit that is open there is open here, also after
// others of this process have changed more often.
func TestInstallAfterOthersRecovered(t *testing.T) {
	s := Defaults("provider", taxonomy.LayerProvider, "provider", "model")
	s.Rule.Mode, s.Fallback = taxonomy.ModeEnforce, "wait"
	g, err := NewRegistry(Options{Settings: []Setting{s}, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	now := Instant(time.Hour)
	key := func(scope string) string {
		k, err := s.KeyOf(scope)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	install := func(scope string, c Circuit, want State) {
		t.Helper()
		if _, _, err := g.Install(key(scope), c, now); err != nil {
			t.Fatal(err)
		}
		if got, _ := g.Circuit(key(scope)); got.State != want {
			t.Errorf("%s version %d: %s, want %s", scope, c.Version, got.State, want)
		}
	}
	open := Circuit{State: Open, Until: now.Add(time.Minute)}
	at := func(c Circuit, v uint64) Circuit { c.Version = v; return c }
	install("provider:a/m", at(Circuit{}, 4), Closed) // opened and recovered twice
	install("provider:b/m", at(open, 1), Open)
	install("provider:b/m", at(Circuit{}, 0), Open) // late
	install("provider:b/m", at(Circuit{}, 2), Closed)

	// Opened here before the store was heard: a milder word of it is late, its own
	// opening is not.
	if _, err := g.Signal(key("provider:c/m"), "told", "", 0, now); err != nil {
		t.Fatal(err)
	}
	install("provider:c/m", at(Circuit{}, 1), Open)
	install("provider:c/m", at(open, 2), Open)
	install("provider:c/m", at(Circuit{}, 3), Closed)

	// The store's word on a lease stands whatever was thought here.
	install("provider:b/m", at(open, 5), Open)
	if _, err := g.Adopt(key("provider:b/m"), at(Circuit{}, 3), now); err != nil {
		t.Fatal(err)
	}
	if c, _ := g.Circuit(key("provider:b/m")); c.State != Closed || c.Version != 3 {
		t.Errorf("adopted, it is %s of version %d", c.State, c.Version)
	}
}
