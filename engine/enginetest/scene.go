package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Scene is where a case plays: an engine, and the handles that a case needs
// to move time, break things and look around.
type Scene struct {
	Engine   *engine.Engine
	Clock    *Clock
	Store    state.Store
	Meter    *Meter
	Faults   *Faults
	Receipts func(t testing.TB) []receipts.Receipt
	// Restart kills the process and starts another on the same store and log.
	Restart func(t testing.TB) *engine.Engine
	// Deny and Allow change what the authority rules say of an action class.
	Deny, Allow func(class string)
	// Lose makes the store fail until it comes back.
	Lose func(gone bool)
	// Hire starts another process on the same store.
	Hire func(t testing.TB, name string) *engine.Engine
	// Tune changes the policy in force: ramp, bulkhead N, budget N, alternate
	// PROVIDER MODEL.
	Tune func(t testing.TB, words []string) error
	Dice *Dice

	workers map[string]*engine.Engine // beside the one that plays
	name    string                    // of the one that plays
	held    []string                  // what the case stated and what was seen
	missed  int

	ctx       context.Context
	ops       map[string]taxonomy.Operation
	remote    *Remote
	permits   map[string]*engine.Permit
	last      engine.Result
	lastErr   error
	slept     time.Duration
	request   string
	calls     int
	withdrawn bool
}

// Scene makes a scene of a house with the plain rules.
func (h *House) Scene() *Scene {
	denied := map[string]bool{}
	h.Rules.OnAuthorize = func(in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
		switch class := in.Operation.ActionClass; {
		case denied[class]:
			return taxonomy.AuthorityAnswer{Reasons: []string{"denied by the case"}}
		case class == "data.delete" && len(in.Approvals) == 0: // as the shipped policy has it
			return taxonomy.AuthorityAnswer{Decision: taxonomy.RequireApproval, Reasons: []string{"approval_required"}}
		}
		return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow, Reasons: []string{"allowed"}}
	}
	meter, _ := h.parts.Meter.(*Meter)
	crew := &crew{first: h}
	return &Scene{
		Engine: h.Engine, Clock: h.Clock, Store: h.Store, Meter: meter, Faults: h.Faults, Receipts: h.Receipts,
		Restart: crew.restart, Hire: crew.hire, Tune: crew.tune, Dice: h.Dice,
		Deny:  func(c string) { denied[c] = true },
		Allow: func(c string) { delete(denied, c) },
		Lose:  h.Lose,
	}
}

func (s *Scene) command(t *testing.T, w []string) error {
	do, ok := commands[w[0]]
	if !ok {
		return fmt.Errorf("no such command")
	}
	return do(s, t, w[1:])
}

var commands map[string]func(*Scene, *testing.T, []string) error

func init() { // a map literal would refer to itself through want
	commands = map[string]func(*Scene, *testing.T, []string) error{
		"operation": (*Scene).operation, "remote": (*Scene).script, "do": (*Scene).do, "burst": (*Scene).burst,
		"admit": (*Scene).admit, "mark": (*Scene).mark, "settle": (*Scene).settle, "abandon": (*Scene).abandon,
		"advance": (*Scene).advance, "step": (*Scene).step, "tick": (*Scene).tick, "fault": (*Scene).fault,
		"clear": (*Scene).clear, "store": (*Scene).store, "restart": (*Scene).restart, "reconcile": (*Scene).reconcile,
		"override": (*Scene).override, "enqueue": (*Scene).enqueue, "drain": (*Scene).drain, "withdraw": (*Scene).withdraw, "lookup": (*Scene).lookup,
		"worker": (*Scene).worker, "as": (*Scene).as, "draw": (*Scene).draw, "tune": (*Scene).tune, "nest": (*Scene).nest,
		"during": (*Scene).during, "fall": (*Scene).fall, "restored": (*Scene).restored, "approve": (*Scene).approve,
		"deny": (*Scene).deny, "allow": (*Scene).allow, "stop": (*Scene).stop, "want": (*Scene).want,
	}
}

func (s *Scene) operation(_ *testing.T, w []string) error {
	if len(w) != 2 {
		return errors.New("usage: operation NAME JSON")
	}
	op, err := taxonomy.ParseOperation([]byte(w[1]))
	s.ops[w[0]] = op
	return err
}

// answer reads the words of a scripted answer.
func answer(w []string) (Answer, error) {
	if len(w) == 0 {
		return Answer{}, errors.New("an answer begins with http, broken, refused or stream")
	}
	var a Answer
	switch kind, rest := w[0], w[1:]; kind {
	case "http":
		if len(rest) == 0 {
			return a, errors.New("usage: http STATUS [BODY] [header=value …]")
		}
		status, err := strconv.Atoi(rest[0])
		if err != nil {
			return a, err
		}
		body, headers := "", []string{}
		var facts taxonomy.Raw
		elapsed := 20 * time.Millisecond
		for _, x := range rest[1:] {
			k, v, ok := strings.Cut(x, "=")
			switch {
			case !ok || strings.HasPrefix(x, "{"):
				if x != "committed" {
					body = x
				}
			case k == "elapsed":
				if elapsed, err = time.ParseDuration(v); err != nil {
					return a, err
				}
			case k == "local":
				facts = taxonomy.Raw(v)
			default:
				headers = append(headers, k, v)
			}
		}
		a = HTTP(status, body, headers...)
		a.Observation.ElapsedMS, a.Observation.Local = elapsed.Milliseconds(), facts
	case "broken":
		a = Broken(rest[0])
	case "refused":
		a = Refused(rest[0])
	case "stream": // stream BYTES broken KIND
		n, err := strconv.ParseInt(rest[0], 10, 64)
		if err != nil || len(rest) != 3 {
			return a, errors.New("usage: stream BYTES broken KIND")
		}
		a = Broken(rest[2])
		a.Observation.Response = &taxonomy.Response{Status: 200, Headers: map[string]string{"content-type": "text/event-stream"}}
		a.Observation.Stream = taxonomy.Stream{Started: n > 0, Bytes: n}
	default:
		return a, fmt.Errorf("no such answer %q", kind)
	}
	a.Commits = w[len(w)-1] == "committed"
	return a, nil
}

func (s *Scene) script(_ *testing.T, w []string) error {
	a, err := answer(w)
	if err != nil {
		return err
	}
	if s.remote == nil {
		s.remote = NewRemote(a)
	} else {
		s.remote.Then(a)
	}
	return nil
}

// call makes a fresh request of a named operation.
func (s *Scene) call(name string) (taxonomy.Operation, error) {
	op, ok := s.ops[name]
	if !ok {
		return op, fmt.Errorf("no operation is named %q", name)
	}
	s.calls++
	if op.RequestID == "" {
		op.RequestID = fmt.Sprintf("%s-%d", name, s.calls)
	}
	if op.RunID == "*" {
		op.RunID = fmt.Sprintf("run-of-%s-%d", name, s.calls)
	}
	s.request = op.RequestID
	return op, nil
}

func (s *Scene) do(_ *testing.T, w []string) error {
	times := 1
	if len(w) == 2 {
		n, err := strconv.Atoi(w[1])
		if err != nil {
			return err
		}
		times = n
	}
	for range times {
		op, err := s.call(w[0])
		if err != nil {
			return err
		}
		start := s.Clock.Now()
		s.last, s.lastErr = s.Engine.Do(s.ctx, op, s.remote.Send)
		s.slept = s.Clock.Now().Sub(start)
	}
	return nil
}

// burst makes many calls at one moment; the latest result is any of them.
func (s *Scene) burst(_ *testing.T, w []string) error {
	n, err := strconv.Atoi(w[1])
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for range n {
		op, err := s.call(w[0])
		if err != nil {
			return err
		}
		wg.Go(func() { _, _ = s.Engine.Do(s.ctx, op, s.remote.Send) }) // the wants that follow look at what all of them did
	}
	wg.Wait()
	return nil
}

func (s *Scene) admit(_ *testing.T, w []string) error {
	if len(w) != 3 || w[1] != "as" {
		return errors.New("usage: admit OPERATION as NAME")
	}
	op, err := s.call(w[0])
	if err != nil {
		return err
	}
	p, err := s.Engine.Admit(s.ctx, op)
	s.lastErr = err
	s.last = engine.Result{Operation: op}
	if s.permits == nil {
		s.permits = map[string]*engine.Permit{}
	}
	if err == nil {
		s.permits[w[2]] = p
	}
	return nil
}

func (s *Scene) permit(name string) (*engine.Permit, error) {
	p, ok := s.permits[name]
	if !ok {
		return nil, fmt.Errorf("no permit is named %q", name)
	}
	return p, nil
}

func (s *Scene) mark(_ *testing.T, w []string) error {
	p, err := s.permit(w[0])
	if err == nil {
		s.lastErr = p.Mark(s.ctx)
	}
	return err
}

func (s *Scene) settle(_ *testing.T, w []string) error {
	p, err := s.permit(w[0])
	if err != nil {
		return err
	}
	a, err := answer(w[1:])
	if err == nil {
		s.last, s.lastErr = p.Settle(s.ctx, a.Observation)
		s.last.Attempts = 1 // one permit is one attempt
	}
	return err
}

func (s *Scene) abandon(_ *testing.T, w []string) error {
	p, err := s.permit(w[0])
	if err == nil {
		s.lastErr = p.Abandon(s.ctx)
	}
	return err
}

func (s *Scene) advance(_ *testing.T, w []string) error {
	d, err := time.ParseDuration(w[0])
	s.Clock.Advance(d)
	return err
}

func (s *Scene) step(_ *testing.T, w []string) error {
	d, err := time.ParseDuration(w[0])
	s.Clock.Step(d)
	return err
}

func (s *Scene) tick(*testing.T, []string) error { s.Engine.Tick(s.ctx); return nil }

func (s *Scene) fault(_ *testing.T, w []string) error {
	s.Faults.At(w[0], func() error { return errors.New("fault " + w[0]) })
	return nil
}

func (s *Scene) clear(_ *testing.T, w []string) error { s.Faults.Clear(w[0]); return nil }

func (s *Scene) store(_ *testing.T, w []string) error { s.Lose(w[0] == "gone"); return nil }

func (s *Scene) restart(t *testing.T, _ []string) error { s.Engine = s.Restart(t); return nil }

func (s *Scene) reconcile(_ *testing.T, w []string) error {
	f, err := engine.ParseFinding(w[0])
	if err != nil {
		return err
	}
	for in, err := range s.Store.Find(s.ctx, state.IntentQuery{States: []state.IntentState{state.Unsettled}}) {
		if err != nil {
			return err
		}
		_, s.lastErr = s.Engine.Reconcile(s.ctx, in.ID, f, "case")
		return nil
	}
	return errors.New("nothing is UNKNOWN")
}

func (s *Scene) override(_ *testing.T, w []string) error {
	if len(w) != 3 {
		return errors.New("usage: override SCOPE forced_open|forced_closed DURATION")
	}
	var k breaker.OverrideKind
	if err := k.UnmarshalText([]byte(w[1])); err != nil {
		return err
	}
	d, err := time.ParseDuration(w[2])
	if err != nil {
		return err
	}
	return s.Engine.Override(s.ctx, w[0], breaker.Override{Kind: k, By: "case", Why: "case", Until: s.Clock.Mono().Add(d)})
}

func (s *Scene) deny(_ *testing.T, w []string) error  { s.Deny(w[0]); return nil }
func (s *Scene) allow(_ *testing.T, w []string) error { s.Allow(w[0]); return nil }

func (s *Scene) stop(_ *testing.T, w []string) error {
	return s.Engine.StopRun(s.ctx, w[0], w[1], w[2])
}

// lookup asks the reconcilers about whatever is due.
func (s *Scene) lookup(*testing.T, []string) error { s.lastErr = s.Engine.LookUpDue(s.ctx); return nil }

// enqueue keeps the latest call, which was answered with queue.
func (s *Scene) enqueue(*testing.T, []string) error {
	rej, ok := errors.AsType[*engine.Rejection](s.lastErr)
	if !ok {
		return errors.New("the latest call was not refused")
	}
	_, err := s.Engine.Enqueue(s.ctx, s.last.Operation, nil, rej)
	return err
}

// withdraw makes the user want no queued work any more.
func (s *Scene) withdraw(*testing.T, []string) error { s.withdrawn = true; return nil }

// drain lets waiting items go, one round.
func (s *Scene) drain(*testing.T, []string) error {
	_, err := s.Engine.Drain(s.ctx, "case", func(_ context.Context, it state.Item) (taxonomy.Operation, engine.Send, error) {
		if s.withdrawn {
			return taxonomy.Operation{}, nil, engine.ErrWithdrawn
		}
		op, err := taxonomy.ParseOperation(it.Operation)
		s.request = op.RequestID
		return op, s.remote.Send, err
	})
	if s.lastErr = err; errors.Is(err, state.ErrFenced) {
		return nil // somebody else has the item by now; a case may be about that
	}
	return err
}

// raw shows a value in a failure.
func raw(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
