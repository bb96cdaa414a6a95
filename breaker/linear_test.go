package breaker

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// opKind is one method of the concurrent layer.
type opKind uint8

const (
	opAdmit opKind = iota
	opLease
	opRecord
	opRelease
	opTick
	opSignal
	opRead
)

// linearIn is one call; call numbers the ticket it makes or uses.
type linearIn struct {
	op       opKind
	call     int
	sequence uint64 // of the ticket
	token    uint64
	held     bool
	shadow   bool
	outcome  Kind
	now      Instant
	draw     PPM
}

// linearOut is what a caller can see of the answer.
type linearOut struct {
	allow, need, held bool
	reason            Reason
	sequence          uint64
	fate              Fate
	changes           string
	tally             Tally
}

const linearCalls = 96

// linearState is the circuit as Step has it, with what was said to each call.
type linearState struct {
	c       Circuit
	seq     uint64 // of the registry: it holds one circuit only
	nodeSeq uint64 // at the latest change of state
	admits  [linearCalls]uint64
}

func (s *linearState) note(ts *Transitions) string {
	out := ""
	for _, t := range ts.All() {
		s.seq++
		out += fmt.Sprintf("%s>%s:%s@%d ", t.From, t.To, t.Reason, s.seq)
	}
	for _, t := range ts.All() {
		if t.Moved() {
			s.nodeSeq = s.seq
		}
	}
	return out
}

// linearStep is the sequential meaning of the registry: Step, and nothing else.
func linearStep(r *Rule, s linearState, in linearIn, out linearOut) (bool, linearState) {
	var d Decision
	var ts Transitions
	switch in.op {
	case opAdmit:
		_, d, _ = Step(r, s.c, Event{Kind: Peek, Gives: ModelCall, Draw: drawFor(linearOp(in.call), s.c.Version)}, in.now)
		if d.Would != out.allow || d.Leases != out.need || !d.Would && d.Reason != out.reason || out.sequence > s.seq && out.allow {
			return false, s
		}
		s.admits[in.call] = s.c.Version
		return true, s
	case opLease:
		after, d, ts := Step(r, s.c, Event{Kind: Admit, Gives: ModelCall, Token: in.token, Draw: drawFor(linearOp(in.call), s.c.Version)}, in.now)
		if d.Would != out.allow || (d.Lease.Token != 0) != out.held || !d.Would && d.Reason != out.reason {
			return false, s
		}
		if !d.Would {
			return true, s
		}
		s.c = after
		return s.note(&ts) == out.changes, s
	case opRecord:
		ev := Event{Kind: Outcome, Outcome: in.outcome, Version: s.c.Version, Draw: in.draw, Shadow: in.shadow}
		if in.sequence < s.nodeSeq {
			ev.Version--
		} else if !in.held && s.admits[in.call] != s.c.Version {
			return false, s // misplaced: counted toward a state that did not admit it
		}
		if in.held {
			ev.Token = in.token
		}
		s.c, d, ts = Step(r, s.c, ev, in.now)
		return d.Fate == out.fate && s.note(&ts) == out.changes, s
	case opRelease:
		s.c, d, ts = Step(r, s.c, Event{Kind: Release, Token: in.token}, in.now)
		return d.Fate == out.fate && s.note(&ts) == out.changes, s
	case opTick:
		s.c, _, ts = Step(r, s.c, Event{Kind: Tick}, in.now)
		return s.note(&ts) == out.changes, s
	case opRead:
		return s.c.Facts(r, in.now).Tally == out.tally, s
	case opSignal:
		s.c, _, ts = Step(r, s.c, Event{Kind: HardSignal, Unbound: true}, in.now)
		return s.note(&ts) == out.changes, s
	}
	return false, s
}

func linearOp(call int) *taxonomy.Operation {
	op := modelOp()
	op.RequestID = fmt.Sprint("r", call)
	return op
}

func linearChanges(cs []Change) string {
	out := ""
	for _, c := range cs {
		out += fmt.Sprintf("%s>%s:%s@%d ", c.From, c.To, c.Reason, c.Sequence)
	}
	return out
}

// TestProperty28Linearizable: however calls interleave, their answers are those
// of some order of plain Steps, each within its call. Successes counted beside
// the lock, cached answers and the sequence are all part of what is checked.
func TestProperty28Linearizable(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Trip = Trip{Consecutive: 3, FailureRatio: One / 2}
	s.Rule.Window.MinSamples = 12
	s.Rule.Probe.Successes = 1
	s.Rule.Ramp = Ramp{Steps: [MaxSteps]PPM{One / 2}, Every: time.Second, MinSuccesses: 2, Consecutive: 1, MinSamples: 4}
	model := porcupine.Model{
		Init: func() any { return linearState{seq: 1} },
		Step: func(state, in, out any) (bool, any) {
			ok, next := linearStep(&s.Rule, state.(linearState), in.(linearIn), out.(linearOut))
			return ok, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	}
	moved := map[string]bool{}
	for round := range 300 {
		ops := linearRound(t, s, round)
		for _, o := range ops {
			if c := o.Output.(linearOut).changes; c != "" {
				moved[c[:6]] = true
			}
		}
		switch porcupine.CheckOperationsTimeout(model, ops, 20*time.Second) {
		case porcupine.Illegal:
			for _, o := range ops {
				t.Logf("%d..%d worker %d: %+v -> %+v", o.Call, o.Return, o.ClientId, o.Input, o.Output)
			}
			t.Fatalf("round %d is not linearizable", round)
		case porcupine.Unknown:
			t.Logf("round %d: too many interleavings to decide", round)
		}
	}
	if len(moved) < 4 {
		t.Errorf("only %d kinds of transitions were seen: %v", len(moved), moved)
	}
}

// linearRound runs four workers through several phases of time and writes down
// what they saw.
func linearRound(t *testing.T, s Setting, round int) []porcupine.Operation {
	g := newRegistry(t, Options{Settings: []Setting{s}, Draw: func() PPM { return 0 }})
	p := g.Path(modelOp(), second)
	key := p.nodes[0].key
	var mu sync.Mutex
	var ops []porcupine.Operation
	var clock atomic.Int64
	var calls atomic.Int64
	run := func(worker int, in linearIn, f func() linearOut) linearOut {
		call := clock.Add(1)
		out := f()
		back := clock.Add(1)
		mu.Lock()
		ops = append(ops, porcupine.Operation{ClientId: worker, Input: in, Output: out, Call: call, Return: back})
		mu.Unlock()
		return out
	}
	// settle ends one call, as the round's pattern says.
	settle := func(w int, tk Ticket, call, pattern int, release bool, now Instant) {
		in := linearIn{op: opRecord, call: call, sequence: tk.Sequence, token: tk.Token, held: tk.Held != 0, now: now, outcome: OK}
		fs, res := success, fine
		if pattern%4 == 0 {
			in.outcome, fs, res = Failed, failure, failed
		}
		if in.held && release {
			in.op = opRelease
		}
		run(w, in, func() linearOut {
			var r Recorded
			if in.op == opRelease {
				r = p.Release(tk, now)
			} else {
				r = p.Record(tk, fs, res, now)
			}
			return linearOut{fate: r.Touched()[0].Fate, changes: linearChanges(r.Changes)}
		})
	}
	type kept struct {
		tk   Ticket
		call int
	}
	var old [4][]kept // calls of the first phase that end in a later one
	for phase := range 6 {
		now := second + Instant(phase)*35*second
		atOnce(4, func(w int) {
			for n := range 3 {
				call := int(calls.Add(1)) - 1
				if call >= linearCalls {
					return
				}
				ask := Ask{Operation: linearOp(call)}
				var tk Ticket
				out := run(w, linearIn{op: opAdmit, call: call, now: now}, func() linearOut {
					var no *Denial
					tk, no = p.Admit(ask, now)
					o := linearOut{allow: no == nil, need: tk.Needs(), sequence: tk.Sequence}
					if no != nil {
						o.reason = no.Reason
					}
					return o
				})
				switch pick := (round*7 + phase*5 + w*3 + n) % 11; {
				case pick == 0:
					run(w, linearIn{op: opTick, now: now}, func() linearOut { return linearOut{changes: linearChanges(g.Tick(now))} })
				case pick == 1 && phase == 1:
					run(w, linearIn{op: opSignal, now: now}, func() linearOut {
						ch, _ := g.Signal(key, "", "", 0, now)
						return linearOut{changes: linearChanges(ch)}
					})
				case pick < 4:
					run(w, linearIn{op: opRead, now: now}, func() linearOut {
						l, _ := g.Show(key, now)
						return linearOut{tally: l.Facts.Tally}
					})
				}
				if len(old[w]) > 0 && phase > 0 && (round+phase+w)%3 == 0 {
					k := old[w][0]
					old[w] = old[w][1:]
					settle(w, k.tk, k.call, round+w, false, now)
				}
				if !out.allow {
					continue
				}
				if tk.Needs() {
					tk.Token = uint64(call + 1)
					out = run(w, linearIn{op: opLease, call: call, token: tk.Token, now: now}, func() linearOut {
						ch, no := p.Lease(&tk, ask, now)
						o := linearOut{allow: no == nil, held: tk.Held != 0, changes: linearChanges(ch)}
						if no != nil {
							o.reason = no.Reason
						}
						return o
					})
					if !out.allow {
						continue
					}
				}
				if phase == 0 && n == 1 {
					old[w] = append(old[w], kept{tk, call})
					continue
				}
				pattern := round + phase*3 + w + n
				if phase > 1 {
					pattern = pattern*4 + 1 // recovery: nothing fails
				}
				settle(w, tk, call, pattern, n == 1, now)
			}
		})
	}
	return ops
}
