package mcpguard

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A session is the traffic between one client and the server: it knows which
// requests are out, so that every answer is counted once and no call is answered
// twice.
type session struct {
	g *Guard

	mu      sync.Mutex
	who     Identity
	calls   map[string]*call // tools/call that are out, by the key of their id
	given   map[string]*call // answered by us; the server's own answer may still come
	aged    []string         // of given
	lists   map[string]bool  // tools/list that are out
	tasks   map[string]*call // calls that the server answered with a task, by its id
	queries map[string]*call // tasks/result and tasks/get that are out
	closed  bool

	// tell delivers a notification of ours to the client; nil where there is no
	// way to it but the answers.
	tell  func([]byte)
	again *time.Timer // when a hidden tool may be shown again
}

const (
	outMost   = 1024 // tool calls of one session that are out at once
	givenMost = 1024 // calls that we answered and still listen for
)

func (g *Guard) newSession(who Identity) *session {
	return &session{g: g, who: who, calls: map[string]*call{}, given: map[string]*call{}, lists: map[string]bool{},
		tasks: map[string]*call{}, queries: map[string]*call{}}
}

// A call is one tools/call on its way. session.mu guards its fields.
type call struct {
	toolCall
	id        json.RawMessage
	key       string
	who       Identity
	attempt   *attempt // nil until it was admitted
	cancelled bool     // by the client, before it was sent
	over      bool     // somebody settles it or has done so
	heard     bool     // the server answered it
	held      bool     // the server refused it for its lost session, and it waits for another
	timer     *time.Timer
	// answer delivers an answer of ours to the client.
	answer func([]byte)
}

// A step is what becomes of one message of the client.
type step struct {
	forward []byte // to the server; nil is nothing
	reply   []byte // to the client; nil is nothing
	call    *call  // a tools/call that must be admitted: see admit
}

// accept judges a message of the client as far as that needs no waiting. answer
// delivers what the call is answered with by us.
func (s *session) accept(raw []byte, who Identity, answer func([]byte)) step {
	if isBatch(raw) {
		return s.acceptBatch(raw)
	}
	m, err := parse(raw)
	if err != nil {
		code := int64(codeRequest)
		if err == errNoJSON {
			code = codeParse
		}
		return step{reply: fault(m.id, code, err.Error()+"; it was not passed on")}
	}
	switch {
	case m.method == "tools/call":
		return s.acceptCall(m, who, answer)
	case m.method == "notifications/cancelled":
		return s.cancelled(raw, m)
	case m.isRequest():
		s.noteRequest(m)
	}
	return step{forward: raw}
}

// noteRequest remembers requests whose answers are looked at.
func (s *session) noteRequest(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.given, m.key) // a client that uses an id again wants its answer
	if m.key == "" || len(s.lists)+len(s.queries) > outMost {
		return
	}
	switch m.method {
	case "tools/list":
		s.lists[m.key] = true
	case "tasks/result", "tasks/get", "tasks/cancel":
		params, _ := membersOf(m.params)
		id, _ := textOf(find(params, "taskId"))
		if c := s.tasks[id]; c != nil && m.method != "tasks/cancel" {
			s.queries[m.key] = c
		}
	}
}

func (s *session) acceptCall(m message, who Identity, answer func([]byte)) step {
	switch {
	case m.id == nil:
		s.g.o.Log.Warn("a tools/call without an id was not passed on: nobody could be told what came of it", "server", s.g.o.Server)
		return step{}
	case !validID(m.id):
		return step{reply: fault(nil, codeRequest, "the id of a request must be text or a whole number; the call was not passed on")}
	}
	tc, err := readCall(m.params)
	if err != nil {
		return step{reply: fault(m.id, codeParams, "tools/call: "+err.Error()+"; it was not passed on")}
	}
	c := &call{toolCall: tc, id: m.id, key: m.key, who: who, answer: answer}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return step{reply: fault(m.id, codeInternal, "the server has ended; the call was not passed on")}
	case s.calls[m.key] != nil || s.given[m.key] != nil && !s.given[m.key].heard:
		// An answer to this id would be taken for that of the other call.
		return step{reply: fault(m.id, codeRequest, "the id is that of a call which is out already; the call was not passed on")}
	case len(s.calls) >= outMost:
		return step{reply: fault(m.id, codeInternal, "too many calls are out at once; the call was not passed on")}
	}
	delete(s.given, m.key)
	s.calls[m.key] = c
	return step{call: c}
}

// acceptBatch lets a batch pass that asks for no tool. The protocol had batches
// in one version and took them out again; calls in one would share an answer, and
// so an outcome.
func (s *session) acceptBatch(raw []byte) step {
	parts, err := elements(raw)
	if err != nil {
		return step{reply: fault(nil, codeParse, err.Error()+"; it was not passed on")}
	}
	judged := len(parts) == 0
	for _, p := range parts {
		m, err := parse(p)
		judged = judged || err != nil || m.method == "tools/call" || m.method == "notifications/cancelled"
	}
	if !judged {
		for _, p := range parts {
			if m, err := parse(p); err == nil && m.isRequest() {
				s.noteRequest(m)
			}
		}
		return step{forward: raw}
	}
	reply := []byte{'['}
	for _, p := range parts {
		if m, err := parse(p); err != nil || m.id != nil && m.method != "" {
			if len(reply) > 1 {
				reply = append(reply, ',')
			}
			reply = append(reply, fault(m.id, codeRequest, "a batch with tool calls is not passed on; send them one by one")...)
		}
	}
	if len(reply) == 1 {
		return step{reply: fault(nil, codeRequest, "an empty or unreadable batch was not passed on")}
	}
	return step{reply: append(reply, ']')}
}

// cancelled hears that the client gave a call up. What was sent may still be
// carried out, so a write is UNKNOWN from here on; what was not sent stays here.
func (s *session) cancelled(raw []byte, m message) step {
	params, _ := membersOf(m.params)
	key, ok := idKey(find(params, "requestId"))
	s.mu.Lock()
	c := s.calls[key]
	if !ok || c == nil {
		s.mu.Unlock()
		return step{forward: raw}
	}
	if c.attempt == nil {
		c.cancelled = true
		s.mu.Unlock()
		return step{}
	}
	s.mu.Unlock()
	reason, _ := textOf(find(params, "reason"))
	s.end(context.Background(), c, broken(taxonomy.DispatchedYes, cancelKind(reason), "cancelled by the client"), false)
	return step{forward: raw}
}

// cancelKind tells a client whose own patience ended from a person who changed
// their mind: the former says something about the server.
func cancelKind(reason string) string {
	for _, w := range []string{"timed out", "timeout", "Timeout", "deadline"} {
		if strings.Contains(reason, w) {
			return "read_timeout"
		}
	}
	return "canceled"
}

// admit decides about a call that accept took in. It may wait for the disk.
func (s *session) admit(ctx context.Context, raw []byte, c *call) step {
	if gone, st := s.dropped(c); gone {
		return st
	}
	a, err := s.g.admit(ctx, &c.toolCall, c.who)
	if err != nil {
		return s.refuse(c, a, err)
	}
	out, err := a.outgoing(raw, &c.toolCall)
	if err != nil {
		s.unsent(a, "local", err.Error())
		return s.refuse(c, a, errInput{err})
	}
	if gone, st := s.dropped(c); gone {
		s.unsent(a, "local", "given up before it was sent")
		return st
	}
	s.mu.Lock()
	c.attempt = a
	c.timer = time.AfterFunc(a.timeout, func() { s.timedOut(c) })
	s.mu.Unlock()
	return step{forward: out, call: c}
}

// dropped reports a call that was given up while it waited to be sent.
func (s *session) dropped(c *call) (bool, step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.cancelled:
		s.remove(c)
		return true, step{} // who cancels wants no answer
	case s.closed:
		s.remove(c)
		return true, step{reply: fault(c.id, codeInternal, "the server has ended; the call was not sent")}
	}
	return false, step{}
}

// remove takes a call out, mu held. It reports whether it was in.
func (s *session) remove(c *call) bool {
	if s.calls[c.key] == c {
		delete(s.calls, c.key)
	}
	was := c.over
	c.over = true
	return !was
}

func (s *session) refuse(c *call, a *attempt, err error) step {
	s.mu.Lock()
	s.remove(c)
	gone := c.cancelled
	s.mu.Unlock()
	if gone {
		return step{}
	}
	return step{reply: s.g.refused(a, c.name, err).message(c.id, s.g.catalogue.of(c.name), s.g.o.Denials)}
}

// unsent settles an attempt whose request did not leave.
func (s *session) unsent(a *attempt, kind, text string) {
	a.settle(context.Background(), broken(taxonomy.DispatchedNo, kind, text))
}

// timedOut gives a call up whose time is over. The server is not told: for a
// write its late answer is the best news there could be.
func (s *session) timedOut(c *call) {
	s.mu.Lock()
	held := c.held
	s.mu.Unlock()
	obs := broken(taxonomy.DispatchedYes, "read_timeout", "MCP request timed out")
	if held {
		obs = sessionLost()
	}
	s.end(context.Background(), c, obs, true)
}

// sessionLost is the observation of a call that got no further than the check of
// its session.
func sessionLost() taxonomy.Observation {
	obs := broken(taxonomy.DispatchedYes, "session", "MCP session not found")
	obs.Response = &taxonomy.Response{Status: 404, Headers: map[string]string{}, Body: "session not found"}
	return obs
}

// hold keeps a call back until its session was renewed; release lets it go, or
// says that it was given up meanwhile and must not be sent.
func (s *session) hold(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.held = true
}

func (s *session) release(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.held = false
	return !c.over
}

// end settles a call that brought no answer, and answers it where the client
// still waits.
func (s *session) end(ctx context.Context, c *call, obs taxonomy.Observation, answer bool) {
	s.mu.Lock()
	for id, t := range s.tasks {
		if t == c {
			delete(s.tasks, id)
			answer = false // it was answered with the task
		}
	}
	s.mu.Unlock()
	res, ours := s.settle(ctx, c, obs)
	if ours && answer {
		c.answer(gaveUp(res).message(c.id, s.g.catalogue.of(c.name), s.g.o.Denials))
	}
}

// settle ends a call. It is not ours to end where somebody else did so.
func (s *session) settle(ctx context.Context, c *call, obs taxonomy.Observation) (res engine.Result, ours bool) {
	s.mu.Lock()
	if !s.remove(c) {
		s.mu.Unlock()
		return res, false
	}
	s.listen(c)
	c.timer.Stop()
	s.mu.Unlock()
	res = c.attempt.settle(ctx, obs)
	s.noteChanges(res)
	return res, true
}

// isOut reports whether a call still waits for its answer.
func (s *session) isOut(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !c.over && s.calls[c.key] == c
}

// listen remembers a call that we answered, mu held.
func (s *session) listen(c *call) {
	if len(s.aged) >= givenMost {
		delete(s.given, s.aged[0])
		s.aged = s.aged[1:]
	}
	s.given[c.key] = c
	s.aged = append(s.aged, c.key)
}

// lost ends every call that is out: the server, or the way to it, is gone.
func (s *session) lost(ctx context.Context, kind, text string) {
	s.mu.Lock()
	s.closed = true
	if s.again != nil {
		s.again.Stop()
	}
	var out []*call
	for _, c := range s.calls {
		if c.attempt != nil {
			out = append(out, c)
		}
	}
	for _, c := range s.tasks {
		out = append(out, c)
	}
	s.mu.Unlock()
	for _, c := range out {
		s.end(ctx, c, broken(taxonomy.DispatchedYes, kind, text), true)
	}
}

// waiting is how many calls are out.
func (s *session) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}
