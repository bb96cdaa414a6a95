package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// candidate is another version of the plain policy.
func candidate(change func(*engine.Policy, *enginetest.Rules)) *engine.Policy {
	rules := &enginetest.Rules{}
	p := enginetest.Policy(rules)
	p.Version = "next@sha256:1111"
	if change != nil {
		change(p, rules)
	}
	return p
}

func try(t *testing.T, h *enginetest.House, p *engine.Policy, stage taxonomy.Mode, share int64) {
	t.Helper()
	err := h.Try(t.Context(), engine.Trial{ID: "ro-1", Candidate: p, Stage: stage, BasisPoints: share, Unit: "tenant", Began: h.Clock.Now()})
	if err != nil {
		t.Fatal(err)
	}
}

// tenants finds one tenant of each arm.
func tenants(share int64) (in, out string) {
	tr := engine.Trial{ID: "ro-1", BasisPoints: share}
	for i := 0; in == "" || out == ""; i++ {
		if name := fmt.Sprintf("t-%d", i); tr.Candidates(name) {
			in = name
		} else {
			out = name
		}
	}
	return in, out
}

func modelOf(request, tenant string) taxonomy.Operation {
	op := enginetest.Model(request)
	op.Tenant = tenant
	return op
}

// R-POL-8: the share of a canary is stable, near what was asked, and a larger
// one only adds units. It is a function of the trial and the unit, so a restart
// and another process draw the same.
func TestCanaryShare(t *testing.T) {
	const units = 20_000
	for _, share := range []int64{1, 100, 500, 2_500, 5_000, 10_000} {
		n := 0
		small, large := engine.Trial{ID: "ro-7", BasisPoints: share}, engine.Trial{ID: "ro-7", BasisPoints: min(share*2, 10_000)}
		for i := range units {
			unit := fmt.Sprintf("tenant-%d", i)
			if !small.Candidates(unit) {
				continue
			}
			n++
			if again := (engine.Trial{ID: "ro-7", BasisPoints: share}); !again.Candidates(unit) || !large.Candidates(unit) {
				t.Fatalf("share %d: unit %s does not stay in it", share, unit)
			}
		}
		want := float64(units*share) / 10_000
		if d := float64(n) - want; d*d > 25*max(want, 1) { // five standard deviations
			t.Errorf("share %d: %d of %d units, want about %.0f", share, n, units, want)
		}
	}
	if all := (engine.Trial{ID: "ro-7", BasisPoints: 10_000}); all.Candidates("") {
		t.Error("what belongs to no unit goes to the candidate")
	}
	a, b := engine.Trial{ID: "ro-7", BasisPoints: 5_000}, engine.Trial{ID: "ro-8", BasisPoints: 5_000}
	same := 0
	for i := range 1000 {
		if unit := fmt.Sprint(i); a.Candidates(unit) == b.Candidates(unit) {
			same++
		}
	}
	if same > 600 {
		t.Errorf("two trials draw %d of 1000 units alike: always the same tenants are tried upon", same)
	}
}

// R-POL-8: a canary has circuits of its own, here and in the store. What opens
// in one arm never refuses a call of the other.
func TestCanaryCircuitsAreApart(t *testing.T) {
	in, out := tenants(5_000)
	for _, c := range []struct{ opens, calm, cohort string }{{in, out, "candidate"}, {out, in, "control"}} {
		h := enginetest.New(t, nil)
		try(t, h, candidate(nil), taxonomy.ModeCanary, 5_000)
		remote := enginetest.NewRemote(enginetest.HTTP(503, `{}`))
		for i := range 8 {
			p, err := h.Admit(t.Context(), modelOf(fmt.Sprintf("%s-%d", c.opens, i), c.opens))
			if err != nil {
				break
			}
			obs, err := p.Dispatch(t.Context(), remote.Send)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Settle(t.Context(), obs); err != nil {
				t.Fatal(err)
			}
		}
		_, err := h.Admit(t.Context(), modelOf("again", c.opens))
		if rej, ok := errors.AsType[*engine.Rejection](err); !ok || rej.Reason != "circuit_open" {
			t.Fatalf("%s: after eight failures in its own arm: %v", c.cohort, err)
		}
		if p, err := h.Admit(t.Context(), modelOf("calm", c.calm)); err != nil {
			t.Errorf("a circuit of arm %s refuses a call of the other: %v", c.cohort, err)
		} else if err := p.Abandon(t.Context()); err != nil {
			t.Fatal(err)
		}
		var prefixes []string
		for _, prefix := range []string{"brk/", "try/"} {
			h.Tick(t.Context())
			if err := h.Store.Each(t.Context(), prefix, func(d state.Doc) error {
				if strings.Contains(d.Key, "|model=") {
					prefixes = append(prefixes, prefix)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range h.Receipts(t) {
			if r.Kind == receipts.KindTransition && (r.Cohort == "candidate") != (c.cohort == "candidate") {
				t.Errorf("%s: a transition of cohort %q", c.cohort, r.Cohort)
			}
		}
		want := "brk/"
		if c.cohort == "candidate" {
			want = "try/"
		}
		if !slices.Contains(prefixes, want) {
			t.Errorf("%s: its open circuit is not in the store under %s: %v", c.cohort, want, prefixes)
		}
		// Both arms are known to the figures, each with its own.
		r, ok := h.TrialReport()
		if !ok || r.Control.Decisions == 0 || r.Trial.Decisions == 0 || r.Control.Opens+r.Trial.Opens != 1 {
			t.Errorf("%s: figures %+v", c.cohort, r)
		}
	}
}

// R-POL-8: a restart continues a canary: the same units, and an open circuit of
// the candidate stays open. The end of the trial forgets its circuits.
func TestCanarySurvivesARestart(t *testing.T) {
	in, _ := tenants(5_000)
	h := enginetest.New(t, nil)
	try(t, h, candidate(nil), taxonomy.ModeCanary, 5_000)
	fail(t, h, in, 6)
	next := h.Restart(t, "second")
	if p, err := next.Admit(t.Context(), modelOf("r-1", in)); err != nil {
		t.Fatalf("without its trial the version in force refuses: %v", err)
	} else if err := p.Abandon(t.Context()); err != nil {
		t.Fatal(err)
	}
	try(t, next, candidate(nil), taxonomy.ModeCanary, 5_000)
	if _, err := next.Admit(t.Context(), modelOf("r-2", in)); err == nil {
		t.Error("the candidate's open circuit was forgotten by a restart")
	}
	if err := next.EndTrial(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := next.Store.Each(t.Context(), "try/", func(d state.Doc) error {
		return fmt.Errorf("%s is still stored", d.Key)
	}); err != nil {
		t.Error(err)
	}
	if p, err := next.Admit(t.Context(), modelOf("r-3", in)); err != nil {
		t.Errorf("after the roll back the candidate's circuit still refuses: %v", err)
	} else if err := p.Abandon(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// fail makes calls of a tenant that fail, until a circuit refuses.
func fail(t *testing.T, h *enginetest.House, tenant string, n int) {
	t.Helper()
	remote := enginetest.NewRemote(enginetest.HTTP(503, `{}`))
	for i := range n {
		p, err := h.Admit(t.Context(), modelOf(fmt.Sprintf("fail-%s-%d", tenant, i), tenant))
		if err != nil {
			return
		}
		obs, err := p.Dispatch(t.Context(), remote.Send)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Settle(t.Context(), obs); err != nil {
			t.Fatal(err)
		}
	}
}

// R-POL-8: in observe and shadow the version in force decides alone, whatever
// the candidate would have said, also where it panics, fails or denies all.
func TestShadowChangesNothing(t *testing.T) {
	candidates := map[string]func(*engine.Policy, *enginetest.Rules){
		"the same": nil,
		"denies all": func(_ *engine.Policy, r *enginetest.Rules) {
			r.OnAuthorize = func(*taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
				return taxonomy.AuthorityAnswer{Decision: taxonomy.Deny}
			}
		},
		"panics": func(_ *engine.Policy, r *enginetest.Rules) {
			r.OnAuthorize = func(*taxonomy.AuthorityInput) taxonomy.AuthorityAnswer { panic("a candidate") }
		},
		"panics when it routes": func(_ *engine.Policy, r *enginetest.Rules) {
			r.OnRoute = func(*taxonomy.RouteInput) taxonomy.RouteAnswer { panic("a candidate") }
		},
		"fails": func(_ *engine.Policy, r *enginetest.Rules) {
			r.OnRoute = func(*taxonomy.RouteInput) taxonomy.RouteAnswer {
				return taxonomy.RouteAnswer{Evaluation: taxonomy.Evaluation{Error: "policy_undefined"}}
			}
		},
		"opens at once": func(p *engine.Policy, _ *enginetest.Rules) {
			for i := range p.Breakers {
				p.Breakers[i].Rule.Trip.Consecutive = 1
			}
		},
		"needs approval": func(_ *engine.Policy, r *enginetest.Rules) {
			r.OnAuthorize = func(*taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
				return taxonomy.AuthorityAnswer{Decision: taxonomy.RequireApproval}
			}
		},
	}
	want := playStream(t, nil, taxonomy.ModeObserve)
	for name, change := range candidates {
		for _, stage := range []taxonomy.Mode{taxonomy.ModeObserve, taxonomy.ModeShadow} {
			t.Run(name+" in "+stage.String(), func(t *testing.T) {
				got := playStream(t, candidate(change), stage)
				if !slices.Equal(got, want) {
					for i := range want {
						if got[i] != want[i] {
							t.Fatalf("call %d: %s, without a candidate %s", i, got[i], want[i])
						}
					}
				}
			})
		}
	}
}

// playStream plays the same random calls and tells every decision, verdict and
// circuit of the version in force.
func playStream(t *testing.T, beside *engine.Policy, stage taxonomy.Mode) []string {
	h := enginetest.New(t, nil)
	if beside != nil {
		try(t, h, beside, stage, 0)
	}
	rnd := rand.New(rand.NewPCG(7, 8))
	answersOf := []enginetest.Answer{enginetest.HTTP(200, ok), enginetest.HTTP(503, `{}`), enginetest.HTTP(429, `{}`), enginetest.Broken("read_timeout"),
		enginetest.Refused("connect_refused"), enginetest.HTTP(400, `{"error":{"type":"invalid_request_error"}}`)}
	var out []string
	for i := range 600 {
		op := modelOf(fmt.Sprintf("s-%d", i), fmt.Sprintf("t-%d", rnd.IntN(4)))
		if rnd.IntN(3) == 0 {
			op = enginetest.Write(fmt.Sprintf("s-%d", i))
			op.Tenant = fmt.Sprintf("t-%d", rnd.IntN(4))
		}
		op.RunID, op.ArgsFP = fmt.Sprintf("run-%d", i/20), fmt.Sprint(rnd.IntN(5))
		a := answersOf[rnd.IntN(len(answersOf))]
		h.Clock.Advance(time.Duration(rnd.IntN(8)) * time.Second)
		p, err := h.Admit(t.Context(), op)
		if err != nil {
			rej, _ := errors.AsType[*engine.Rejection](err)
			out = append(out, fmt.Sprintf("%s %s %s %s", rej.Decision, rej.Breaker, rej.Reason, rej.Policy))
			continue
		}
		obs, err := p.Dispatch(t.Context(), enginetest.NewRemote(a).Send)
		if err != nil {
			out = append(out, "dispatch: "+err.Error())
			continue
		}
		res, err := p.Settle(t.Context(), obs)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("allow %s %s %s %v %s", res.Verdict.Outcome, res.Verdict.Class, res.Next, res.Feeds, res.Policy))
	}
	if beside == nil {
		return out
	}
	if err := h.FlushTrial(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, _ := h.TrialReport()
	if r.Trial.Decisions+r.Shed+r.Trial.Errors < 600 || r.Control.Decisions < 600-r.Shed {
		t.Errorf("the shadow saw %d of 600 decisions, %d shed, %d failed", r.Trial.Decisions, r.Shed, r.Trial.Errors)
	}
	return out
}

// R-POL-8: what differs is counted by its kind, and told in receipts beside the
// ones in force.
func TestShadowTellsDifferences(t *testing.T) {
	h := enginetest.New(t, nil)
	try(t, h, candidate(func(p *engine.Policy, r *enginetest.Rules) {
		r.OnAuthorize = func(in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
			if in.Operation.Tenant == "t-1" {
				return taxonomy.AuthorityAnswer{Decision: taxonomy.Deny}
			}
			return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow}
		}
		r.OnRoute = func(in *taxonomy.RouteInput) taxonomy.RouteAnswer {
			if in.Class == taxonomy.RateLimit {
				return taxonomy.RouteAnswer{}
			}
			return (&enginetest.Rules{}).Route(context.Background(), in)
		}
	}), taxonomy.ModeShadow, 0)
	h.Rules.OnAuthorize = func(in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
		if in.Operation.Tenant == "t-2" {
			return taxonomy.AuthorityAnswer{Decision: taxonomy.Deny}
		}
		return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow}
	}
	one := func(request, tenant string, a enginetest.Answer) {
		p, err := h.Admit(t.Context(), modelOf(request, tenant))
		if err != nil {
			return
		}
		obs, err := p.Dispatch(t.Context(), enginetest.NewRemote(a).Send)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Settle(t.Context(), obs); err != nil {
			t.Fatal(err)
		}
	}
	one("d-1", "t-1", enginetest.HTTP(200, ok))   // stricter, and it succeeded
	one("d-2", "t-2", enginetest.HTTP(200, ok))   // looser on authority
	one("d-3", "t-3", enginetest.HTTP(429, `{}`)) // counts less
	if err := h.FlushTrial(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, _ := h.TrialReport()
	if r.Differences["stricter"] != 1 || r.Differences["looser"] != 2 || r.Looser != 1 {
		t.Errorf("differences %v, authority looser %d", r.Differences, r.Looser)
	}
	// t-1 would have been refused a good answer, t-3 fails either way, and t-2 is
	// refused now and nobody knows how it would have ended.
	if r.Trial.UserFailures != 2 || r.Trial.Unseen != 1 || r.Control.UserFailures != 2 {
		t.Errorf("user failures: candidate %d and %d unseen, in force %d", r.Trial.UserFailures, r.Trial.Unseen, r.Control.UserFailures)
	}
	diffs := map[string]string{}
	for _, r := range h.Receipts(t) {
		if r.Kind == receipts.KindRollout {
			diffs[r.RequestID] += r.Diff.String() + " " + r.Reason + " " + string(r.PolicyVersion) + " " + r.Mode.V.String()
			if r.ShadowOf.IsZero() {
				t.Errorf("%s does not say what it lies beside", r.RequestID)
			}
		}
	}
	for request, want := range map[string]string{"d-1": "stricter decision", "d-2": "looser decision", "d-3": "looser outcome"} {
		if diffs[request] != want+" next@sha256:1111 shadow" {
			t.Errorf("%s: %q", request, diffs[request])
		}
	}
}

// R-POL-8: no decision mixes two versions, also while trials start, grow, end
// and are promoted: the version, the cohort and the mode of every receipt of an
// attempt agree, from its admission to its end.
func TestTrialsUnderLoad(t *testing.T) {
	h := enginetest.New(t, nil)
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	stop := make(chan struct{})
	var done atomic.Int64
	letIn := func() { // some calls, however slow the machine is
		for want := done.Load() + 10; done.Load() < want && !t.Failed(); {
			runtime.Gosched()
		}
	}
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				op := modelOf(fmt.Sprintf("w%d-%d", w, i), fmt.Sprintf("t-%d", i%50))
				if i%5 == 0 {
					op = enginetest.Write(op.RequestID)
					op.Tenant = fmt.Sprintf("t-%d", i%50)
				}
				if _, err := h.Do(context.Background(), op, remote.Send); err != nil {
					t.Errorf("%s: %v", op.RequestID, err)
					return
				}
				done.Add(1)
			}
		})
	}
	inForce := map[taxonomy.PolicyVersion]bool{h.Version(): true}
	for round := range 12 {
		p := candidate(func(p *engine.Policy, _ *enginetest.Rules) {
			p.Version = taxonomy.PolicyVersion(fmt.Sprintf("round-%d@sha256:%04x", round, round))
		})
		for _, step := range []engine.Trial{{Stage: taxonomy.ModeObserve}, {Stage: taxonomy.ModeShadow}, {Stage: taxonomy.ModeCanary, BasisPoints: 3_000}, {Stage: taxonomy.ModeCanary, BasisPoints: 7_000}} {
			step.ID, step.Candidate, step.Unit, step.Began = fmt.Sprintf("ro-%d", round), p, "tenant", h.Clock.Now().Add(time.Duration(round)*time.Second)
			if err := h.Try(t.Context(), step); err != nil {
				t.Fatal(err)
			}
			letIn()
		}
		letIn()
		end := h.EndTrial
		if round%3 == 2 {
			end = h.Promote
			inForce[p.Version] = true
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		letIn()
	}
	close(stop)
	group.Wait()
	seen := map[string]int{}
	label := map[string]string{}
	for _, r := range h.Receipts(t) {
		if r.Kind != receipts.KindAdmission && r.Kind != receipts.KindIntent && r.Kind != receipts.KindOutcome {
			continue
		}
		seen[r.Cohort]++
		is := fmt.Sprintf("%s %q %q %s", r.PolicyVersion, r.Cohort, r.Rollout, r.Mode.V)
		key := fmt.Sprintf("%s/%d", r.RequestID, r.Attempt)
		if was := label[key]; was != "" && was != is {
			t.Fatalf("%s: admitted under %s, and then %s", key, was, is)
		}
		label[key] = is
		round, _, _ := strings.Cut(strings.TrimPrefix(r.Rollout, "ro-"), "@")
		candidates := r.Cohort == "candidate"
		if candidates != (r.Mode.V == taxonomy.ModeCanary) || candidates && !strings.HasPrefix(string(r.PolicyVersion), "round-"+round+"@") || !candidates && !inForce[r.PolicyVersion] {
			t.Fatalf("%s: version %s in cohort %q of %s, mode %s", key, r.PolicyVersion, r.Cohort, r.Rollout, r.Mode.V)
		}
	}
	if seen["candidate"] == 0 || seen["control"] == 0 || seen[""] == 0 {
		t.Errorf("receipts by cohort: %v", seen)
	}
	verified(t, h)
}

// verified has the whole log checked, in depth.
func verified(t *testing.T, h *enginetest.House) {
	t.Helper()
	if err := h.Log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	v, err := receipts.Verify(t.Context(), filepath.Dir(h.Dir), receipts.VerifyOptions{Deep: true})
	if err != nil || v.ExitCode() != 0 {
		t.Errorf("the receipts do not verify: %v\n%+v", err, v)
	}
}

// A candidate that panics in its canary has decided nothing: the version in
// force does, whole, and the receipt says why.
func TestCanaryThatPanics(t *testing.T) {
	in, _ := tenants(5_000)
	h := enginetest.New(t, nil)
	try(t, h, candidate(func(_ *engine.Policy, r *enginetest.Rules) {
		r.OnAuthorize = func(in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
			if in.Operation.RequestID == "at-admission" {
				panic("a candidate")
			}
			return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow}
		}
		r.OnRoute = func(*taxonomy.RouteInput) taxonomy.RouteAnswer { panic("a candidate") }
	}), taxonomy.ModeCanary, 5_000)
	for request, version := range map[string]taxonomy.PolicyVersion{"at-admission": h.Version(), "at-the-end": "next@sha256:1111"} {
		res, err := h.Do(t.Context(), modelOf(request, in), enginetest.NewRemote(enginetest.HTTP(200, ok)).Send)
		if err != nil || res.Policy != version || !slices.Contains(res.Flags, "candidate_failed") {
			t.Errorf("%s: %v, decided under %s, flags %v", request, err, res.Policy, res.Flags)
		}
	}
	if r, _ := h.TrialReport(); r.Trial.Errors != 2 {
		t.Errorf("%d errors of the candidate, want 2", r.Trial.Errors)
	}
}

// R-POL-8: denials of the version in force hold in every arm. A candidate whose
// rules grant more does not decide such a call, unless somebody said that it may.
func TestCanaryGrantsNothingByItself(t *testing.T) {
	in, out := tenants(5_000)
	for _, allowed := range []bool{false, true} {
		for _, word := range []taxonomy.Authority{taxonomy.Deny, taxonomy.RequireApproval} {
			h := enginetest.New(t, nil)
			h.Rules.OnAuthorize = func(*taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
				return taxonomy.AuthorityAnswer{Decision: word}
			}
			tr := engine.Trial{ID: "ro-1", Candidate: candidate(nil), Stage: taxonomy.ModeCanary, BasisPoints: 5_000, Unit: "tenant", Began: h.Clock.Now(), AllowLooser: allowed}
			if err := h.Try(t.Context(), tr); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Admit(t.Context(), modelOf("out", out)); err == nil {
				t.Fatal("the version in force denies nothing")
			}
			p, err := h.Admit(t.Context(), modelOf("in", in))
			r, _ := h.TrialReport()
			if allowed {
				if err != nil || p.Policy() != "next@sha256:1111" || r.Looser != 0 {
					t.Errorf("%s, and it may grant more: %v", word, err)
				}
				continue
			}
			rej, ok := errors.AsType[*engine.Rejection](err)
			if !ok || rej.Layer != taxonomy.LayerAuthority || rej.Policy != "test@sha256:0000" || r.Looser != 1 {
				t.Errorf("%s: %v, authority looser %d", word, err, r.Looser)
			}
			for _, x := range h.Receipts(t) {
				if x.RequestID == "in" && x.Kind == receipts.KindAdmission && (x.Cohort != "control" || !slices.Contains(x.Flags, "candidate_looser") || x.PolicyVersion != "test@sha256:0000") {
					t.Errorf("its receipt: cohort %q, version %s, flags %v", x.Cohort, x.PolicyVersion, x.Flags)
				}
			}
		}
	}
}

// R-CALL-3 and the authority of people hold in every arm: an UNKNOWN write of a
// canary is known after its end, an override stops both arms, and a candidate
// inherits what is open.
func TestWhatAnEndOfATrialMustNotForget(t *testing.T) {
	in, out := tenants(5_000)
	h := enginetest.New(t, nil)
	try(t, h, candidate(nil), taxonomy.ModeCanary, 5_000)
	op := enginetest.Write("w-1")
	op.Tenant = in
	if res, err := h.Do(t.Context(), op, enginetest.NewRemote(enginetest.Broken("read_timeout")).Send); res.Verdict.Outcome != taxonomy.Unknown {
		t.Fatalf("%v: %+v", err, res.Verdict)
	}
	scope := "ambiguity:mail/mail.send/" + in
	if s := h.CircuitState(t, scope); s != "CLOSED" {
		t.Errorf("during the trial the version in force has %s %s", scope, s)
	}
	if err := h.Override(t.Context(), "provider:acme-ai", breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "drill", Until: h.Clock.Mono().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{in, out} {
		if _, err := h.Admit(t.Context(), modelOf("o-"+tenant, tenant)); err == nil {
			t.Errorf("an emergency stop does not stop tenant %s", tenant)
		}
	}
	if err := h.EndTrial(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.CircuitState(t, scope); s != "OPEN" {
		t.Errorf("after the roll back %s is %s: an UNKNOWN write was forgotten", scope, s)
	}
	if _, err := h.Admit(t.Context(), op); err == nil {
		t.Error("the UNKNOWN write may be sent again after the roll back")
	}
	try2 := engine.Trial{ID: "ro-2", Candidate: candidate(nil), Stage: taxonomy.ModeCanary, BasisPoints: 10_000, Unit: "tenant", Began: h.Clock.Now()}
	if err := h.Try(t.Context(), try2); err != nil {
		t.Fatal(err)
	}
	other := enginetest.Write("w-2")
	other.Tenant = in
	if _, err := h.Admit(t.Context(), other); err == nil {
		t.Error("a new candidate does not know that the action is stopped")
	}
}

// A trial is refused where it cannot be one.
func TestTrialsThatAreNone(t *testing.T) {
	h := enginetest.New(t, nil)
	p := candidate(nil)
	for name, tr := range map[string]engine.Trial{
		"without an id":        {Candidate: p, Stage: taxonomy.ModeShadow, Unit: "tenant"},
		"without a candidate":  {ID: "x", Stage: taxonomy.ModeShadow, Unit: "tenant"},
		"in enforce":           {ID: "x", Candidate: p, Stage: taxonomy.ModeEnforce, Unit: "tenant"},
		"a canary of nothing":  {ID: "x", Candidate: p, Stage: taxonomy.ModeCanary, Unit: "tenant"},
		"by an unknown unit":   {ID: "x", Candidate: p, Stage: taxonomy.ModeCanary, BasisPoints: 1, Unit: "attempt"},
		"of what is in force":  {ID: "x", Candidate: h.Parts().Policy, Stage: taxonomy.ModeShadow, Unit: "tenant"},
		"more than everything": {ID: "x", Candidate: p, Stage: taxonomy.ModeCanary, BasisPoints: 10_001, Unit: "tenant"},
	} {
		if err := h.Try(t.Context(), tr); err == nil {
			t.Errorf("a trial %s was begun", name)
		}
	}
	if err := h.Promote(t.Context()); !errors.Is(err, engine.ErrNoTrial) {
		t.Errorf("promote without a trial: %v", err)
	}
	try(t, h, p, taxonomy.ModeShadow, 0)
	if err := h.Try(t.Context(), engine.Trial{ID: "ro-2", Candidate: candidate(nil), Stage: taxonomy.ModeShadow, Unit: "tenant"}); !errors.Is(err, engine.ErrOnTrial) {
		t.Errorf("a second trial: %v", err)
	}
}

// A call that the candidate would not have sent teaches its circuits nothing:
// enforced, it would never have been made.
func TestShadowLearnsOnlyFromWhatItWouldSend(t *testing.T) {
	for _, denies := range []bool{true, false} {
		h := enginetest.New(t, func(p *engine.Parts) {
			for i := range p.Policy.Breakers {
				p.Policy.Breakers[i].Rule.Mode = taxonomy.ModeObserve // every call is sent
			}
		})
		try(t, h, candidate(func(_ *engine.Policy, r *enginetest.Rules) {
			r.OnAuthorize = func(in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
				if denies && in.Operation.Tenant == "t-1" {
					return taxonomy.AuthorityAnswer{Decision: taxonomy.RequireApproval}
				}
				return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow}
			}
		}), taxonomy.ModeShadow, 0)
		fail(t, h, "t-1", 8)
		if err := h.FlushTrial(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, _ := h.TrialReport()
		if opened := r.Trial.Opens > 0; opened == denies || r.Control.Opens == 0 {
			t.Errorf("denies %v: %d circuits of the candidate opened, %d of the version in force", denies, r.Trial.Opens, r.Control.Opens)
		}
	}
}
