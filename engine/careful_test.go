package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// What an embedder may get wrong has an answer that says so, and an outcome that
// is true.

// R-AGT-3: a run that used up its own budget stops itself; only a shared window
// that is used up says so to the others.
func TestARunsBudgetIsItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		budget engine.Budget
		reason string
	}{
		"a run's":  {engine.Budget{Name: "run", Scope: []string{"tenant", "run_id"}, Limit: state.Amounts{Attempts: 1}}, "run_budget_exhausted"},
		"a window": {engine.Budget{Name: "day", Scope: []string{"tenant"}, Window: 24 * time.Hour, Limit: state.Amounts{Attempts: 1}}, "budget_exhausted"},
	} {
		h := with(t, func(p *engine.Policy) { p.Budgets = []engine.Budget{c.budget} })
		var fed []string
		h.Rules.OnRoute = func(in *taxonomy.RouteInput) taxonomy.RouteAnswer {
			fed = append(fed, in.Reason)
			return taxonomy.RouteAnswer{}
		}
		op := enginetest.Model("")
		op.RunID = "run-1"
		remote := enginetest.NewRemote(enginetest.HTTP(200, `{}`))
		if _, err := h.Do(t.Context(), op, remote.Send); err != nil {
			t.Fatal(err)
		}
		h.Clock.Advance(2 * time.Second)
		_, err := h.Do(t.Context(), op, remote.Send)
		if rej := rejection(t, err); rej.Reason != c.reason || fed[len(fed)-1] != c.reason {
			t.Errorf("%s: refused as %s, routed as %v", name, rej.Reason, fed)
		}
	}
}

// A usage gives nothing back, whatever an answer or an embedder says.
func TestNegativeUsageRefillsNothing(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Budgets = []engine.Budget{{Name: "run", Scope: []string{"run_id"}, Limit: state.Amounts{CostNanoUSD: 10}}}
	})
	sent := 0
	for used := int64(-1000); sent < 10; used = 5 {
		op := enginetest.Write("") // reserved in the store, call by call
		op.RunID, op.Estimate.CostNanoUSD = "run-1", 5
		p, err := h.Admit(t.Context(), op)
		if err == nil {
			err = p.Mark(t.Context())
		}
		if err != nil {
			break
		}
		sent++
		p.Used(engine.Usage{CostNanoUSD: used, InputTokens: -5, OutputTokens: -5})
		res, err := p.Settle(t.Context(), enginetest.HTTP(200, `{}`).Observation)
		if err != nil || res.Used.Tokens != 0 {
			t.Fatalf("used %+v, %v", res.Used, err)
		}
		h.Clock.Advance(2 * time.Second)
	}
	if sent != 3 { // one that cost nothing, and two of five
		t.Errorf("%d calls of 5 were sent on a limit of 10", sent)
	}
}

func TestWhatWasNeverSentIsNotUnknown(t *testing.T) {
	h := enginetest.New(t, nil)
	remote := enginetest.NewRemote(enginetest.HTTP(200, `{}`))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		change func(*taxonomy.Operation)
		send   engine.Send
		class  taxonomy.Class
	}{
		"no kind":           {t.Context(), func(op *taxonomy.Operation) { op.Kind = "thing" }, remote.Send, taxonomy.ClientInput},
		"negative estimate": {t.Context(), func(op *taxonomy.Operation) { op.Estimate.InputTokens = -1 }, remote.Send, taxonomy.ClientInput},
		"negative deadline": {t.Context(), func(op *taxonomy.Operation) { op.Deadline = -1 }, remote.Send, taxonomy.ClientInput},
		"a past deadline":   {t.Context(), func(op *taxonomy.Operation) { op.Deadline = 1 }, remote.Send, taxonomy.Budget},
		"a caller gone":     {gone, func(*taxonomy.Operation) {}, remote.Send, taxonomy.Cancellation},
		"nothing to send":   {t.Context(), func(*taxonomy.Operation) {}, nil, taxonomy.ClientInput},
	} {
		op := enginetest.Write("r-" + name)
		c.change(&op)
		res, err := h.Do(c.ctx, op, c.send)
		if err == nil || res.Verdict.Outcome != taxonomy.FailedBeforeSend || res.Verdict.Class != c.class {
			t.Errorf("%s: %s %s, %v", name, res.Verdict.Outcome, res.Verdict.Class, err)
		}
	}
	if remote.Reached() != 0 {
		t.Errorf("%d calls reached the remote", remote.Reached())
	}
}

// What a worker cannot prepare is reported, and waits on.
func TestWorkThatCannotBePreparedIsReported(t *testing.T) {
	h := enginetest.New(t, nil)
	if _, err := h.Enqueue(t.Context(), enginetest.Model("m"), make([]byte, 2<<20), queued(time.Minute)); err == nil {
		t.Error("a payload of 2 MiB was kept")
	}
	if _, err := h.Enqueue(t.Context(), enginetest.Model("m"), nil, queued(time.Minute)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the data is gone")
	_, err := h.Drain(t.Context(), "w", func(context.Context, state.Item) (taxonomy.Operation, engine.Send, error) {
		return taxonomy.Operation{}, nil, broken
	})
	if its := itemsOf(t, h, state.Waiting); !errors.Is(err, broken) || len(its) != 1 || its[0].Reason != "not_prepared" {
		t.Errorf("%v, %+v", err, its)
	}
}
