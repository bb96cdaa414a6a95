package wasm

import "time"

// A BenchRule says when a module is left alone: after Failures failed calls
// within Window, for Rest, then one call decides whether it comes back. Zero
// fields take the defaults.
type BenchRule struct {
	Failures int           // 5
	Window   time.Duration // one minute
	Rest     time.Duration // 30 seconds, doubled after each failed comeback up to 16 times
}

func (r BenchRule) withDefaults() BenchRule {
	pick(&r.Failures, 5)
	pick(&r.Window, time.Minute)
	pick(&r.Rest, 30*time.Second)
	return r
}

// bench is a small circuit for one module. It is not package breaker's: it has
// no scopes, no fleet and no overrides, and the rooms do not see each other.
// Only the module's own faults count, never a busy pool.
type bench struct {
	failures int
	since    time.Duration // of the first counted failure
	until    time.Duration // benched until; 0 is not benched
	trying   bool          // one call is out to see whether it recovered
	rounds   int           // failed comebacks in a row
}

// admit says whether a call may go to the module now, and whether it is the
// comeback call, which decides.
func (b bench) admit(now time.Duration) (_ bench, comeback, ok bool) {
	switch {
	case b.until == 0:
		return b, false, true
	case now < b.until || b.trying:
		return b, false, false
	}
	b.trying = true
	return b, true, true
}

// after counts a finished call. One that was admitted before the module was
// benched says nothing about whether it recovered.
func (b bench) after(r BenchRule, comeback, ok bool, now time.Duration) bench {
	if b.until != 0 {
		if !comeback {
			return b
		}
		if ok {
			return bench{}
		}
		b.trying = false
		b.rounds = min(b.rounds+1, 4)
		b.until = now + r.Rest<<b.rounds
		return b
	}
	if ok {
		return b
	}
	if b.failures == 0 || now-b.since > r.Window {
		b.failures, b.since = 0, now
	}
	if b.failures++; b.failures >= r.Failures {
		return bench{until: max(now+r.Rest, 1)}
	}
	return b
}

// release gives back a comeback call that never reached the module.
func (b bench) release() bench {
	b.trying = false
	return b
}
