package statetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// far is an expiry that no test reaches.
var far = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// The register: Load and Update of a key. Every value is written once.
type registerIn struct{ key, write string } // write "" is a load
type registerOut struct {
	saw string
	rev state.Rev
}

var registerModel = porcupine.Model{
	Partition: partition(func(in any) string { return in.(registerIn).key }),
	Init:      func() any { return registerOut{} },
	Step: func(st, in, out any) (bool, any) {
		s, i, o := st.(registerOut), in.(registerIn), out.(registerOut)
		if i.write == "" {
			return o == s, s
		}
		return o.saw == s.saw && o.rev.Newer(s.rev), registerOut{saw: i.write, rev: o.rev}
	},
	DescribeOperation: describe,
}

func newRegisterClient(id int) client {
	return func(ctx context.Context, st state.Store, r *rand.Rand) (any, any, error) {
		in := registerIn{key: key(r.IntN(2))}
		if r.IntN(3) == 0 {
			docs, err := st.Load(ctx, in.key)
			if err != nil {
				return in, registerOut{}, err
			}
			return in, registerOut{string(docs[0].Data), docs[0].Rev}, nil
		}
		in.write = fmt.Sprintf("%d-%d", id, r.Uint32())
		saw, mode := "", r.IntN(4) == 0
		d, err := st.Update(ctx, in.key, func(d state.Doc) ([]byte, bool) {
			saw = string(d.Data)
			return []byte(in.write), mode
		})
		return in, registerOut{saw, d.Rev}, err
	}
}

// The budget: one account with room for a few reservations.
type budgetIn struct {
	do     string // "reserve", "settle", "usage"
	held   int64  // what settle gives back
	amount int64
}
type budgetOut struct {
	refused        bool
	used, reserved int64
}
type budgetState struct{ used, reserved int64 }

const budgetLimit = 20

var budgetModel = porcupine.Model{
	Init: func() any { return budgetState{} },
	Step: func(st, in, out any) (bool, any) {
		s, i, o := st.(budgetState), in.(budgetIn), out.(budgetOut)
		switch i.do {
		case "reserve":
			if s.used+s.reserved+i.amount > budgetLimit {
				return o.refused, s
			}
			return !o.refused, budgetState{s.used, s.reserved + i.amount}
		case "settle":
			return true, budgetState{s.used + i.amount, s.reserved - i.held}
		}
		return o.used == s.used && o.reserved == s.reserved, s
	},
	DescribeOperation: describe,
}

func newBudgetClient(id int) client {
	var open string // the grant this client holds
	var held int64
	return func(ctx context.Context, st state.Store, r *rand.Rand) (any, any, error) {
		switch coin := r.IntN(3); {
		case coin == 0:
			u, err := st.Usage(ctx, "acc")
			if err != nil {
				return budgetIn{do: "usage"}, budgetOut{}, err
			}
			return budgetIn{do: "usage"}, budgetOut{used: u[0].Used.Tokens, reserved: u[0].Reserved.Tokens}, nil
		case coin == 1 && open != "":
			in := budgetIn{do: "settle", held: held, amount: int64(r.IntN(2))}
			err := st.SettleGrant(ctx, open, tokens(in.amount))
			open = ""
			return in, budgetOut{}, err
		}
		in := budgetIn{do: "reserve", amount: 1 + int64(r.IntN(6))}
		name := fmt.Sprintf("%d-%d", id, r.Uint32())
		_, err := st.Reserve(ctx, state.Reservation{ID: name, Lines: []state.Line{line("acc", budgetLimit, in.amount)}, Expires: far})
		if errors.Is(err, state.ErrExhausted) {
			return in, budgetOut{refused: true}, nil
		}
		open, held = name, in.amount
		return in, budgetOut{}, err
	}
}

// The queue: items of different priority, claimed, finished or put back.
type queueIn struct {
	do string // "put", "claim", "done", "again"
	id string
}
type queueState struct{ waiting, claimed string } // sorted ids, each followed by a blank

// queueModel is exact, or loose: see [LooseClaims].
func queueModel(loose bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return queueState{} },
		Step: func(st, in, out any) (bool, any) {
			s, i, got := st.(queueState), in.(queueIn), out.(string)
			switch i.do {
			case "put":
				return true, queueState{with(s.waiting, i.id), s.claimed}
			case "done":
				return true, queueState{s.waiting, without(s.claimed, i.id)}
			case "again":
				return true, queueState{with(s.waiting, i.id), without(s.claimed, i.id)}
			}
			best, _, _ := strings.Cut(s.waiting, " ")
			if loose && (got == "" || slices.Contains(strings.Fields(s.waiting), got)) {
				best = got
			}
			if got != best {
				return false, s
			}
			if best == "" {
				return true, s
			}
			return true, queueState{without(s.waiting, best), with(s.claimed, best)}
		},
		DescribeOperation: describe,
	}
}

func with(list, id string) string {
	all := append(strings.Fields(list), id)
	slices.Sort(all)
	return strings.Join(all, " ") + " "
}

func without(list, id string) string { return strings.Replace(list, id+" ", "", 1) }

func newQueueClient(client int) client {
	var held []state.Item
	return func(ctx context.Context, st state.Store, r *rand.Rand) (any, any, error) {
		switch coin := r.IntN(4); {
		case coin <= 1:
			// The id sorts as the queue does: highest priority first.
			priority := r.Int64N(3)
			it := state.Item{ID: fmt.Sprintf("%d-%d-%d", 9-priority, client, r.Uint32()), Priority: priority, Expires: far}
			return queueIn{"put", it.ID}, "", st.Put(ctx, it)
		case coin == 2 || len(held) == 0:
			claimed, _, err := st.Claim(ctx, fmt.Sprint(client), state.From{}, 1, time.Hour)
			if err != nil || len(claimed) == 0 {
				return queueIn{do: "claim"}, "", err
			}
			held = append(held, claimed...)
			return queueIn{do: "claim"}, claimed[0].ID, nil
		}
		it := held[0]
		held = held[1:]
		if r.IntN(2) == 0 {
			return queueIn{"done", it.ID}, "", st.Finish(ctx, it.ID, it.Claim, state.Disposition{State: state.Done})
		}
		return queueIn{"again", it.ID}, "", st.Finish(ctx, it.ID, it.Claim, state.Disposition{State: state.Waiting})
	}
}
