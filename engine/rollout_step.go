package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A RolloutStep is one step of a candidate's way into force, or out of it, as
// its receipt tells it: who, why, from where to where, both versions, and what
// was known at that moment.
type RolloutStep struct {
	ID          string
	By, Why     string
	Reason      string // a code: "started", "advanced", "gate_broke", …
	From, To    string // off, observe, shadow, canary, enforce
	BasisPoints int64
	InForce     taxonomy.PolicyVersion
	Candidate   taxonomy.PolicyVersion
	Report      TrialReport
}

// NoteRollout makes the evidence of a step durable, before the step is taken: it
// is awaited, so that no version comes into force that evidence does not know.
func (e *Engine) NoteRollout(ctx context.Context, s RolloutStep) (receipt string, err error) {
	if s.By == "" || s.Why == "" {
		return "", errors.New("rollout: a step says who and why")
	}
	r := e.newReceipt(receipts.KindRollout, receipts.Ledger)
	r.PolicyVersion = s.InForce
	r.Rollout, r.Reason, r.By = s.ID, s.Reason, s.By
	r.Override = &receipts.OverrideNote{By: s.By, Reason: s.Reason, Ticket: s.Why}
	r.Step = &receipts.RolloutStep{From: s.From, To: s.To, BasisPoints: s.BasisPoints, Candidate: s.Candidate, Figures: figuresOf(&s.Report)}
	if _, err := e.await(ctx, e.begin(ctx, r)); err != nil {
		return "", fmt.Errorf("rollout %s: its receipt: %w", s.ID, err)
	}
	return r.ID.String(), nil
}

// figuresOf are the figures that a receipt has room for, of both arms.
func figuresOf(r *TrialReport) []receipts.Count {
	var out []receipts.Count
	for _, arm := range []struct {
		name string
		f    *Figures
	}{{"control", &r.Control}, {"candidate", &r.Trial}} {
		risk, _ := arm.f.Risk()
		for _, c := range []receipts.Count{
			{Name: "decisions", N: arm.f.Decisions}, {Name: "opens", N: arm.f.Opens}, {Name: "user_failures", N: arm.f.UserFailures + arm.f.Unseen},
			{Name: "unknown_writes", N: arm.f.UnknownWrites}, {Name: "fallback_losses", N: arm.f.Losses},
			{Name: "interventions", N: arm.f.Interventions}, {Name: "corrections", N: arm.f.Corrections}, {Name: "risk_ppm", N: int64(risk * 1e6)},
		} {
			c.Name = arm.name + "." + c.Name
			out = append(out, c)
		}
	}
	return out
}

// Add joins what another process, or an earlier life of this one, knows of the
// same stage of the same trial.
func (r *TrialReport) Add(o *TrialReport) {
	for _, scope := range o.LowQuality {
		if !slices.Contains(r.LowQuality, scope) {
			r.LowQuality = append(r.LowQuality, scope)
		}
	}
	r.Control.Add(o.Control)
	r.Trial.Add(o.Trial)
	if r.Differences == nil {
		r.Differences = map[string]int64{}
	}
	for d, n := range o.Differences {
		r.Differences[d] += n
	}
	r.Looser += o.Looser
	r.Shed += o.Shed
	v, w := &r.Review, &o.Review
	v.Stopped += w.Stopped
	v.Failed += w.Failed
	v.Succeeded += w.Succeeded
	v.NotSent += w.NotSent
	v.Helps += w.Helps
	v.Lacks += w.Lacks
	v.Needless += w.Needless
	v.More += w.More
	v.Opens = append(append([]OpenReview{}, w.Opens...), v.Opens...)
	if more := len(v.Opens) - maxOpens; more > 0 {
		v.Opens, v.More = v.Opens[more:], v.More+int64(more)
	}
}
