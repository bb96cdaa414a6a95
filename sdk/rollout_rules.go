package sdk

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// figuresDoc is the input of data.fusebox.rollout.decision.
type figuresDoc struct {
	Stage       taxonomy.Mode    `json:"stage"`
	BasisPoints int64            `json:"basis_points"`
	StageHours  float64          `json:"stage_hours"`
	Hours       float64          `json:"hours"`
	Control     engine.Figures   `json:"control"`
	Candidate   engine.Figures   `json:"candidate"`
	Differences map[string]int64 `json:"differences"`
	Looser      int64            `json:"authority_looser"`
	Review      engine.Review    `json:"review"`
	Verdict     engine.Verdict   `json:"judged"` // by the gates of the settings
}

// ruled asks the rules of the version in force and of the candidate about the
// figures, where they define a gate of their own. A rule can hold what the
// settings would promote, or take it back; it can never promote by itself. One
// that cannot be evaluated holds.
func (c *Client) ruled(ctx context.Context, r *engine.TrialReport, v engine.Verdict, age, whole time.Duration) engine.Verdict {
	doc, err := json.Marshal(figuresDoc{Stage: r.Stage, BasisPoints: r.BasisPoints, StageHours: age.Hours(), Hours: whole.Hours(),
		Control: r.Control, Candidate: r.Trial, Differences: r.Differences, Looser: r.Looser, Review: r.Review, Verdict: v})
	if err != nil {
		return stricter(v, engine.Hold, []string{"the figures do not encode: " + err.Error()})
	}
	for _, l := range []*loaded{c.loaded.Load(), c.trial.policy} {
		if l == nil {
			continue
		}
		a, asked, err := l.snapshot.Rollout(ctx, doc)
		switch {
		case !asked:
		case err != nil:
			v = stricter(v, engine.Hold, []string{"the rules of " + string(l.policy.Version) + " cannot judge it: " + err.Error()})
		case a.Verdict == "roll_back":
			v = stricter(v, engine.RollBack, append(a.Reasons, "so say the rules of "+string(l.policy.Version)))
		case a.Verdict == "hold":
			v = stricter(v, engine.Hold, append(a.Reasons, "so say the rules of "+string(l.policy.Version)))
		}
	}
	return v
}

// stricter joins a verdict with another one that may be stricter.
func stricter(v engine.Verdict, j engine.Judgement, reasons []string) engine.Verdict {
	rank := map[engine.Judgement]int{engine.Advance: 0, engine.Hold: 1, engine.RollBack: 2}
	switch {
	case rank[j] > rank[v.Judgement]:
		v.Judgement, v.Reasons = j, reasons
	case rank[j] == rank[v.Judgement]:
		v.Reasons = append(v.Reasons, reasons...)
	}
	return v
}
