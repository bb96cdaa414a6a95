package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The faults of other breakers (breaker/README.md) that are about the path
// around a circuit, by their numbers there.

const large = "provider:acme-ai/-/large"

// stream is an answer whose stream had begun when it broke.
func stream(kind string) enginetest.Answer {
	a := enginetest.Broken(kind)
	a.Observation.Response = &taxonomy.Response{Status: 200, Headers: map[string]string{"content-type": "text/event-stream"}}
	a.Observation.Stream = taxonomy.Stream{Started: true, Bytes: 900}
	return a
}

func alternates(to engine.Send) engine.Means {
	return engine.Means{Alternate: func(c taxonomy.Candidate, op taxonomy.Operation) (taxonomy.Operation, engine.Send, bool) {
		op.Provider, op.Model = c.Provider, c.Model
		return op, to, true
	}}
}

func withAlternates(p *engine.Parts) {
	p.Policy.Retries = []engine.RetryProfile{{Name: "model", Attempts: 3, Deadline: time.Minute}}
	p.Policy.Fallbacks = []engine.Fallback{{Name: "provider-open", Candidates: []taxonomy.Candidate{
		{ID: "second", Kind: "alternate", Provider: "second-ai", Model: "large"},
		{ID: "third", Kind: "alternate", Provider: "third-ai", Model: "large"},
		{ID: "refuse", Kind: "refuse"},
	}}}
}

// TestFault23 (R-FLT-21): a stream that fails midway has one outcome, and it
// counts once.
func TestFault23(t *testing.T) {
	h := enginetest.New(t, nil)
	if _, err := h.Do(t.Context(), enginetest.Model("s1"), enginetest.NewRemote(stream("reset")).Send); err == nil {
		t.Fatal("a broken stream is a success")
	}
	outcomes := 0
	for _, kind := range h.Kinds(t, "s1") {
		if kind == "outcome" {
			outcomes++
		}
	}
	key, _ := h.Breakers().Find(large)
	l, err := h.Breakers().Show(key, h.Clock.Mono())
	if err != nil || outcomes != 1 || l.Facts.Samples != 1 || l.Facts.Failures != 1 {
		t.Errorf("%d outcomes, the circuit counts %d of %d, %v", outcomes, l.Facts.Failures, l.Facts.Samples, err)
	}
}

// TestFault24 (R-FBK-1): a stream that stalls after its first bytes is UNKNOWN,
// and nothing restarts it: no retry, no other model.
func TestFault24(t *testing.T) {
	h := enginetest.New(t, withAlternates)
	stalled, other := enginetest.NewRemote(stream("read_timeout")), enginetest.NewRemote(enginetest.HTTP(200, ok))
	res, err := h.DoWith(t.Context(), enginetest.Model("s1"), stalled.Send, alternates(other.Send))
	if err == nil || res.Verdict.Outcome != taxonomy.Unknown || res.Fallback != nil {
		t.Errorf("%s, fallback %+v, %v", res.Verdict.Outcome, res.Fallback, err)
	}
	if stalled.Reached() != 1 || other.Reached() != 0 {
		t.Errorf("the stream was asked for %d times, the other model %d times", stalled.Reached(), other.Reached())
	}
}

// TestFault54 (R-FBK-2, R-FBK-3): every candidate is open as well: the last
// resort of the contract is given before anything is sent to one of them.
func TestFault54(t *testing.T) {
	h := enginetest.New(t, withAlternates)
	for _, scope := range []string{"provider:acme-ai", "provider:second-ai", "provider:third-ai"} {
		err := h.Override(t.Context(), scope, breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "drill", Until: h.Clock.Mono().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
	}
	first, others := enginetest.NewRemote(enginetest.HTTP(200, ok)), enginetest.NewRemote(enginetest.HTTP(200, ok))
	res, err := h.DoWith(t.Context(), enginetest.Model("m1"), first.Send, alternates(others.Send))
	if err == nil || res.Fallback == nil || res.Fallback.Candidate.ID != "refuse" {
		t.Errorf("the last resort was not given: %+v, %v", res.Fallback, err)
	}
	if n := first.Reached() + others.Reached(); n != 0 {
		t.Errorf("%d calls went to providers that are all open", n)
	}
}

// TestFault55 (R-CALL-1): three nested layers that retry, and a budget of four
// attempts: the remote counts four at most, although it always fails.
func TestFault55(t *testing.T) {
	h := enginetest.New(t, calm)
	remote := enginetest.NewRemote(enginetest.HTTP(503, `{}`))
	var layer func(depth int) engine.Send
	layer = func(depth int) engine.Send {
		if depth == 0 {
			return remote.Send
		}
		return func(ctx context.Context, _ engine.Call) taxonomy.Observation {
			var last taxonomy.Observation
			for range 4 { // a loop of its own, as frameworks have
				res, err := h.Do(ctx, enginetest.Model(""), layer(depth-1))
				if last = res.Observation; err == nil {
					break
				}
			}
			return last
		}
	}
	ctx := engine.WithExecutionBudget(t.Context(), engine.NewExecutionBudget(engine.Spending{Attempts: 4}))
	if _, err := h.Do(ctx, enginetest.Model("m1"), layer(2)); err == nil || remote.Reached() > 4 {
		t.Errorf("the remote saw %d calls, %v", remote.Reached(), err)
	}
}

// calm is a policy whose circuits do not open over a few failures.
func calm(p *engine.Parts) {
	for i := range p.Policy.Breakers {
		p.Policy.Breakers[i].Rule.Trip.Consecutive, p.Policy.Breakers[i].Rule.Window.MinSamples = 1000, 1000
	}
}

// draining is an engine whose retry budget holds one retry.
func draining(t *testing.T, floor int64) *enginetest.House {
	return enginetest.New(t, func(p *engine.Parts) {
		calm(p)
		p.Policy.RetryTokens = engine.RetryTokens{Capacity: 10, Cost: 10, Refill: 2, Floor: floor}
		p.Policy.Retries = []engine.RetryProfile{{Name: "model", Attempts: 4, Base: time.Second, Cap: 16 * time.Second, Growth: 2, Deadline: time.Hour}}
	})
}

// TestFault56 (R-CALL-1): a drained retry budget is filled again by first
// attempts that succeed.
func TestFault56(t *testing.T) {
	h := draining(t, 0)
	attempts := func() int {
		t.Helper()
		dead := enginetest.NewRemote(enginetest.HTTP(503, `{}`))
		res, err := h.Do(t.Context(), enginetest.Model(""), dead.Send)
		if f, failed := errors.AsType[*engine.Failed](err); !failed || f.Result.Verdict.Reason == "" {
			t.Fatalf("%+v, %v", res, err)
		}
		return dead.Reached()
	}
	if n := attempts(); n != 2 {
		t.Fatalf("a budget of one retry allowed %d attempts", n)
	}
	if n := attempts(); n != 1 {
		t.Fatalf("an empty budget allowed %d attempts", n)
	}
	good := enginetest.NewRemote(enginetest.HTTP(200, ok))
	for range 5 {
		if _, err := h.Do(t.Context(), enginetest.Model(""), good.Send); err != nil {
			t.Fatal(err)
		}
	}
	if n := attempts(); n != 2 {
		t.Errorf("five successes filled the budget for one retry, and %d attempts were made", n)
	}
}

// TestFault57 (R-CALL-5): the floor lets a few retries go with an empty budget,
// and they are spaced like any other.
func TestFault57(t *testing.T) {
	h := draining(t, 3)
	for i := range 3 { // the first one drains the budget
		dead := enginetest.NewRemote(enginetest.HTTP(503, `{}`))
		before := h.Clock.Now()
		_, _ = h.Do(t.Context(), enginetest.Model(""), dead.Send)
		if took := h.Clock.Now().Sub(before); dead.Reached() != 4 || took < 7*time.Second {
			t.Errorf("call %d: %d attempts within %s, their pauses are 1, 2 and 4 s", i+1, dead.Reached(), took)
		}
	}
}

// TestFault58 (R-CALL-2, R-CALL-3, R-QUE-3): a worker dies after it sent a queued
// write. Whoever claims the item next sends nothing: it is UNKNOWN and waits for
// a person. Its key neither replays nor blocks for ever.
func TestFault58(t *testing.T) {
	h := enginetest.New(t, func(p *engine.Parts) { p.Policy.Queue.MaxExpiry = time.Hour })
	const tool = "tool:mail"
	if err := h.Override(t.Context(), tool, breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "drill", Until: h.Clock.Mono().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	op := enginetest.Write("w1")
	op.Priority, op.IdempotencyKey = 9, "order-4711"
	_, err := h.Do(t.Context(), op, enginetest.NewRemote(enginetest.HTTP(201, `{}`)).Send)
	rej, _ := errors.AsType[*engine.Rejection](err)
	if _, err := h.Enqueue(t.Context(), op, nil, rej); err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(2 * time.Minute)
	if items, _, err := h.Store.Claim(t.Context(), "first", state.From{}, 1, time.Minute); err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	op.Origin = taxonomy.OriginQueue
	permit, err := h.Admit(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	if err := permit.Mark(t.Context()); err != nil { // and the bytes leave, and the worker dies
		t.Fatal(err)
	}
	next := h.Restart(t, "second")
	h.Clock.Advance(2 * time.Minute) // the claim runs out
	remote := enginetest.NewRemote(enginetest.HTTP(201, `{}`).Committed())
	replay := func(_ context.Context, it state.Item) (taxonomy.Operation, engine.Send, error) {
		op, err := taxonomy.ParseOperation(it.Operation)
		return op, remote.Send, err
	}
	if _, err := next.Drain(t.Context(), "second", replay); err != nil {
		t.Fatal(err)
	}
	unknown := next.Intents(t, state.Unsettled)
	if remote.Reached() != 0 || len(unknown) != 1 {
		t.Fatalf("a reclaimed write was sent %d times, %d intents are UNKNOWN", remote.Reached(), len(unknown))
	}
	for it, err := range next.Store.Items(t.Context(), state.ItemQuery{}) {
		if err != nil || it.State != state.Dead {
			t.Errorf("the item is %s, %v", it.State, err)
		}
	}
	if _, err := next.Reconcile(t.Context(), unknown[0].ID, engine.NotApplied, "operator:ann"); err != nil {
		t.Fatal(err)
	}
	op.RequestID, op.Origin = "w2", taxonomy.OriginFirst
	if _, err := next.Do(t.Context(), op, remote.Send); err != nil || remote.Applied()["order-4711"] != 1 {
		t.Errorf("after reconciling, the key is used %d times: %v", remote.Applied()["order-4711"], err)
	}
}
