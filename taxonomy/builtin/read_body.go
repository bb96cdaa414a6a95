package builtin

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// maxBody is how much of a body is read. A model's whole answer fits; what
// stands beyond it cannot change a verdict.
const maxBody = 4 << 20

// readBody finds out what the body is and gives it to the right reader.
func (e *evidence) readBody(r *taxonomy.Response) {
	body := strings.TrimLeft(r.Body, " \t\r\n\ufeff")
	if len(body) > maxBody {
		body = body[:maxBody]
		e.mark(markBodyTooLong)
	}
	kind := e.headers.contentType
	switch {
	case body == "":
		e.mark(markEmptyBody)
	case strings.HasPrefix(kind, "text/event-stream"), strings.HasPrefix(body, "data:"), strings.HasPrefix(body, "event:"),
		strings.HasPrefix(kind, "application/x-ndjson"), body[0] == '{' && strings.Contains(body, "}\n{"):
		e.readStream(body)
	case body[0] == '{' || body[0] == '[':
		e.readStructured(body)
	case body[0] == '<':
		e.readMarkup(body)
	default:
		if strings.HasPrefix(kind, "application/json") && body[0] != '"' {
			e.mark(markMalformedBody)
		}
		e.tail[0] = body
	}
}

// readStructured reads a JSON body.
func (e *evidence) readStructured(body string) {
	if e.readJSON(body, 0) {
		return
	}
	if e.has(markBodyTooLong) {
		return // cut here, not there
	}
	e.mark(markMalformedBody)
	if end := strings.TrimRight(body, " \r\n\t"); end[len(end)-1] != '}' && end[len(end)-1] != ']' {
		e.mark(markCutBody)
	}
}

// readStream reads server-sent events or JSON lines.
func (e *evidence) readStream(body string) {
	e.mark(markStream)
	e.streamOpen = true
	for line := range strings.SplitSeq(body, "\n") {
		line = strings.TrimRight(line, "\r")
		switch {
		case strings.HasPrefix(line, "event:"):
			e.event(strings.TrimSpace(line[len("event:"):]))
		case strings.HasPrefix(line, "data:"):
			e.eventData(strings.TrimSpace(line[len("data:"):]))
		case strings.HasPrefix(line, "{"):
			e.eventData(line)
		}
	}
	if e.has(markErrorAnswer) {
		e.mark(markStreamError)
	}
	if e.obs.Operation.Kind == "model" {
		e.mark(markModelAnswer) // whatever came or did not come, an answer was due
	}
	// A stream of one JSON-RPC message ends with it; a model's has an end of its own.
	if e.streamOpen && !e.has(markErrorAnswer) && e.has(markModelAnswer) {
		e.mark(markStreamUnfinished)
	}
}

func (e *evidence) event(name string) {
	switch name {
	case "error":
		e.mark(markErrorAnswer)
	case "message_stop", "response.completed", "done", "response.failed", "response.incomplete":
		e.streamOpen = false
	}
	if strings.HasSuffix(name, "Exception") { // Bedrock's event stream, as clients print it
		e.mark(markErrorAnswer)
		e.code(name)
	}
}

func (e *evidence) eventData(data string) {
	switch {
	case data == "[DONE]":
		e.streamOpen = false
	case strings.HasPrefix(data, "{"), strings.HasPrefix(data, "["):
		tops := e.tops
		if e.readJSON(data, 0); !e.has(markErrorAnswer) {
			e.tops = tops // the codes of an event that is no error
			e.tail = [3]string{}
		}
	}
}

// readMarkup reads XML errors and HTML pages. Of a page only the title and the
// first heading are read: its text may say anything.
func (e *evidence) readMarkup(body string) {
	head := body[:min(len(body), 16<<10)]
	e.steps += len(head)
	if code := between(head, "<Code>", "</Code>"); code != "" {
		e.mark(markErrorAnswer)
		e.code(code)
		e.message(between(head, "<Message>", "</Message>"), 0)
		return
	}
	if strings.HasPrefix(body, "<?xml") {
		e.tail[0] = between(head, "<message>", "</message>")
		return
	}
	e.mark(markHTML)
	x := &e.table.page
	if e.status >= 400 {
		x = &e.table.text
	}
	e.wording(x, between(head, "<title>", "</title>"), readQuoted)
	h1 := between(head, "<h1", "</h1>")
	if _, text, ok := strings.Cut(h1, ">"); ok {
		e.wording(x, text, readQuoted)
	}
	if strings.Contains(head, `type="password"`) || strings.Contains(head, `type='password'`) || strings.Contains(head, "type=password") {
		e.mark(markLoginForm)
	}
}

// between returns what stands between two marks, or "".
func between(s, from, to string) string {
	_, rest, ok := strings.Cut(s, from)
	if !ok {
		return ""
	}
	inside, _, ok := strings.Cut(rest, to)
	if !ok {
		return ""
	}
	return inside
}
