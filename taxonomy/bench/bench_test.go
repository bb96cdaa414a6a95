package bench

import (
	"testing"
	"time"
)

// TestRule walks the pure rule.
func TestRule(t *testing.T) {
	r := Rule{}.Filled()
	b := Bench{}
	for i := range r.Failures {
		if _, _, ok := b.Admit(0); !ok {
			t.Fatalf("benched after %d failures", i)
		}
		b = b.After(r, false, false, time.Duration(i))
	}
	now := time.Duration(r.Failures)
	b2, _, ok := b.Admit(now)
	if ok || b2 != b {
		t.Fatal("not benched")
	}
	now += r.Rest
	b, comeback, ok := b.Admit(now)
	if !ok || !comeback {
		t.Fatal("never tried again")
	}
	if _, _, ok := b.Admit(now); ok {
		t.Error("two calls to decide at once")
	}
	// A call from before the bench ends while the comeback call is out.
	for _, well := range []bool{true, false} {
		if late := b.After(r, false, well, now); late != b {
			t.Errorf("a late call decided: %+v, then %+v", b, late)
		}
	}
	if b3, _, ok := b.Release().Admit(now); !ok || !b3.trying {
		t.Error("a call that never reached the module keeps the place")
	}
	for range 10 { // failed comebacks: the rest grows up to 16 times
		b = b.After(r, true, false, now)
		if b.until > now+16*r.Rest {
			t.Fatalf("rests %s", b.until-now)
		}
		now = b.until
		if b, _, ok = b.Admit(now); !ok {
			t.Fatal("never tried again")
		}
	}
	if got := b.After(r, true, true, now); got != (Bench{}) {
		t.Errorf("after a good call: %+v", got)
	}
}
