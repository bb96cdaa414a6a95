package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A world is a remote that remembers every delivery, and what was proven about
// it: the judge of R-CALL-3, which knows more than any engine.
type world struct {
	mu         sync.Mutex
	deliveries map[string][]*delivery // by request
	violations []string
}

// A delivery is one time that a request's bytes reached the remote.
type delivery struct {
	committed bool
	disproved bool // somebody proved that it was not applied
}

var errKilled = errors.New("the process was killed")

// deliver is called when bytes arrive.
func (w *world) deliver(op *taxonomy.Operation, committed bool) *delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !op.Effect.Repeatable() {
		for i, d := range w.deliveries[op.RequestID] {
			if !d.disproved {
				w.violations = append(w.violations, fmt.Sprintf("%s (%s) was sent again although nobody had proven that delivery %d was not applied", op.RequestID, op.Effect, i+1))
			}
		}
	}
	d := &delivery{committed: committed}
	w.deliveries[op.RequestID] = append(w.deliveries[op.RequestID], d)
	return d
}

// disprove notes that every delivery of a request so far is known not to have
// been applied.
func (w *world) disprove(request string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.deliveries[request] {
		d.disproved = true
	}
}

// truth answers a status lookup.
func (w *world) truth(request string) engine.Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.deliveries[request] {
		if d.committed {
			return engine.Applied
		}
	}
	return engine.NotApplied
}

// A run is one request's random life: an agent that does not take no for an
// answer, two workers, a remote that misbehaves, processes that die.
type run struct {
	w       *world
	rnd     *rand.Rand
	houses  [2]*enginetest.House
	request string
	op      taxonomy.Operation
	story   []string // what happened, to read when something is wrong
}

func (r *run) tell(format string, args ...any) {
	r.story = append(r.story, fmt.Sprintf(format, args...))
}

func (r *run) chance(percent int) bool { return r.rnd.IntN(100) < percent }

// send is the remote: it may refuse, answer, break, commit, or never answer
// because the process dies.
func (r *run) send(_ context.Context, c engine.Call) taxonomy.Observation {
	if r.chance(15) {
		return enginetest.Refused("connect_refused").Observation
	}
	committed := r.chance(60)
	r.tell("delivered, committed %v", committed)
	d := r.w.deliver(c.Operation, committed)
	switch pick := r.rnd.IntN(100); {
	case pick < 10:
		panic(errKilled)
	case pick < 35:
		return enginetest.Broken([]string{"read_timeout", "reset", "eof", "unknown"}[r.rnd.IntN(4)]).Observation
	case pick < 50:
		return enginetest.HTTP(500+r.rnd.IntN(5), `{}`).Observation
	case pick < 60 && !committed:
		d.disproved = true // the answer itself proves it
		return enginetest.HTTP(422, `{"error":{"type":"validation_error","message":"amount is missing"}}`).Observation
	case pick < 70 && !committed:
		d.disproved = true
		return enginetest.HTTP(429, `{"error":{"type":"rate_limit_error"}}`).Observation
	}
	d.committed = true
	return enginetest.HTTP(201, `{"id":"x"}`).Observation
}

// points where a process may die.
var points = []string{"dispatch-after-state", "after-intent-before-send", "after-send-before-settle", "settle-after-record", "settle-before-receipt"}

// step does one thing that an agent, an operator or fate may do.
func (r *run) step(t *testing.T) {
	h := r.houses[r.rnd.IntN(2)]
	switch pick := r.rnd.IntN(100); {
	case pick < 60:
		r.try(t, h)
	case pick < 70:
		h.Clock.Advance(time.Duration(r.rnd.IntN(120)) * time.Second)
		h.Tick(t.Context())
	case pick < 85:
		r.lookUp(t, h)
	default:
		i := r.rnd.IntN(2)
		r.tell("worker %d restarts", i)
		r.houses[i] = r.houses[i].Restart(t, fmt.Sprintf("%s-%d", r.request, r.rnd.Uint32()))
	}
}

// try sends the request once more, by any road.
func (r *run) try(t *testing.T, h *enginetest.House) {
	op := r.op
	op.Origin = taxonomy.Origin(r.rnd.IntN(9))
	op.Attempt = int64(1 + r.rnd.IntN(3))
	if r.chance(25) {
		at := points[r.rnd.IntN(len(points))]
		h.Faults.At(at, func() error { panic(errKilled) })
		defer h.Faults.Clear(at)
	}
	defer func() {
		if p := recover(); p != nil && p != error(errKilled) {
			panic(p)
		} else if p != nil {
			r.tell("killed")
		}
	}()
	res, err := h.Do(t.Context(), op, r.send) // what it says is the agent's; what the remote saw is ours
	r.tell("tried as %s: %s %s, %v", op.Origin, res.Verdict.Outcome, res.Verdict.Reason, err)
}

// lookUp reconciles whatever of this request is UNKNOWN, truthfully.
func (r *run) lookUp(t *testing.T, h *enginetest.House) {
	for in, err := range h.Store.Find(t.Context(), state.IntentQuery{RequestID: r.request, States: []state.IntentState{state.Unsettled}}) {
		if err != nil {
			t.Fatal(err)
		}
		f := r.w.truth(r.request)
		if f == engine.NotApplied {
			r.w.disprove(r.request)
		}
		r.tell("reconciled intent %s: %s", in.ID, f)
		if _, err := h.Reconcile(t.Context(), in.ID, f, "lookup"); err != nil {
			t.Fatal(err)
		}
	}
}

// schedules plays n random runs, seeded, and returns what the world saw wrong.
// open gives the two workers' houses on one store.
func schedules(t *testing.T, n int, seed uint64, open func(t *testing.T) [2]*enginetest.House) []string {
	w := &world{deliveries: map[string][]*delivery{}}
	houses := open(t)
	rnd := rand.New(rand.NewPCG(seed, 7))
	for i := range n {
		if i%200 == 199 {
			houses = open(t) // a fresh store keeps the runs quick
		}
		r := &run{w: w, rnd: rnd, houses: houses, request: fmt.Sprintf("s%d-r%d", seed, i)}
		tool := []string{"shop", "shop", "desk", "shelf"}[rnd.IntN(4)] // the plain policy declares an effect for each
		r.op = taxonomy.Operation{Kind: "tool", Name: "orders.create", Provider: tool, Tenant: r.request, Agent: "a-1", RequestID: r.request}
		for range 3 + rnd.IntN(8) {
			r.step(t)
		}
		houses = r.houses
		if len(w.violations) > 0 {
			return append(w.violations, r.story...)
		}
	}
	return w.violations
}

// workers builds two engines on one store, with clocks that move together.
func workers(wrap func(state.Store) state.Store) func(t *testing.T) [2]*enginetest.House {
	return func(t *testing.T) [2]*enginetest.House {
		first := enginetest.New(t, func(p *engine.Parts) {
			if wrap != nil {
				p.Store = wrap(p.Store)
			}
		})
		second := enginetest.New(t, func(p *engine.Parts) {
			p.Store = first.Parts().Store
			p.Clock = first.Clock
			p.Owner = state.Owner{Slot: 1, Incarnation: "second"}
		})
		second.Clock, second.Store = first.Clock, first.Store
		return [2]*enginetest.House{first, second}
	}
}

// runs is how many schedules are played; FUSEBOX_RUNS asks for a campaign.
func runs(t *testing.T, ordinary int) int {
	if s := os.Getenv("FUSEBOX_RUNS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("FUSEBOX_RUNS: %v", err)
		}
		return n
	}
	return ordinary
}

// R-CALL-3: no UNKNOWN side effect is sent again that is neither idempotent nor
// reconciled, under random effects, faults, crashes, retries and two workers.
func TestInvariantNothingIsSentTwice(t *testing.T) {
	n := runs(t, 600)
	for _, v := range schedules(t, n, 1, workers(nil)) {
		t.Error(v)
	}
	t.Logf("%d runs", n)
}

// The generator is worth something: it finds each of these seeded faults.
func TestInvariantGeneratorFindsSeededFaults(t *testing.T) {
	for name, wrap := range map[string]func(state.Store) state.Store{
		"the store forgets intents":          func(s state.Store) state.Store { return forgetful{s} },
		"a restart condemns nothing":         func(s state.Store) state.Store { return lenient{s} },
		"UNKNOWN is written down as FAILED":  func(s state.Store) state.Store { return optimist{s} },
		"nobody looks for an earlier intent": func(s state.Store) state.Store { return blind{s} },
	} {
		t.Run(name, func(t *testing.T) {
			if got := schedules(t, 2000, 1, workers(wrap)); len(got) == 0 {
				t.Error("2,000 schedules did not find it")
			}
		})
	}
}

type forgetful struct{ state.Store }

func (f forgetful) Dispatch(ctx context.Context, d state.Dispatch) (state.Dispatched, error) {
	d.Intent = nil
	return f.Store.Dispatch(ctx, d)
}

func (f forgetful) Settle(context.Context, string, state.Settlement) (state.Intent, error) {
	return state.Intent{}, nil
}

type lenient struct{ state.Store }

func (l lenient) Condemn(ctx context.Context, o state.Owner, by string) ([]state.Intent, error) {
	moved, err := l.Store.Condemn(ctx, o, by)
	for _, in := range moved {
		_, _ = l.Store.Settle(ctx, in.ID, state.Settlement{Outcome: taxonomy.Failed, By: by})
	}
	return moved, err
}

type optimist struct{ state.Store }

func (o optimist) Settle(ctx context.Context, id string, s state.Settlement) (state.Intent, error) {
	if s.Outcome == taxonomy.Unknown {
		s.Outcome = taxonomy.Failed
	}
	return o.Store.Settle(ctx, id, s)
}

type blind struct{ state.Store }

func (b blind) Find(ctx context.Context, q state.IntentQuery) iter.Seq2[state.Intent, error] {
	if q.RequestID != "" && len(q.States) == 0 {
		return func(func(state.Intent, error) bool) {}
	}
	return b.Store.Find(ctx, q)
}
