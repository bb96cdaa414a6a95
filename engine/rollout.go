package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Trial is a candidate beside the version in force (SPEC R-POL-8).
//
// In ModeObserve and ModeShadow the version in force decides every call, and
// the candidate is asked the same questions afterwards, in circuits that nobody
// else sees. In ModeCanary the candidate decides for a share of the units, in
// circuits of its own in the store too.
type Trial struct {
	ID          string // names it in receipts and in the store; never used twice
	Candidate   *Policy
	Stage       taxonomy.Mode
	BasisPoints int64     // share of the canary, in 1/10,000 of the units
	Unit        string    // field of an operation that is never split: "tenant" or "run_id"
	Began       time.Time // of the trial, the same in every process
	AllowLooser bool      // its authority may grant more in a canary; somebody said so
}

// Errors of a trial.
var (
	ErrNoTrial = errors.New("there is no trial")
	ErrOnTrial = errors.New("another candidate is on trial")
)

func (t *Trial) check() error {
	part, known := taxonomy.PartNamed(t.Unit)
	switch {
	case t.ID == "" || len(t.ID) > 40:
		return errors.New("it needs an id of at most 40 bytes")
	case t.Candidate == nil || t.Candidate.Rules == nil || t.Candidate.Table == nil:
		return errors.New("it has no complete candidate")
	case t.Stage != taxonomy.ModeObserve && t.Stage != taxonomy.ModeShadow && t.Stage != taxonomy.ModeCanary:
		return fmt.Errorf("its stage must be observe, shadow or canary, not %s", t.Stage)
	case t.Stage == taxonomy.ModeCanary && (t.BasisPoints < 1 || t.BasisPoints > 10_000):
		return fmt.Errorf("its share must be 1 to 10,000 basis points, not %d", t.BasisPoints)
	case !known || part == nil:
		return fmt.Errorf("its unit %q is no field of an operation", t.Unit)
	}
	return nil
}

// A trial is a Trial under way.
type trial struct {
	Trial
	unit      taxonomy.Part
	control   arm
	candidate arm     // canary: its partition decides; else it has none
	shadow    *shadow // observe and shadow
	figures   *comparison
}

// An arm is a partition with the labels of what was decided under it.
type arm struct {
	*partition
	trial           *trial // nil without one
	cohort, rollout string // of receipts about calls
}

// label says in a receipt about a call under which arm it went.
func (a *arm) label(r *receipts.Receipt) {
	r.Cohort, r.Rollout = a.cohort, a.rollout
	if a.partition.cohort != "" {
		r.Mode = receipts.Some(taxonomy.ModeCanary)
	}
}

// Cohorts of a canary, as receipts name them.
const (
	CohortCandidate = "candidate"
	CohortControl   = "control"
	CohortShadow    = "shadow"
)

// Candidates reports whether a unit belongs to the candidate's share: a stable
// hash, so that every process and every restart agrees, and a larger share only
// adds units to a smaller one.
func (t *Trial) Candidates(unit string) bool {
	if unit == "" {
		return false // what belongs to nobody stays where it is
	}
	h := sha256.New()
	h.Write([]byte(t.ID)) // never fails; another trial draws other units
	h.Write([]byte{0})
	h.Write([]byte(unit))
	var sum [sha256.Size]byte
	return binary.BigEndian.Uint64(h.Sum(sum[:0]))%10_000 < uint64(t.BasisPoints)
}

// armOf is the arm that an operation goes under now.
func (e *Engine) armOf(op *taxonomy.Operation) *arm {
	t := e.trial.Load()
	switch {
	case t == nil:
		return &e.plain
	case t.candidate.partition != nil && t.Candidates(t.unit(op)):
		return &t.candidate
	}
	return &t.control
}

// armFor is armOf with the arm's policy, pinned; the caller releases it.
func (e *Engine) armFor(op *taxonomy.Operation) (*arm, *Policy) {
	for {
		a := e.armOf(op)
		if p, ok := a.acquire(); ok {
			return a, p
		}
	}
}

// partitions are all that hold circuits in force: the version in force first.
func (e *Engine) partitions() []*partition {
	if t := e.trial.Load(); t != nil && t.candidate.partition != nil {
		return []*partition{e.home, t.candidate.partition}
	}
	return []*partition{e.home}
}

// Try puts a candidate on trial, or a trial that is under way into another
// stage or at another share. Calls that are out keep the arm that admitted them.
// A candidate that is on trial already must be the same one.
func (e *Engine) Try(ctx context.Context, tr Trial) error {
	if err := tr.check(); err != nil {
		return fmt.Errorf("try %s: %w", tr.ID, err)
	}
	e.stage.Lock()
	defer e.stage.Unlock()
	old := e.trial.Load()
	switch {
	case e.closed.Load():
		return fmt.Errorf("try %s: %w", tr.ID, ErrClosed)
	case old != nil && (old.ID != tr.ID || old.Candidate != tr.Candidate):
		return fmt.Errorf("try %s: %w: %s", tr.ID, ErrOnTrial, old.ID)
	case old == nil && tr.Candidate == e.home.policy.Load():
		return fmt.Errorf("try %s: the candidate %s is in force already", tr.ID, tr.Candidate.Version)
	}
	t, err := e.newTrial(ctx, tr, old)
	if err != nil {
		return fmt.Errorf("try %s: %w", tr.ID, err)
	}
	if old == nil {
		tr.Candidate.users.Add(1) // the trial's own hold on it
	}
	e.swap.Lock()
	e.trial.Store(t)
	e.home.tally.Store(t.figures.control)
	e.swap.Unlock()
	if old != nil && old.candidate.partition != nil && t.candidate.partition == nil {
		err = e.retire(ctx, old) // a step back from canary
	}
	if old != nil && old.shadow != nil {
		old.shadow.end()
	}
	if err != nil {
		return fmt.Errorf("try %s: end its circuits: %w", tr.ID, err)
	}
	return nil
}

// newTrial builds a stage. What an earlier stage of the same trial knows goes
// on: the circuits of a canary whose share grows, and the figures of a stage
// that stays.
func (e *Engine) newTrial(ctx context.Context, tr Trial, old *trial) (*trial, error) {
	t := &trial{Trial: tr, figures: newComparison(tr.Candidate, tr.Stage != taxonomy.ModeCanary)}
	t.unit, _ = taxonomy.PartNamed(tr.Unit) // checked
	if old != nil && old.Stage == tr.Stage {
		t.figures = old.figures
	}
	t.control = arm{partition: e.home, trial: t}
	if tr.Stage != taxonomy.ModeCanary {
		var err error
		t.shadow, err = newShadow(e, t, old)
		return t, err
	}
	label := tr.ID + "@" + strconv.FormatInt(tr.BasisPoints, 10) + "bp"
	t.control.cohort, t.control.rollout = CohortControl, label
	t.candidate = arm{trial: t, cohort: CohortCandidate, rollout: label}
	if old != nil && old.candidate.partition != nil {
		t.candidate.partition = old.candidate.partition
		return t, nil
	}
	s, err := e.newCanary(ctx, &tr)
	if err != nil {
		return nil, err
	}
	s.tally.Store(t.figures.candidate)
	t.candidate.partition = s
	return t, nil
}

// newCanary is the partition of a candidate. It begins where the version in
// force stands, as a reload would: a circuit that is open for good reason is not
// forgotten because other rules are tried. What an earlier process of the same
// trial knew comes from the store.
func (e *Engine) newCanary(ctx context.Context, tr *Trial) (*partition, error) {
	s, err := newPartition(e, trialPrefix+tr.ID+"/")
	if err != nil {
		return nil, err
	}
	s.cohort, s.epoch, s.gone = CohortCandidate, tr.Began.UnixMilli(), make(chan struct{})
	s.policy.Store(tr.Candidate)
	now := e.clock.Mono()
	if _, err := s.registry.Swap(tr.Candidate.Breakers, now); err != nil {
		return nil, err
	}
	at := e.clock.Now()
	if _, err := s.registry.Restore(e.home.registry.Snapshot(now, at), now, at); err != nil {
		return nil, err
	}
	return s, s.restore(ctx)
}

// trialPrefix begins the documents of candidates' circuits in the store.
const trialPrefix = "try/"

// EndTrial takes the candidate back: all units go under the version in force
// again. It is no error when there is none.
func (e *Engine) EndTrial(ctx context.Context) error {
	e.stage.Lock()
	defer e.stage.Unlock()
	return e.endTrial(ctx)
}

func (e *Engine) endTrial(ctx context.Context) error {
	t := e.trial.Load()
	if t == nil {
		return nil
	}
	e.swap.Lock()
	e.trial.Store(nil)
	e.home.observe(e.home.policy.Load())
	e.swap.Unlock()
	if t.shadow != nil {
		t.shadow.end()
	}
	var err error
	if t.candidate.partition != nil {
		err = e.retire(ctx, t)
	}
	return errors.Join(err, t.Candidate.release())
}

// Promote puts the candidate in force for all units, and ends the trial.
func (e *Engine) Promote(ctx context.Context) error {
	e.stage.Lock()
	defer e.stage.Unlock()
	t := e.trial.Load()
	if t == nil {
		return fmt.Errorf("promote: %w", ErrNoTrial)
	}
	if err := e.Use(t.Candidate); err != nil {
		return fmt.Errorf("promote %s: %w", t.ID, err)
	}
	return e.endTrial(ctx)
}

// retire ends a candidate's partition. What it holds of UNKNOWN writes is not
// the candidate's opinion but a fact, and goes on in the version in force.
func (e *Engine) retire(ctx context.Context, t *trial) error {
	s := t.candidate.partition
	close(s.gone)
	return errors.Join(s.handOver(ctx), s.forget(ctx))
}

// stopTrial ends what runs for a trial in this process, and leaves the trial
// itself to the next one.
func (e *Engine) stopTrial(context.Context) error {
	e.stage.Lock()
	defer e.stage.Unlock()
	t := e.trial.Swap(nil)
	if t == nil {
		return nil
	}
	if t.shadow != nil {
		t.shadow.end()
	}
	return t.Candidate.release()
}

// followTrials follows what other processes do to a candidate's circuits, for
// as long as there are some.
func (e *Engine) followTrials(ctx context.Context) {
	for ctx.Err() == nil {
		if t := e.trial.Load(); t != nil && t.candidate.partition != nil {
			part, cancel := context.WithCancel(ctx)
			go func() {
				select {
				case <-t.candidate.gone:
				case <-part.Done():
				}
				cancel()
			}()
			t.candidate.follow(part)
			cancel()
		}
		if !e.clock.Sleep(beat, ctx.Done()) {
			return
		}
	}
}
