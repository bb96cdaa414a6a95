package statetest

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func approval(id string, at time.Time) taxonomy.Approval {
	return taxonomy.Approval{ID: id, By: "ann", Scope: "mail.send", Tenant: "acme", Until: at.Add(time.Hour), SingleUse: true, Reason: "ticket 7"}
}

// R-AGT-5: who, what, until when, single-use where declared.
func (s *suite) approvals(t *testing.T) {
	t.Run("every field survives", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		a, b := approval("a", at), approval("b", at)
		b.SingleUse, b.Denies = false, true
		ok(t, st.Grant(ctx(t), a))
		ok(t, st.Grant(ctx(t), b))
		ok(t, st.Grant(ctx(t), a))
		same(t, must[[]taxonomy.Approval](t)(st.Approved(ctx(t), "acme", "mail.send", "other")), []taxonomy.Approval{a, b})
		same(t, must[[]taxonomy.Approval](t)(st.Approvals(ctx(t), 0)), []taxonomy.Approval{b, a})
		same(t, must[[]taxonomy.Approval](t)(st.Approvals(ctx(t), 1)), []taxonomy.Approval{b})
		a.By = "bob"
		is(t, st.Grant(ctx(t), a), state.ErrConflict, "another approval under the id")
	})
	t.Run("scope and tenant are exact", func(t *testing.T) {
		st := s.open(t)
		ok(t, st.Grant(ctx(t), approval("a", now(t, st))))
		for _, c := range [][2]string{{"other", "mail.send"}, {"", "mail.send"}, {"acme", "mail"}, {"acme", ""}} {
			equal(t, len(must[[]taxonomy.Approval](t)(st.Approved(ctx(t), c[0], c[1]))), 0, "approved for "+c[0]+" "+c[1])
		}
		equal(t, len(must[[]taxonomy.Approval](t)(st.Approved(ctx(t), "acme"))), 0, "approved for no scope")
	})
	t.Run("bad input", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		a := approval("a", at)
		a.Until = at.Add(-time.Second)
		is(t, st.Grant(ctx(t), a), state.ErrExpired, "grant with a past end")
		a.Until = time.Time{}
		is(t, st.Grant(ctx(t), a), state.ErrExpired, "grant without an end")
		is(t, st.Grant(ctx(t), approval("", at)), state.ErrInvalid, "grant without id")
	})
}

func (s *suite) runs(t *testing.T) {
	t.Run("the newest calls are kept", func(t *testing.T) {
		st := s.open(t)
		call := func(i int) taxonomy.Call {
			return taxonomy.Call{Name: key(i), ArgsHash: "h", Outcome: taxonomy.Failed, Error: "e", ResultHash: "r", Declared: "poll"}
		}
		var want []taxonomy.Call
		const n = state.RunLength + 40
		for i := range n {
			ok(t, st.Append(ctx(t), "run", call(i)))
			if i >= n-state.RunLength {
				want = append(want, call(i))
			}
			if i == 10 {
				equal(t, len(must[[]taxonomy.Call](t)(st.Run(ctx(t), "run"))), 11, "calls of a short run")
			}
		}
		ok(t, st.Append(ctx(t), "other", call(0)))
		same(t, must[[]taxonomy.Call](t)(st.Run(ctx(t), "run")), want)
		equal(t, len(must[[]taxonomy.Call](t)(st.Run(ctx(t), "nobody"))), 0, "calls of no run")
		is(t, st.Append(ctx(t), "", call(0)), state.ErrInvalid, "append to no run")
	})
	t.Run("stopped once", func(t *testing.T) {
		st := s.open(t)
		equal(t, must[string](t)(st.Stopped(ctx(t), "run")), "", "reason")
		ok(t, st.Append(ctx(t), "run", taxonomy.Call{Name: "a"}))
		equal(t, must[string](t)(st.Stopped(ctx(t), "run")), "", "reason")
		ok(t, st.Stop(ctx(t), "run", "loop"))
		ok(t, st.Stop(ctx(t), "run", "later word"))
		ok(t, st.Stop(ctx(t), "unheard of", "credential_revoked"))
		equal(t, must[string](t)(st.Stopped(ctx(t), "run")), "loop", "reason")
		equal(t, must[string](t)(st.Stopped(ctx(t), "unheard of")), "credential_revoked", "reason")
		is(t, st.Stop(ctx(t), "run", ""), state.ErrInvalid, "stop without a reason")
	})
	t.Run("forgotten by age", func(t *testing.T) {
		st := s.open(t)
		ok(t, st.Append(ctx(t), "a", taxonomy.Call{}))
		ok(t, st.Stop(ctx(t), "b", "loop"))
		equal(t, must[int](t)(st.Forget(ctx(t), now(t, st).Add(-time.Hour))), 0, "forgotten too early")
		equal(t, must[int](t)(st.Forget(ctx(t), now(t, st).Add(time.Hour))), 2, "forgotten")
		equal(t, len(must[[]taxonomy.Call](t)(st.Run(ctx(t), "a"))), 0, "calls")
		equal(t, must[string](t)(st.Stopped(ctx(t), "b")), "", "reason")
	})
}
