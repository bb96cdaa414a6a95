package engine

import (
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Figures are what became of the calls of one arm of a trial. In a canary both
// arms really happened. In observe and shadow the candidate's are what would
// have happened: what is known of a call that it would not have sent is how that
// call ended, because the version in force sent it.
type Figures struct {
	Decisions     int64            `json:"decisions"`       // admissions asked
	Rejected      map[string]int64 `json:"rejected"`        // not sent, by the layer that said no
	Opens         int64            `json:"opens"`           // circuits that opened
	UserFailures  int64            `json:"user_failures"`   // no answer, and nothing stood in
	Unseen        int64            `json:"unseen"`          // would have been sent, and nobody knows how that ends
	UnknownWrites int64            `json:"unknown_writes"`  // that may have happened
	Fallbacks     int64            `json:"fallbacks"`       // something stood in
	Losses        int64            `json:"fallback_losses"` // with a declared loss, or it did not answer
	Interventions int64            `json:"interventions"`   // people overrode a circuit
	Corrections   int64            `json:"corrections"`     // what was reported was found to be wrong
	Errors        int64            `json:"errors"`          // of the rules or modules, panics among them
}

// Add joins the figures of two processes, or of two lives of one.
func (f *Figures) Add(o Figures) {
	f.Decisions += o.Decisions
	f.Opens += o.Opens
	f.UserFailures += o.UserFailures
	f.Unseen += o.Unseen
	f.UnknownWrites += o.UnknownWrites
	f.Fallbacks += o.Fallbacks
	f.Losses += o.Losses
	f.Interventions += o.Interventions
	f.Corrections += o.Corrections
	f.Errors += o.Errors
	for layer, n := range o.Rejected {
		if f.Rejected == nil {
			f.Rejected = map[string]int64{}
		}
		f.Rejected[layer] += n
	}
}

// A tally counts for one arm. A nil one counts nothing: that is every call's
// case while there is no trial.
type tally struct {
	mu       sync.Mutex
	f        Figures
	rejected [taxonomy.Layers]int64
	paired   bool // decisions and their ends come from the shadow, which sees both arms
	review   *review
}

func (t *tally) figures() Figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.f
	f.Rejected = map[string]int64{}
	for layer, n := range t.rejected {
		if n > 0 {
			f.Rejected[taxonomy.Layer(layer).String()] = n
		}
	}
	return f
}

// count changes the figures, from outside the lock.
func (t *tally) count(change func(*Figures)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.f)
}

// decided counts an admission. visible says that the caller sees a no as it is,
// because nobody retries or stands in for it; again, that the same call was
// counted before.
func (t *tally) decided(rej *Rejection, again, visible bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !again {
		t.f.Decisions++
	}
	if rej != nil {
		t.rejected[rej.Layer]++
		if visible {
			t.f.UserFailures++
		}
	}
}

// concluded counts how an attempt that was sent ended.
func (t *tally) concluded(op *taxonomy.Operation, v taxonomy.Verdict, visible bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.Outcome == taxonomy.Unknown && op.Effect.Writes() {
		t.f.UnknownWrites++
	}
	if visible && v.Outcome != taxonomy.Succeeded {
		t.f.UserFailures++
	}
}

// ended counts how a whole call of Do ended. A call that stands in for another
// is no call of a user, and one whose answer is asked for once more is not over.
func (t *tally) ended(res *Result, repairs bool) {
	if t == nil || t.paired || res.Operation.Origin == taxonomy.OriginFallback || res.Verdict.Outcome == taxonomy.Succeeded {
		return
	}
	if c := res.Verdict.Class; repairs && (c == taxonomy.Validation || c == taxonomy.SemanticQuality) {
		return
	}
	t.count(func(f *Figures) { f.UserFailures++ })
}

// answers reports whether a fallback gives the caller an answer of its kind.
func answers(kind string) bool { return kind == "alternate" || kind == "cached" || kind == "reduced" }

// fellBack counts what stood in for a failed call. Where it answered, the user
// saw no failure.
func (t *tally) fellBack(taken *Taken, ok bool) {
	t.count(func(f *Figures) {
		f.Fallbacks++
		if !ok || len(taken.Losses) > 0 {
			f.Losses++
		}
		if ok && answers(taken.Candidate.Kind) && !t.paired {
			f.UserFailures = max(f.UserFailures-1, 0)
		}
	})
}

// overridden counts a person's decision that goes against the circuit as it is.
func (t *tally) overridden(was *breaker.Circuit, kind breaker.OverrideKind) {
	against := was.State != breaker.Closed && kind == breaker.ForcedClosed || was.State == breaker.Closed && kind == breaker.ForcedOpen
	if against {
		t.count(func(f *Figures) { f.Interventions++ })
	}
}

// change counts a circuit that opened.
func (t *tally) change(c *breaker.Change, now time.Time) {
	if t == nil || !c.Moved() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.To == breaker.Open && c.From == breaker.Closed {
		t.f.Opens++
	}
	t.review.moved(c, now)
}

// A comparison is what a trial knows so far in this process.
type comparison struct {
	control, candidate *tally
	mu                 sync.Mutex
	diffs              map[receipts.Diff]int64
	authorityLooser    int64
	shed               int64
}

func newComparison(candidate *Policy, paired bool) *comparison {
	return &comparison{control: &tally{paired: paired}, candidate: &tally{review: newReview(candidate), paired: paired}, diffs: map[receipts.Diff]int64{}}
}

// A TrialReport is what a trial, or a version that only observes, shows so far
// in this process.
type TrialReport struct {
	ID          string                 `json:"id,omitempty"`
	Stage       taxonomy.Mode          `json:"stage"`
	BasisPoints int64                  `json:"basis_points,omitempty"`
	InForce     taxonomy.PolicyVersion `json:"in_force"`
	Candidate   taxonomy.PolicyVersion `json:"candidate,omitempty"`
	Control     Figures                `json:"control"`
	Trial       Figures                `json:"trial"`
	Differences map[string]int64       `json:"differences"` // decisions and verdicts, by kind
	Looser      int64                  `json:"authority_looser"`
	Shed        int64                  `json:"shed"`                  // calls that were not compared, because the queue was full
	LowQuality  []string               `json:"low_quality,omitempty"` // semantic circuits that are open for the candidate, and not for the version in force
	Review      Review                 `json:"review"`
}

// TrialReport tells what is known; ok is false where nothing is on trial and the
// version in force enforces.
func (e *Engine) TrialReport() (r TrialReport, ok bool) {
	p := e.home.policy.Load()
	r = TrialReport{InForce: p.Version, Differences: map[string]int64{}}
	t := e.trial.Load()
	if t == nil {
		own := e.home.tally.Load()
		if own == nil || own.review == nil {
			return r, false
		}
		r.Control, r.Review = own.figures(), own.reviewed()
		return r, true
	}
	c := t.figures
	r.ID, r.Stage, r.BasisPoints, r.Candidate = t.ID, t.Stage, t.BasisPoints, t.Candidate.Version
	r.LowQuality = e.lowQuality()
	r.Control, r.Trial, r.Review = c.control.figures(), c.candidate.figures(), c.candidate.reviewed()
	c.mu.Lock()
	defer c.mu.Unlock()
	for d, n := range c.diffs {
		r.Differences[d.String()] = n
	}
	r.Looser, r.Shed = c.authorityLooser, c.shed
	return r, true
}

// lowQuality are the semantic circuits that only the candidate opened.
func (e *Engine) lowQuality() (scopes []string) {
	for _, l := range e.TrialCircuits() {
		if l.Layer != taxonomy.LayerSemantic.String() || l.Circuit.State == breaker.Closed {
			continue
		}
		if c, _ := e.home.registry.Circuit(l.Key); c.State == breaker.Closed {
			scopes = append(scopes, l.Scope)
		}
	}
	return scopes
}

// TrialCircuits are the circuits of a candidate that are not as good as new: in
// a canary those that bind its arm, before it those that would.
func (e *Engine) TrialCircuits() []breaker.Listing {
	t := e.trial.Load()
	switch {
	case t == nil:
		return nil
	case t.shadow != nil:
		return t.shadow.arm.registry.List(false, e.clock.Mono())
	}
	return t.candidate.registry.List(false, e.clock.Mono())
}

// CanaryBreakers are the circuits that bind a canary's arm; nil without one.
func (e *Engine) CanaryBreakers() *breaker.Registry {
	if t := e.trial.Load(); t != nil && t.candidate.partition != nil {
		return t.candidate.registry
	}
	return nil
}

// differs counts how the candidate's word stands to the one in force.
func (c *comparison) differs(d receipts.Diff, authority bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diffs[d]++
	if d == receipts.DiffLooser && authority {
		c.authorityLooser++
	}
}
