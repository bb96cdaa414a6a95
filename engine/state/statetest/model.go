package statetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// model does the same random operations on the store and on the memory store,
// under one clock that jumps, and requires the same answers: the same errors,
// the same facts, in the same order.
func (s *suite) model(t *testing.T) {
	if s.openAt == nil {
		t.Skip("SKIP model: this run cannot inject the store's clock")
	}
	for round := range times(4, 60) {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			clock := NewClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
			p := &pair{t: t, clock: clock, a: s.openAt(t, clock.Now), b: memory.New(memory.Options{Now: clock.Now})}
			gen := rapid.Custom(func(r *rapid.T) step { return drawStep(r) })
			for n := range 150 {
				p.do(gen.Example(round*1000 + n))
			}
			p.compare()
		})
	}
}

// step is one random operation; few names, so that they meet.
type step struct {
	Do     int
	ID     string
	Other  string
	N      int64
	M      int64
	Choice int
}

func drawStep(r *rapid.T) step {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	return step{
		Do: rapid.IntRange(0, 15).Draw(r, "do"), ID: name.Draw(r, "id"), Other: name.Draw(r, "other"),
		N: rapid.Int64Range(0, 9).Draw(r, "n"), M: rapid.Int64Range(0, 40).Draw(r, "m"), Choice: rapid.IntRange(0, 5).Draw(r, "choice"),
	}
}

// pair is the store and its model.
type pair struct {
	t     *testing.T
	clock *Clock
	a, b  state.Store
	steps []string
}

var kinds = []error{state.ErrUnknown, state.ErrUnavailable, state.ErrExhausted, state.ErrNotFound, state.ErrConflict, state.ErrFenced,
	state.ErrExpired, state.ErrClosed, state.ErrInvalid, state.ErrRefused}

// both does one operation on both and compares what came back. Versions are a
// store's own affair.
func (p *pair) both(name string, f func(state.Store) (any, error)) {
	p.t.Helper()
	p.steps = append(p.steps, name)
	va, ea := f(p.a)
	vb, eb := f(p.b)
	for _, k := range kinds {
		if errors.Is(ea, k) != errors.Is(eb, k) {
			p.t.Fatalf("%s\nthe store answers %v, the model %v", p.tail(), ea, eb)
		}
	}
	if (ea == nil) != (eb == nil) {
		p.t.Fatalf("%s\nthe store answers %v, the model %v", p.tail(), ea, eb)
	}
	if d := cmp.Diff(vb, va, cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(state.Rev{})); ea == nil && d != "" {
		p.t.Fatalf("%s\nthe store differs (- model, + store):\n%s", p.tail(), d)
	}
}

func (p *pair) tail() string {
	out := ""
	for _, s := range p.steps[max(0, len(p.steps)-12):] {
		out += s + "\n"
	}
	return out
}

func (p *pair) do(s step) {
	at := p.clock.Now()
	c := p.t.Context()
	name := fmt.Sprintf("%+v", s)
	switch s.Do {
	case 0:
		p.clock.Advance([]time.Duration{time.Second, time.Minute, 20 * time.Minute, -time.Minute, -5 * time.Second, 2 * time.Hour}[s.Choice])
	case 1:
		p.both("update "+name, func(st state.Store) (any, error) {
			return st.Update(c, s.ID, func(d state.Doc) ([]byte, bool) {
				if s.Choice == 0 {
					return nil, true
				}
				return append(d.Data, byte(s.N)), s.Choice > 3
			})
		})
	case 2:
		p.both("delete "+name, func(st state.Store) (any, error) { return nil, st.Delete(c, s.ID) })
	case 3, 4:
		p.both("dispatch "+name, func(st state.Store) (any, error) { return st.Dispatch(c, p.dispatch(s, at)) })
	case 5:
		r := state.Settlement{Outcome: taxonomy.Outcome(s.N % 4), Class: taxonomy.Class(s.M % 3), Reason: s.Other, By: "engine"}
		p.both("settle "+name, func(st state.Store) (any, error) { return st.Settle(c, s.ID, r) })
	case 6:
		o := state.Owner{Home: "/data", Slot: int(s.N%3) - 1, Incarnation: s.Other}
		p.both("condemn "+name, func(st state.Store) (any, error) { return st.Condemn(c, o, "by") })
	case 7:
		p.both("postpone "+name, func(st state.Store) (any, error) {
			return st.Postpone(c, s.ID, at.Add(time.Duration(s.M)*time.Minute), []string{"", "case"}[s.N%2])
		})
	case 8:
		p.both("reserve "+name, func(st state.Store) (any, error) {
			return st.Reserve(c, state.Reservation{ID: s.ID, Expires: at.Add(time.Duration(s.M-3) * time.Minute), Lines: []state.Line{line(s.Other, 100, 5*s.N), line("all", 300, s.N)}})
		})
	case 9:
		p.both("settle grant "+name, func(st state.Store) (any, error) { return nil, st.SettleGrant(c, s.ID, tokens(s.M)) })
	case 10:
		it := state.Item{ID: s.ID, Created: at, Expires: at.Add(time.Duration(s.M-2) * time.Minute), Priority: s.N % 3, Dependency: s.Other, Tenant: []string{"acme", "other"}[s.N%2], State: state.ItemState(4 * (s.Choice / 5))}
		p.both("put "+name, func(st state.Store) (any, error) { return nil, st.Put(c, it) })
	case 11:
		p.both("claim "+name, func(st state.Store) (any, error) {
			claimed, expired, err := st.Claim(c, s.Other, state.From{Dependency: []string{"", s.ID}[s.Choice%2], Tenant: []string{"", "acme"}[s.M%2]}, int(s.N%3), time.Duration(1+s.M)*time.Minute)
			return [2][]state.Item{claimed, expired}, err
		})
	case 12:
		d := state.Disposition{State: state.ItemState(s.Choice), Reason: s.Other, At: at.Add(time.Duration(s.M%4) * time.Minute)}
		if s.N%2 == 0 {
			d.Attempt = &state.ItemAttempt{At: at, Outcome: taxonomy.Failed, Reason: "r"}
		}
		p.both("finish "+name, func(st state.Store) (any, error) { return nil, st.Finish(c, s.ID, uint64(s.N%4), d) })
		p.both("move "+name, func(st state.Store) (any, error) { return nil, st.Move(c, s.Other, d) })
	case 13:
		a := taxonomy.Approval{ID: s.ID, By: "ann", Scope: s.Other, Tenant: "t", Until: at.Add(time.Duration(s.M-2) * time.Minute), SingleUse: s.N%2 == 0}
		p.both("grant "+name, func(st state.Store) (any, error) { return nil, st.Grant(c, a) })
	case 14:
		p.both("append "+name, func(st state.Store) (any, error) {
			return nil, st.Append(c, s.ID, taxonomy.Call{Name: s.Other, Outcome: taxonomy.Outcome(s.N % 4)})
		})
		if s.Choice == 0 {
			p.both("stop "+name, func(st state.Store) (any, error) { return nil, st.Stop(c, s.ID, s.Other) })
		}
	case 15:
		before := at.Add(-time.Duration(s.M) * time.Minute)
		p.both("prune "+name, func(st state.Store) (any, error) { return st.Prune(c, before) })
		p.both("forget "+name, func(st state.Store) (any, error) { return st.Forget(c, before) })
	}
}

func (p *pair) dispatch(s step, at time.Time) state.Dispatch {
	in := intent(s.ID, at)
	in.Owner.Incarnation, in.Owner.Slot = s.Other, int(s.N%3)-1
	in.Expires = at.Add(time.Duration(s.M) * time.Minute)
	d := state.Dispatch{Intent: &in}
	if s.Choice > 1 {
		r := reservation("d"+s.ID, at, line(s.Other, 100, s.M))
		d.Reservation = &r
	}
	if s.Choice > 2 {
		d.Leases = []state.LeaseUpdate{{Key: s.Other, F: func(d state.Doc) ([]byte, bool) {
			return append(d.Data, 'L'), len(d.Data)%3 != 2
		}}}
	}
	if s.Choice > 3 {
		d.UseApproval = s.Other
	}
	return d
}

// compare reads everything.
func (p *pair) compare() {
	c := p.t.Context()
	names := []string{"a", "b", "c", "d", "all"}
	p.both("load", func(st state.Store) (any, error) { return st.Load(c, names...) })
	p.both("usage", func(st state.Store) (any, error) { return st.Usage(c, names...) })
	p.both("find", func(st state.Store) (any, error) { return drain(st.Find(c, state.IntentQuery{})) })
	p.both("items", func(st state.Store) (any, error) { return drain(st.Items(c, state.ItemQuery{})) })
	p.both("approvals", func(st state.Store) (any, error) { return st.Approvals(c, 0) })
	p.both("approved", func(st state.Store) (any, error) { return st.Approved(c, "t", names...) })
	for _, n := range names {
		p.both("run", func(st state.Store) (any, error) { return st.Run(c, n) })
		p.both("stopped", func(st state.Store) (any, error) { return st.Stopped(c, n) })
	}
}

func drain[T any](seq func(func(T, error) bool)) (out []T, err error) {
	for v, err := range seq {
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
