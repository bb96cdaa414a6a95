package breaker

import (
	"fmt"
	"math"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// An Instant is a reading of the process's monotonic clock in nanoseconds. Its
// origin means nothing: only differences count, so a wall clock that jumps
// moves no circuit. Zero in a field means "none".
type Instant int64

// Add returns the instant d later; it saturates instead of wrapping.
func (i Instant) Add(d time.Duration) Instant {
	s := i + Instant(d)
	switch {
	case d > 0 && s < i:
		return math.MaxInt64
	case d < 0 && s > i:
		return math.MinInt64
	}
	return s
}

// Sub returns how much later i is than o; it saturates instead of wrapping.
func (i Instant) Sub(o Instant) time.Duration {
	d := i - o
	switch {
	case i > o && d < 0:
		return math.MaxInt64
	case i < o && d > 0:
		return math.MinInt64
	}
	return time.Duration(d)
}

// later and sooner are of two instants the one that is, where zero is none.
func later(a, b Instant) Instant {
	if a == 0 {
		return b
	}
	return max(a, b)
}

func sooner(a, b Instant) Instant {
	if a == 0 {
		return a
	}
	return min(a, b)
}

// PPM is a share in parts per million: 500,000 is one half. Shares are
// integers so that "half of a million less one" is not rounded to half.
type PPM uint32

// One is the whole.
const One PPM = 1_000_000

// Share turns a decimal share such as 0.5 (or a factor such as 1.5) into parts
// per million, rounded to the nearest. One that would be rounded to nothing is
// refused, for nothing means "not watched".
func Share(f float64) (PPM, error) {
	if math.IsNaN(f) || f < 0 || f > 4000 {
		return 0, fmt.Errorf("%v is not a share or factor between 0 and 4000", f)
	}
	p := PPM(math.Round(f * float64(One)))
	if p == 0 && f > 0 {
		return 0, fmt.Errorf("%v is less than one part in a million, and would count as nothing; write 0, or 0.000001 and more", f)
	}
	return p, nil
}

// Float returns the share as a decimal.
func (p PPM) Float() float64 { return float64(p) / float64(One) }

// of returns the share of a duration.
func (p PPM) of(d time.Duration) time.Duration {
	whole := d / time.Duration(One)
	rest := d % time.Duration(One)
	if whole > math.MaxInt64/time.Duration(max(p, 1)) {
		return math.MaxInt64
	}
	return whole*time.Duration(p) + rest*time.Duration(p)/time.Duration(One)
}

// reached reports part/whole >= p, exactly.
func (p PPM) reached(part, whole uint64) bool { return part*uint64(One) >= uint64(p)*whole }

// Limits of a rule. They keep a circuit a small value of fixed size.
const (
	MaxBuckets = 10 // of a window
	MaxProbes  = 4  // leases at once; probes are scarce on purpose
	MaxSteps   = 4  // of a ramp
)

// A Rule is the thresholds of a circuit: the part of a [Setting] that [Step]
// reads. It is a comparable value.
type Rule struct {
	// Mode says whether refusals bind. Only ModeEnforce does; in every other
	// mode Step computes the same and allows.
	Mode     taxonomy.Mode
	Window   WindowRule
	Trip     Trip
	Cooldown Cooldown
	Probe    Probe
	Ramp     Ramp
	// Forget is how long an outcome is remembered at all. A circuit that saw
	// nothing for so long is as good as new, also where its window counts
	// calls or its failures came in a row.
	Forget time.Duration
}

// WindowKind is how a window rolls. The zero value is by time.
type WindowKind uint8

const (
	TimeWindow  WindowKind = iota // the outcomes of the last Length
	CountWindow                   // the last Size outcomes
)

var windowNames = []string{"time", "count"}

func (k WindowKind) String() string               { return name(windowNames, uint8(k)) }
func (k WindowKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads "time" or "count".
func (k *WindowKind) UnmarshalText(t []byte) error {
	v, err := parse("window kind", windowNames, t)
	*k = WindowKind(v)
	return err
}

// A WindowRule is the shape of a rolling window. It is kept in buckets, so it
// holds between (Buckets-1)/Buckets of its length and all of it.
type WindowRule struct {
	Kind       WindowKind
	Length     time.Duration // of a time window
	Size       uint32        // of a count window, in outcomes
	Buckets    uint8         // 1 to MaxBuckets
	MinSamples uint32        // no ratio is judged on fewer outcomes
}

// TimeOf is a time window in as many buckets as a window can have.
func TimeOf(length time.Duration, minSamples uint32) WindowRule {
	return WindowRule{Kind: TimeWindow, Length: length, Buckets: MaxBuckets, MinSamples: minSamples}
}

// CountOf is a count window in the most buckets that divide its size evenly.
func CountOf(size, minSamples uint32) WindowRule {
	w := WindowRule{Kind: CountWindow, Size: size, Buckets: 1, MinSamples: minSamples}
	for n := uint32(2); n <= MaxBuckets; n++ {
		if size%n == 0 {
			w.Buckets = uint8(n)
		}
	}
	return w
}

// sameShape reports whether counts taken under one rule make sense under the other.
func (w WindowRule) sameShape(o WindowRule) bool {
	w.MinSamples, o.MinSamples = 0, 0
	return w == o
}

// shape is a hash (FNV-1a) of all but MinSamples, kept with the counts, so that
// whoever reads them later can tell whether they make sense under its own rule.
func (w WindowRule) shape() uint32 {
	h := uint32(2166136261)
	for _, v := range []uint64{uint64(w.Kind), uint64(w.Length), uint64(w.Size), uint64(w.Buckets)} {
		for range 8 {
			h = (h ^ uint32(v&0xff)) * 16777619
			v >>= 8
		}
	}
	return h
}

// Trip says what opens a closed circuit. A zero limit is not watched.
type Trip struct {
	FailureRatio PPM           // of the counted outcomes in the window
	Consecutive  uint32        // failures in a row, however far apart
	SlowOver     time.Duration // a success that took longer is slow
	SlowRatio    PPM           // of the counted outcomes in the window
	// Unknown opens at so many UNKNOWN outcomes in the window, counted apart
	// from failures. Zero: an UNKNOWN is a failure like any other.
	Unknown uint32
}

// Cooldown says how long a circuit stays open: Base, times Growth for every
// time recovery failed, at most Max, and up to Jitter longer, never shorter.
type Cooldown struct {
	Base   time.Duration
	Growth PPM // 1.5 is 1,500,000; at least One
	Max    time.Duration
	Jitter PPM
	// RetryAfterMax bounds how long a server's own instruction can keep the
	// circuit open.
	RetryAfterMax time.Duration
}

// A Probe says what an open circuit needs to recover.
type Probe struct {
	Budget    uint8         // leases at once, over the whole fleet
	Lease     time.Duration // after it, the probe counts as lost
	Successes uint8         // that end HALF_OPEN
	Gap       time.Duration // pause after a probe that proved nothing
	LostMax   uint8         // so many lost in a row are a failed probe; 0 never
	Evidence  Evidence      // what counts as a success
	// All demands every kind of Evidence at least once; otherwise any will do.
	All bool
}

// A Ramp says in which stages traffic comes back. Without steps, recovery
// leads straight to CLOSED.
type Ramp struct {
	Steps        [MaxSteps]PPM // share of calls admitted; the first zero ends the list
	Every        time.Duration // shortest time in one step
	MinSuccesses uint32        // and as many successes in it
	Consecutive  uint32        // failures in a row that reopen; 0 is the trip rule's
	MinSamples   uint32        // for the ratios while in the ramp; 0 is the window's
}

// steps counts the steps.
func (r *Ramp) steps() uint8 {
	for i, s := range r.Steps {
		if s == 0 {
			return uint8(i)
		}
	}
	return MaxSteps
}

// Evidence is a set of the kinds of proof that a circuit can recover on. The
// kinds are those of SPEC R-BRK-6: a latency probe never restores a permission.
type Evidence uint16

const (
	ModelCall          Evidence = 1 << iota // a representative model call
	SafeCall                                // a read or an idempotent call
	ValidationsPassed                       // a declared representative set passed
	CasesPassed                             // the recorded failure cases pass after a change
	Replenished                             // a budget was filled again
	CapacityChanged                         // an authorised change of capacity
	ApprovalGranted                         // a person approved
	CredentialRestored                      // a credential or permission works again
	StateVerified                           // the current state was read afresh
	Reconciled                              // every UNKNOWN got its outcome
	evidenceEnd
)

// Calls are the kinds that the outcome of a probe proves; all other kinds
// arrive as events of their own.
const Calls = ModelCall | SafeCall

var evidenceNames = []string{"model_call", "safe_call", "validations_passed", "cases_passed", "replenished",
	"capacity_changed", "approval_granted", "credential_restored", "state_verified", "reconciled"}

// Kinds splits the set.
func (e Evidence) Kinds() []Evidence {
	var out []Evidence
	for k := Evidence(1); k < evidenceEnd; k <<= 1 {
		if e&k != 0 {
			out = append(out, k)
		}
	}
	return out
}

// String joins the names with "+"; the empty set is "none".
func (e Evidence) String() string {
	out := ""
	for i, n := range evidenceNames {
		if e&(1<<i) != 0 {
			if out != "" {
				out += "+"
			}
			out += n
		}
	}
	if out == "" {
		return "none"
	}
	return out
}

func (e Evidence) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads one kind by name.
func (e *Evidence) UnmarshalText(t []byte) error {
	i, err := parse("evidence", evidenceNames, t)
	*e = 0
	if err == nil {
		*e = 1 << i
	}
	return err
}

// byCalls reports whether probes can prove anything for this rule.
func (p *Probe) byCalls() bool { return p.Evidence&Calls != 0 }

// Timed reports whether the end of a cooldown lets a probe through. A circuit
// that recovers on other proof than calls waits for that, however long.
func (r *Rule) Timed() bool { return r.Probe.byCalls() }

// enough reports whether the evidence seen ends HALF_OPEN.
func (p *Probe) enough(successes uint8, seen Evidence) bool {
	return successes >= p.Successes && (!p.All || seen&p.Evidence == p.Evidence)
}

// minSamples and consecutive are the limits of the state the circuit is in.
func (r *Rule) minSamples(s State) uint64 {
	if s == Ramping && r.Ramp.MinSamples > 0 {
		return uint64(r.Ramp.MinSamples)
	}
	return uint64(max(r.Window.MinSamples, 1))
}

func (r *Rule) consecutive(s State) uint32 {
	if s == Ramping && r.Ramp.Consecutive > 0 {
		return r.Ramp.Consecutive
	}
	return r.Trip.Consecutive
}

// cooldown is how long the circuit stays open after it failed to recover
// reopened times, for a draw below One.
func (c *Cooldown) cooldown(reopened uint8, draw PPM) time.Duration {
	d := c.Base
	for range reopened {
		if d >= c.Max {
			break
		}
		d = c.Growth.of(d)
	}
	d = min(d, c.Max)
	return d + c.Jitter.of(min(draw, One).of(d))
}

// longest is the longest time the rule can keep a circuit open on one cause.
func (c *Cooldown) longest() time.Duration {
	return max(c.Max+c.Jitter.of(c.Max), c.RetryAfterMax)
}

// waits is the longest that Circuit.Until can lie ahead in a state.
func (r *Rule) waits(s State) time.Duration {
	switch s {
	case Open:
		return r.Cooldown.longest()
	case HalfOpen:
		return r.Probe.Gap
	case Ramping:
		return r.Ramp.Every
	}
	return 0
}

func name(names []string, v uint8) string {
	if int(v) >= len(names) {
		return "invalid"
	}
	return names[v]
}

func parse(enum string, names []string, text []byte) (uint8, error) {
	for i, n := range names {
		if n == string(text) {
			return uint8(i), nil
		}
	}
	return 0, &taxonomy.UnknownName{Enum: enum, Text: string(text)}
}
