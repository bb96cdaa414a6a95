package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Review holds what a version that does not bind would have done against what
// really happened: the observe report of SPEC R-POL-8. Each call that it would
// have stopped was sent all the same, so it is known whether stopping it would
// have spared a failure or cost an answer.
type Review struct {
	Stopped   int64 `json:"short_circuited"` // calls that it would not have sent
	Failed    int64 `json:"would_fail"`      // of those, failed when they were sent
	Succeeded int64 `json:"would_succeed"`   // of those, succeeded
	NotSent   int64 `json:"not_sent"`        // of those, not sent under the version in force either

	Helps    int64 `json:"fallback_helps"`    // failed, and the declared contract has something that answers
	Lacks    int64 `json:"fallback_lacks"`    // failed, and nothing that answers is declared or would be let go
	Needless int64 `json:"fallback_needless"` // succeeded, and something would have stood in for a good answer

	Opens []OpenReview `json:"opens"`      // the latest, oldest first
	More  int64        `json:"opens_more"` // opened before those
}

// An OpenReview is one circuit that would have opened.
type OpenReview struct {
	Breaker   string        `json:"breaker"`
	Scope     string        `json:"scope"`
	Reason    string        `json:"reason"`
	At        time.Time     `json:"at"`
	Closed    time.Time     `json:"closed"`    // zero while it is open
	Failed    int64         `json:"failed"`    // of the calls that it would have stopped
	Succeeded int64         `json:"succeeded"` //
	Within    []ScopeReview `json:"within"`    // those calls by their narrowest scope
	Beside    int64         `json:"beside"`    // failures meanwhile under the same parent, outside its scope
	Right     string        `json:"right"`     // right, needless, untested
	Scoped    string        `json:"scoped"`    // fits, too_wide, too_narrow, untested

	key  string
	open bool
}

// A ScopeReview is what happened at one narrower scope.
type ScopeReview struct {
	Scope     string `json:"scope"`
	Failed    int64  `json:"failed"`
	Succeeded int64  `json:"succeeded"`
}

// Bounds of what a review keeps.
const (
	maxOpens  = 64
	maxWithin = 16
)

// A review collects. A nil one collects nothing. Its tally's lock guards it.
type review struct {
	Review
	policy *Policy
}

func newReview(p *Policy) *review { return &review{policy: p} }

// moved notes a circuit that opened or closed.
func (r *review) moved(c *breaker.Change, now time.Time) {
	if r == nil {
		return
	}
	at := slices.IndexFunc(r.Opens, func(o OpenReview) bool { return o.open && o.key == c.Key })
	switch {
	case c.To == breaker.Closed && at >= 0:
		r.Opens[at].open, r.Opens[at].Closed = false, now
	case c.To == breaker.Open && at < 0:
		if len(r.Opens) == maxOpens {
			r.Opens = slices.Delete(r.Opens, 0, 1)
			r.More++
		}
		r.Opens = append(r.Opens, OpenReview{Breaker: c.Breaker, Scope: c.Scope, Reason: c.Reason.String(), At: now,
			key: c.Key, open: true})
	}
}

// stopped notes a call that was refused by these circuits, had they been in
// force, and how it ended.
func (r *review) stopped(by []breaker.Refusal, op *taxonomy.Operation, failed bool) {
	if r == nil {
		return
	}
	r.Stopped++
	if failed {
		r.Failed++
	} else {
		r.Succeeded++
	}
	for i := range by {
		at := slices.IndexFunc(r.Opens, func(o OpenReview) bool { return o.open && o.key == by[i].Key })
		if at < 0 {
			continue // it opened before the trial, or too long ago
		}
		o := &r.Opens[at]
		o.within(r.narrowest(by[i].Breaker, op), failed)
		if failed {
			r.failedBeside(by[i].Breaker, op)
		}
	}
}

// within counts one call that an open circuit would have stopped.
func (o *OpenReview) within(scope string, failed bool) {
	if failed {
		o.Failed++
	} else {
		o.Succeeded++
	}
	at := slices.IndexFunc(o.Within, func(s ScopeReview) bool { return s.Scope == scope })
	if at < 0 {
		if len(o.Within) == maxWithin {
			return // the sums above have it
		}
		o.Within = append(o.Within, ScopeReview{Scope: scope})
		at = len(o.Within) - 1
	}
	if failed {
		o.Within[at].Failed++
	} else {
		o.Within[at].Succeeded++
	}
}

// stoodIn notes whether what the contract declares would have helped.
func (r *review) stoodIn(answers, failed bool) {
	switch {
	case failed && answers:
		r.Helps++
	case failed:
		r.Lacks++
	case answers:
		r.Needless++
	}
}

// standsIn reports whether a contract declares something that could answer this
// operation in the place of what is refused.
func (p *Policy) standsIn(contract string, op *taxonomy.Operation) bool {
	for i := range p.Fallbacks {
		if f := &p.Fallbacks[i]; f.Name == contract {
			return slices.ContainsFunc(possible(f.Candidates, op, anyMeans), func(c taxonomy.Candidate) bool { return answers(c.Kind) })
		}
	}
	return false
}

// anyMeans are those of a caller that can carry out whatever is declared.
var anyMeans = Means{
	Alternate: func(taxonomy.Candidate, taxonomy.Operation) (op taxonomy.Operation, send Send, ok bool) { return },
	Cached:    func(taxonomy.Candidate, taxonomy.Operation) (body string, age time.Duration, ok bool) { return },
}

// passed notes where a call counted that would have gone.
func (r *review) passed(op *taxonomy.Operation, feeds []receipts.Feed) {
	if r == nil {
		return
	}
	for _, f := range feeds {
		if f.Signal != taxonomy.SignalFailure && f.Signal != taxonomy.SignalOpenNow {
			continue
		}
		r.failedBeside(f.Breaker, op)
	}
}

// failedBeside notes a failure for the open circuits that it lies beside: it
// says that the fault is wider than what they would have stopped.
func (r *review) failedBeside(name string, op *taxonomy.Operation) {
	set := settingNamed(r.policy, name)
	for i := range r.Opens {
		if o := &r.Opens[i]; o.open && o.Breaker == name && o.beside(set, op) {
			o.Beside++
		}
	}
}

// beside reports whether an operation lies under the parent of an open circuit
// and not under the circuit itself.
func (o *OpenReview) beside(s *breaker.Setting, op *taxonomy.Operation) bool {
	depth := strings.Count(o.Scope, "/") + 1 // a slash inside a value is escaped
	if s == nil || depth < 2 || depth > len(s.Scope) {
		return false
	}
	parent, _ := s.Key(op, s.Scope[depth-2])
	own, _ := s.Key(op, s.Scope[depth-1])
	return strings.HasPrefix(o.key, parent+"|") && own != o.key
}

func (r *review) narrowest(name string, op *taxonomy.Operation) string {
	s := settingNamed(r.policy, name)
	if s == nil {
		return ""
	}
	key, _ := s.Key(op, s.Scope[len(s.Scope)-1]) // its own field
	return breaker.Scope(key)
}

// reviewed is the review with its findings.
func (t *tally) reviewed() Review {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.review == nil {
		return Review{}
	}
	out := t.review.Review
	out.Opens = slices.Clone(out.Opens)
	for i := range out.Opens {
		o := &out.Opens[i]
		o.Within = slices.Clone(o.Within)
		o.judge()
	}
	return out
}

// judge says whether opening was right, and whether its scope was that of the
// fault. An open is right when most of what it would have stopped failed.
func (o *OpenReview) judge() {
	o.Right, o.Scoped = "untested", "untested"
	if o.Failed+o.Succeeded == 0 {
		return
	}
	o.Right = "needless"
	if o.Failed >= o.Succeeded {
		o.Right = "right"
	}
	sound := slices.ContainsFunc(o.Within, func(s ScopeReview) bool { return s.Succeeded > s.Failed })
	faulty := slices.ContainsFunc(o.Within, func(s ScopeReview) bool { return s.Failed >= s.Succeeded })
	switch {
	case o.Beside > o.Failed:
		o.Scoped = "too_narrow"
	case sound && faulty:
		o.Scoped = "too_wide"
	case faulty:
		o.Scoped = "fits"
	}
}
