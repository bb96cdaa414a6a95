package sdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Rollout is a candidate's way into force: observe, shadow, canary, enforce
// (SPEC R-POL-8). It is kept in the store, so that a restart continues it and
// every process on the store follows it.
type Rollout struct {
	V           int                    `json:"v"`
	ID          string                 `json:"id"`    // "ro-1"
	State       string                 `json:"state"` // running, held, promoted, rolled_back
	Stage       taxonomy.Mode          `json:"stage"`
	BasisPoints int64                  `json:"basis_points,omitempty"` // share of the canary
	Unit        string                 `json:"unit"`
	InForce     taxonomy.PolicyVersion `json:"in_force"` // what it would replace
	Candidate   taxonomy.PolicyVersion `json:"candidate"`
	Source      string                 `json:"source"` // where the candidate came from
	Auto        bool                   `json:"auto"`   // advance by itself when the figures say so
	Criteria    engine.Criteria        `json:"criteria"`
	Began       time.Time              `json:"began"`
	StageBegan  time.Time              `json:"stage_began"`
	By          string                 `json:"by"`     // of the latest step
	Why         string                 `json:"why"`    //
	Reason      string                 `json:"reason"` // its code
	Receipt     string                 `json:"receipt"`
	Number      int64                  `json:"number"` // of rollouts on this store
	Step        int64                  `json:"step"`   // of this one: no two processes take the same
}

// Active reports whether a candidate is on trial.
func (r *Rollout) Active() bool { return r != nil && (r.State == "running" || r.State == "held") }

// Errors of a rollout.
var (
	ErrNoRollout = errors.New("no rollout is under way")
	ErrRefused   = errors.New("the rollout does not allow it")
	ErrCandidate = errors.New("the candidate does not load")
)

// StartRequest begins a rollout.
type StartRequest struct {
	Path        string        `json:"-"`            // of the candidate: a folder or an archive
	Source      string        `json:"source"`       // or where it came from,
	Archive     []byte        `json:"archive"`      // and its archive
	Stage       taxonomy.Mode `json:"stage"`        // to begin in; observe is the careful one
	Percent     float64       `json:"percent"`      // of the canary; 0 is what the candidate's [rollout] says
	Auto        bool          `json:"auto"`         //
	AllowLooser bool          `json:"allow_looser"` // authority may grant more than before
	By          string        `json:"by"`           //
	Why         string        `json:"reason"`       //
}

// StartRollout reads and compiles the candidate, keeps a copy of it, and puts it
// on trial beside the version in force.
func (c *Client) StartRollout(ctx context.Context, req StartRequest) (*Rollout, error) {
	c.reload.Lock()
	defer c.reload.Unlock()
	doc, _, err := c.readRollout(ctx)
	if err != nil {
		return nil, err
	}
	if doc.Active() {
		return nil, fmt.Errorf("start a rollout: %w: %s of %s is under way; advance it, or roll it back", ErrRefused, doc.ID, doc.Candidate)
	}
	bundle, copied, err := c.readCandidate(&req)
	if err != nil {
		return nil, fmt.Errorf("start a rollout: %w: %w", ErrCandidate, err)
	}
	o := rego.Options{KeepInput: c.config.ReplayInputs(), Mismatch: c.mismatch}
	proofOf(bundle, &o)
	next, err := compileAs(ctx, bundle, taxonomy.ModeEnforce, c.loaded.Load(), &c.parts, o)
	if err != nil {
		return nil, fmt.Errorf("start a rollout: %w: %w", ErrCandidate, err)
	}
	keep := false
	defer func() {
		if !keep {
			next.letGo()
		}
	}()
	r := c.newRollout(doc, next, req)
	switch {
	case same(r.Candidate, r.InForce):
		return nil, fmt.Errorf("start a rollout: %w: %s is in force already", ErrRefused, r.Candidate)
	case r.Stage == taxonomy.ModeCanary && r.BasisPoints == 0:
		return nil, fmt.Errorf("start a rollout: %w: a canary needs a share; give --percent, or set rollout.canary_percent in the candidate", ErrRefused)
	case r.Stage == taxonomy.ModeEnforce:
		return nil, fmt.Errorf("start a rollout: %w: no rollout begins in enforce; begin in observe", ErrRefused)
	}
	if err := c.claim(next); err != nil {
		return nil, fmt.Errorf("start a rollout: %w: %w", ErrCandidate, err)
	}
	if err := c.storeCandidate(ctx, r.ID, copied); err != nil {
		return nil, err
	}
	if err := c.step(ctx, doc, r, "off", "started"); err != nil {
		return nil, err
	}
	keep = true
	return r, c.apply(ctx, r, next)
}

// newRollout joins what the candidate and the version in force ask for: no
// candidate loosens what it is judged by.
func (c *Client) newRollout(doc *Rollout, next *loaded, req StartRequest) *Rollout {
	old, new := &c.loaded.Load().bundle.Settings.Rollout, &next.bundle.Settings.Rollout
	now := c.now()
	number := int64(1)
	if doc != nil {
		number = doc.Number + 1
	}
	percent := req.Percent
	if percent == 0 {
		percent = new.CanaryPercent
	}
	return &Rollout{V: 1, ID: fmt.Sprintf("ro-%d", number), Number: number, Step: 1, State: "running", Stage: req.Stage,
		BasisPoints: basisPoints(percent), Unit: new.Unit, InForce: c.engine.Version(), Candidate: next.policy.Version,
		Source: next.bundle.Source, Auto: req.Auto, Criteria: criteria(old, new, req.AllowLooser),
		Began: now, StageBegan: now, By: req.By, Why: req.Why}
}

func basisPoints(percent float64) int64 { return int64(percent*100 + 0.5) }

// criteria are the stricter of both.
func criteria(old, new *policies.Rollout, allowLooser bool) engine.Criteria {
	hours := max(old.MinHours, new.MinHours)
	c := engine.Criteria{MinTime: time.Duration(hours * float64(time.Hour)), MinDecisions: max(old.MinDecisions, new.MinDecisions),
		Deadline: old.Deadline, AllowLooser: allowLooser}
	if new.Deadline > 0 && (c.Deadline == 0 || new.Deadline < c.Deadline) {
		c.Deadline = new.Deadline
	}
	seen := map[engine.Gate]bool{}
	for _, g := range append(append([]policies.Gate{}, old.Gates...), new.Gates...) {
		gate := engine.Gate{Measure: g.Measure, MaxRatio: g.MaxRatio, MaxRise: g.MaxRise}
		if !seen[gate] {
			seen[gate] = true
			c.Gates = append(c.Gates, gate)
		}
	}
	return c
}

// A StepRequest moves a rollout on, holds it, or takes it back.
type StepRequest struct {
	Percent float64 `json:"percent"` // of a canary; 0 leaves it
	By      string  `json:"by"`
	Why     string  `json:"reason"`
}

// AdvanceRollout takes the next step: observe, shadow, canary, a larger canary
// where a larger percentage is asked for, enforce. The last one is refused
// unless the figures say that total risk falls.
func (c *Client) AdvanceRollout(ctx context.Context, req StepRequest) (*Rollout, error) {
	c.reload.Lock()
	defer c.reload.Unlock()
	return c.advance(ctx, req, "advanced")
}

func (c *Client) advance(ctx context.Context, req StepRequest, reason string) (*Rollout, error) {
	doc, _, err := c.readRollout(ctx)
	if err != nil {
		return nil, err
	}
	if !doc.Active() {
		return nil, fmt.Errorf("advance: %w; fusebox rollout start begins one", ErrNoRollout)
	}
	if err := c.apply(ctx, doc, nil); err != nil { // the figures are those of this stage
		return nil, err
	}
	status, err := c.rolloutStatus(ctx, doc)
	if err != nil {
		return nil, err
	}
	next := *doc
	next.Step, next.State, next.By, next.Why = doc.Step+1, "running", req.By, req.Why
	if req.Percent > 0 {
		next.BasisPoints = basisPoints(req.Percent)
	}
	switch {
	case status.Verdict.Judgement == engine.RollBack:
		return nil, fmt.Errorf("advance: %w: %s", ErrRefused, status.Verdict.Reasons[0])
	case doc.Stage == taxonomy.ModeCanary && req.Percent > 0:
		if next.BasisPoints <= doc.BasisPoints || next.BasisPoints > 10_000 {
			return nil, fmt.Errorf("advance: %w: the canary has %s of the units; a larger share is above that, and at most 100", ErrRefused, share(doc.BasisPoints))
		}
	case doc.Stage == taxonomy.ModeCanary:
		if status.Verdict.Judgement != engine.Advance {
			return nil, fmt.Errorf("advance: %w: %s; it is put in force only when total risk falls", ErrRefused, status.Verdict.Reasons[0])
		}
		next.Stage, next.State = taxonomy.ModeEnforce, "promoted"
	default:
		next.Stage++
	}
	if next.Stage == taxonomy.ModeCanary && (next.BasisPoints < 1 || next.BasisPoints > 10_000) {
		return nil, fmt.Errorf("advance: %w: a canary needs a share above 0 and of at most 100 percent; give --percent, or set rollout.canary_percent in the candidate", ErrRefused)
	}
	if next.Stage != doc.Stage {
		next.StageBegan = c.now()
	}
	if err := c.step(ctx, doc, &next, doc.Stage.String(), reason); err != nil {
		return nil, err
	}
	return &next, c.apply(ctx, &next, nil)
}

// HoldRollout keeps a rollout in its stage until somebody advances it: nothing
// goes on by itself, and what breaks a gate or the deadline still rolls it back.
func (c *Client) HoldRollout(ctx context.Context, req StepRequest) (*Rollout, error) {
	c.reload.Lock()
	defer c.reload.Unlock()
	doc, _, err := c.readRollout(ctx)
	if err != nil {
		return nil, err
	}
	if !doc.Active() {
		return nil, fmt.Errorf("hold: %w", ErrNoRollout)
	}
	next := *doc
	next.Step, next.State, next.By, next.Why = doc.Step+1, "held", req.By, req.Why
	if err := c.step(ctx, doc, &next, doc.Stage.String(), "held"); err != nil {
		return nil, err
	}
	return &next, c.apply(ctx, &next, nil)
}

// RollBack takes the candidate back: all units go under the version that was in
// force before it, also after a promotion.
func (c *Client) RollBack(ctx context.Context, req StepRequest) (*Rollout, error) {
	c.reload.Lock()
	defer c.reload.Unlock()
	return c.rollBack(ctx, req, "rolled_back")
}

func (c *Client) rollBack(ctx context.Context, req StepRequest, reason string) (*Rollout, error) {
	doc, _, err := c.readRollout(ctx)
	if err != nil {
		return nil, err
	}
	if !doc.Active() && (doc == nil || doc.State != "promoted") {
		return nil, fmt.Errorf("roll back: %w, and none was promoted", ErrNoRollout)
	}
	if doc.State == "promoted" { // only what the configuration names can come back
		b, err := c.read()
		if err != nil {
			return nil, fmt.Errorf("roll back: read what was in force before: %w", err)
		}
		if v := Version(b); !same(v, doc.InForce) {
			return nil, fmt.Errorf("roll back: %w: %s was in force before, and policies.path now holds %s; put the former there and it is in force", ErrRefused, doc.InForce, v)
		}
	}
	next := *doc
	next.Step, next.State, next.By, next.Why = doc.Step+1, "rolled_back", req.By, req.Why
	if err := c.step(ctx, doc, &next, doc.Stage.String(), reason); err != nil {
		return nil, err
	}
	return &next, c.apply(ctx, &next, nil)
}

// A RolloutStatus is a rollout with what is known of it, over all processes.
type RolloutStatus struct {
	V       int                 `json:"v"`
	Rollout *Rollout            `json:"rollout"` // the latest; nil when there never was one
	Report  *engine.TrialReport `json:"report"`  // of its stage, or of a version in force that only observes
	Verdict *engine.Verdict     `json:"verdict"` // nil where nothing is judged
	Open    []CandidateCircuit  `json:"open"`    // circuits of the candidate that are not closed, in this process
	Error   string              `json:"error,omitempty"`
}

// A CandidateCircuit is one circuit of a candidate.
type CandidateCircuit struct {
	Scope   string `json:"scope"`
	State   string `json:"state"`
	Failed  uint64 `json:"failed"`
	Samples uint64 `json:"samples"`
}

// RolloutStatus tells where a rollout stands. It first follows what another
// process decided, so that the figures are those of the stage that is told.
func (c *Client) RolloutStatus(ctx context.Context) (RolloutStatus, error) {
	c.reload.Lock()
	defer c.reload.Unlock()
	doc, _, err := c.readRollout(ctx)
	if err != nil {
		return RolloutStatus{}, err
	}
	c.trial.err = c.apply(ctx, doc, nil)
	return c.rolloutStatus(ctx, doc)
}

// candidateCircuits are those of the candidate here that are not closed.
func (c *Client) candidateCircuits() []CandidateCircuit {
	out := []CandidateCircuit{}
	if c.engine == nil {
		return out
	}
	for _, l := range c.engine.TrialCircuits() {
		if l.Circuit.State != breaker.Closed || l.Circuit.Override != nil {
			out = append(out, CandidateCircuit{Scope: l.Scope, State: l.Circuit.State.String(), Failed: l.Facts.Failures, Samples: l.Facts.Samples})
		}
	}
	return out
}

func (c *Client) rolloutStatus(ctx context.Context, doc *Rollout) (RolloutStatus, error) {
	s := RolloutStatus{V: 1, Rollout: doc, Open: c.candidateCircuits()}
	if c.trial.err != nil {
		s.Error = c.trial.err.Error()
	}
	if !doc.Active() {
		if c.engine == nil {
			return s, nil
		}
		if r, ok := c.engine.TrialReport(); ok {
			s.Report = &r
		}
		return s, nil
	}
	r, err := c.figures(ctx, doc)
	if err != nil {
		return s, err
	}
	now := c.now()
	age, whole := now.Sub(doc.StageBegan), now.Sub(doc.Began)
	v := doc.Criteria.Judge(r, age, whole)
	if c.engine != nil {
		v = c.ruled(ctx, r, v, age, whole)
	}
	s.Report, s.Verdict = r, &v
	return s, nil
}

// ReadRollout tells where the rollout of a store stands, without a fusebox: what
// processes know that run is as they last kept it.
func ReadRollout(ctx context.Context, store state.Store) (RolloutStatus, error) {
	c := &Client{store: store}
	doc, _, err := c.readRollout(ctx)
	if err != nil {
		return RolloutStatus{}, err
	}
	return c.rolloutStatus(ctx, doc)
}

// same reports whether two versions decide alike: the revision before the digest
// is a name, and ends in -dev where a folder is watched.
func same(a, b taxonomy.PolicyVersion) bool {
	_, x, _ := strings.Cut(string(a), "@")
	_, y, _ := strings.Cut(string(b), "@")
	return x == y
}

func share(basisPoints int64) string { return fmt.Sprintf("%g %%", float64(basisPoints)/100) }

// now is the clock of everything.
func (c *Client) now() time.Time {
	if c.parts.Clock != nil {
		return c.parts.Clock.Now()
	}
	return time.Now()
}
