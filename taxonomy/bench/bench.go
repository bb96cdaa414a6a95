// Package bench is the small circuit of one module or plugin: one that keeps
// failing is left alone for a while. It is not package breaker's: it has no
// scopes, no fleet and no overrides.
package bench

import "time"

// A Rule says when somebody is left alone: after Failures failed calls within
// Window, for Rest, then one call decides whether they come back. Zero fields
// take the defaults.
type Rule struct {
	Failures int           // 5
	Window   time.Duration // one minute
	Rest     time.Duration // 30 seconds, doubled after each failed comeback up to 16 times
}

// Filled fills the defaults.
func (r Rule) Filled() Rule {
	if r.Failures == 0 {
		r.Failures = 5
	}
	if r.Window == 0 {
		r.Window = time.Minute
	}
	if r.Rest == 0 {
		r.Rest = 30 * time.Second
	}
	return r
}

// A Bench is the state of one. Only faults of their own count, never a caller
// that left or a place that was taken.
type Bench struct {
	failures int
	since    time.Duration // of the first counted failure
	until    time.Duration // benched until; 0 is not benched
	trying   bool          // one call is out to see whether it recovered
	rounds   int           // failed comebacks in a row
}

// Benched reports whether calls are kept away.
func (b Bench) Benched() bool { return b.until != 0 }

// Admit says whether a call may go now, and whether it is the comeback call,
// which decides.
func (b Bench) Admit(now time.Duration) (_ Bench, comeback, ok bool) {
	switch {
	case b.until == 0:
		return b, false, true
	case now < b.until || b.trying:
		return b, false, false
	}
	b.trying = true
	return b, true, true
}

// After counts a finished call. One that was admitted before the bench says
// nothing about whether it recovered.
func (b Bench) After(r Rule, comeback, ok bool, now time.Duration) Bench {
	if b.until != 0 {
		if !comeback {
			return b
		}
		if ok {
			return Bench{}
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
		return Bench{until: max(now+r.Rest, 1)}
	}
	return b
}

// Release gives back a comeback call that never went.
func (b Bench) Release() Bench {
	b.trying = false
	return b
}
