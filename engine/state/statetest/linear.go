package statetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// linear checks that what callers saw could have happened one call after the
// other. Histories are short and many: the checker's time grows exponentially.
func (s *suite) linear(t *testing.T) {
	t.Run("documents", func(t *testing.T) { s.rounds(t, registerModel, newRegisterClient) })
	t.Run("budgets", func(t *testing.T) { s.rounds(t, budgetModel, newBudgetClient) })
	t.Run("queue", func(t *testing.T) { s.rounds(t, queueModel(s.loose), newQueueClient) })
}

// client does one random operation and returns what went in and came out.
type client func(ctx context.Context, st state.Store, r *rand.Rand) (in, out any, err error)

func (s *suite) rounds(t *testing.T, model porcupine.Model, newClient func(id int) client) {
	const clients, each = 6, 8
	for round := range times(6, 200) {
		st := s.open(t)
		h := &history{begin: time.Now()}
		for _, err := range together(clients, func(id int) error {
			r := rand.New(rand.NewPCG(uint64(round), uint64(id)))
			do := newClient(id)
			for range each {
				if err := h.record(t.Context(), st, id, r, do); err != nil {
					return err
				}
			}
			return nil
		}) {
			ok(t, err)
		}
		result, info := porcupine.CheckOperationsVerbose(model, h.ops, time.Minute)
		switch result {
		case porcupine.Illegal:
			path := filepath.Join(t.ArtifactDir(), "history.html") // kept with -artifacts
			t.Fatalf("round %d is not linearizable; see %s (%v)\n%s", round, path, porcupine.VisualizePath(model, info, path), h)
		case porcupine.Unknown:
			t.Logf("round %d: not decided within a minute", round)
		}
		ok(t, st.Close())
	}
}

type history struct {
	mu    sync.Mutex
	begin time.Time
	ops   []porcupine.Operation
}

// String prints the history in the order of the calls, in microseconds.
func (h *history) String() string {
	slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	out := ""
	for _, op := range h.ops {
		out += fmt.Sprintf("%7d to %7d client %d: %s\n", op.Call/1000, op.Return/1000, op.ClientId, describe(op.Input, op.Output))
	}
	return out
}

func (h *history) record(ctx context.Context, st state.Store, id int, r *rand.Rand, do client) error {
	call := time.Since(h.begin).Nanoseconds()
	in, out, err := do(ctx, st, r)
	end := time.Since(h.begin).Nanoseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out, Return: end})
	return err
}

// describe prints an operation for the picture of a failure.
func describe(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) }

// partition splits a history by key, as keys do not touch each other.
func partition(of func(in any) string) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(all []porcupine.Operation) (out [][]porcupine.Operation) {
		index := map[string]int{}
		for _, op := range all {
			k := of(op.Input)
			i, there := index[k]
			if !there {
				i = len(out)
				index[k] = i
				out = append(out, nil)
			}
			out[i] = append(out[i], op)
		}
		return out
	}
}
