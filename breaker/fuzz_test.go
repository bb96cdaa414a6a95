package breaker

import (
	"bytes"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// FuzzDecode: whatever bytes a store gives back, they are refused or they are a
// circuit that Step can go on with, and that is written the same again.
func FuzzDecode(f *testing.F) {
	r := walkRules()["calls"]
	wall := time.Unix(1_000_000, 0)
	for _, w := range starts(&r) {
		f.Add(Encode(&w.c, w.now, wall), int64(w.now))
	}
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, data []byte, at int64) {
		now := Instant(at % (1 << 50))
		c, err := Decode(data, &r, now, wall)
		if err != nil {
			return
		}
		again, err := Decode(Encode(&c, now, wall), &r, now, wall)
		if err != nil {
			t.Fatalf("what was read cannot be written and read: %v", err)
		}
		if s := same(c, again); s != "" {
			t.Fatal(s)
		}
		if c.live() > MaxProbes || c.State == Open && c.Until > now.Add(r.Cooldown.longest()) {
			t.Fatalf("%+v", c)
		}
		for _, ev := range []Event{{Kind: Admit, Gives: SafeCall, Token: 3}, {Kind: Outcome, Outcome: Failed, Version: c.Version},
			{Kind: Outcome, Outcome: OK, Version: c.Version}, {Kind: Tick}} {
			c, _, _ = Step(&r, c, ev, now)
			now += ms
		}
	})
}

// FuzzRestore: a damaged snapshot is an error and never more than that.
func FuzzRestore(f *testing.F) {
	s := enforced("tool", taxonomy.LayerTool, "tool")
	g := newRegistry(f, Options{Settings: []Setting{s}})
	key, _ := g.Find("tool:mail")
	if _, err := g.Signal(key, "x", "y", 0, second); err != nil {
		f.Fatal(err)
	}
	f.Add(g.Snapshot(second, time.Unix(1, 0)))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newRegistry(t, Options{Settings: []Setting{s}})
		_, _ = h.Restore(data, second, time.Unix(1, 0))
	})
}

// FuzzKey: a key that is accepted is written as fusebox writes it, and its
// readable scope leads back to it.
func FuzzKey(f *testing.F) {
	s := enforced("tool", taxonomy.LayerTool, "tool", "tenant")
	g := newRegistry(f, Options{Settings: []Setting{s}})
	f.Add("tool|tool=4:mail|tenant=-")
	f.Add("tool|tool=7:%00%FFx")
	f.Add("tool|tool=#" + string(bytes.Repeat([]byte("a"), 64)))
	f.Fuzz(func(t *testing.T, key string) {
		n, err := g.lookup(key, second)
		if err != nil {
			return
		}
		back, err := s.KeyOf(Scope(n.key))
		if err != nil || back != key {
			t.Fatalf("%q is shown as %q, which is read as %q, %v", key, Scope(n.key), back, err)
		}
	})
}
