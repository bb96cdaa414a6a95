package enginetest

import (
	"context"
	"errors"
	"sync"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Remote is a scripted dependency that counts what really reached it. It
// also keeps what it has committed, so that a case can ask the question that
// matters: how often did the side effect happen?
type Remote struct {
	mu      sync.Mutex
	script  []Answer
	reached []string // request id of every call that reached it, in order
	applied map[string]int
	repeats bool // the last answer was given; new ones replace it
}

// An Answer is what one call gets.
type Answer struct {
	Observation taxonomy.Observation
	Commits     bool   // the side effect happened, whatever came back
	Before      func() // runs before the answer, with the call already counted
}

// NewRemote plays the answers in order; the last one repeats.
func NewRemote(answers ...Answer) *Remote {
	return &Remote{script: answers, applied: map[string]int{}}
}

// Send is the closure to hand to the engine.
func (r *Remote) Send(_ context.Context, call engine.Call) taxonomy.Observation {
	a := r.next(call)
	if a.Before != nil {
		a.Before()
	}
	return a.Observation
}

func (r *Remote) next(call engine.Call) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.script) == 0 {
		panic("enginetest: the remote has no script")
	}
	a := r.script[0]
	if len(r.script) > 1 {
		r.script = r.script[1:]
	} else {
		r.repeats = true
	}
	// What was refused before bytes left never reached the remote.
	if a.Observation.Transport.Dispatched != taxonomy.DispatchedNo {
		r.reached = append(r.reached, call.Operation.RequestID)
	}
	if a.Commits {
		r.applied[call.Operation.IdempotencyKey]++
	}
	return a
}

// Reached is how many calls arrived.
func (r *Remote) Reached() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.reached) }

// Applied is how often the side effect of each idempotency key happened.
func (r *Remote) Applied() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int, len(r.applied))
	for k, n := range r.applied {
		out[k] = n
	}
	return out
}

// during makes f run while the next call that gets the answer scripted last is
// at the remote.
func (r *Remote) during(f func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.script) == 0 {
		return errors.New("the remote has no script")
	}
	r.script[len(r.script)-1].Before = f
	return nil
}

// Then appends answers. They follow the script; where its last answer was
// already given, they take its place.
func (r *Remote) Then(answers ...Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.repeats {
		r.script, r.repeats = nil, false
	}
	r.script = append(r.script, answers...)
}

// HTTP answers with a response.
func HTTP(status int, body string, headers ...string) Answer {
	h := map[string]string{}
	for i := 0; i+1 < len(headers); i += 2 {
		h[headers[i]] = headers[i+1]
	}
	return Answer{Observation: taxonomy.Observation{
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response:  &taxonomy.Response{Status: status, Headers: h, Body: body},
		ElapsedMS: 20,
	}}
}

// Broken answers with a transport error after the request had left.
func Broken(kind string) Answer {
	return Answer{Observation: taxonomy.Observation{
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: kind, Error: kind},
		ElapsedMS: 20,
	}}
}

// Refused answers with a transport error before any byte left.
func Refused(kind string) Answer {
	return Answer{Observation: taxonomy.Observation{
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedNo, ErrorKind: kind, Error: kind},
	}}
}

// Committed makes an answer whose side effect happened all the same.
func (a Answer) Committed() Answer { a.Commits = true; return a }
