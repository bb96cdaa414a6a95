package mcpguard

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// reply judges a message of the server and returns what the client gets: the
// message to the byte, another one in its place, or nothing.
func (s *session) reply(ctx context.Context, raw []byte) []byte {
	if isBatch(raw) {
		return s.replyBatch(ctx, raw)
	}
	m, err := parse(raw)
	switch {
	case err == errTwice:
		s.g.o.Log.Warn("a message of the server that can be read in two ways was dropped", "server", s.g.o.Server)
		return nil
	case err != nil:
		return raw // a log line on the wrong stream, say: the client copes as it always did
	case m.isAnswer():
		return s.answerTo(ctx, raw, m)
	case m.method == "notifications/tasks/status":
		s.taskNews(ctx, m.params)
	}
	return raw
}

// answerTo finds what an answer of the server answers.
func (s *session) answerTo(ctx context.Context, raw []byte, m message) []byte {
	s.mu.Lock()
	listing := s.lists[m.key]
	delete(s.lists, m.key)
	query := s.queries[m.key]
	delete(s.queries, m.key)
	given := s.given[m.key]
	c := s.calls[m.key]
	who := s.who
	sent := c != nil && c.attempt != nil
	s.mu.Unlock()
	switch {
	case sent:
		return s.settled(ctx, raw, m, c)
	case c != nil:
		return nil // an answer to what was never asked
	case given != nil:
		s.late(ctx, m, given)
		return nil
	case query != nil:
		s.taskAnswer(ctx, m, query)
	case listing && m.result != nil:
		return s.listed(ctx, raw, m, who)
	}
	return raw
}

// settled counts the answer to a call that is out.
func (s *session) settled(ctx context.Context, raw []byte, m message, c *call) []byte {
	if task := taskOf(m.result); task.id != "" && !task.over() {
		return s.becomesTask(raw, c, task)
	}
	s.mu.Lock()
	if !s.remove(c) {
		s.mu.Unlock()
		return nil // it was given up at this moment, and answered
	}
	c.heard = true
	s.listen(c) // it may be answered a second time
	c.timer.Stop()
	s.mu.Unlock()
	if !wellFormed(m) {
		res := c.attempt.settle(ctx, broken(taxonomy.DispatchedYes, "protocol", "the answer is neither a result nor an error"))
		return gaveUp(res).message(c.id, s.g.catalogue.of(c.name), s.g.o.Denials)
	}
	res := c.attempt.settle(ctx, s.g.answered(&m))
	s.noteChanges(res)
	if res.Verdict.Outcome == taxonomy.Unknown && c.attempt.op.Effect.Writes() && m.result != nil {
		return warned(raw, res)
	}
	return raw
}

// wellFormed reports whether an answer has exactly one of result and error, and
// each is an object.
func wellFormed(m message) bool {
	if (m.result == nil) == (m.fault == nil) {
		return false
	}
	body := m.result
	if body == nil {
		body = m.fault
	}
	return body[0] == '{'
}

// late counts an answer that came after we had answered. The first one settles
// an UNKNOWN write; whatever follows is noise.
func (s *session) late(ctx context.Context, m message, c *call) {
	s.mu.Lock()
	again := c.heard
	c.heard = true
	s.mu.Unlock()
	if again || !wellFormed(m) {
		return
	}
	c.attempt.late(ctx, s.g.answered(&m))
}

func (s *session) replyBatch(ctx context.Context, raw []byte) []byte {
	parts, err := elements(raw)
	if err != nil {
		return raw
	}
	out, same := make([]json.RawMessage, 0, len(parts)), true
	for _, p := range parts {
		got := s.reply(ctx, p)
		same = same && string(got) == string(p)
		if got != nil {
			out = append(out, got)
		}
	}
	switch {
	case same:
		return raw
	case len(out) == 0:
		return nil
	}
	b := []byte{'['}
	for i, p := range out {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, p...)
	}
	return append(b, ']')
}

// hiddenTool is a tool that is not shown because a circuit of its is open.
type hiddenTool struct {
	name    string
	retryAt time.Time
}

// open reports whether a circuit refuses a tool now.
func (g *Guard) open(name string, who Identity) (retryAt time.Time, open bool) {
	if reservedName(name) {
		return time.Time{}, true
	}
	p, err := g.engine.Look(g.toolOperation(name, who))
	return p.RetryAt, err == nil && p.Blocked
}

// listed looks at a list of tools, and leaves out what is hidden.
func (s *session) listed(ctx context.Context, raw []byte, m message, who Identity) []byte {
	result, err := membersOf(m.result)
	var entries []json.RawMessage
	if err != nil || json.Unmarshal(find(result, "tools"), &entries) != nil {
		return raw
	}
	shown, hidden := s.g.list(ctx, entries, who)
	if len(hidden) == 0 {
		return raw
	}
	s.showAgain(hidden)
	ms, err := membersOf(raw)
	if err != nil {
		return raw
	}
	list := []byte{'['}
	for i, e := range shown {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, e...)
	}
	return object(set(ms, "result", object(set(result, "tools", append(list, ']')))))
}

// listChanged makes a client ask for the list of tools again.
var listChanged = []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)

// noteChanges tells the client when a circuit opened or closed, because then
// other tools are shown.
func (s *session) noteChanges(res engine.Result) {
	if s.g.o.HideOpen && s.tell != nil && len(res.Changes) > 0 {
		s.tell(listChanged)
	}
}

// showAgain lets the client ask again once a hidden tool may be tried: a tool
// that is never shown is never called, and its circuit would stay open.
func (s *session) showAgain(hidden []hiddenTool) {
	if s.tell == nil {
		return
	}
	var soonest time.Time
	for _, h := range hidden {
		if !h.retryAt.IsZero() && (soonest.IsZero() || h.retryAt.Before(soonest)) {
			soonest = h.retryAt
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if soonest.IsZero() || s.closed {
		return
	}
	if s.again != nil {
		s.again.Stop()
	}
	s.again = time.AfterFunc(time.Until(soonest)+time.Second, func() { s.tell(listChanged) })
}
