package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func queued(wait time.Duration) *engine.Rejection {
	return &engine.Rejection{Decision: taxonomy.DecideQueue, Scope: "provider:acme-ai", ExpiresIn: wait}
}

func itemsOf(t *testing.T, h *enginetest.House, states ...state.ItemState) []state.Item {
	t.Helper()
	var out []state.Item
	for it, err := range h.Store.Items(t.Context(), state.ItemQuery{States: states}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, it)
	}
	return out
}

// replayed prepares an item as it was, and sends it.
func replayed(r *enginetest.Remote) engine.Replay {
	return func(_ context.Context, it state.Item) (taxonomy.Operation, engine.Send, error) {
		op, err := taxonomy.ParseOperation(it.Operation)
		return op, r.Send, err
	}
}

// R-QUE-1: no expiry, no entry; policy's own stands in where a rule names none,
// and the queue and a tenant's share of it are bounded.
func TestQueueBounds(t *testing.T) {
	h := with(t, func(p *engine.Policy) { p.Queue = engine.QueueRules{MaxItems: 3, PerTenant: 2} })
	if _, err := h.Enqueue(t.Context(), enginetest.Model("none"), nil, queued(0)); !errors.Is(err, state.ErrExpired) {
		t.Fatalf("without an expiry: %v", err)
	}
	for _, c := range []struct {
		tenant string
		full   bool
	}{{"a", false}, {"a", false}, {"a", true}, {"b", false}, {"c", true}} {
		op := enginetest.Model("")
		op.Tenant, op.RequestID = c.tenant, fmt.Sprintf("%s-%d", c.tenant, len(itemsOf(t, h, state.Waiting)))
		if _, err := h.Enqueue(t.Context(), op, nil, queued(time.Minute)); c.full != errors.Is(err, engine.ErrQueueFull) {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	h = with(t, func(p *engine.Policy) { p.Queue = engine.QueueRules{Expires: 90 * time.Second} })
	it, err := h.Enqueue(t.Context(), enginetest.Model("m"), nil, queued(0))
	if err != nil || it.Expires.Sub(h.Clock.Now()) != 90*time.Second {
		t.Fatalf("expires %s, %v", it.Expires, err)
	}
}

// R-QUE-2: replay is paced, however often a worker asks.
func TestQueueIsPaced(t *testing.T) {
	h := with(t, func(p *engine.Policy) { p.Queue = engine.QueueRules{Drain: 2, Every: time.Second} })
	for i := range 6 {
		if _, err := h.Enqueue(t.Context(), enginetest.Model(fmt.Sprintf("m%d", i)), nil, queued(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	remote := enginetest.NewRemote(enginetest.HTTP(200, `{}`))
	for second := range 3 {
		for range 5 {
			if _, err := h.Drain(t.Context(), "w", replayed(remote)); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := remote.Reached(), 2*(second+1); got != want {
			t.Fatalf("after %d s %d were let go, want %d", second, got, want)
		}
		h.Clock.Advance(time.Second)
	}
}

// What policy keeps for people is never let go by a worker.
func TestManualQueueReplaysNothing(t *testing.T) {
	h := with(t, func(p *engine.Policy) { p.Queue = engine.QueueRules{Manual: true} })
	if _, err := h.Enqueue(t.Context(), enginetest.Model("m"), nil, queued(time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, err := h.Drain(t.Context(), "w", replayed(enginetest.NewRemote(enginetest.HTTP(200, `{}`))))
	if its := itemsOf(t, h, state.Waiting); n != 0 || err != nil || len(its) != 1 || its[0].Replay != "never" {
		t.Fatalf("%d, %v, %v", n, err, its)
	}
	h.Clock.Advance(2 * time.Minute)
	if _, err := h.Drain(t.Context(), "w", nil); err != nil {
		t.Fatal(err)
	}
	if its := itemsOf(t, h, state.Expired); len(its) != 1 {
		t.Fatal("what expired was not met")
	}
}

// R-QUE-3: work that fails as often as policy allows becomes a dead letter, is
// kept as long as policy says, and is dropped with a receipt.
func TestQueueAttemptsAndDeadLetters(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Queue = engine.QueueRules{Attempts: 2, KeepDead: 24 * time.Hour}
		p.Retries = []engine.RetryProfile{{Name: "model", Attempts: 1, Deadline: time.Minute}}
	})
	remote := enginetest.NewRemote(enginetest.HTTP(500, `{}`))
	if _, err := h.Enqueue(t.Context(), enginetest.Model("m1"), []byte("what"), queued(time.Hour)); err != nil {
		t.Fatal(err)
	}
	drain := func() {
		t.Helper()
		if _, err := h.Drain(t.Context(), "w", replayed(remote)); err != nil {
			t.Fatal(err)
		}
	}
	drain()
	if its := itemsOf(t, h, state.Waiting); len(its) != 1 || len(its[0].Attempts) != 1 || !its[0].NotBefore.After(h.Clock.Now()) {
		t.Fatalf("after a failure that may pass: %+v", its)
	}
	drain() // its pause is not over
	if remote.Reached() != 1 {
		t.Fatal("sent again at once")
	}
	h.Clock.Advance(time.Minute)
	drain()
	its := itemsOf(t, h, state.Dead)
	if len(its) != 1 || len(its[0].Attempts) != 2 || its[0].Reason != "attempts_exhausted" || string(its[0].Payload) != "what" {
		t.Fatalf("%+v", its)
	}
	if _, err := h.Enqueue(t.Context(), enginetest.Model("m2"), nil, queued(time.Hour)); err != nil {
		t.Fatal(err)
	}
	remote = enginetest.NewRemote(enginetest.HTTP(422, `{"error":{"type":"invalid_request_error"}}`))
	drain()
	if its := itemsOf(t, h, state.Dead); len(its) != 2 {
		t.Fatalf("what cannot succeed is dead at once: %+v", its)
	}
	h.Clock.Advance(23 * time.Hour)
	h.Tick(t.Context())
	if len(itemsOf(t, h, state.Dead)) != 2 {
		t.Fatal("a dead letter went too early")
	}
	h.Clock.Advance(2 * time.Hour)
	h.Tick(t.Context())
	if its := itemsOf(t, h, state.Dropped); len(its) != 2 || its[0].Reason != "dead_letter_expired" {
		t.Fatalf("%+v", its)
	}
	var reasons []string
	for _, r := range h.Receipts(t) {
		if r.QueueID == "m1" {
			reasons = append(reasons, r.Reason)
		}
	}
	if !slices.Equal(reasons, []string{"queued", "dead", "dead_letter_expired"}) {
		t.Fatalf("receipts %v", reasons)
	}
}

// R-QUE-3, R-CALL-7: a dead letter is taken back by what policy declares, through
// the queue and admission like any other call.
func TestDeadLetterIsTakenBack(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Tools = []engine.Tool{{Tool: "hotel", Action: "book", Key: "header:Idempotency-Key", Compensate: "hotel/cancel"}, {Tool: "mail", Key: "header:Idempotency-Key"}}
	})
	put := func(op taxonomy.Operation, s state.ItemState) state.Item {
		t.Helper()
		it := state.Item{ID: op.RequestID, RequestID: op.RequestID, Created: h.Clock.Now(), Expires: h.Clock.Now().Add(time.Hour), Tenant: "acme",
			State: s, Operation: taxonomy.AppendOperation(nil, &op), Payload: []byte("room 7")}
		if err := h.Store.Put(t.Context(), it); err != nil {
			t.Fatal(err)
		}
		return it
	}
	book := taxonomy.Operation{Kind: "tool", Name: "hotel.book", Tool: "hotel", Action: "book", Tenant: "acme", RequestID: "b1"}
	if _, err := h.TakeBack(t.Context(), put(enginetest.Write("w1"), state.Dead)); err == nil {
		t.Error("nothing takes a mail back")
	}
	if _, err := h.TakeBack(t.Context(), put(book, state.Waiting)); err == nil {
		t.Error("what still waits is not compensated")
	}
	book.RequestID = "b2"
	back, err := h.TakeBack(t.Context(), put(book, state.Dead))
	if err != nil {
		t.Fatal(err)
	}
	op, err := taxonomy.ParseOperation(back.Operation)
	if err != nil || op.Tool != "hotel" || op.Action != "cancel" || op.ParentID != "b2" || string(back.Payload) != "room 7" {
		t.Fatalf("%+v, %v", op, err)
	}
	if again, err := h.TakeBack(t.Context(), put(book, state.Dead)); err != nil || again.ID != back.ID || len(itemsOf(t, h, state.Waiting)) != 2 {
		t.Fatalf("asked for twice: %+v, %v", again, err)
	}
}
