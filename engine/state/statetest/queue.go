package statetest

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func (s *suite) queue(t *testing.T) {
	// R-QUE-1: each item persists its fields; no expiry, no entry.
	t.Run("every field survives", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		want := item("a", at)
		want.NotBefore = at.Add(-time.Second)
		ok(t, st.Put(ctx(t), want))
		same(t, collect(t, st.Items(ctx(t), state.ItemQuery{})), []state.Item{want})
		changed := want
		changed.Priority = 99
		ok(t, st.Put(ctx(t), changed)) // the id decides
		same(t, collect(t, st.Items(ctx(t), state.ItemQuery{})), []state.Item{want})
	})
	t.Run("no expiry, no entry", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		it := item("a", at)
		it.Expires = time.Time{}
		is(t, st.Put(ctx(t), it), state.ErrExpired, "put without expiry")
		it.Expires = at.Add(-time.Second)
		is(t, st.Put(ctx(t), it), state.ErrExpired, "put with a past expiry")
		it.State = state.Claimed
		is(t, st.Put(ctx(t), it), state.ErrInvalid, "put as claimed")
		is(t, st.Put(ctx(t), item("", at)), state.ErrInvalid, "put without id")
		it.State = state.Dead // R-QUE-3: dead letters wait for a person
		ok(t, st.Put(ctx(t), it))
		claimed, expired, err := st.Claim(ctx(t), "w", state.From{}, 10, time.Minute)
		ok(t, err)
		equal(t, len(claimed)+len(expired), 0, "claimed or expired of dead letters")
	})
	t.Run("priority, then deadline", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		for i, c := range []struct {
			id       string
			priority int64
			expires  time.Duration
			dep      string
		}{{"low", 1, 10, "a"}, {"late", 5, 30, "a"}, {"soon", 5, 20, "a"}, {"high", 9, 60, "a"}, {"other", 99, 1, "b"}} {
			it := item(c.id, at.Add(time.Duration(i)))
			it.Priority, it.Dependency, it.Expires = c.priority, c.dep, at.Add(c.expires*time.Minute)
			ok(t, st.Put(ctx(t), it))
		}
		claimed, _, err := st.Claim(ctx(t), "w", state.From{Dependency: "a"}, 3, time.Minute)
		ok(t, err)
		equal(t, itemIDs(claimed), "high soon late ", "claimed")
		claimed, _, err = st.Claim(ctx(t), "w", state.From{}, 10, time.Minute)
		ok(t, err)
		equal(t, itemIDs(claimed), "other low ", "claimed of any dependency")
		claimed, _, err = st.Claim(ctx(t), "w", state.From{}, 10, time.Minute)
		ok(t, err)
		equal(t, len(claimed), 0, "claimed twice")
		_, _, err = st.Claim(ctx(t), "w", state.From{}, 1, 0)
		is(t, err, state.ErrInvalid, "claim without a lease")
	})
	// R-OPS-9: who works for one tenant gets that tenant's items, and drops no
	// other's either.
	t.Run("a tenant's worker claims its own", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		for _, c := range []struct{ id, tenant, dep string }{{"one", "acme", "a"}, {"two", "other", "a"}, {"three", "acme", "b"}, {"none", "", "a"}} {
			it := item(c.id, at)
			it.Tenant, it.Dependency = c.tenant, c.dep
			ok(t, st.Put(ctx(t), it))
		}
		claimed, _, err := st.Claim(ctx(t), "w", state.From{Tenant: "acme", Dependency: "a"}, 10, time.Minute)
		ok(t, err)
		equal(t, itemIDs(claimed), "one ", "claimed of a tenant and dependency")
		claimed, _, err = st.Claim(ctx(t), "w", state.From{Tenant: "acme"}, 10, time.Minute)
		ok(t, err)
		equal(t, itemIDs(claimed), "three ", "claimed of a tenant")
		claimed, _, err = st.Claim(ctx(t), "w", state.From{}, 10, time.Minute)
		ok(t, err)
		equal(t, itemIDs(claimed), "none two ", "claimed of everybody's")
		equal(t, len(collect(t, st.Items(ctx(t), state.ItemQuery{ID: "two"}))), 1, "items of an id")
		equal(t, len(collect(t, st.Items(ctx(t), state.ItemQuery{ID: "two", Tenant: "acme"}))), 0, "another tenant's item")
	})
	t.Run("a claim is finished once, by its token", func(t *testing.T) { s.finish(t) })
	t.Run("people move items", func(t *testing.T) { s.move(t) })
	t.Run("items selects", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		const n = 300
		for i := range n {
			it := item(key(i), at)
			it.Priority = int64(i % 3)
			it.Tenant = []string{"acme", "other"}[i%2]
			it.Dependency = []string{"a", "b", "c"}[i%3]
			ok(t, st.Put(ctx(t), it))
		}
		all := collect(t, st.Items(ctx(t), state.ItemQuery{}))
		equal(t, len(all), n, "items")
		for i := 1; i < n; i++ {
			if all[i-1].Sooner(all[i]) >= 0 {
				t.Fatalf("item %d does not come before the next", i-1)
			}
		}
		equal(t, len(collect(t, st.Items(ctx(t), state.ItemQuery{Tenant: "acme", Dependency: "b"}))), n/6, "of a tenant and dependency")
		equal(t, len(collect(t, st.Items(ctx(t), state.ItemQuery{States: []state.ItemState{state.Done, state.Dead}}))), 0, "done or dead")
		equal(t, len(collect(t, st.Items(ctx(t), state.ItemQuery{States: []state.ItemState{state.Waiting}, Limit: 280}))), 280, "limited")
	})
}

func (s *suite) finish(t *testing.T) {
	st := s.open(t)
	at := now(t, st)
	ok(t, st.Put(ctx(t), item("a", at)))
	claim := func() state.Item {
		t.Helper()
		claimed, _, err := st.Claim(ctx(t), "worker-1", state.From{}, 1, time.Minute)
		ok(t, err)
		equal(t, len(claimed), 1, "claimed")
		return claimed[0]
	}
	first := claim()
	if first.State != state.Claimed || first.Owner != "worker-1" || !first.ClaimUntil.After(at) || first.Claim == 0 {
		t.Fatalf("claimed %+v", first)
	}
	is(t, st.Finish(ctx(t), "a", first.Claim+1, state.Disposition{State: state.Done}), state.ErrFenced, "finish under another token")
	is(t, st.Finish(ctx(t), "a", first.Claim, state.Disposition{State: state.Claimed}), state.ErrInvalid, "finish as claimed")
	is(t, st.Finish(ctx(t), "b", first.Claim, state.Disposition{State: state.Done}), state.ErrNotFound, "finish what is not there")
	ok(t, st.Renew(ctx(t), "a", first.Claim, 2*time.Minute))
	is(t, st.Renew(ctx(t), "a", first.Claim+1, time.Minute), state.ErrFenced, "renew under another token")
	attempt := state.ItemAttempt{At: at, Outcome: taxonomy.Failed, Reason: "http_503"}
	ok(t, st.Finish(ctx(t), "a", first.Claim, state.Disposition{State: state.Waiting, Reason: "again", Attempt: &attempt}))
	second := claim()
	if second.Claim == first.Claim || len(second.Attempts) != 2 || second.Attempts[1] != attempt {
		t.Fatalf("claimed again %+v", second)
	}
	is(t, st.Finish(ctx(t), "a", first.Claim, state.Disposition{State: state.Done}), state.ErrFenced, "finish under the old token")
	ok(t, st.Finish(ctx(t), "a", second.Claim, state.Disposition{State: state.Done}))
	is(t, st.Finish(ctx(t), "a", second.Claim, state.Disposition{State: state.Done}), state.ErrFenced, "finish twice")
	got := collect(t, st.Items(ctx(t), state.ItemQuery{}))[0]
	if got.State != state.Done || got.Owner != "" || !got.ClaimUntil.IsZero() {
		t.Fatalf("finished %+v", got)
	}
}

func (s *suite) move(t *testing.T) {
	st := s.open(t)
	at := now(t, st)
	for _, id := range []string{"a", "b"} {
		ok(t, st.Put(ctx(t), item(id, at)))
	}
	claimed, _, err := st.Claim(ctx(t), "w", state.From{}, 1, time.Minute)
	ok(t, err)
	held := claimed[0]
	is(t, st.Move(ctx(t), held.ID, state.Disposition{State: state.Dropped}), state.ErrConflict, "move a claimed item")
	ok(t, st.Finish(ctx(t), held.ID, held.Claim, state.Disposition{State: state.Dead, Reason: "gave_up"}))
	is(t, st.Move(ctx(t), held.ID, state.Disposition{State: state.Claimed}), state.ErrInvalid, "move to claimed")
	ok(t, st.Move(ctx(t), held.ID, state.Disposition{State: state.Waiting, Reason: "retried by ann"}))
	ok(t, st.Move(ctx(t), held.ID, state.Disposition{State: state.Dropped, Reason: "dropped by ann"}))
	is(t, st.Move(ctx(t), held.ID, state.Disposition{State: state.Waiting}), state.ErrConflict, "move a dropped item")
	is(t, st.Move(ctx(t), "nobody", state.Disposition{State: state.Dropped}), state.ErrNotFound, "move what is not there")
	got := collect(t, st.Items(ctx(t), state.ItemQuery{States: []state.ItemState{state.Dropped}}))
	if len(got) != 1 || got[0].Reason != "dropped by ann" {
		t.Fatalf("dropped %+v", got)
	}
	it := item("dead", at)
	it.State, it.Expires = state.Dead, at.Add(-time.Hour)
	ok(t, st.Put(ctx(t), it))
	is(t, st.Move(ctx(t), "dead", state.Disposition{State: state.Waiting}), state.ErrExpired, "retry after the expiry")
}
