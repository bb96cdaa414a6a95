package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-POL-8: promote, hold or roll back, by declared criteria. A candidate is
// promoted only when total outcome risk falls, never for availability alone.
func TestJudge(t *testing.T) {
	type arms struct{ control, candidate engine.Figures }
	even := func(n int64) arms { return arms{engine.Figures{Decisions: n}, engine.Figures{Decisions: n}} }
	with := func(a arms, change func(*arms)) arms { change(&a); return a }
	gates := []engine.Gate{{Measure: "user_failures", MaxRatio: 1}, {Measure: "risk", MaxRatio: 1}}
	better := with(even(5000), func(a *arms) { a.control.UserFailures, a.candidate.UserFailures = 500, 300 })
	for name, c := range map[string]struct {
		arms   arms
		gates  []engine.Gate
		age    time.Duration
		looser int64
		want   engine.Judgement
		why    string
	}{
		"fewer failures, nothing worse": {arms: better, want: engine.Advance, why: "risk falls"},
		"too early":                     {arms: better, age: time.Minute, want: engine.Hold, why: "1m0s"},
		"too few decisions in force":    {arms: with(better, func(a *arms) { a.control.Decisions = 900; a.control.UserFailures = 400 }), want: engine.Hold, why: "in force has 900"},
		"too few for the candidate":     {arms: with(better, func(a *arms) { a.candidate.Decisions = 900; a.candidate.UserFailures = 1 }), want: engine.Hold, why: "candidate has 900"},
		"no data at all":                {arms: even(0), want: engine.Hold, why: "0 decisions"},
		"the same":                      {arms: with(even(5000), func(a *arms) { a.control.UserFailures, a.candidate.UserFailures = 100, 100 }), want: engine.Hold, why: "risk does not fall"},
		"no failures anywhere":          {arms: even(5000), want: engine.Hold, why: "risk does not fall"},
		"far more failures":             {arms: with(even(5000), func(a *arms) { a.control.UserFailures, a.candidate.UserFailures = 100, 500 }), want: engine.RollBack, why: "user_failures breaks"},
		"a few more failures": {arms: with(even(5000), func(a *arms) { a.control.UserFailures, a.candidate.UserFailures = 100, 110 }),
			want: engine.Hold, why: "user_failures is inconclusive"},
		"more available, and more unknown writes": {arms: with(even(5000), func(a *arms) {
			a.control.UserFailures, a.candidate.UserFailures = 1000, 100
			a.candidate.UnknownWrites = 40
		}), want: engine.Hold, why: "harm rises"},
		"more available, and reported wrong": {arms: with(even(5000), func(a *arms) {
			a.control.UserFailures, a.candidate.UserFailures = 1000, 100
			a.candidate.Corrections = 3
		}), want: engine.Hold, why: "harm rises"},
		"what nobody saw counts as failed": {arms: with(even(5000), func(a *arms) { a.control.UserFailures, a.candidate.Unseen = 100, 600 }), want: engine.RollBack, why: "user_failures breaks"},
		"less harm at the same availability": {arms: with(even(5000), func(a *arms) {
			a.control.UserFailures, a.candidate.UserFailures = 100, 100
			a.control.UnknownWrites = 60
		}), want: engine.Advance, why: "risk falls"},
		"fails to decide":                    {arms: with(better, func(a *arms) { a.candidate.Errors = 1 }), want: engine.RollBack, why: "failed to decide"},
		"fails as often as the one in force": {arms: with(better, func(a *arms) { a.candidate.Errors, a.control.Errors = 4, 4 }), want: engine.Advance},
		"past the deadline":                  {arms: better, age: 200 * time.Hour, want: engine.RollBack, why: "deadline"},
		"authority grants more":              {arms: better, looser: 1, want: engine.Hold, why: "authority would grant more"},
		"opens too often": {arms: with(better, func(a *arms) { a.control.Opens, a.candidate.Opens = 5, 200 }),
			gates: []engine.Gate{{Measure: "opens", MaxRatio: 2}}, want: engine.RollBack, why: "opens breaks"},
		"opens as often as allowed": {arms: with(better, func(a *arms) { a.control.Opens, a.candidate.Opens = 100, 150 }),
			gates: []engine.Gate{{Measure: "opens", MaxRatio: 2}}, want: engine.Advance},
		"rises more than allowed": {arms: with(better, func(a *arms) { a.control.Fallbacks, a.candidate.Fallbacks, a.candidate.Losses = 1000, 1000, 300 }),
			gates: []engine.Gate{{Measure: "fallback_quality", MaxRise: 0.05}}, want: engine.RollBack, why: "fallback_quality breaks"},
		"people had to step in": {arms: with(better, func(a *arms) { a.candidate.Interventions = 60 }),
			gates: []engine.Gate{{Measure: "interventions", MaxRise: 0.001}}, want: engine.RollBack, why: "interventions breaks"},
		"corrections": {arms: with(better, func(a *arms) { a.candidate.Corrections = 60 }),
			gates: []engine.Gate{{Measure: "corrections", MaxRatio: 1}}, want: engine.RollBack, why: "corrections breaks"},
	} {
		criteria := engine.Criteria{MinTime: time.Hour, MinDecisions: 1000, Deadline: 168 * time.Hour, Gates: gates}
		if c.gates != nil {
			criteria.Gates = c.gates
		}
		if c.age == 0 {
			c.age = 24 * time.Hour
		}
		r := &engine.TrialReport{Stage: taxonomy.ModeShadow, Control: c.arms.control, Trial: c.arms.candidate, Looser: c.looser}
		v := criteria.Judge(r, c.age, c.age)
		if v.Judgement != c.want || !strings.Contains(strings.Join(v.Reasons, "; "), c.why) {
			t.Errorf("%s: %s because of %q, want %s because of %q", name, v.Judgement, v.Reasons, c.want, c.why)
		}
	}
	// R-OPS-6: a semantic circuit of the candidate blocks its rollout.
	criteria := engine.Criteria{}
	if v := criteria.Judge(&engine.TrialReport{Stage: taxonomy.ModeCanary, Control: better.control, Trial: better.candidate, LowQuality: []string{"quality:reply"}}, time.Hour, time.Hour); v.Judgement != engine.Hold || !strings.Contains(strings.Join(v.Reasons, ";"), "quality:reply") {
		t.Errorf("a candidate of low quality: %s, %q", v.Judgement, v.Reasons)
	}
	criteria = engine.Criteria{AllowLooser: true}
	if v := criteria.Judge(&engine.TrialReport{Stage: taxonomy.ModeCanary, Control: better.control, Trial: better.candidate, Looser: 4}, time.Hour, time.Hour); v.Judgement != engine.Advance {
		t.Errorf("authority that may grant more: %s, %q", v.Judgement, v.Reasons)
	}
}

// A candidate in observe is compared with nothing: only its own failures and its
// deadline take it back.
func TestJudgeInObserve(t *testing.T) {
	criteria := engine.Criteria{MinDecisions: 10, Deadline: 10 * time.Hour, Gates: []engine.Gate{{Measure: "user_failures", MaxRatio: 1}}}
	for _, c := range []struct {
		candidate engine.Figures
		age       time.Duration
		want      engine.Judgement
	}{
		{engine.Figures{Decisions: 100, UserFailures: 100}, time.Hour, engine.Advance},
		{engine.Figures{Decisions: 9}, time.Hour, engine.Hold},
		{engine.Figures{Decisions: 100, Errors: 1}, time.Hour, engine.RollBack},
		{engine.Figures{Decisions: 100}, 11 * time.Hour, engine.RollBack},
	} {
		r := &engine.TrialReport{Control: engine.Figures{Decisions: 100}, Trial: c.candidate}
		if v := criteria.Judge(r, c.age, c.age); v.Judgement != c.want {
			t.Errorf("%+v after %s: %s, %q", c.candidate, c.age, v.Judgement, v.Reasons)
		}
	}
}

// R-POL-8: the observe report holds proposed opens against what really
// happened: whether the calls that would have been stopped failed, whether the
// scope was that of the fault, and whether the fallback would have helped.
func TestReview(t *testing.T) {
	contract := engine.Fallback{Name: "provider-open", Candidates: []taxonomy.Candidate{{ID: "other", Kind: "alternate", Provider: "other-ai", Model: "small"}}}
	for _, c := range []struct {
		name          string
		scope         string // of the circuit that would open
		failing       func(model, region string) bool
		right, scoped string
		helps         bool
	}{
		{"the fault is one model's, and so is the circuit", "model", func(m, r string) bool { return m == "large" && r == "eu" }, "right", "fits", true},
		{"the fault is one model's, and the circuit the provider's", "provider", func(m, r string) bool { return m == "large" && r == "eu" }, "needless", "too_wide", true},
		{"the fault is the region's, and the circuit one model's", "model", func(_, r string) bool { return r == "eu" }, "right", "too_narrow", true},
		{"it is over as soon as it opened", "model", nil, "needless", "untested", false},
	} {
		for _, own := range []bool{false, true} { // a candidate's shadow, and a version in force that only observes
			t.Run(fmt.Sprintf("%s, own %v", c.name, own), func(t *testing.T) {
				watched := candidate(func(p *engine.Policy, r *enginetest.Rules) {
					p.Fallbacks = []engine.Fallback{contract}
					r.OnRoute = func(in *taxonomy.RouteInput) taxonomy.RouteAnswer {
						a := (&enginetest.Rules{}).Route(t.Context(), in)
						for i := range a.Feeds {
							a.Feeds[i].Level = c.scope
						}
						return a
					}
					p.Observe = own
					for i := range p.Breakers {
						p.Breakers[i].Rule.Trip = breaker.Trip{Consecutive: 3}
						p.Breakers[i].Rule.Cooldown.Base, p.Breakers[i].Rule.Cooldown.Max = time.Hour, time.Hour
						if own {
							p.Breakers[i].Rule.Mode = taxonomy.ModeObserve
						}
						if p.Breakers[i].Ambiguity() {
							p.Breakers[i].Rule.Trip = breaker.Trip{Unknown: 1}
						}
					}
				})
				h := enginetest.New(t, func(p *engine.Parts) {
					if own {
						p.Policy = watched
						return
					}
					for i := range p.Policy.Breakers {
						p.Policy.Breakers[i].Rule.Mode = taxonomy.ModeObserve
					}
				})
				if !own {
					try(t, h, watched, taxonomy.ModeObserve, 0)
				}
				n := 0
				call := func(model, region string, failed bool) {
					n++
					op := enginetest.Model(fmt.Sprint("v-", n))
					op.Model, op.Region = model, region
					answer := enginetest.HTTP(200, ok)
					if failed {
						answer = enginetest.HTTP(503, `{}`)
					}
					p, err := h.Admit(t.Context(), op)
					if err != nil {
						t.Fatal(err)
					}
					obs, err := p.Dispatch(t.Context(), enginetest.NewRemote(answer).Send)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := p.Settle(t.Context(), obs); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 {
					call("large", "eu", true) // it opens
				}
				for range 40 {
					for _, m := range []string{"large", "small", "tiny"} {
						call(m, "eu", c.failing != nil && c.failing(m, "eu"))
					}
				}
				if err := h.FlushTrial(t.Context()); err != nil {
					t.Fatal(err)
				}
				r, found := h.TrialReport()
				if !found || len(r.Review.Opens) == 0 {
					t.Fatalf("no open is reported: %+v", r)
				}
				o := r.Review.Opens[0]
				if o.Right != c.right || c.scoped != "untested" && o.Scoped != c.scoped {
					t.Errorf("%s is %s and %s, want %s and %s: %+v", o.Scope, o.Right, o.Scoped, c.right, c.scoped, o)
				}
				v := r.Review
				if v.Stopped == 0 || v.Failed+v.Succeeded != v.Stopped || (v.Helps > 0) != c.helps || v.Lacks != 0 || v.Needless != v.Succeeded {
					t.Errorf("the calls that would have been stopped: %+v", v)
				}
			})
		}
	}
}
