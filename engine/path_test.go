package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

const ok = `{"id":"c1","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"done"}}],"usage":{"prompt_tokens":9,"completion_tokens":3}}`

// A read that works leaves two receipts and nothing else.
func TestReadSucceeds(t *testing.T) {
	h := enginetest.New(t, nil)
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	res, err := h.Do(t.Context(), enginetest.Model("r1"), remote.Send)
	if err != nil {
		t.Fatal(err)
	}
	if res.Verdict.Outcome != taxonomy.Succeeded || res.Attempts != 1 || remote.Reached() != 1 {
		t.Errorf("got %s after %d attempts, %d reached", res.Verdict.Outcome, res.Attempts, remote.Reached())
	}
	if got := h.Kinds(t, "r1"); !slices.Equal(got, []string{"admission", "outcome"}) {
		t.Errorf("receipts %v", got)
	}
	if n := len(h.Intents(t)); n != 0 {
		t.Errorf("a read left %d intents", n)
	}
}

// R-CALL-2: the intent is durable before the first byte leaves, and settled after.
func TestWriteIsDurableBeforeTheSend(t *testing.T) {
	h := enginetest.New(t, nil)
	answer := enginetest.HTTP(201, `{"id":"m-1"}`).Committed()
	answer.Before = func() {
		if in := h.Intents(t, state.InFlight); len(in) != 1 {
			t.Errorf("%d intents in flight while the remote works, want 1", len(in))
		}
		if got := h.Kinds(t, "w1"); !slices.Contains(got, "intent") {
			t.Errorf("no intent receipt before the send: %v", got)
		}
	}
	remote := enginetest.NewRemote(answer)
	if _, err := h.Do(t.Context(), enginetest.Write("w1"), remote.Send); err != nil {
		t.Fatal(err)
	}
	if in := h.Intents(t, state.Settled); len(in) != 1 || in[0].Result.Outcome != taxonomy.Succeeded {
		t.Errorf("settled intents: %+v", in)
	}
	if got := h.Kinds(t, "w1"); !slices.Equal(got, []string{"admission", "intent", "outcome"}) {
		t.Errorf("receipts %v", got)
	}
}

// R-CALL-3, R-TAX-5, R-FLT-13: a write that timed out after the server
// committed is UNKNOWN, is not sent again, and blocks its action until it is
// reconciled.
func TestTimeoutAfterCommitIsNeverSentAgain(t *testing.T) {
	h := enginetest.New(t, nil)
	remote := enginetest.NewRemote(enginetest.Broken("read_timeout").Committed())
	res, err := h.Do(t.Context(), enginetest.Write("w1"), remote.Send)
	if f, isFailed := errors.AsType[*engine.Failed](err); !isFailed || f.Result.Verdict.Outcome != taxonomy.Unknown {
		t.Fatalf("got %v", err)
	}
	if res.Verdict.Class != taxonomy.AmbiguousWrite || res.Next != "reconcile" || remote.Reached() != 1 {
		t.Errorf("verdict %+v, next %s, reached %d", res.Verdict, res.Next, remote.Reached())
	}
	if got := h.CircuitState(t, "ambiguity:mail/mail.send/acme"); got != "OPEN" {
		t.Errorf("ambiguity circuit is %s", got)
	}

	_, err = h.Do(t.Context(), enginetest.Write("w2"), remote.Send)
	rej, rejected := errors.AsType[*engine.Rejection](err)
	if !rejected || rej.Next != "reconcile" || rej.Scope != "ambiguity:mail/mail.send/acme" {
		t.Fatalf("the next write of the same action: %v", err)
	}
	if remote.Reached() != 1 {
		t.Errorf("the remote saw %d calls", remote.Reached())
	}

	in := h.Intents(t, state.Unsettled)
	if len(in) != 1 {
		t.Fatalf("%d UNKNOWN intents", len(in))
	}
	if _, err := h.Reconcile(t.Context(), in[0].ID, engine.Applied, "operator:ann"); err != nil {
		t.Fatal(err)
	}
	if got := h.CircuitState(t, "ambiguity:mail/mail.send/acme"); got != "CLOSED" {
		t.Errorf("ambiguity circuit after reconciliation is %s", got)
	}
	remote.Then(enginetest.HTTP(201, `{}`).Committed())
}

// R-BRK-3, R-BRK-4, R-FLT-4, R-FLT-5: four failures pass, the fifth opens, a
// call before the end of the cooldown does not reach the remote, the first one
// after it probes and closes.
func TestProviderOpensAndRecoversByOneProbe(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) {
		p.Policy.Retries = []engine.RetryProfile{{Name: "model", Attempts: 1, Deadline: time.Minute}}
	})
	remote := enginetest.NewRemote(enginetest.HTTP(503, `{}`))
	const scope = "provider:acme-ai/-/large"
	for i := range 5 {
		if got := h.CircuitState(t, scope); got != "CLOSED" {
			t.Fatalf("after %d failures: %s", i, got)
		}
		_, _ = h.Do(t.Context(), enginetest.Model(""), remote.Send)
	}
	if got := h.CircuitState(t, scope); got != "OPEN" {
		t.Fatalf("after 5 failures: %s", got)
	}
	h.Clock.Advance(29 * time.Second)
	_, err := h.Do(t.Context(), enginetest.Model(""), remote.Send)
	if rej, rejected := errors.AsType[*engine.Rejection](err); !rejected || rej.Reason != "circuit_open" || rej.RetryAt.Sub(h.Clock.Now()) != time.Second {
		t.Fatalf("before the cooldown's end: %v", err)
	}
	if remote.Reached() != 5 {
		t.Errorf("the remote saw %d calls, want 5", remote.Reached())
	}
	h.Clock.Advance(time.Second)
	remote.Then(enginetest.HTTP(200, ok))
	if _, err := h.Do(t.Context(), enginetest.Model(""), remote.Send); err != nil {
		t.Fatal(err)
	}
	if got := h.CircuitState(t, scope); got != "CLOSED" {
		t.Errorf("after a good probe: %s", got)
	}
}

// R-FLT-6, R-CALL-2: what a process that is gone left in flight is UNKNOWN
// after a restart, visible, and not resent; the circuits are as they were.
func TestRestartFindsWhatWasInFlight(t *testing.T) {
	h := enginetest.New(t, nil)
	permit, err := h.Admit(t.Context(), enginetest.Write("w1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := permit.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := h.Restart(t, "second")
	in := next.Intents(t, state.Unsettled)
	if len(in) != 1 || in[0].Result.Reason != "" && in[0].Result.By != "owner_gone" {
		t.Fatalf("UNKNOWN intents: %+v", in)
	}
	if got := next.CircuitState(t, "ambiguity:mail/mail.send/acme"); got != "OPEN" {
		t.Errorf("ambiguity circuit is %s", got)
	}
	again := next.Restart(t, "third")
	if got := again.CircuitState(t, "ambiguity:mail/mail.send/acme"); got != "OPEN" {
		t.Errorf("ambiguity circuit after another restart is %s", got)
	}
}

// R-ADM-5: a permit is single-use and expires.
func TestPermitIsUsedOnceAndExpires(t *testing.T) {
	h := enginetest.New(t, nil)
	permit, err := h.Admit(t.Context(), enginetest.Model("r1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := permit.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := permit.Mark(t.Context()); !errors.Is(err, engine.ErrPermitUsed) {
		t.Errorf("second dispatch: %v", err)
	}
	late, err := h.Admit(t.Context(), enginetest.Model("r2"))
	if err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(61 * time.Second)
	if err := late.Mark(t.Context()); !errors.Is(err, engine.ErrPermitExpired) {
		t.Errorf("dispatch after expiry: %v", err)
	}
}

// DESIGN 15: a dispatched write whose result never comes becomes UNKNOWN by
// itself, and a late result is heard and marked.
func TestDispatchedPermitLapsesIntoUnknown(t *testing.T) {
	h := enginetest.New(t, nil)
	op := enginetest.Write("w1")
	op.Deadline = h.Clock.Now().Add(10 * time.Second).UnixMilli()
	permit, err := h.Admit(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	if err := permit.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(16 * time.Second)
	h.Tick(t.Context())
	if in := h.Intents(t, state.Unsettled); len(in) != 1 {
		t.Fatalf("%d UNKNOWN intents", len(in))
	}
	res, err := permit.Settle(t.Context(), enginetest.HTTP(201, `{}`).Observation)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(res.Flags, "late") || res.Verdict.Outcome != taxonomy.Succeeded {
		t.Errorf("late result: %s %v", res.Verdict.Outcome, res.Flags)
	}
	if in := h.Intents(t, state.Settled); len(in) != 1 {
		t.Errorf("the late answer did not settle the intent: %+v", h.Intents(t))
	}
}

// DESIGN 15: something sent without a dispatch is accepted as UNKNOWN, and flagged.
func TestUndeclaredDispatchIsUnknown(t *testing.T) {
	h := enginetest.New(t, nil)
	permit, err := h.Admit(t.Context(), enginetest.Write("w1"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := permit.Settle(t.Context(), enginetest.HTTP(200, `{}`).Observation)
	if err != nil {
		t.Fatal(err)
	}
	if res.Verdict.Outcome != taxonomy.Unknown || !slices.Contains(res.Flags, "undeclared_dispatch") {
		t.Errorf("got %s, flags %v", res.Verdict.Outcome, res.Flags)
	}
	if in := h.Intents(t, state.Unsettled); len(in) != 1 {
		t.Errorf("%d UNKNOWN intents wait for reconciliation, want 1", len(in))
	}
}

// R-AGT-4: a denial binds, leaves a receipt, and repeated ones open the
// authority circuit of that agent and action class.
func TestDenialsFailClosed(t *testing.T) {
	h := enginetest.New(t, nil)
	asked := 0
	h.Rules.OnAuthorize = func(*taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
		asked++
		return taxonomy.AuthorityAnswer{Reasons: []string{"not yours"}}
	}
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	for range 3 {
		_, err := h.Do(t.Context(), enginetest.Write(""), remote.Send)
		if rej, rejected := errors.AsType[*engine.Rejection](err); !rejected || rej.Layer != taxonomy.LayerAuthority || rej.Next != "stop" || rej.Receipt == "" {
			t.Fatalf("got %v", err)
		}
	}
	if remote.Reached() != 0 {
		t.Error("a denied call reached the remote")
	}
	if got := h.CircuitState(t, "authority:a-1/mail/mail.send"); got != "OPEN" {
		t.Errorf("authority circuit is %s", got)
	}
}

// R-AGT-1: repeated equivalent calls are stopped, and the tool is not blamed.
func TestLoopStopsTheRunAndBlamesNoTool(t *testing.T) {
	h := enginetest.New(t, nil)
	remote := enginetest.NewRemote(enginetest.HTTP(404, `{"error":"no such document"}`))
	op := taxonomy.Operation{Kind: "tool", Name: "docs.read", Provider: "docs", Tenant: "acme", RunID: "run-1", ArgsFP: "k1:aa", Effect: taxonomy.ReadOnly}
	var rej *engine.Rejection
	for range 8 {
		_, err := h.Do(t.Context(), op, remote.Send)
		if r, rejected := errors.AsType[*engine.Rejection](err); rejected {
			rej = r
			break
		}
	}
	if rej == nil || rej.Class != taxonomy.NoProgress {
		t.Fatalf("the loop was not stopped: %v", rej)
	}
	if got := remote.Reached(); got > 4 {
		t.Errorf("the loop reached the remote %d times", got)
	}
	if got := h.CircuitState(t, "tool:docs/docs.read/acme"); got != "CLOSED" {
		t.Errorf("the tool's circuit is %s", got)
	}
	if got := h.CircuitState(t, "loop:acme/run-1"); got != "OPEN" {
		t.Errorf("the run's loop circuit is %s", got)
	}
}

// R-AGT-3: reserved before, settled after, never overspent.
func TestBudgetIsReservedAndSettled(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) {
		p.Policy.Budgets = []engine.Budget{{Name: "tenant-day", Scope: []string{"tenant"}, Window: 24 * time.Hour, Limit: state.Amounts{Tokens: 100}}}
	})
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	op := enginetest.Model("r1")
	op.Estimate = taxonomy.Estimate{InputTokens: 40, OutputTokens: 20}
	if _, err := h.Do(t.Context(), op, remote.Send); err != nil {
		t.Fatal(err)
	}
	op.RequestID = "r2"
	_, err := h.Do(t.Context(), op, remote.Send)
	rej, rejected := errors.AsType[*engine.Rejection](err)
	if !rejected || rej.Layer != taxonomy.LayerBudget || rej.Class != taxonomy.Budget || remote.Reached() != 1 {
		t.Fatalf("the second call of 60 tokens in a budget of 100: %v, reached %d", err, remote.Reached())
	}
	if !errors.Is(err, state.ErrExhausted) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// R-ADM-4: with the store gone, a write fails closed and a read follows its rule.
func TestStoreLossFailsClosedForWrites(t *testing.T) {
	h := enginetest.New(t, nil)
	h.Faults.At("dispatch-before-commit", func() error { return state.ErrUnavailable })
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	_, err := h.Do(t.Context(), enginetest.Write("w1"), remote.Send)
	if rej, rejected := errors.AsType[*engine.Rejection](err); !rejected || rej.Reason != "state_unavailable" || !errors.Is(err, state.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if remote.Reached() != 0 {
		t.Error("a write went out without its intent")
	}
}

// DESIGN 16: state yes and receipt no: the intent ends FAILED_BEFORE_SEND.
func TestNoEvidenceNoSend(t *testing.T) {
	h := enginetest.New(t, nil)
	h.Faults.At("dispatch-after-state", func() error { return errors.New("the log is gone") })
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	_, err := h.Do(t.Context(), enginetest.Write("w1"), remote.Send)
	if rej, rejected := errors.AsType[*engine.Rejection](err); !rejected || rej.Reason != "evidence_unavailable" {
		t.Fatalf("got %v", err)
	}
	in := h.Intents(t)
	if len(in) != 1 || in[0].State != state.Settled || in[0].Result.Outcome != taxonomy.FailedBeforeSend || remote.Reached() != 0 {
		t.Errorf("intents %+v, reached %d", in, remote.Reached())
	}
	if got := h.Kinds(t, "w1"); !slices.Contains(got, "intent_void") {
		t.Errorf("the intent's receipt has no answer: %v", got)
	}
}

// A panic in the caller's send settles the intent and goes on.
func TestPanicInSendIsSettledAndGoesOn(t *testing.T) {
	h := enginetest.New(t, nil)
	defer func() {
		if recover() == nil {
			t.Error("the panic was swallowed")
		}
		if in := h.Intents(t, state.Unsettled); len(in) != 1 {
			t.Errorf("%d UNKNOWN intents after a panic", len(in))
		}
	}()
	_, _ = h.Do(t.Context(), enginetest.Write("w1"), func(context.Context, engine.Call) taxonomy.Observation { panic("agent") })
}

// R-BRK-9: overrides say who and why, bind, and end by themselves.
func TestOverrideEndsByItself(t *testing.T) {
	h := enginetest.New(t, nil)
	const scope = "provider:acme-ai/-/large"
	err := h.Override(t.Context(), scope, breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "maintenance", Until: h.Clock.Mono().Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	if _, err := h.Do(t.Context(), enginetest.Model(""), remote.Send); err == nil || remote.Reached() != 0 {
		t.Fatalf("a forced-open circuit let a call pass: %v", err)
	}
	h.Clock.Advance(61 * time.Second)
	if _, err := h.Do(t.Context(), enginetest.Model(""), remote.Send); err != nil {
		t.Fatalf("after the override's end: %v", err)
	}
}

// R-CALL-3: an UNKNOWN write does not go out again by another road either: the
// same request, admitted anew, needs reconciliation or a person's approval.
func TestUnknownRequestIsRefusedOnEveryRoad(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) {
		for i := range p.Policy.Breakers { // even where nothing but the engine's own rule is left
			p.Policy.Breakers[i].Rule.Mode = taxonomy.ModeObserve
		}
	})
	remote := enginetest.NewRemote(enginetest.Broken("reset").Committed())
	_, _ = h.Do(t.Context(), enginetest.Write("w1"), remote.Send)
	for _, origin := range []taxonomy.Origin{taxonomy.OriginFirst, taxonomy.OriginRetry, taxonomy.OriginQueue, taxonomy.OriginReplay, taxonomy.OriginSubagent} {
		op := enginetest.Write("w1")
		op.Origin, op.Attempt = origin, 2
		_, err := h.Do(t.Context(), op, remote.Send)
		if rej, rejected := errors.AsType[*engine.Rejection](err); !rejected || rej.Reason != "outcome_unknown" || rej.Next != "reconcile" {
			t.Errorf("%s: %v", origin, err)
		}
	}
	err := h.Store.Grant(t.Context(), taxonomy.Approval{ID: "a1", By: "ann", Scope: "w1", Tenant: "acme", Until: h.Clock.Now().Add(time.Hour), SingleUse: true})
	if err != nil {
		t.Fatal(err)
	}
	remote.Then(enginetest.HTTP(201, `{}`))
	if _, err := h.Do(t.Context(), enginetest.Write("w1"), remote.Send); err != nil {
		t.Errorf("with an approval: %v", err)
	}
	if remote.Reached() != 2 {
		t.Errorf("reached %d times", remote.Reached())
	}
}

type answers []engine.Finding

func (a *answers) Reconcile(context.Context, state.Intent) (engine.Finding, error) {
	f := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	return f, nil
}

// R-CALL-4: an UNKNOWN outcome is looked up at its pace, and settled by what the
// lookup proves; what stays UNKNOWN is handed to a person in the end.
func TestLookupsArePacedAndEndWithAPerson(t *testing.T) {
	lookups := &answers{engine.StillUnknown}
	h := enginetest.New(t, func(p *engine.Parts) {
		p.Reconcilers = map[string]engine.Reconciler{"mail": lookups}
		p.Policy.Tools = []engine.Tool{{Tool: "mail", Reconcile: "mail", Lookup: engine.Lookup{After: time.Second, Every: 10 * time.Second, Tries: 3}}}
	})
	remote := enginetest.NewRemote(enginetest.Broken("read_timeout"))
	_, _ = h.Do(t.Context(), enginetest.Write("w1"), remote.Send)
	look := func() state.Intent {
		t.Helper()
		if err := h.LookUpDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h.Intents(t)[0]
	}
	if in := look(); in.Tries > 1 {
		t.Errorf("looked up before its time: %+v", in)
	}
	for range 10 {
		h.Clock.Advance(time.Minute)
		look()
	}
	in := look()
	if in.State != state.Unsettled || in.Case == "" {
		t.Errorf("after its last try: %s, case %q", in.State, in.Case)
	}
	if remote.Reached() != 1 {
		t.Errorf("the remote saw %d calls", remote.Reached())
	}
}

// R-CALL-1: three layers that each retry share one budget of four attempts, and
// the remote sees four calls at most.
func TestNestedRetriesShareOneBudget(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) { p.Policy.Breakers = nil })
	remote := enginetest.NewRemote(enginetest.HTTP(503, `{}`))
	layer := func(inner engine.Send) engine.Send {
		return func(ctx context.Context, _ engine.Call) taxonomy.Observation {
			res, _ := h.Do(ctx, enginetest.Model(""), inner) // how it failed is in the observation
			return res.Observation
		}
	}
	ctx := engine.WithExecutionBudget(t.Context(), engine.NewExecutionBudget(engine.Spending{Attempts: 6}))
	_, err := h.Do(ctx, enginetest.Model(""), layer(layer(remote.Send)))
	if err == nil || remote.Reached() > 4 {
		t.Errorf("the remote saw %d calls, error %v", remote.Reached(), err)
	}
}

// The budget crosses a process as a header, and loses nothing on the way.
func TestExecutionBudgetCrossesProcesses(t *testing.T) {
	for _, s := range []engine.Spending{
		{Attempts: 3}, {Attempts: 0}, {Attempts: 2, Tokens: 900, CostNanoUSD: 4e6, Deadline: time.Date(2026, 11, 30, 2, 31, 7, 5, time.UTC)},
	} {
		b := engine.NewExecutionBudget(s)
		again, err := engine.ParseExecutionBudget(b.Header())
		if err != nil || again.Header() != b.Header() {
			t.Errorf("%q came back as %q, %v", b.Header(), again.Header(), err)
		}
	}
	for sent, want := range map[string]string{ // zero and less are spent, never "no limit"
		"attempts=2; tokens=0":         "attempts=2; tokens=0",
		"attempts=2; tokens=-5":        "attempts=2; tokens=0",
		"attempts=2; cost_nano_usd=0":  "attempts=2; cost_nano_usd=0",
		"attempts=2; tokens=0900":      "attempts=2; tokens=900",
		"attempts=2; other_tokens=0":   "attempts=2",
		"attempts=2; cost_nano_usd=07": "attempts=2; cost_nano_usd=7",
	} {
		if b, err := engine.ParseExecutionBudget(sent); err != nil || b.Header() != want {
			t.Errorf("%q was read as %v, %v; want %q", sent, b, err, want)
		}
	}
	for _, bad := range []string{"", "attempts=", "attempts=x", "attempts=-1", "attempts=1; deadline=soon", "attempts=1; tokens=1e3"} {
		if _, err := engine.ParseExecutionBudget(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// DESIGN 15: also one that is reported after its permit expired.
func TestUndeclaredDispatchIsHeardAfterExpiry(t *testing.T) {
	h := enginetest.New(t, nil)
	permit, err := h.Admit(t.Context(), enginetest.Write("w1"))
	if err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(2 * time.Minute)
	h.Tick(t.Context())
	if permit, err = h.Permit(t.Context(), permit.ID()); err != nil {
		t.Fatal(err)
	}
	res, err := permit.Settle(t.Context(), enginetest.Broken("read_timeout").Observation)
	if err != nil || res.Verdict.Outcome != taxonomy.Unknown || !slices.Contains(res.Flags, "late") {
		t.Fatalf("got %s %v, %v", res.Verdict.Outcome, res.Flags, err)
	}
	if in := h.Intents(t, state.Unsettled); len(in) != 1 {
		t.Errorf("%d UNKNOWN intents, want 1", len(in))
	}
	if _, err := h.Admit(t.Context(), enginetest.Write("w1")); err == nil {
		t.Error("the same request was admitted again")
	}
}

// R-CALL-3, R-CALL-4: the idempotency key names a write as well as its request
// id does: a new request with the key of an UNKNOWN one is the same write.
func TestKeyOfAnUnknownWriteIsRefused(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) { p.Policy.Breakers = nil })
	remote := enginetest.NewRemote(enginetest.Broken("read_timeout"))
	order := func(request, key string) error {
		op := enginetest.Write(request)
		op.IdempotencyKey = key
		_, err := h.Do(t.Context(), op, remote.Send)
		return err
	}
	_ = order("r1", "order-4711")
	if rej, refused := errors.AsType[*engine.Rejection](order("r2", "order-4711")); !refused || rej.Reason != "outcome_unknown" {
		t.Errorf("the same key under another request: %v", rej)
	}
	_ = order("r3", "order-4712")
	if remote.Reached() != 2 {
		t.Errorf("the remote saw %d calls, want one for each key", remote.Reached())
	}
}
