package main

import (
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// ailing are the classes that say something of the remote. A caller's mistake, a
// denial or an empty purse opens nothing, and is missed by nothing.
func ailing(c taxonomy.Class) bool {
	switch c {
	case taxonomy.TransientTransport, taxonomy.PersistentDependency, taxonomy.RateLimit, taxonomy.AmbiguousWrite,
		taxonomy.Authentication, taxonomy.Validation, taxonomy.SemanticQuality:
		return true
	}
	return false
}

// streak follows failures in a row, at each circuit that one counted toward, or
// at the operation where none did.
func (x *reporter) streak(r *receipts.Receipt, at time.Time, succeeded bool) {
	if succeeded {
		for i := range r.Feeds {
			for id, s := range x.streaks {
				if id.cohort == cohortOf(r) && id.covers(r.Feeds[i].Breaker, r.Feeds[i].Scope) {
					x.ends(id, s)
				}
			}
		}
		if id := (circuitID{"", r.Operation, cohortOf(r)}); x.streaks[id] != nil {
			x.ends(id, x.streaks[id])
		}
		return
	}
	if !ailing(r.ErrorClass) {
		return
	}
	counted := false
	for i := range r.Feeds {
		f := &r.Feeds[i]
		if f.Signal == taxonomy.SignalFailure || f.Signal == taxonomy.SignalOpenNow {
			counted = true
			x.adds(circuitID{f.Breaker, f.Scope, cohortOf(r)}, r, at, "it counted, and its limits were not reached")
		}
	}
	if counted {
		return
	}
	for i := range r.Feeds { // the first that set it apart says why
		f := &r.Feeds[i]
		x.adds(circuitID{f.Breaker, f.Scope, cohortOf(r)}, r, at, "it does not count toward this circuit: "+dash(f.Reason))
		return
	}
	x.adds(circuitID{"", r.Operation, cohortOf(r)}, r, at, "no rule lets it count anywhere")
}

// cohortOf is whose circuits a call passed: the control arm of a canary passes
// those of the version in force.
func cohortOf(r *receipts.Receipt) string {
	if r.Cohort == "control" {
		return ""
	}
	return r.Cohort
}

func (x *reporter) adds(id circuitID, r *receipts.Receipt, at time.Time, why string) {
	if ep := x.open[id]; ep != nil && ep.Mode != taxonomy.ModeObserve.String() {
		return // it is stopped, as far as a circuit can
	}
	s := x.streaks[id]
	if s == nil {
		if len(x.streaks) >= maxStreaks {
			return
		}
		s = &streak{missedOpen: missedOpen{Breaker: id.breaker, Scope: id.scope, From: at, Receipts: []string{r.ID.String()}}}
		x.streaks[id] = s
	}
	s.Failures++
	s.To, s.Class = at, r.ErrorClass.String()
	if s.Why = why; s.observed {
		s.Why = "it is open, and its mode is observe: it binds nobody"
	}
	s.Receipts = append(s.Receipts[:1], r.ID.String())
}

// opened ends a streak that a circuit met, or notes that it met it in vain.
func (x *reporter) opened(id circuitID, r *receipts.Receipt) {
	s := x.streaks[id]
	switch {
	case s == nil:
	case r.Mode.OK && r.Mode.V == taxonomy.ModeObserve:
		s.observed = true
	default:
		delete(x.streaks, id)
	}
}

// ends closes a streak; a long one was missed.
func (x *reporter) ends(id circuitID, s *streak) {
	delete(x.streaks, id)
	if s.Failures >= x.missed && len(x.doc.Missed) < maxReview {
		x.doc.Missed = append(x.doc.Missed, s.missedOpen)
	}
}
