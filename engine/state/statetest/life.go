package statetest

import (
	"errors"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// prune deletes what ended, and keeps what is open, UNKNOWN or dead.
func (s *suite) prune(t *testing.T) {
	st := s.open(t)
	at := now(t, st)
	for _, id := range []string{"flying", "unknown", "settled"} {
		dispatched(t, st, intent(id, at))
	}
	must[state.Intent](t)(st.Settle(ctx(t), "unknown", state.Settlement{Class: taxonomy.AmbiguousWrite}))
	must[state.Intent](t)(st.Settle(ctx(t), "settled", state.Settlement{Outcome: taxonomy.Succeeded}))
	must[state.Grant](t)(st.Reserve(ctx(t), reservation("open", at, line("busy", 0, 1))))
	must[state.Grant](t)(st.Reserve(ctx(t), reservation("closed", at, line("idle", 0, 1))))
	ok(t, st.SettleGrant(ctx(t), "closed", tokens(1)))
	for _, id := range []string{"waiting", "dead", "done"} {
		ok(t, st.Put(ctx(t), item(id, at)))
	}
	ok(t, st.Move(ctx(t), "dead", state.Disposition{State: state.Dead}))
	ok(t, st.Move(ctx(t), "done", state.Disposition{State: state.Done}))
	ok(t, st.Grant(ctx(t), approval("good", at)))

	equal(t, must[int](t)(st.Prune(ctx(t), at.Add(-time.Hour))), 0, "pruned too early")
	// settled intent, closed grant, idle account, done item; the approval is
	// past neither now nor then, whatever the time asked for.
	equal(t, must[int](t)(st.Prune(ctx(t), at.Add(2*time.Hour))), 4, "pruned")
	equal(t, intentIDs(collect(t, st.Find(ctx(t), state.IntentQuery{}))), "flying unknown ", "intents left")
	equal(t, itemIDs(collect(t, st.Items(ctx(t), state.ItemQuery{}))), "dead waiting ", "items left")
	equal(t, len(must[[]taxonomy.Approval](t)(st.Approvals(ctx(t), 0))), 1, "approvals left")
	equal(t, usage(t, st, "busy").Reserved, tokens(1), "reserved")
	same(t, usage(t, st, "idle"), state.Usage{Account: "idle"})
	ok(t, st.SettleGrant(ctx(t), "open", tokens(1)))
}

// life is the store as a whole: what it promises, and how it ends.
func (s *suite) life(t *testing.T) {
	t.Run("a closed store says so", func(t *testing.T) {
		st := s.open(t)
		if st.Caps().Name == "" {
			t.Error("the store has no name")
		}
		at := now(t, st)
		ok(t, st.Close())
		ok(t, st.Close())
		in := intent("a", at)
		_, now := st.Now(ctx(t))
		_, load := st.Load(ctx(t), "k")
		_, update := st.Update(ctx(t), "k", put("x", true))
		_, find := first(st.Find(ctx(t), state.IntentQuery{}))
		_, items := first(st.Items(ctx(t), state.ItemQuery{}))
		_, disp := st.Dispatch(ctx(t), state.Dispatch{Intent: &in})
		for name, err := range map[string]error{"now": now, "load": load, "update": update, "find": find, "items": items, "dispatch": disp} {
			is(t, err, state.ErrClosed, name+" of a closed store")
		}
	})
	t.Run("many at once while it closes", func(t *testing.T) {
		st := s.open(t)
		errs := together(32, func(i int) error {
			if i == 16 {
				return st.Close()
			}
			for n := range 20 {
				if _, err := st.Update(t.Context(), key(n%3), put("x", n%2 == 0)); err != nil {
					return err
				}
			}
			return nil
		})
		for _, err := range errs {
			if err != nil && !errors.Is(err, state.ErrClosed) {
				t.Fatalf("got %v, want success or a closed store", err)
			}
		}
	})
}

func first[T any](seq func(func(T, error) bool)) (v T, err error) {
	for v, err := range seq {
		return v, err
	}
	return v, nil
}

// clock tests with a clock that jumps. Every deadline is by the store's clock;
// no worker's clock is asked.
func (s *suite) clock(t *testing.T) {
	if s.openAt == nil {
		t.Skip("SKIP clock: this run cannot inject the store's clock")
	}
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	open := func(t *testing.T) (state.Store, *Clock) {
		c := NewClock(start)
		return s.openAt(t, c.Now), c
	}
	t.Run("now is the injected clock", func(t *testing.T) {
		st, c := open(t)
		c.Advance(time.Minute)
		equal(t, now(t, st), start.Add(time.Minute), "now")
		equal(t, must[[]state.Doc](t)(st.Load(ctx(t), "k"))[0].Now, start.Add(time.Minute), "a document's now")
	})
	// R-QUE-2: expired items are dropped with a reported reason; none silently.
	t.Run("expired items are reported once and never claimed", func(t *testing.T) {
		st, c := open(t)
		it := item("a", start)
		ok(t, st.Put(ctx(t), it))
		c.Advance(time.Hour) // to its very expiry
		claimed, expired, err := st.Claim(ctx(t), "w", state.From{Dependency: "provider:a"}, 0, time.Minute)
		ok(t, err)
		if len(claimed) != 0 || len(expired) != 1 || expired[0].State != state.Expired || expired[0].Reason != "expired_in_queue" {
			t.Fatalf("claimed %+v, expired %+v", claimed, expired)
		}
		claimed, expired, err = st.Claim(ctx(t), "w", state.From{}, 9, time.Minute)
		ok(t, err)
		equal(t, len(claimed)+len(expired), 0, "told again")
		equal(t, itemIDs(collect(t, st.Items(ctx(t), state.ItemQuery{States: []state.ItemState{state.Expired}}))), "a ", "kept as expired")
		is(t, st.Move(ctx(t), "a", state.Disposition{State: state.Waiting}), state.ErrExpired, "retry what expired")
	})
	t.Run("not before its time", func(t *testing.T) {
		st, c := open(t)
		it := item("a", start)
		it.NotBefore = start.Add(time.Minute)
		ok(t, st.Put(ctx(t), it))
		claimed, _, err := st.Claim(ctx(t), "w", state.From{}, 1, time.Minute)
		ok(t, err)
		equal(t, len(claimed), 0, "claimed before its time")
		c.Advance(time.Minute)
		claimed, _, err = st.Claim(ctx(t), "w", state.From{}, 1, time.Minute)
		ok(t, err)
		equal(t, len(claimed), 1, "claimed at its time")
	})
	// A worker that slept past its claim changes nothing, whether or not
	// somebody took over.
	t.Run("a claim that ran out is fenced", func(t *testing.T) {
		st, c := open(t)
		ok(t, st.Put(ctx(t), item("a", start)))
		old, _, err := st.Claim(ctx(t), "old", state.From{}, 1, time.Minute)
		ok(t, err)
		c.Advance(time.Minute)
		done := state.Disposition{State: state.Done}
		is(t, st.Finish(ctx(t), "a", old[0].Claim, done), state.ErrFenced, "finish after the claim's end")
		is(t, st.Renew(ctx(t), "a", old[0].Claim, time.Hour), state.ErrFenced, "renew after the claim's end")
		fresh, _, err := st.Claim(ctx(t), "new", state.From{}, 1, time.Minute)
		ok(t, err)
		if len(fresh) != 1 || fresh[0].Claim == old[0].Claim || fresh[0].Owner != "new" {
			t.Fatalf("taken over as %+v", fresh)
		}
		is(t, st.Finish(ctx(t), "a", old[0].Claim, done), state.ErrFenced, "finish after the take-over")
		ok(t, st.Renew(ctx(t), "a", fresh[0].Claim, time.Minute))
		c.Advance(59 * time.Second)
		ok(t, st.Finish(ctx(t), "a", fresh[0].Claim, done))
	})
	t.Run("a clock that steps back lengthens, never shortens", func(t *testing.T) {
		st, c := open(t)
		ok(t, st.Put(ctx(t), item("a", start)))
		claimed, _, err := st.Claim(ctx(t), "w", state.From{}, 1, time.Minute)
		ok(t, err)
		ok(t, st.Grant(ctx(t), approval("yes", start)))
		in := intent("i", start)
		must[state.Dispatched](t)(st.Dispatch(ctx(t), state.Dispatch{Intent: &in}))
		c.Advance(-5 * time.Second)
		c.Advance(-time.Hour)
		again, expired, err := st.Claim(ctx(t), "w2", state.From{}, 1, time.Minute)
		ok(t, err)
		equal(t, len(again)+len(expired), 0, "claimed or expired by the step")
		equal(t, len(must[[]taxonomy.Approval](t)(st.Approved(ctx(t), "acme", "mail.send"))), 1, "approvals")
		other := state.Owner{Home: "/other", Slot: 1, Incarnation: "x"}
		equal(t, len(must[[]state.Intent](t)(st.Condemn(ctx(t), other, "by"))), 0, "condemned by the step")
		ok(t, st.Finish(ctx(t), "a", claimed[0].Claim, state.Disposition{State: state.Done}))
	})
	t.Run("expired grants count as used", func(t *testing.T) {
		st, c := open(t)
		must[state.Grant](t)(st.Reserve(ctx(t), reservation("a", start, line("acc", 100, 60))))
		c.Advance(2 * time.Hour)
		equal(t, usage(t, st, "acc").Reserved, tokens(60), "reserved after expiry")
		_, err := st.Reserve(ctx(t), reservation("b", c.Now(), line("acc", 100, 41)))
		is(t, err, state.ErrExhausted, "reserve what an expired grant holds")
		ok(t, st.SettleGrant(ctx(t), "a", tokens(7))) // reconciled
		must[state.Grant](t)(st.Reserve(ctx(t), reservation("b", c.Now(), line("acc", 100, 93))))
	})
	t.Run("approvals and intents end", func(t *testing.T) {
		st, c := open(t)
		ok(t, st.Grant(ctx(t), approval("yes", start)))
		in := intent("i", start)
		must[state.Dispatched](t)(st.Dispatch(ctx(t), state.Dispatch{Intent: &in}))
		c.Advance(time.Hour)
		equal(t, len(must[[]taxonomy.Approval](t)(st.Approved(ctx(t), "acme", "mail.send"))), 0, "approvals at their end")
		late := intent("late", c.Now())
		_, err := st.Dispatch(ctx(t), state.Dispatch{Intent: &late, UseApproval: "yes"})
		is(t, err, state.ErrConflict, "use an expired approval")
		is(t, err, state.ErrExpired, "its reason")
		c.Advance(time.Nanosecond)
		other := state.Owner{Home: "/other", Slot: 1, Incarnation: "x"}
		equal(t, intentIDs(must[[]state.Intent](t)(st.Condemn(ctx(t), other, "by"))), "i ", "condemned")
		equal(t, must[int](t)(st.Prune(ctx(t), c.Now())), 1, "pruned approvals")
	})
}
