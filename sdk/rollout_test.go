package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A launch is a fusebox with a version in force that opens far too early, and a
// candidate that does not.
type launch struct {
	*Client
	clock     *enginetest.Clock
	config    Config
	candidate string
	n         int
}

// newLaunch writes both bundles; inForce and candidate change them.
func newLaunch(t *testing.T, inForce, candidate string) *launch {
	t.Helper()
	quick := "min_hours = 1\nmin_decisions = 20"
	dirs := [2]string{}
	for i, trip := range []string{inForce, candidate} {
		dirs[i] = copyPolicies(t)
		file := filepath.Join(dirs[i], "policy.toml")
		edit(t, file, "min_hours = 24\nmin_decisions = 1000", quick)
		edit(t, file, "consecutive = 5, slow_over", trip+", slow_over")
		edit(t, file, "unit = \"tenant\"", "unit = \"tenant\"\ncanary_percent = 50")
	}
	no := false
	s := &launch{clock: enginetest.NewClock(), candidate: dirs[1], config: Config{Data: t.TempDir(), Policies: PolicySource{Path: dirs[0], Watch: &no}}}
	s.Client = open(t, s.config, Parts{Clock: s.clock, Still: true})
	return s
}

const (
	jumpy = "consecutive = 1"
	calm  = "consecutive = 50"
)

func (s *launch) restart(t *testing.T) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Client = open(t, s.config, Parts{Clock: s.clock, Still: true})
}

// calls makes calls of many tenants, one every second; every tenth fails.
func (s *launch) calls(t *testing.T, n int) {
	t.Helper()
	for range n {
		s.n++
		s.clock.Advance(time.Second)
		s.Engine().Tick(t.Context())
		op := model(fmt.Sprintf("call-%d", s.n))
		op.Tenant = fmt.Sprintf("tenant-%d", s.n%40)
		p, err := s.Admit(t.Context(), op)
		if err != nil {
			continue
		}
		answer := answered(200, fine)
		if s.n%10 == 0 {
			answer = answered(503, `{}`)
		}
		obs, err := p.Dispatch(t.Context(), func(context.Context, engine.Call) taxonomy.Observation { return answer })
		if err != nil {
			continue
		}
		if _, err := p.Settle(t.Context(), obs); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Engine().FlushTrial(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s *launch) start(t *testing.T, change func(*StartRequest)) *Rollout {
	t.Helper()
	req := StartRequest{Path: s.candidate, By: "ann", Why: "opens too early"}
	if change != nil {
		change(&req)
	}
	r, err := s.StartRollout(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *launch) advance(t *testing.T, want taxonomy.Mode) {
	t.Helper()
	r, err := s.AdvanceRollout(t.Context(), StepRequest{By: "ann", Why: "looks good"})
	if err != nil || r.Stage != want {
		t.Fatalf("advance to %s: %+v, %v", want, r, err)
	}
}

func (s *launch) status(t *testing.T) RolloutStatus {
	t.Helper()
	st, err := s.RolloutStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// steps are the receipts of a rollout's steps.
func (s *launch) steps(t *testing.T) []receipts.Receipt {
	t.Helper()
	if err := s.Log().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out []receipts.Receipt
	for e, err := range s.Log().Reader().All(receipts.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Receipt.Kind == receipts.KindRollout && e.Receipt.Step != nil {
			out = append(out, e.Receipt)
		}
	}
	return out
}

// R-POL-8: observe, shadow, canary, enforce; each step by a person, with its
// receipt, over restarts; and a promotion that lasts, although the configuration
// still names what was replaced.
func TestRolloutAllTheWay(t *testing.T) {
	s := newLaunch(t, jumpy, calm)
	before := s.Version()
	r := s.start(t, nil)
	if r.Stage != taxonomy.ModeObserve || r.InForce != before || s.Version() != before {
		t.Fatalf("begun as %+v", r)
	}
	s.calls(t, 100)
	s.advance(t, taxonomy.ModeShadow)
	s.calls(t, 100)
	if st := s.status(t); st.Report.Trial.Decisions != 100 || st.Report.Trial.Unseen == 0 || st.Verdict.Judgement == engine.Advance {
		t.Errorf("in shadow: %+v, %+v", st.Report, st.Verdict)
	}
	s.restart(t)
	s.calls(t, 50)
	if st := s.status(t); st.Report.Trial.Decisions != 150 {
		t.Errorf("after a restart the shadow knows %d decisions, want 150", st.Report.Trial.Decisions)
	}
	s.advance(t, taxonomy.ModeCanary)
	s.calls(t, 100)
	if _, err := s.AdvanceRollout(t.Context(), StepRequest{By: "ann", Why: "impatient"}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is in this stage for") {
		t.Errorf("too early: %v", err)
	}
	s.restart(t)
	s.calls(t, 300)
	s.clock.Advance(time.Hour)
	st := s.status(t)
	if st.Verdict.Judgement != engine.Advance || st.Verdict.Risk[1] >= st.Verdict.Risk[0] || st.Report.Control.Decisions+st.Report.Trial.Decisions != 400 {
		t.Fatalf("%+v\n%+v", st.Verdict, st.Report)
	}
	s.advance(t, taxonomy.ModeEnforce)
	if s.Version() != r.Candidate || s.PolicyStatus().Stage != taxonomy.ModeEnforce {
		t.Errorf("in force is %s in stage %s", s.Version(), s.PolicyStatus().Stage)
	}
	s.restart(t)
	if s.Version() != r.Candidate {
		t.Errorf("after a restart %s is in force", s.Version())
	}
	if err := s.Reload(t.Context()); err != nil || s.Version() != r.Candidate {
		t.Errorf("after a reload %s is in force: %v", s.Version(), err)
	}
	var got []string
	for _, x := range s.steps(t) {
		got = append(got, fmt.Sprintf("%s>%s %s", x.Step.From, x.Step.To, x.Override.Ticket))
		if x.Class != receipts.Ledger || x.By != "ann" || x.PolicyVersion != before || x.Step.Candidate != r.Candidate || len(x.Step.Figures) != 16 {
			t.Errorf("the receipt of %s>%s: %+v", x.Step.From, x.Step.To, x)
		}
	}
	if want := []string{"off>observe opens too early", "observe>shadow looks good", "shadow>canary looks good", "canary>enforce looks good"}; !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
	// What was promoted can be taken back, to what the configuration names.
	if _, err := s.RollBack(t.Context(), StepRequest{By: "bob", Why: "second thoughts"}); err != nil || s.Version() != before {
		t.Errorf("after a roll back %s is in force: %v", s.Version(), err)
	}
	s.restart(t)
	if s.Version() != before {
		t.Errorf("after a roll back and a restart %s is in force", s.Version())
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	v, err := receipts.Verify(t.Context(), filepath.Join(s.config.Data, "receipts"), receipts.VerifyOptions{Deep: true})
	if err != nil || v.ExitCode() != 0 {
		t.Errorf("the receipts do not verify: %v, %+v", err, v)
	}
}

// R-POL-8: a gate that breaks takes the candidate back, and so does the
// deadline; nobody has to look.
func TestRolloutRollsBackByItself(t *testing.T) {
	for name, c := range map[string]struct {
		inForce, candidate string
		wait               time.Duration
		why                string
	}{
		"a gate breaks":       {calm, jumpy, 0, "gate user_failures breaks"},
		"the deadline passes": {calm, calm + ", failure_ratio = 0.9", 169 * time.Hour, "its deadline of 168h0m0s has passed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLaunch(t, c.inForce, strings.Replace(c.candidate, ", failure_ratio = 0.9", "", 1))
			if strings.Contains(c.candidate, "failure_ratio") {
				edit(t, filepath.Join(s.candidate, "policy.toml"), "failure_ratio = 0.5", "failure_ratio = 0.9")
			}
			r := s.start(t, func(r *StartRequest) { r.Stage = taxonomy.ModeCanary })
			s.calls(t, 600)
			s.clock.Advance(c.wait)
			if err := s.CheckRollout(t.Context()); err != nil {
				t.Fatal(err)
			}
			st := s.status(t)
			if st.Rollout.State != "rolled_back" || st.Rollout.By != "fusebox" || !strings.Contains(st.Rollout.Why, c.why) || s.Version() != r.InForce {
				t.Errorf("%+v", st.Rollout)
			}
			s.calls(t, 20)
			last := s.steps(t)
			if x := last[len(last)-1]; x.Step.From != "canary" || x.Step.To != "off" || x.Reason != "gate_broke" {
				t.Errorf("its receipt: %+v", x)
			}
			s.restart(t)
			if _, ok := s.Engine().TrialReport(); ok {
				t.Error("a restart puts it on trial again")
			}
		})
	}
}

// A rollout that was asked to goes on by itself, stage by stage; one on hold
// does not.
func TestRolloutByItself(t *testing.T) {
	s := newLaunch(t, jumpy, calm)
	r := s.start(t, func(r *StartRequest) { r.Auto = true })
	check := func(want string) {
		t.Helper()
		s.calls(t, 400)
		s.clock.Advance(time.Hour)
		if err := s.CheckRollout(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := s.status(t); st.Rollout.State+" "+st.Rollout.Stage.String() != want {
			t.Fatalf("%s %s, want %s: %v", st.Rollout.State, st.Rollout.Stage, want, st.Verdict)
		}
	}
	if _, err := s.HoldRollout(t.Context(), StepRequest{By: "ann", Why: "holiday"}); err != nil {
		t.Fatal(err)
	}
	check("held observe")
	s.advance(t, taxonomy.ModeShadow)
	check("running shadow") // nobody saw how the calls that were refused would have ended
	s.advance(t, taxonomy.ModeCanary)
	check("promoted enforce")
	if s.Version() != r.Candidate {
		t.Errorf("in force is %s", s.Version())
	}
}

// R-POL-8: gates as Rego, of the version in force and of the candidate. A rule
// holds or takes back what the settings would promote, and promotes nothing.
func TestRolloutRules(t *testing.T) {
	rule := "package fusebox.rollout\n\ndefault decision := {\"verdict\": \"promote\", \"reasons\": []}\n\n" +
		"decision := {\"verdict\": VERDICT, \"reasons\": [\"not on a monday\"]} if input.candidate.decisions > 50\n"
	for _, c := range []struct{ verdict, state, whose string }{{"hold", "running", "in force"}, {"roll_back", "rolled_back", "candidate"}, {"promote", "promoted", "candidate"}} {
		s := newLaunch(t, jumpy, calm)
		dir := map[string]string{"in force": s.config.Policies.Path, "candidate": s.candidate}[c.whose]
		if err := os.MkdirAll(filepath.Join(dir, "fusebox", "rollout"), 0o750); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "fusebox", "rollout", "team.rego"), strings.Replace(rule, "VERDICT", strconv.Quote(c.verdict), 1))
		if err := s.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.start(t, func(r *StartRequest) { r.Stage, r.Auto = taxonomy.ModeCanary, true })
		s.calls(t, 400)
		early := s.status(t)
		s.clock.Advance(time.Hour)
		if err := s.CheckRollout(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := s.status(t)
		if st.Rollout.State != c.state || c.verdict != "promote" && !strings.Contains(fmt.Sprint(st.Rollout.Why, st.Verdict), "not on a monday") {
			t.Errorf("%s by the %s: %+v, %+v", c.verdict, c.whose, st.Rollout, st.Verdict)
		}
		if c.verdict == "promote" && early.Verdict.Judgement != engine.Hold {
			t.Errorf("a rule promotes what is too early: %+v", early.Verdict)
		}
	}
}

// R-RCP-3: what both arms of a canary decided is decided again by the version
// that its receipt names, and comes out the same.
func TestCanaryReplays(t *testing.T) {
	s := newLaunch(t, jumpy, calm)
	inForce := s.loaded.Load().snapshot
	s.start(t, func(r *StartRequest) { r.Stage = taxonomy.ModeCanary })
	s.calls(t, 200)
	arms := map[string]*rego.Snapshot{"control": inForce, "candidate": s.trial.policy.snapshot}
	if err := s.Log().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := map[string]int{}
	for e, err := range s.Log().Reader().All(receipts.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		r := &e.Receipt
		if r.InputRef == "" {
			continue
		}
		rules := arms[r.Cohort]
		if rules == nil || rules.Version() != r.PolicyVersion {
			t.Fatalf("cohort %q with version %s", r.Cohort, r.PolicyVersion)
		}
		sealed, err := s.Log().Inputs().Open(r)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := engine.ParseSealed(sealed)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range doc.Questions {
			again, err := rules.Replay(t.Context(), rego.Entrypoint(q.Entrypoint), q.Input)
			if got := engine.AppendAnswer(nil, again); err != nil || string(got) != string(q.Answer) {
				t.Fatalf("%s of %s: %s, recorded %s: %v", q.Entrypoint, r.Cohort, got, q.Answer, err)
			}
			answers[r.Cohort]++
		}
	}
	if answers["control"] == 0 || answers["candidate"] == 0 {
		t.Errorf("answers replayed: %v", answers)
	}
}

// What a rollout refuses, and what ends it.
func TestRolloutRefuses(t *testing.T) {
	s := newLaunch(t, jumpy, calm)
	for name, c := range map[string]struct {
		req  StartRequest
		want string
	}{
		"nobody":           {StartRequest{Path: s.candidate, Why: "x"}, "who and why"},
		"no reason":        {StartRequest{Path: s.candidate, By: "ann"}, "who and why"},
		"the one in force": {StartRequest{Path: s.config.Policies.Path, By: "ann", Why: "x"}, "in force already"},
		"enforce at once":  {StartRequest{Path: s.candidate, Stage: taxonomy.ModeEnforce, By: "ann", Why: "x"}, "no rollout begins in enforce"},
		"nothing there":    {StartRequest{Path: s.candidate + "-gone", By: "ann", Why: "x"}, "no such file"},
	} {
		if _, err := s.StartRollout(t.Context(), c.req); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("start with %s: %v", name, err)
		}
	}
	step := StepRequest{By: "ann", Why: "x"}
	if _, err := s.AdvanceRollout(t.Context(), step); !errors.Is(err, ErrNoRollout) {
		t.Errorf("advance without a rollout: %v", err)
	}
	if _, err := s.RollBack(t.Context(), step); !errors.Is(err, ErrNoRollout) {
		t.Errorf("roll back without a rollout: %v", err)
	}
	r := s.start(t, func(r *StartRequest) { r.Stage = taxonomy.ModeCanary })
	if _, err := s.StartRollout(t.Context(), StartRequest{Path: s.candidate, By: "ann", Why: "x"}); !errors.Is(err, ErrRefused) {
		t.Errorf("a second rollout: %v", err)
	}
	step.Percent = 40
	if _, err := s.AdvanceRollout(t.Context(), step); !errors.Is(err, ErrRefused) {
		t.Errorf("a smaller share: %v", err)
	}
	step.Percent = 80
	if r, err := s.AdvanceRollout(t.Context(), step); err != nil || r.BasisPoints != 8000 || r.Stage != taxonomy.ModeCanary {
		t.Errorf("a larger share: %+v, %v", r, err)
	}
	// The candidate is what was put on trial, whatever becomes of its folder.
	edit(t, filepath.Join(s.candidate, "policy.toml"), "consecutive = 50", "consecutive = 7")
	s.restart(t)
	if rep, ok := s.Engine().TrialReport(); !ok || rep.Candidate != r.Candidate || rep.BasisPoints != 8000 {
		t.Errorf("after an edit and a restart: %+v", rep)
	}
	if err := os.RemoveAll(s.candidate); err != nil {
		t.Fatal(err)
	}
	// A reload of the version in force ends what was compared with it.
	edit(t, filepath.Join(s.config.Policies.Path, "policy.toml"), "consecutive = 1", "consecutive = 9")
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := s.status(t); st.Rollout.State != "rolled_back" || st.Rollout.Reason != "overtaken" {
		t.Errorf("after a reload: %+v", st.Rollout)
	}
}

// The stricter of what both versions ask for counts: no candidate loosens what it
// is judged by.
func TestRolloutCriteria(t *testing.T) {
	failures := policies.Gate{Measure: "user_failures", MaxRatio: 1, Line: 7}
	opens := policies.Gate{Measure: "opens", MaxRise: 0.1, Line: 9}
	again := failures
	again.Line = 70
	lax := &policies.Rollout{MinHours: 0, MinDecisions: 1, Deadline: 1000 * time.Hour, Gates: []policies.Gate{again}}
	strict := &policies.Rollout{MinHours: 24, MinDecisions: 500, Deadline: 100 * time.Hour, Gates: []policies.Gate{failures, opens}}
	want := engine.Criteria{MinTime: 24 * time.Hour, MinDecisions: 500, Deadline: 100 * time.Hour,
		Gates: []engine.Gate{{Measure: "user_failures", MaxRatio: 1}, {Measure: "opens", MaxRise: 0.1}}}
	for _, pair := range [][2]*policies.Rollout{{strict, lax}, {lax, strict}} {
		if got := criteria(pair[0], pair[1], false); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got := criteria(&policies.Rollout{}, lax, true); got.Deadline != lax.Deadline || !got.AllowLooser {
		t.Errorf("without a deadline in force: %+v", got)
	}
}

// A candidate that a gate would take back is not advanced by a person either;
// and of two people who take a step at once, one is told.
func TestRolloutConflicts(t *testing.T) {
	s := newLaunch(t, calm, jumpy)
	s.start(t, func(r *StartRequest) { r.Stage = taxonomy.ModeShadow })
	stale := s.status(t).Rollout
	s.calls(t, 600)
	if _, err := s.AdvanceRollout(t.Context(), StepRequest{By: "ann", Why: "looks fine to me"}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "breaks") {
		t.Errorf("advance of a candidate whose gate breaks: %v", err)
	}
	if _, err := s.HoldRollout(t.Context(), StepRequest{By: "ann", Why: "wait"}); err != nil {
		t.Fatal(err)
	}
	next := *stale
	next.Step++
	next.By, next.Why = "bob", "at the same time"
	if err := s.step(t.Context(), stale, &next, "shadow", "advanced"); !errors.Is(err, ErrRefused) {
		t.Errorf("a step from where it no longer stands: %v", err)
	}
	if st := s.status(t); st.Rollout.State != "held" || st.Rollout.By != "ann" {
		t.Errorf("after it: %+v", st.Rollout)
	}
	steps := s.steps(t)
	if x := steps[len(steps)-1]; x.Reason != "not_taken" || x.By != "bob" {
		t.Errorf("the step that lost leaves %s by %s", x.Reason, x.By)
	}
}

// What a promoted candidate stopped stays stopped over a restart, also where the
// policy that the configuration names has no such circuit.
func TestPromotionRestoresItsOwnCircuits(t *testing.T) {
	s := newLaunch(t, jumpy, calm)
	file := filepath.Join(s.candidate, "policy.toml")
	write(t, file, read(t, file)+`
[[breaker]]
name = "extra"
layer = "provider"
scope = ["provider", "tenant"]
mode = "enforce"
fallback = "provider-open"
owner = { policy = "platform", alerts = "platform-oncall", closes = "platform-oncall", tells_users = "support" }
`)
	s.start(t, func(r *StartRequest) { r.Stage = taxonomy.ModeCanary })
	s.calls(t, 400)
	s.clock.Advance(time.Hour)
	s.advance(t, taxonomy.ModeEnforce)
	o := breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "drill", Until: s.clock.Mono().Add(time.Hour)}
	if err := s.Engine().Override(t.Context(), "extra:openai/acme", o); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	if _, err := s.Admit(t.Context(), model("after")); err == nil {
		t.Error("the circuit that only the promoted version has was forgotten")
	}
}

// Every process on a data directory follows the same rollout, and no two take
// the same step.
func TestRolloutOfTwoProcesses(t *testing.T) {
	s := newLaunch(t, jumpy, calm)
	other := &launch{clock: s.clock, config: s.config, Client: open(t, s.config, Parts{Clock: s.clock, Still: true})}
	r := s.start(t, func(r *StartRequest) { r.Stage = taxonomy.ModeCanary })
	if err := other.CheckRollout(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.calls(t, 200)
	other.n = 1000
	other.calls(t, 200)
	for _, x := range []*launch{s, other} {
		if err := x.CheckRollout(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.clock.Advance(time.Hour)
	for _, x := range []*launch{s, other} {
		if st := x.status(t); st.Report.Control.Decisions+st.Report.Trial.Decisions != 400 || st.Report.Control.Decisions == 0 {
			t.Errorf("one process knows %d decisions of 400", st.Report.Control.Decisions+st.Report.Trial.Decisions)
		}
	}
	other.advance(t, taxonomy.ModeEnforce)
	if err := s.CheckRollout(t.Context()); err != nil || s.Version() != r.Candidate || other.Version() != r.Candidate {
		t.Errorf("in force are %s and %s: %v", s.Version(), other.Version(), err)
	}
}
