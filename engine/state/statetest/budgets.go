package statetest

import (
	"errors"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

func (s *suite) budgets(t *testing.T) {
	// R-AGT-3: reserved before, settled after, never overspent.
	t.Run("reserve, settle, release", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		g := must[state.Grant](t)(st.Reserve(ctx(t), reservation("a", at, line("run", 100, 60), line("tenant", 0, 60))))
		if g.ID != "a" || len(g.Lines) != 2 {
			t.Fatalf("grant %+v", g)
		}
		equal(t, usage(t, st, "run").Reserved, tokens(60), "reserved")
		_, err := st.Reserve(ctx(t), reservation("b", at, line("run", 100, 41)))
		var full *state.Exhausted
		if !errors.As(err, &full) || *full != (state.Exhausted{Account: "run", Unit: "tokens", Left: 40, Wanted: 41}) {
			t.Fatalf("got %v, want the account, its unit and what is left", err)
		}
		is(t, err, state.ErrExhausted, "reserve too much")
		ok(t, st.SettleGrant(ctx(t), "a", tokens(10)))
		for _, account := range []string{"run", "tenant"} {
			same(t, usage(t, st, account), state.Usage{Account: account, Used: tokens(10)})
		}
		must[state.Grant](t)(st.Reserve(ctx(t), reservation("b", at, line("run", 100, 90))))
		same(t, usage(t, st, "never used"), state.Usage{Account: "never used"})
	})
	t.Run("all lines or none", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		_, err := st.Reserve(ctx(t), reservation("a", at, line("wide", 1000, 10), line("narrow", 5, 10)))
		is(t, err, state.ErrExhausted, "reserve with one line too many")
		same(t, usage(t, st, "wide"), state.Usage{Account: "wide"})
		_, err = st.Reserve(ctx(t), reservation("b", at, line("twice", 10, 6), line("twice", 10, 6)))
		is(t, err, state.ErrExhausted, "two lines of one account")
		must[state.Grant](t)(st.Reserve(ctx(t), reservation("c", at, line("twice", 12, 6), line("twice", 12, 6))))
		equal(t, usage(t, st, "twice").Reserved, tokens(12), "reserved by two lines")
		ok(t, st.SettleGrant(ctx(t), "c", tokens(1)))
		same(t, usage(t, st, "twice"), state.Usage{Account: "twice", Used: tokens(2)})
	})
	t.Run("every unit has its own limit", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		limit := state.Amounts{CostNanoUSD: 10, Tokens: 10, Attempts: 10, TimeMS: 10}
		for i, want := range []state.Amounts{{CostNanoUSD: 11}, {Tokens: 11}, {Attempts: 11}, {TimeMS: 11}} {
			_, err := st.Reserve(ctx(t), reservation(key(i), at, state.Line{Account: "a", Limit: limit, Want: want}))
			full, is := errors.AsType[*state.Exhausted](err)
			if !is || full.Unit != state.Units[i] || full.Left != 10 || full.Wanted != 11 {
				t.Fatalf("unit %s: got %v", state.Units[i], err)
			}
		}
		all := state.Amounts{CostNanoUSD: 1, Tokens: 2, Attempts: 3, TimeMS: 4}
		must[state.Grant](t)(st.Reserve(ctx(t), reservation("all", at, state.Line{Account: "a", Limit: limit, Want: all})))
		equal(t, usage(t, st, "a").Reserved, all, "reserved")
		ok(t, st.SettleGrant(ctx(t), "all", all))
		same(t, usage(t, st, "a"), state.Usage{Account: "a", Used: all})
	})
	t.Run("idempotent by id", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		r := reservation("a", at, line("acc", 1000, 60))
		must[state.Grant](t)(st.Reserve(ctx(t), r))
		r.Expires = r.Expires.Add(time.Second) // computed anew by the repeat
		must[state.Grant](t)(st.Reserve(ctx(t), r))
		equal(t, usage(t, st, "acc").Reserved, tokens(60), "reserved after the repeat")
		_, err := st.Reserve(ctx(t), reservation("a", at, line("acc", 1000, 61)))
		is(t, err, state.ErrConflict, "another reservation under the id")
		ok(t, st.SettleGrant(ctx(t), "a", tokens(5)))
		ok(t, st.SettleGrant(ctx(t), "a", tokens(5)))
		is(t, st.SettleGrant(ctx(t), "a", tokens(6)), state.ErrConflict, "settle it differently")
		_, err = st.Reserve(ctx(t), r)
		is(t, err, state.ErrConflict, "reserve again what is settled")
		same(t, usage(t, st, "acc"), state.Usage{Account: "acc", Used: tokens(5)})
		is(t, st.SettleGrant(ctx(t), "never", tokens(1)), state.ErrNotFound, "settle what was never reserved")
	})
	t.Run("more than reserved is recorded, and closes the account", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		must[state.Grant](t)(st.Reserve(ctx(t), reservation("a", at, line("acc", 100, 60))))
		ok(t, st.SettleGrant(ctx(t), "a", tokens(130)))
		equal(t, usage(t, st, "acc").Used, tokens(130), "used")
		_, err := st.Reserve(ctx(t), reservation("b", at, line("acc", 100, 1)))
		full, _ := errors.AsType[*state.Exhausted](err)
		if full == nil || full.Left != 0 {
			t.Fatalf("got %v, want nothing left", err)
		}
	})
	t.Run("bad input changes nothing", func(t *testing.T) {
		st := s.open(t)
		at := now(t, st)
		for name, r := range map[string]state.Reservation{
			"no id":          reservation("", at, line("acc", 10, 1)),
			"no account":     reservation("a", at, line("", 10, 1)),
			"negative want":  reservation("a", at, line("acc", 10, -1)),
			"negative limit": reservation("a", at, line("acc", -10, 1)),
		} {
			_, err := st.Reserve(ctx(t), r)
			is(t, err, state.ErrInvalid, name)
		}
		_, err := st.Reserve(ctx(t), state.Reservation{ID: "a", Lines: []state.Line{line("acc", 10, 1)}})
		is(t, err, state.ErrExpired, "no expiry")
		must[state.Grant](t)(st.Reserve(ctx(t), reservation("a", at, line("acc", 10, 1))))
		is(t, st.SettleGrant(ctx(t), "a", tokens(-1)), state.ErrInvalid, "negative use")
		same(t, usage(t, st, "acc"), state.Usage{Account: "acc", Reserved: tokens(1)})
		const huge = 1<<63 - 1
		_, err = st.Reserve(ctx(t), reservation("b", at, line("acc", huge, huge)))
		is(t, err, state.ErrExhausted, "an amount that would wrap")
	})
}
