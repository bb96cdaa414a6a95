package mcpguard

import (
	"context"
	"encoding/json"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A server may answer a tools/call with a task: the work goes on, and its result
// is asked for later. Until then nobody knows how the call ended, so it stays
// out, within its time.

type task struct{ id, status string }

func (t task) over() bool {
	return t.status == "completed" || t.status == "failed" || t.status == "cancelled"
}

// taskOf reads the task out of a result: {"task":{"taskId":…}} of the protocol
// of 2025-11-25, or {"resultType":"task","taskId":…} of its successor.
func taskOf(result json.RawMessage) (t task) {
	ms, err := membersOf(result)
	if err != nil {
		return t
	}
	if inner, err := membersOf(find(ms, "task")); err == nil {
		ms = inner
	} else if kind, _ := textOf(find(ms, "resultType")); kind != "task" {
		return t
	}
	t.id, _ = textOf(find(ms, "taskId"))
	t.status, _ = textOf(find(ms, "status"))
	return t
}

// becomesTask keeps a call out whose answer is a task.
func (s *session) becomesTask(raw []byte, c *call, t task) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.over {
		return nil
	}
	delete(s.calls, c.key)
	s.tasks[t.id] = c
	return raw
}

// taskAnswer reads the answer to a question about a task.
func (s *session) taskAnswer(ctx context.Context, m message, c *call) {
	if m.result == nil {
		return // the question failed; the task goes on
	}
	ms, err := membersOf(m.result)
	if err != nil {
		return
	}
	if status, asked := textOf(find(ms, "status")); asked { // tasks/get
		s.taskOver(ctx, c, status, find(ms, "statusMessage"))
		return
	}
	s.finish(ctx, c, s.g.answered(&m))
}

// taskNews reads a notification about a task.
func (s *session) taskNews(ctx context.Context, params json.RawMessage) {
	ms, err := membersOf(params)
	if err != nil {
		return
	}
	id, _ := textOf(find(ms, "taskId"))
	status, _ := textOf(find(ms, "status"))
	s.mu.Lock()
	c := s.tasks[id]
	s.mu.Unlock()
	if c != nil {
		s.taskOver(ctx, c, status, find(ms, "statusMessage"))
	}
}

// taskOver settles a call whose task ended otherwise than well. A task that is
// completed is settled by its result, which says whether it is an error.
func (s *session) taskOver(ctx context.Context, c *call, status string, text json.RawMessage) {
	switch status {
	case "cancelled":
		s.finish(ctx, c, broken(taxonomy.DispatchedYes, "canceled", "the task was cancelled"))
	case "failed":
		if _, ok := textOf(text); !ok {
			text = quote("the task failed")
		}
		result := `{"content":[{"type":"text","text":` + string(text) + `}],"isError":true}`
		s.finish(ctx, c, s.g.answered(&message{result: json.RawMessage(result)}))
	}
}

func (s *session) finish(ctx context.Context, c *call, obs taxonomy.Observation) {
	s.end(ctx, c, obs, false)
}
