package sdk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// onTrial is what this process does about a rollout.
type onTrial struct {
	at      *Rollout            // as it was applied here
	policy  *loaded             // the candidate, while it is on trial
	base    *engine.TrialReport // of an earlier life of this slot
	written string              // figures as last kept
	err     error               // why a rollout could not be followed
}

// apply brings this process to where the rollout stands. compiled is the
// candidate where the caller has it already. The lock of reload is held.
func (c *Client) apply(ctx context.Context, r *Rollout, compiled *loaded) error {
	if r == nil || c.trial.at != nil && c.trial.at.ID == r.ID && c.trial.at.Step == r.Step {
		return nil
	}
	err := c.missed(ctx, r)
	switch {
	case err != nil:
	case r.Active():
		err = c.try(ctx, r, compiled)
	case r.State == "promoted":
		err = c.promote(ctx, r)
	case r.State == "rolled_back":
		err = c.takeBack(ctx, r)
	}
	if err != nil {
		return err
	}
	at := *r
	c.trial.at = &at
	return nil
}

// missed ends a trial whose last step nobody told us of, because the next
// rollout began within a beat: it ended as what that one found in force says.
func (c *Client) missed(ctx context.Context, r *Rollout) error {
	switch before := c.trial.at; {
	case c.trial.policy == nil || before == nil || before.ID == r.ID:
		return nil
	case same(c.trial.policy.policy.Version, r.InForce):
		return c.promote(ctx, before)
	default:
		return c.takeBack(ctx, before)
	}
}

// try puts the candidate on trial here, or in its next stage.
func (c *Client) try(ctx context.Context, r *Rollout, compiled *loaded) error {
	if v := c.engine.Version(); !same(v, r.InForce) {
		return fmt.Errorf("rollout %s: it would replace %s, and %s is in force here", r.ID, r.InForce, v)
	}
	before, fresh := c.trial.at, c.trial.policy == nil
	candidate := c.trial.policy
	if fresh {
		if candidate = compiled; candidate == nil {
			var err error
			if candidate, err = c.loadCandidate(ctx, r, c.loaded.Load()); err != nil {
				return err
			}
		}
	}
	if before == nil || before.ID != r.ID || before.Stage != r.Stage || fresh {
		base, err := c.earlier(ctx, r)
		if err != nil {
			return err
		}
		c.trial.base, c.trial.written = base, ""
	}
	err := c.engine.Try(ctx, engine.Trial{ID: r.ID, Candidate: candidate.policy, Stage: r.Stage, BasisPoints: r.BasisPoints, Unit: r.Unit, Began: r.Began,
		AllowLooser: r.Criteria.AllowLooser})
	if err != nil {
		if fresh {
			candidate.letGo()
		}
		return err
	}
	c.trial.policy = candidate
	return nil
}

// promote puts the candidate in force here.
func (c *Client) promote(ctx context.Context, r *Rollout) error {
	next := c.trial.policy
	switch {
	case next != nil:
		if err := c.engine.Promote(ctx); err != nil {
			return err
		}
	case same(c.engine.Version(), r.InForce):
		var err error
		if next, err = c.loadCandidate(ctx, r, c.loaded.Load()); err != nil {
			return err
		}
		if err := c.engine.Use(next.policy); err != nil {
			next.letGo()
			return err
		}
	default:
		return nil // something else came into force since
	}
	c.trial.policy = nil
	c.loaded.Store(next)
	c.report(next, nil)
	return c.forgetFigures(ctx, r)
}

// takeBack ends the trial here, or puts what was in force before it in force
// again.
func (c *Client) takeBack(ctx context.Context, r *Rollout) error {
	err := c.engine.EndTrial(ctx)
	c.trial.policy = nil
	if !same(c.engine.Version(), r.Candidate) {
		return errors.Join(err, c.forgetFigures(ctx, r))
	}
	old, lerr := c.load(ctx, c.loaded.Load())
	if lerr != nil {
		return errors.Join(err, lerr)
	}
	if same(old.policy.Version, r.Candidate) { // it is what the configuration names by now
		old.letGo()
		return err
	}
	if uerr := c.engine.Use(old.policy); uerr != nil {
		old.letGo()
		return errors.Join(err, uerr)
	}
	c.loaded.Store(old)
	c.report(old, nil)
	return err
}

// forgetFigures deletes what this process kept.
func (c *Client) forgetFigures(ctx context.Context, r *Rollout) error {
	c.trial.base, c.trial.written = nil, ""
	return c.store.Delete(ctx, c.figuresKey(r.ID))
}

// promoted is what is in force at a start: what the configuration names, or the
// candidate that was promoted in its place.
func (c *Client) promoted(ctx context.Context, first *loaded) (*loaded, error) {
	r, _, err := c.readRollout(ctx)
	if err != nil {
		return first, err
	}
	if r == nil || r.State != "promoted" || !same(r.InForce, first.policy.Version) {
		return first, nil
	}
	next, err := c.loadCandidate(ctx, r, first)
	if err != nil {
		return first, fmt.Errorf("%w; it was promoted: put it at policies.path, or roll it back", err)
	}
	at := *r
	c.trial.at = &at
	first.letGo()
	return next, nil
}

// replaced reports whether a reload found what a promoted candidate replaced.
func (c *Client) replaced(ctx context.Context, next *loaded) bool {
	r, _, err := c.readRollout(ctx)
	return err == nil && r != nil && r.State == "promoted" && same(r.InForce, next.policy.Version) && same(c.engine.Version(), r.Candidate)
}

// overtaken ends a rollout whose version in force was replaced by a reload: what
// it compared with is no more. One that was promoted is over too, so that its
// predecessor can come back by the same way.
func (c *Client) overtaken(ctx context.Context, version taxonomy.PolicyVersion) error {
	r, _, err := c.readRollout(ctx)
	if err != nil || r == nil || r.State == "rolled_back" || r.State == "promoted" && same(version, r.Candidate) {
		return err
	}
	next := *r
	next.Step, next.State, next.By, next.Why = r.Step+1, "rolled_back", "fusebox", "the policy in force was replaced by a reload"
	if err := c.step(ctx, r, &next, r.Stage.String(), "overtaken"); err != nil {
		return err
	}
	err = c.engine.EndTrial(ctx)
	c.trial.policy, c.trial.at = nil, &next
	return err
}

// CheckRollout does one round of what time drives: it follows what other
// processes decided, keeps the figures, and takes the steps that a rollout takes
// by itself. Run by Open every second.
func (c *Client) CheckRollout(ctx context.Context) error {
	c.reload.Lock()
	defer c.reload.Unlock()
	err := c.checkRollout(ctx)
	c.trial.err = err
	return err
}

func (c *Client) checkRollout(ctx context.Context) error {
	r, _, err := c.readRollout(ctx)
	if err != nil || r == nil {
		return err
	}
	if r.Active() && c.parts.Exclusive && c.trial.policy == nil && !same(c.engine.Version(), r.InForce) {
		return c.overtaken(ctx, c.engine.Version()) // the server was started on another policy
	}
	if err := c.apply(ctx, r, nil); err != nil {
		return err
	}
	if !r.Active() {
		return nil
	}
	if err := c.writeFigures(ctx); err != nil {
		return err
	}
	s, err := c.rolloutStatus(ctx, r)
	if err != nil {
		return err
	}
	byItself := StepRequest{By: "fusebox", Why: cut(s.Verdict.Reasons[0])}
	switch s.Verdict.Judgement {
	case engine.RollBack:
		_, err = c.rollBack(ctx, byItself, "gate_broke")
		c.parts.Log.Error("rollout rolled back", "id", r.ID, "candidate", r.Candidate, "reasons", s.Verdict.Reasons)
	case engine.Advance:
		if r.Auto && r.State == "running" {
			_, err = c.advance(ctx, byItself, "advanced_by_itself")
		}
	}
	if errors.Is(err, ErrRefused) {
		return nil // another process was first, or the next stage needs a person
	}
	return err
}

// cut keeps a reason short enough for a receipt.
func cut(s string) string {
	const most = 80
	return s[:min(len(s), most)]
}

// followRollout checks until ctx ends.
func (c *Client) followRollout(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			err := c.CheckRollout(ctx)
			switch {
			case err == nil:
				said = ""
			case err.Error() != said && ctx.Err() == nil: // once, not every second
				said = err.Error()
				c.parts.Log.Warn("rollout", "error", err)
			}
		}
	}
}
