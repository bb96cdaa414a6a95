package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Gate is one measure of the candidate against the version in force. All
// gates must hold before a promotion; one that breaks takes the candidate back.
type Gate struct {
	Measure  string  `json:"measure"`             // one of Measures
	MaxRatio float64 `json:"max_ratio,omitempty"` // candidate / in force; 0 is not asked
	MaxRise  float64 `json:"max_rise,omitempty"`  // candidate - in force, as a share
}

// Measures are what a gate may name. Each is a share: of the decisions, or for
// fallback_quality of the fallbacks. More is worse.
var Measures = []string{"opens", "user_failures", "fallback_quality", "interventions", "corrections", "risk"}

// Criteria are what a candidate is judged by.
type Criteria struct {
	MinTime      time.Duration `json:"min_time_ns"`   // in this stage; a canary whose share grows goes on counting
	MinDecisions int64         `json:"min_decisions"` // in each arm
	Deadline     time.Duration `json:"deadline_ns"`   // of the whole trial; 0 is none
	Gates        []Gate        `json:"gates"`
	AllowLooser  bool          `json:"allow_looser"` // authority may grant more than before: somebody said so
}

// Judgement is what the figures of a trial come to. The zero value holds.
type Judgement uint8

const (
	Hold Judgement = iota
	Advance
	RollBack
)

var judgementNames = [...]string{"hold", "promote", "roll_back"}

func (j Judgement) String() string               { return judgementNames[min(int(j), 2)] }
func (j Judgement) MarshalText() ([]byte, error) { return []byte(j.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (j *Judgement) UnmarshalText(b []byte) error {
	for i, name := range judgementNames {
		if name == string(b) {
			*j = Judgement(i)
			return nil
		}
	}
	return fmt.Errorf("%q is no judgement of a trial", b)
}

// A GateResult is one gate with its figures.
type GateResult struct {
	Gate
	Control   float64 `json:"control"`
	Candidate float64 `json:"candidate"`
	Result    string  `json:"result"` // holds, inconclusive, breaks
}

// A Verdict is a judgement with its reasons.
type Verdict struct {
	Judgement Judgement    `json:"verdict"`
	Reasons   []string     `json:"reasons"`
	Gates     []GateResult `json:"gates"`
	Risk      [2]float64   `json:"risk"` // per decision: in force, candidate
	Harm      [2]float64   `json:"harm"` // the part of it that is not availability
}

// The weight of what may go wrong, against one failure that a user sees. They
// say that an answer that did harm is worse than no answer; RATIONALE.md says
// why they are what they are. A write that may have happened twice costs three
// failures, and one that was reported wrong five.
const (
	weighLoss         = 0.5
	weighIntervention = 2
	weighUnknownWrite = 3
	weighCorrection   = 5
)

// Risk is what a decision of this arm costs on average, in failures that a user
// sees; harm is the part of it that is not about availability.
func (f *Figures) Risk() (risk, harm float64) {
	if f.Decisions == 0 {
		return 0, 0
	}
	n := float64(f.Decisions)
	harm = (weighLoss*float64(f.Losses) + weighIntervention*float64(f.Interventions) +
		weighUnknownWrite*float64(f.UnknownWrites) + weighCorrection*float64(f.Corrections)) / n
	return harm + float64(f.UserFailures+f.Unseen)/n, harm
}

// A share is a measured proportion and what it was measured on.
type share struct {
	p, spread float64 // and its standard error
	n         int64
}

func shareOf(k, n int64) share {
	if n == 0 {
		return share{}
	}
	// Agresti and Coull: two successes and two failures more keep the error of
	// a share of nothing away from zero.
	q := (float64(k) + 2) / (float64(n) + 4)
	return share{p: float64(k) / float64(n), spread: math.Sqrt(max(q*(1-q), 0) / (float64(n) + 4)), n: n}
}

// measure is one measure of an arm.
func (f *Figures) measure(name string) share {
	switch name {
	case "opens":
		return shareOf(f.Opens, f.Decisions)
	case "user_failures":
		return shareOf(f.UserFailures+f.Unseen, f.Decisions)
	case "fallback_quality":
		return shareOf(f.Losses, f.Fallbacks)
	case "interventions":
		return shareOf(f.Interventions, f.Decisions)
	case "corrections":
		return shareOf(f.Corrections, f.Decisions)
	}
	s := share{n: f.Decisions}
	s.p, _ = f.Risk()
	variance := 0.0
	for _, part := range []struct {
		weight float64
		n      int64
	}{{1, f.UserFailures + f.Unseen}, {weighLoss, f.Losses}, {weighIntervention, f.Interventions},
		{weighUnknownWrite, f.UnknownWrites}, {weighCorrection, f.Corrections}} {
		d := part.weight * shareOf(part.n, f.Decisions).spread
		variance += d * d
	}
	s.spread = math.Sqrt(variance)
	return s
}

// sure is how many standard errors a gate must be broken by: three, because
// figures are looked at again and again, and chance has as many tries.
const sure = 3

// judge holds a gate against both arms. Where the figures cannot tell a breach
// from chance it is inconclusive.
func (g Gate) judge(control, candidate *Figures) GateResult {
	a, b := control.measure(g.Measure), candidate.measure(g.Measure)
	out := GateResult{Gate: g, Control: a.p, Candidate: b.p, Result: "holds"}
	check := func(excess, spread float64) {
		switch {
		case excess > 1e-12 && excess > sure*spread:
			out.Result = "breaks"
		case excess > 1e-12 && out.Result == "holds":
			out.Result = "inconclusive"
		}
	}
	if g.MaxRatio > 0 {
		check(b.p-g.MaxRatio*a.p, math.Hypot(b.spread, g.MaxRatio*a.spread))
	}
	if g.MaxRise > 0 {
		check(b.p-a.p-g.MaxRise, math.Hypot(b.spread, a.spread))
	}
	return out
}

// Judge says what a trial comes to: promote, hold while it is inconclusive, or
// roll back. age is that of the stage, and whole that of the trial. It is a pure
// function (SPEC R-POL-8).
func (c *Criteria) Judge(r *TrialReport, age, whole time.Duration) Verdict {
	v := Verdict{Reasons: []string{}, Gates: []GateResult{}}
	v.Risk[0], v.Harm[0] = r.Control.Risk()
	v.Risk[1], v.Harm[1] = r.Trial.Risk()
	worse, open := []string{}, []string{}
	if r.Trial.Errors > r.Control.Errors {
		worse = append(worse, fmt.Sprintf("the candidate failed to decide %d times, the version in force %d times", r.Trial.Errors, r.Control.Errors))
	}
	gates := c.Gates
	if r.Stage == taxonomy.ModeObserve {
		gates = nil // nothing is compared yet: the candidate shows what it would do
	}
	for _, g := range gates {
		got := g.judge(&r.Control, &r.Trial)
		v.Gates = append(v.Gates, got)
		switch got.Result {
		case "breaks":
			worse = append(worse, fmt.Sprintf("gate %s breaks: %s in force, %s for the candidate", g.Measure, percent(got.Control), percent(got.Candidate)))
		case "inconclusive":
			open = append(open, fmt.Sprintf("gate %s is inconclusive: %s in force, %s for the candidate", g.Measure, percent(got.Control), percent(got.Candidate)))
		}
	}
	if c.Deadline > 0 && whole >= c.Deadline {
		worse = append(worse, fmt.Sprintf("its deadline of %s has passed", c.Deadline))
	}
	if len(worse) > 0 {
		v.Judgement, v.Reasons = RollBack, worse
		return v
	}
	v.Reasons = append(c.tooEarly(r, age), open...)
	if r.Stage == taxonomy.ModeObserve {
		if len(v.Reasons) == 0 {
			v.Judgement, v.Reasons = Advance, []string{"it was observed long enough; the next stage compares it"}
		}
		return v
	}
	v.Reasons = append(v.Reasons, v.risks()...)
	for _, scope := range r.LowQuality {
		v.Reasons = append(v.Reasons, fmt.Sprintf("semantic circuit %s is open for the candidate alone", scope))
	}
	if r.Looser > 0 && !c.AllowLooser {
		v.Reasons = append(v.Reasons, fmt.Sprintf("authority would grant more in %d decisions, and nobody said that it may", r.Looser))
	}
	if len(v.Reasons) == 0 {
		v.Judgement, v.Reasons = Advance, []string{fmt.Sprintf("risk falls from %.4f to %.4f per decision", v.Risk[0], v.Risk[1])}
	}
	return v
}

// tooEarly says what is still missing before anything can be said.
func (c *Criteria) tooEarly(r *TrialReport, age time.Duration) []string {
	out := []string{}
	if age < c.MinTime {
		out = append(out, fmt.Sprintf("it is in this stage for %s, and %s are asked", age.Round(time.Second), c.MinTime))
	}
	for _, arm := range []struct {
		name string
		n    int64
	}{{"the version in force", r.Control.Decisions}, {"the candidate", r.Trial.Decisions}} {
		if arm.n < max(c.MinDecisions, 1) {
			out = append(out, fmt.Sprintf("%s has %d decisions, and %d are asked", arm.name, arm.n, max(c.MinDecisions, 1)))
		}
	}
	return out
}

// risks are the two rules that no gate can loosen: the total risk must fall, and
// not because more calls were let through while more harm was done.
func (v *Verdict) risks() []string {
	const least = 1e-9
	switch {
	case v.Harm[1] > v.Harm[0]+least:
		return []string{fmt.Sprintf("harm rises from %.4f to %.4f per decision, whatever became of availability", v.Harm[0], v.Harm[1])}
	case v.Risk[1] > v.Risk[0]-least:
		return []string{fmt.Sprintf("risk does not fall: %.4f per decision in force, %.4f for the candidate", v.Risk[0], v.Risk[1])}
	}
	return nil
}

func percent(p float64) string { return fmt.Sprintf("%.2f %%", 100*p) }
