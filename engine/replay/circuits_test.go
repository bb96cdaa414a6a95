package replay_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/replay"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// storm is a provider that fails, is refused, is probed too early, and recovers.
// The circuit opens after five failures, refuses four calls, opens again after a
// failed probe, and closes.
func storm(t *testing.T) replay.Source {
	h := enginetest.New(t, func(p *engine.Parts) {
		p.ReplayInput = true
		p.Policy = enginetest.Policy(&rules{})
	})
	call := func(a enginetest.Answer, n int) {
		remote := enginetest.NewRemote(a)
		for range n {
			op := enginetest.Model("")
			op.Region, op.PromptVersion = "eu", "p1"
			permit, err := h.Admit(t.Context(), op)
			if err != nil {
				continue
			}
			obs, err := permit.Dispatch(t.Context(), remote.Send)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := permit.Settle(t.Context(), obs); err != nil {
				t.Fatal(err)
			}
			h.Clock.Advance(100 * time.Millisecond)
		}
	}
	well := enginetest.HTTP(200, `{"choices":[{"finish_reason":"stop","message":{"content":"x"}}]}`)
	ill := enginetest.HTTP(503, `down`)
	call(well, 3)
	call(ill, 5)
	call(well, 4)
	h.Clock.Advance(40 * time.Second)
	call(ill, 1)
	h.Clock.Advance(2 * time.Minute)
	call(well, 4)
	if err := h.Log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return replay.Source{Log: h.Log.Reader(), Inputs: h.Log.Inputs()}
}

func circuitsOf(t *testing.T, src replay.Source, change func(*breaker.Setting)) *replay.Circuits {
	t.Helper()
	settings := enginetest.Breakers()
	if change != nil {
		change(&settings[0])
	}
	r, err := replay.Run(t.Context(), []replay.Source{src}, &rules{}, replay.Options{Breakers: settings})
	if err != nil {
		t.Fatal(err)
	}
	if r.Circuits == nil {
		t.Fatal("the circuits did not run again")
	}
	if len(r.Circuits.Unplaced) > 0 || r.Circuits.Misfed > 0 {
		t.Errorf("some calls found no circuit: %+v", r.Circuits)
	}
	return r.Circuits
}

func exactly(n int64) replay.Range { return replay.Range{Low: n, High: n} }

// R-RCP-3: under the settings that were in force, the circuits do again what
// they did: as often open, as many refused, as long.
func TestCircuitsUnderTheSameSettingsDoTheSame(t *testing.T) {
	c := circuitsOf(t, storm(t), nil)
	want := &replay.Circuits{Calls: 17,
		Opens: replay.Bound{Recorded: 2, Range: exactly(2)}, ShortCircuited: replay.Bound{Recorded: 4, Range: exactly(4)},
		OpenMS:   c.OpenMS,
		Breakers: []replay.BreakerBounds{{Breaker: "provider", Mode: "enforce", Opens: exactly(2), ShortCircuited: exactly(4)}},
		Unplaced: map[string]int64{}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if c.OpenMS.Low > c.OpenMS.Recorded || c.OpenMS.High < c.OpenMS.Recorded-1000 || c.OpenMS.Recorded < 100_000 {
		t.Errorf("time open %+v", c.OpenMS)
	}
}

// A stricter threshold opens earlier, and its price is told with its gain.
func TestCircuitsUnderStricterSettings(t *testing.T) {
	c := circuitsOf(t, storm(t), func(s *breaker.Setting) { s.Rule.Trip.Consecutive = 2 })
	if c.Opens.Range != exactly(2) || c.ShortCircuited.Range != exactly(7) {
		t.Errorf("opens %+v, refused %+v; want 2 and 7: three failures more", c.Opens, c.ShortCircuited)
	}
	if c.AvoidedFailures != exactly(3) || c.BlockedSuccesses != exactly(0) {
		t.Errorf("avoided %+v, blocked %+v", c.AvoidedFailures, c.BlockedSuccesses)
	}
}

// Looser settings let calls go whose end nobody saw: the figures are bounds, and
// they differ.
func TestCircuitsUnderLooserSettingsGiveBounds(t *testing.T) {
	c := circuitsOf(t, storm(t), func(s *breaker.Setting) { s.Rule.Trip.Consecutive = 7 })
	if c.OutcomeUnknown == 0 {
		t.Fatalf("no call was let go that history refused: %+v", c)
	}
	if c.Opens.Low != 0 || c.Opens.High == 0 || c.ShortCircuited.Low != 0 || c.ShortCircuited.High == 0 {
		t.Errorf("opens %+v, refused %+v: four calls that may all have succeeded or all have failed", c.Opens, c.ShortCircuited)
	}
}

// A breaker of another scope runs too: every part of the operation is sealed
// beside the receipt, whatever scopes there were then.
func TestCircuitsUnderAnotherScope(t *testing.T) {
	c := circuitsOf(t, storm(t), func(s *breaker.Setting) { s.Scope = []string{"prompt_version", "tenant", "model"} })
	if c.Opens.Range != exactly(2) || c.ShortCircuited.Range != exactly(4) {
		t.Errorf("opens %+v, refused %+v", c.Opens, c.ShortCircuited)
	}
}

// Calls beyond the limit are counted, not passed over in silence.
func TestCircuitsSayWhatTheyLeftOut(t *testing.T) {
	r, err := replay.Run(t.Context(), []replay.Source{storm(t)}, &rules{}, replay.Options{Breakers: enginetest.Breakers(), MaxCalls: 10})
	if err != nil {
		t.Fatal(err)
	}
	if r.Circuits.Calls != 10 || r.Circuits.Cut != 7 {
		t.Errorf("%+v", r.Circuits)
	}
}

// R-RCP-3: the report does not depend on how many work on it.
func TestReplayIsTheSameWithAnyNumberOfWorkers(t *testing.T) {
	src := storm(t)
	var first string
	for _, workers := range []int{1, 2, 8} {
		r, err := replay.Run(t.Context(), []replay.Source{src}, &rules{denied: map[string]bool{"a-1": true}},
			replay.Options{Workers: workers, Breakers: enginetest.Breakers(), Modules: []replay.Module{}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(b)
		} else if string(b) != first {
			t.Errorf("%d workers: %s\none: %s", workers, b, first)
		}
	}
}

// judge is a classifier that stands for a module.
type judge string // its digest

func (j judge) Selects(op *taxonomy.Operation) bool { return op.Model == "large" }
func (j judge) Identity() engine.Identity {
	return engine.Identity{Name: "acme", Version: "1", Digest: string(j)}
}

func (j judge) Classify(_ context.Context, _ *taxonomy.Observation, builtin taxonomy.Verdict) (taxonomy.Verdict, bool, error) {
	return builtin, true, nil
}

// R-RCP-3: a classification by a module that the policy does not have, or that it
// would ask and the log never met, cannot be replayed; and nothing else is called so.
func TestReplayUnderOtherModules(t *testing.T) {
	module := func(digest string, selects bool) []replay.Module {
		return []replay.Module{{Name: "acme", Digest: digest, Selects: func(op *taxonomy.Operation) bool { return selects && op.Model == "large" }}}
	}
	none := map[string]int64{}
	for name, c := range map[string]struct {
		recorded []engine.Classifier
		modules  []replay.Module
		want     map[string]int64
	}{
		"the same":         {[]engine.Classifier{judge("sha256:a")}, module("sha256:a", true), none},
		"another digest":   {[]engine.Classifier{judge("sha256:a")}, module("sha256:b", true), map[string]int64{"module_changed": 3}},
		"taken away":       {[]engine.Classifier{judge("sha256:a")}, []replay.Module{}, map[string]int64{"module_changed": 3}},
		"new":              {nil, module("sha256:b", true), map[string]int64{"module_new": 3}},
		"new, for others":  {nil, module("sha256:b", false), none},
		"none, as before":  {nil, []replay.Module{}, none},
		"nobody asks that": {[]engine.Classifier{judge("sha256:a")}, nil, none},
	} {
		t.Run(name, func(t *testing.T) {
			h := enginetest.New(t, func(p *engine.Parts) {
				p.ReplayInput = true
				p.Policy = enginetest.Policy(&rules{routing: true})
				p.Policy.Classifiers = c.recorded
			})
			remote := enginetest.NewRemote(enginetest.HTTP(200, `{"choices":[{"finish_reason":"stop","message":{"content":"x"}}]}`))
			for range 3 {
				if _, err := h.Do(t.Context(), enginetest.Model(""), remote.Send); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.Log.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			src := replay.Source{Log: h.Log.Reader(), Inputs: h.Log.Inputs()}
			r, err := replay.Run(t.Context(), []replay.Source{src}, &rules{}, replay.Options{Modules: c.modules})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, r.NotReplayable); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// With Self, receipts of another policy are not put to this one; a second policy
// takes those that it decided.
func TestReplaySelfAsksWhoDecided(t *testing.T) {
	src := record(t, &rules{}, "ann", "bob")
	run := func(o replay.Options) *replay.Report {
		o.Self = true
		r, err := replay.Run(t.Context(), []replay.Source{src}, &rules{denied: map[string]bool{"ann": true}}, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := run(replay.Options{}); r.Decisions != 0 || r.NotReplayable["other_policy"] != 2 {
		t.Errorf("alone: %+v", r)
	}
	who := same{&rules{}}
	if r := run(replay.Options{Others: []replay.Policy{who}}); r.Decisions != 2 || !r.Identical() {
		t.Errorf("with the one that decided: %+v", r)
	}
}

// same is a policy with the version of the recorded one.
type same struct{ *rules }

func (same) Version() taxonomy.PolicyVersion { return enginetest.Policy(nil).Version }
