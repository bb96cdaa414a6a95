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
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-ADM-1: every road to a dependency passes the same door.
func TestEveryRoadIsAdmitted(t *testing.T) {
	h := enginetest.New(t, nil)
	h.Rules.OnAuthorize = func(*taxonomy.AuthorityInput) taxonomy.AuthorityAnswer { return taxonomy.AuthorityAnswer{} }
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	for o := taxonomy.OriginFirst; o <= taxonomy.OriginSubagent; o++ {
		op := enginetest.Model("")
		op.Origin = o
		if _, err := h.Do(t.Context(), op, remote.Send); err == nil {
			t.Errorf("origin %s went through", o)
		}
	}
	if remote.Reached() != 0 {
		t.Errorf("%d calls reached the remote", remote.Reached())
	}
}

// R-ADM-3, R-FBK-3: while a provider is open, a workflow's own read-only step
// goes on, important work is kept, the rest is refused with a reason.
func TestWhileOpenWorkIsToldApart(t *testing.T) {
	h := enginetest.New(t, nil)
	if err := h.Override(t.Context(), "provider:acme-ai", breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "test", Until: h.Clock.Mono().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
	local := taxonomy.Operation{Kind: "workflow", Name: "summarise", Provider: "acme-ai", Tenant: "acme", Effect: taxonomy.ReadOnly}
	if _, err := h.Do(t.Context(), local, remote.Send); err != nil {
		t.Errorf("a local step was held up: %v", err)
	}
	for priority, next := range map[int64]string{0: "fallback", 9: "queue"} {
		op := enginetest.Model("")
		op.Priority = priority
		_, err := h.Do(t.Context(), op, remote.Send)
		if rej, refused := errors.AsType[*engine.Rejection](err); !refused || rej.Next != next || len(rej.Reasons) == 0 {
			t.Errorf("priority %d: %v", priority, err)
		}
	}
	if remote.Reached() != 1 {
		t.Errorf("%d calls reached the remote, want the local step only", remote.Reached())
	}
}

// R-CALL-5, R-CALL-6: pauses grow, are capped and jittered around their base, and
// background work takes its time.
func TestPausesOfEachProfile(t *testing.T) {
	for origin, bounds := range map[taxonomy.Origin][2]time.Duration{
		taxonomy.OriginFirst:      {6 * time.Second, 8 * time.Second},     // 1 + 2 + 4 s
		taxonomy.OriginBackground: {140 * time.Second, 160 * time.Second}, // 5 + 10 + 20 + 40 + 80 s
	} {
		h := enginetest.New(t, func(p *engine.Parts) { p.Policy.Breakers = nil })
		remote := enginetest.NewRemote(enginetest.HTTP(503, `{}`))
		op := enginetest.Model("")
		op.Origin = origin
		start := h.Clock.Now()
		_, _ = h.Do(t.Context(), op, remote.Send)
		if took := h.Clock.Now().Sub(start); took < bounds[0] || took > bounds[1] {
			t.Errorf("%s: %d attempts took %s, want %s to %s", origin, remote.Reached(), took, bounds[0], bounds[1])
		}
	}
}

// R-CALL-8: what failed stays with the run, also for the next process.
func TestFailuresStayWithTheRun(t *testing.T) {
	h := enginetest.New(t, nil)
	op := enginetest.Model("m1")
	op.RunID = "run-1"
	_, _ = h.Do(t.Context(), op, enginetest.NewRemote(enginetest.HTTP(400, `{"error":{"type":"invalid_request_error"}}`)).Send)
	other := op
	other.Tenant, other.RequestID = "globex", "m2" // its run of the same id is another run
	_, _ = h.Do(t.Context(), other, enginetest.NewRemote(enginetest.HTTP(200, ok)).Send)
	calls, err := h.Store.Run(t.Context(), "4:acme|run-1")
	if err != nil || len(calls) != 1 || calls[0].Outcome != taxonomy.Failed || calls[0].Error == "" {
		t.Errorf("the run remembers %+v, %v", calls, err)
	}
}

// R-QUE-3: queued work that failed for good is a dead letter with its attempts
// and its last error, before the queue lets go of it.
func TestDeadLettersKeepTheirStory(t *testing.T) {
	h := enginetest.New(t, nil)
	if err := h.Override(t.Context(), "provider:acme-ai", breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "test", Until: h.Clock.Mono().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	op := enginetest.Model("m1")
	op.Priority = 9
	remote := enginetest.NewRemote(enginetest.HTTP(400, `{"error":{"type":"invalid_request_error"}}`))
	_, err := h.Do(t.Context(), op, remote.Send)
	rej, _ := errors.AsType[*engine.Rejection](err)
	if _, err := h.Enqueue(t.Context(), op, []byte("payload"), rej); err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(2 * time.Minute)
	_, err = h.Drain(t.Context(), "w", func(_ context.Context, it state.Item) (taxonomy.Operation, engine.Send, error) {
		op, err := taxonomy.ParseOperation(it.Operation)
		return op, remote.Send, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for it, err := range h.Store.Items(t.Context(), state.ItemQuery{States: []state.ItemState{state.Dead}}) {
		if err != nil {
			t.Fatal(err)
		}
		if string(it.Payload) != "payload" || len(it.Attempts) != 1 || it.Attempts[0].Outcome != taxonomy.Failed || it.Reason == "" {
			t.Errorf("dead letter %+v", it)
		}
		return
	}
	t.Error("no dead letter")
}

// R-AGT-5: an approval says who, what and until when, is used once where it is
// single-use, and its receipt is durable before it counts.
func TestApprovalsAreUsedOnce(t *testing.T) {
	h := enginetest.New(t, nil)
	h.Rules.OnAuthorize = func(in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
		if len(in.Approvals) == 0 {
			return taxonomy.AuthorityAnswer{Decision: taxonomy.RequireApproval, Reasons: []string{"amount"}}
		}
		return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow, Reasons: []string{"approved by " + in.Approvals[0].By}}
	}
	remote := enginetest.NewRemote(enginetest.HTTP(201, `{"id":"x"}`))
	pay := taxonomy.Operation{Kind: "tool", Name: "pay", Provider: "bank", Tool: "bank", Action: "pay", ActionClass: "payment", Tenant: "acme", Effect: taxonomy.NonRepeatable}
	try := func() error { _, err := h.Do(t.Context(), pay, remote.Send); return err }
	if rej, refused := errors.AsType[*engine.Rejection](try()); !refused || rej.Decision != taxonomy.DecideApproval || rej.Next != "ask" {
		t.Fatalf("without an approval: %v", rej)
	}
	for _, bad := range []taxonomy.Approval{{}, {By: "ann", Reason: "x"}, {By: "ann", Reason: "x", Scope: "payment", Until: h.Clock.Now()}} {
		if err := h.Approve(t.Context(), bad); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
	a := taxonomy.Approval{By: "ann", Reason: "invoice 7", Scope: "payment", Tenant: "acme", Until: h.Clock.Now().Add(time.Hour), SingleUse: true}
	if err := h.Approve(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := try(); err != nil {
		t.Fatalf("with an approval: %v", err)
	}
	if err := try(); err == nil || remote.Reached() != 1 {
		t.Errorf("a single-use approval was used twice: %v, reached %d", err, remote.Reached())
	}
}

// R-RCP-1: everything that decides or changes something leaves a receipt with
// what a reader needs.
func TestEveryExitLeavesAReceipt(t *testing.T) {
	h := enginetest.New(t, nil)
	_, _ = h.Do(t.Context(), enginetest.Model("read"), enginetest.NewRemote(enginetest.HTTP(200, ok)).Send)
	_, _ = h.Do(t.Context(), enginetest.Write("write"), enginetest.NewRemote(enginetest.Broken("reset")).Send)
	_, _ = h.Do(t.Context(), enginetest.Write("refused"), enginetest.NewRemote(enginetest.HTTP(200, ok)).Send)
	if _, err := h.Reconcile(t.Context(), h.Intents(t, state.Unsettled)[0].ID, engine.Applied, "ann"); err != nil {
		t.Fatal(err)
	}
	_ = h.Override(t.Context(), "provider:acme-ai", breaker.Override{Kind: breaker.ForcedClosed, By: "ann", Why: "test", Until: h.Clock.Mono().Add(time.Hour)})
	p, err := h.Admit(t.Context(), enginetest.Model("abandoned"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Abandon(t.Context()); err != nil {
		t.Fatal(err)
	}
	var kinds []receipts.Kind
	for _, r := range h.Receipts(t) {
		kinds = append(kinds, r.Kind)
		if r.PolicyVersion == "" && r.Kind != receipts.KindBoot {
			t.Errorf("%s without a policy version", r.Kind)
		}
		switch r.Kind {
		case receipts.KindAdmission:
			if r.RequestID == "" || r.Tenant == "" || !r.Decision.OK || r.Attempt == 0 || r.Reason == "" {
				t.Errorf("admission %+v", r)
			}
		case receipts.KindOutcome:
			if r.Parent.IsZero() || !r.Outcome.OK || r.RequestID == "" || r.Attempt == 0 {
				t.Errorf("outcome %+v", r)
			}
		case receipts.KindTransition:
			if r.Breaker == "" || r.Scope == "" || r.PrevState == receipts.NoState || r.State == receipts.NoState || r.Reason == "" || r.Window.Kind == receipts.NoWindow {
				t.Errorf("transition %+v", r)
			}
		}
	}
	for _, k := range []receipts.Kind{receipts.KindPolicyLoad, receipts.KindAdmission, receipts.KindIntent, receipts.KindOutcome, receipts.KindTransition, receipts.KindReconcile, receipts.KindOverride} {
		if !slices.Contains(kinds, k) {
			t.Errorf("no receipt of kind %s among %v", k, kinds)
		}
	}
}
