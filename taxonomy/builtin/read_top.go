package builtin

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// What stands at the top of a body, and what is made of it.

// names reports whether a member identifies a thing, so that the body describes
// that thing and its status and message are data: the state of a job, say.
func names(key string) bool {
	switch key {
	case "id", "uuid", "created_at", "createdAt", "finished_at", "finishedAt", "items", "results", "records":
		return true
	case "request_id", "trace_id", "correlation_id", "debug_id", "requestId", "traceId", "correlationId":
		return false
	}
	return strings.HasSuffix(key, "_id") || strings.HasSuffix(key, "Id")
}

// aside reports whether a member says something about the request and nothing
// about a result.
func aside(key string) bool {
	switch key {
	case "prompt", "input", "request", "request_id", "requestId", "trace_id", "traceId", "timestamp", "path", "documentation_url", "help", "docs":
		return true
	}
	return false
}

// topCode keeps a code that stands at the top of the body: it is one only if
// the body turns out to be an error.
func (r *bodyReader) topCode(v string) {
	if e := r.e; v != "" && e.tops < len(e.top) {
		e.top[e.tops] = v
		e.tops++
	}
}

// topStatus keeps a status inside the body, which only counts in an error.
func (r *bodyReader) topStatus(key, v string) {
	e := r.e
	n := statusNumber(v)
	if n != 0 && e.topInner == 0 {
		e.topInner = n
		e.coded = e.coded || key != "status"
	}
	if e.has(markSMTP) && key == "code" {
		e.exact(slotSMTP, v)
		if n >= 400 {
			e.exact(slotSMTP, v[:1]+"xx")
			e.mark(markErrorAnswer)
		}
	}
}

// statusNumber reads an HTTP status of 400 to 599.
func statusNumber(v string) int {
	if len(v) != 3 || v[0] != '4' && v[0] != '5' || v[1] < '0' || v[1] > '9' || v[2] < '0' || v[2] > '9' {
		return 0
	}
	return int(v[0]-'0')*100 + int(v[1]-'0')*10 + int(v[2]-'0')
}

func (r *bodyReader) topText(depth int) {
	switch r.Kind() {
	case jsonscan.Object: // Ollama and Bedrock answers, Mistral errors, Cohere content
		r.messageObject(depth)
	case jsonscan.String:
		raw, _ := r.RawText()
		for i := range r.e.tail {
			if r.e.tail[i] == "" {
				r.e.tail[i] = raw
				break
			}
		}
	default:
		r.Skip()
	}
}

// messageObject reads "message" where it is an object: a model's message, or
// an error's details.
func (r *bodyReader) messageObject(depth int) {
	r.members(func(key string) {
		switch key {
		case "detail":
			r.detail()
		default:
			r.messageMember(key)
		}
	})
}

// detail reads RFC 9457, FastAPI and Django details: a text, or a list of
// objects with a message and a type.
func (r *bodyReader) detail() {
	switch r.Kind() {
	case jsonscan.String:
		r.topText(9)
	case jsonscan.Array:
		r.elements(func() {
			if r.Kind() == jsonscan.Object {
				r.members(r.detailMember)
			} else {
				r.Skip()
			}
		})
	case jsonscan.Object:
		r.members(r.detailMember)
	default:
		r.Skip()
	}
}

func (r *bodyReader) detailMember(key string) {
	switch key {
	case "code", "reason", "type", "status":
		r.topCode(r.token())
	case "message", "msg":
		r.topText(9)
	default:
		r.Skip()
	}
}

func (r *bodyReader) waitMember(key string) {
	ms := int64(0)
	switch {
	case r.Kind() == jsonscan.Number || r.Kind() == jsonscan.String:
		v := r.token()
		if key == "retry_after_ms" || key == "retryAfterMs" {
			ms = number(v, 1)
		} else if key == "retry_after" || key == "retryAfter" {
			ms = number(v, 1000)
		}
	default:
		r.Skip()
	}
	if ms > 0 && r.e.hint == 0 {
		r.e.hint = ms
	}
}

func (r *bodyReader) finish() {
	if v := r.str(); v != "" {
		r.e.exact(slotFinish, v)
		r.e.streamOpen = false
		r.finishMarks(v)
	}
}

func (r *bodyReader) finishMarks(v string) {
	switch v {
	case "length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length":
		r.e.mark(markTruncatedOutput)
	}
}

// answerStatus reads the status of an OpenAI response object.
func (r *bodyReader) answerStatus(v string) {
	switch v {
	case "completed", "incomplete", "failed":
		r.e.streamOpen = false
	case "cancelled":
		r.e.streamOpen = false
		r.e.cancelled = true
	case "queued", "in_progress":
		r.e.pending = true
	}
}

// eventType reads the type of a streamed event.
func (r *bodyReader) eventType(v string) {
	switch v {
	case "message_stop", "response.completed", "response.incomplete", "response.failed":
		r.e.streamOpen = false
	case "content_block_delta":
		r.e.mark(markStreamOutput)
	}
	if strings.HasPrefix(v, "response.output_text.") || strings.HasPrefix(v, "response.function_call_arguments.") {
		r.e.mark(markStreamOutput)
		r.e.hasContent = true
	}
}
