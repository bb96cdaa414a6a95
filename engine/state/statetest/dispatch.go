package statetest

import (
	"context"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func lease(key, data string) state.LeaseUpdate {
	return state.LeaseUpdate{Key: key, F: func(state.Doc) ([]byte, bool) { return []byte(data), true }}
}

func (s *suite) dispatch(t *testing.T) {
	// R-CALL-2: reservation, lease and intent are one commit.
	t.Run("all of it at once", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		events := must[<-chan state.Event](t)(st.Watch(ctx(t), ""))
		ok(t, st.Grant(ctx(t), approval("yes", at)))
		in, r := intent("a", at), reservation("a", at, line("acc", 100, 60))
		d := state.Dispatch{Reservation: &r, Leases: []state.LeaseUpdate{lease("brk/1", "held"), lease("brk/2", "held too")}, Intent: &in, UseApproval: "yes"}
		out := must[state.Dispatched](t)(st.Dispatch(ctx(t), d))
		if out.Grant.ID != "a" || len(out.Grant.Lines) != 1 || len(out.Docs) != 2 {
			t.Fatalf("dispatched %+v", out)
		}
		docs := must[[]state.Doc](t)(st.Load(ctx(t), "brk/1", "brk/2"))
		for i, d := range docs {
			equal(t, d.Rev, out.Docs[i].Rev, "version of the lease")
			equal(t, string(d.Data), string(out.Docs[i].Data), "data of the lease")
			equal(t, s.nextChange(t, events).Key, d.Key, "lease that was announced")
		}
		same(t, must[state.Intent](t)(st.Intent(ctx(t), "a")), in)
		equal(t, usage(t, st, "acc").Reserved, tokens(60), "reserved")
		equal(t, len(must[[]taxonomy.Approval](t)(st.Approved(ctx(t), "acme", "mail.send"))), 0, "approvals left")
		equal(t, must[[]taxonomy.Approval](t)(st.Approvals(ctx(t), 0))[0].UsedBy, "a", "user of the approval")

		// The reply was lost: the same again changes nothing.
		again := must[state.Dispatched](t)(st.Dispatch(ctx(t), d))
		equal(t, again.Docs[1].Rev, out.Docs[1].Rev, "version after the repeat")
		equal(t, again.Grant.ID, "a", "grant of the repeat")
		equal(t, usage(t, st, "acc").Reserved, tokens(60), "reserved after the repeat")
		other := in
		other.Attempt++
		_, err := st.Dispatch(ctx(t), state.Dispatch{Intent: &other})
		is(t, err, state.ErrConflict, "another intent under the id")
		must[state.Intent](t)(st.Settle(ctx(t), "a", state.Settlement{Outcome: taxonomy.Succeeded}))
		_, err = st.Dispatch(ctx(t), d)
		is(t, err, state.ErrConflict, "dispatch again what is settled")
	})
	t.Run("or none of it", func(t *testing.T) { s.dispatchNothing(t) })
	t.Run("nil data keeps the document", func(t *testing.T) {
		st := s.open(t)
		before := must[state.Doc](t)(st.Update(ctx(t), "k", put("1", true)))
		l := state.LeaseUpdate{Key: "k", F: func(d state.Doc) ([]byte, bool) { return nil, string(d.Data) == "1" }}
		out := must[state.Dispatched](t)(st.Dispatch(ctx(t), state.Dispatch{Leases: []state.LeaseUpdate{l}}))
		equal(t, out.Docs[0].Rev, before.Rev, "version")
		equal(t, string(out.Docs[0].Data), "1", "data")
	})
	t.Run("an approval for many uses stays", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		a := approval("many", at)
		a.SingleUse = false
		ok(t, st.Grant(ctx(t), a))
		for i := range 3 {
			in := intent(key(i), at)
			must[state.Dispatched](t)(st.Dispatch(ctx(t), state.Dispatch{Intent: &in, UseApproval: "many"}))
		}
		equal(t, len(must[[]taxonomy.Approval](t)(st.Approved(ctx(t), "acme", "mail.send"))), 1, "approvals left")
	})
	t.Run("a single-use approval serves one of many", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		ok(t, st.Grant(ctx(t), approval("once", at)))
		won := together(16, func(i int) error {
			in := intent(key(i), at)
			_, err := st.Dispatch(context.WithoutCancel(ctx(t)), state.Dispatch{Intent: &in, UseApproval: "once"})
			return err
		})
		equal(t, count(won, nil), 1, "dispatches that used it")
		equal(t, count(won, state.ErrConflict), 15, "refused dispatches")
		equal(t, len(collect(t, st.Find(ctx(t), state.IntentQuery{}))), 1, "intents")
	})
}

// dispatchNothing breaks each part in turn; nothing of the others may stay.
func (s *suite) dispatchNothing(t *testing.T) {
	st := s.open(t)
	at := now(t, st)
	ok(t, st.Grant(ctx(t), approval("yes", at)))
	ok(t, st.Grant(ctx(t), approval("gone", at)))
	used := intent("used", at)
	must[state.Dispatched](t)(st.Dispatch(ctx(t), state.Dispatch{Intent: &used, UseApproval: "gone"}))
	refuse := state.LeaseUpdate{Key: "brk/2", F: func(state.Doc) ([]byte, bool) { return []byte("no"), false }}
	bad := intent("bad", at)
	bad.Expires = time.Time{}
	for _, c := range []struct {
		name  string
		spoil func(*state.Dispatch)
		want  error
	}{
		{"lease refused", func(d *state.Dispatch) { d.Leases = append(d.Leases, refuse) }, state.ErrRefused},
		{"budget exhausted", func(d *state.Dispatch) { d.Reservation.Lines = append(d.Reservation.Lines, line("small", 1, 2)) }, state.ErrExhausted},
		{"approval used", func(d *state.Dispatch) { d.UseApproval = "gone" }, state.ErrConflict},
		{"approval unknown", func(d *state.Dispatch) { d.UseApproval = "nobody's" }, state.ErrNotFound},
		{"intent without expiry", func(d *state.Dispatch) { d.Intent = &bad }, state.ErrInvalid},
		{"lease twice", func(d *state.Dispatch) { d.Leases = append(d.Leases, lease("brk/1", "again")) }, state.ErrInvalid},
	} {
		in, r := intent("a", at), reservation("a", at, line("acc", 100, 60))
		d := state.Dispatch{Reservation: &r, Leases: []state.LeaseUpdate{lease("brk/1", "held")}, Intent: &in, UseApproval: "yes"}
		c.spoil(&d)
		_, err := st.Dispatch(ctx(t), d)
		is(t, err, c.want, c.name)
		equal(t, must[[]state.Doc](t)(st.Load(ctx(t), "brk/1"))[0].Rev, state.Rev{}, c.name+": lease")
		same(t, usage(t, st, "acc"), state.Usage{Account: "acc"})
		equal(t, len(must[[]taxonomy.Approval](t)(st.Approved(ctx(t), "acme", "mail.send"))), 1, c.name+": approvals left")
		equal(t, len(collect(t, st.Find(ctx(t), state.IntentQuery{}))), 1, c.name+": intents")
	}
}
