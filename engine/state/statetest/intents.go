package statetest

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/google/go-cmp/cmp"
)

// dispatched writes an intent.
func dispatched(t *testing.T, st state.Store, in state.Intent) state.Intent {
	t.Helper()
	must[state.Dispatched](t)(st.Dispatch(ctx(t), state.Dispatch{Intent: &in}))
	return in
}

func same[T any](t *testing.T, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("differs from what was written (- want, + got):\n%s", d)
	}
}

func (s *suite) intents(t *testing.T) {
	success := state.Settlement{Outcome: taxonomy.Succeeded, Reason: "http_200", By: "engine", Receipt: "r2"}
	t.Run("every field survives", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		want := dispatched(t, st, intent("a", at))
		same(t, must[state.Intent](t)(st.Intent(ctx(t), "a")), want)
		settled := success
		settled.At = at.Add(time.Second)
		want.State, want.Result = state.Settled, settled
		same(t, must[state.Intent](t)(st.Settle(ctx(t), "a", settled)), want)
		same(t, must[state.Intent](t)(st.Intent(ctx(t), "a")), want)
		_, err := st.Intent(ctx(t), "b")
		is(t, err, state.ErrNotFound, "intent that nobody dispatched")
		_, err = st.Settle(ctx(t), "b", settled)
		is(t, err, state.ErrNotFound, "settle one that nobody dispatched")
	})
	t.Run("settled once", func(t *testing.T) {
		st := s.open(t)
		dispatched(t, st, intent("a", now(t, st)))
		first := must[state.Intent](t)(st.Settle(ctx(t), "a", success))
		if first.Result.At.IsZero() {
			t.Fatal("a settlement without a time did not get the store's")
		}
		again := success
		again.Reason, again.By = "another word for it", "reconcile:http"
		same(t, must[state.Intent](t)(st.Settle(ctx(t), "a", again)), first)
		for _, other := range []state.Settlement{{Outcome: taxonomy.Failed, Class: taxonomy.Validation}, {}} {
			_, err := st.Settle(ctx(t), "a", other)
			is(t, err, state.ErrConflict, "settle it differently")
		}
		same(t, must[state.Intent](t)(st.Intent(ctx(t), "a")), first)
	})
	t.Run("UNKNOWN waits for reconciliation", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		dispatched(t, st, intent("a", at))
		_, err := st.Postpone(ctx(t), "a", at, "")
		is(t, err, state.ErrConflict, "postpone one in flight")
		unknown := state.Settlement{Class: taxonomy.AmbiguousWrite, Reason: "read_timeout", By: "engine", At: at}
		in := must[state.Intent](t)(st.Settle(ctx(t), "a", unknown))
		equal(t, in.State, state.Unsettled, "state")
		same(t, must[state.Intent](t)(st.Settle(ctx(t), "a", unknown)), in)
		must[state.Intent](t)(st.Postpone(ctx(t), "a", at.Add(time.Minute), "case-1"))
		in = must[state.Intent](t)(st.Postpone(ctx(t), "a", at.Add(2*time.Minute), ""))
		equal(t, in.Tries, 2, "tries")
		equal(t, in.Case, "case-1", "case")
		same(t, must[state.Intent](t)(st.Intent(ctx(t), "a")), in)
		equal(t, intentIDs(collect(t, st.Find(ctx(t), state.IntentQuery{Due: at.Add(time.Minute)}))), "", "due too early")
		equal(t, intentIDs(collect(t, st.Find(ctx(t), state.IntentQuery{Due: at.Add(2 * time.Minute)}))), "a ", "due")
		in = must[state.Intent](t)(st.Settle(ctx(t), "a", state.Settlement{Outcome: taxonomy.Failed, Class: taxonomy.AmbiguousWrite, By: "reconcile:http"}))
		equal(t, in.State, state.Settled, "state after reconciliation")
		_, err = st.Postpone(ctx(t), "a", at, "")
		is(t, err, state.ErrConflict, "postpone a settled one")
	})
	t.Run("find selects and orders", func(t *testing.T) { s.find(t) })
	// R-CALL-2: intents of a process that is gone are UNKNOWN, and no process
	// condemns what another one has in flight.
	t.Run("condemn takes the dead owner's and the expired", func(t *testing.T) { s.condemn(t) })
}

func (s *suite) find(t *testing.T) {
	st := s.open(t)
	at := now(t, st).Add(-time.Hour)
	const n = 300 // more than a page
	for i := range n {
		in := intent(key(n-i), at.Add(time.Duration(i/2)*time.Second)) // pairs of one time, ids falling
		in.Tenant = []string{"acme", "other"}[i%2]
		dispatched(t, st, in)
	}
	all := collect(t, st.Find(ctx(t), state.IntentQuery{}))
	equal(t, len(all), n, "intents")
	for i := 1; i < n; i++ {
		if all[i-1].Older(all[i]) >= 0 {
			t.Fatalf("intent %d is not older than the next", i-1)
		}
	}
	must[state.Intent](t)(st.Settle(ctx(t), key(1), state.Settlement{Class: taxonomy.AmbiguousWrite}))
	must[state.Intent](t)(st.Settle(ctx(t), key(2), state.Settlement{Outcome: taxonomy.Succeeded}))
	for _, c := range []struct {
		name string
		q    state.IntentQuery
		n    int
	}{
		{"unsettled", state.IntentQuery{States: []state.IntentState{state.Unsettled}}, 1},
		{"in flight", state.IntentQuery{States: []state.IntentState{state.InFlight}}, n - 2},
		{"two states", state.IntentQuery{States: []state.IntentState{state.Settled, state.Unsettled}}, 2},
		{"tenant", state.IntentQuery{Tenant: "acme"}, n / 2},
		{"request", state.IntentQuery{RequestID: "request-" + key(7)}, 1},
		{"key", state.IntentQuery{Key: "key-" + key(7)}, 1},
		{"before", state.IntentQuery{Before: at.Add(10 * time.Second)}, 20},
		{"limit", state.IntentQuery{Limit: 7}, 7},
		{"all of it", state.IntentQuery{Tenant: "other", States: []state.IntentState{state.InFlight}, Before: at.Add(10 * time.Second), Limit: 3}, 3},
	} {
		found := collect(t, st.Find(ctx(t), c.q))
		equal(t, len(found), c.n, c.name)
		for _, in := range found {
			if !c.q.Match(in) {
				t.Fatalf("%s: found %s, which does not match", c.name, in.ID)
			}
		}
	}
	for range st.Find(ctx(t), state.IntentQuery{}) {
		// The caller may use the store while it looks.
		must[state.Intent](t)(st.Intent(ctx(t), key(3)))
		break
	}
}

func (s *suite) condemn(t *testing.T) {
	st := s.open(t)
	at := now(t, st)
	add := func(id string, o state.Owner, expires time.Time, effect taxonomy.Effect) {
		in := intent(id, at)
		in.Owner, in.Expires, in.Effect = o, expires, effect
		dispatched(t, st, in)
	}
	later, before := at.Add(time.Hour), at.Add(-time.Minute)
	me := state.Owner{Home: "/data", Slot: 3, Incarnation: "second"}
	add("former life", owner, later, taxonomy.NonRepeatable)
	add("my own", me, later, taxonomy.NonRepeatable)
	add("other slot", state.Owner{Home: "/data", Slot: 4, Incarnation: "x"}, later, taxonomy.NonRepeatable)
	add("other machine", state.Owner{Home: "/elsewhere", Slot: 3, Incarnation: "x"}, later, taxonomy.NonRepeatable)
	add("other expired", state.Owner{Home: "/elsewhere", Slot: 9, Incarnation: "x"}, before, taxonomy.ReadOnly)
	add("settled", owner, before, taxonomy.NonRepeatable)
	must[state.Intent](t)(st.Settle(ctx(t), "settled", state.Settlement{Outcome: taxonomy.Succeeded}))

	moved := must[[]state.Intent](t)(st.Condemn(ctx(t), me, "owner_check"))
	equal(t, intentIDs(moved), "former life other expired ", "condemned")
	for i, want := range []state.Settlement{{Class: taxonomy.AmbiguousWrite, Reason: "owner_gone"}, {Class: taxonomy.TransientTransport, Reason: "expired"}} {
		r := moved[i].Result
		if moved[i].State != state.Unsettled || r.Outcome != taxonomy.Unknown || r.Class != want.Class || r.Reason != want.Reason || r.By != "owner_check" || r.At.IsZero() {
			t.Errorf("%s became %s %+v", moved[i].ID, moved[i].State, r)
		}
		same(t, must[state.Intent](t)(st.Intent(ctx(t), moved[i].ID)), moved[i])
	}
	for _, id := range []string{"my own", "other slot", "other machine"} {
		equal(t, must[state.Intent](t)(st.Intent(ctx(t), id)).State, state.InFlight, id)
	}
	equal(t, len(must[[]state.Intent](t)(st.Condemn(ctx(t), me, "owner_check"))), 0, "condemned the second time")
	none := state.Owner{Home: "/data", Slot: -1, Incarnation: "third"}
	equal(t, len(must[[]state.Intent](t)(st.Condemn(ctx(t), none, "owner_check"))), 0, "condemned by an owner without a slot")

	// What the owner proves late still counts: evidence beats ignorance.
	in := must[state.Intent](t)(st.Settle(ctx(t), "former life", state.Settlement{Outcome: taxonomy.Succeeded, By: "engine"}))
	equal(t, in.State, state.Settled, "state after the late result")
}
