package builtin

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// The JSON readers know where errors stand in the bodies of providers, tools
// and gateways. Each takes one value from the scanner; what it does not know it
// skips, so that an echoed prompt or a document full of error words is no
// evidence.

const bodyDepth = 40

type bodyReader struct {
	jsonscan.Scanner
	e      *evidence
	nested int // bodies inside bodies
}

// readJSON reads a body, or one event of a stream, and reports whether it was
// whole.
func (e *evidence) readJSON(text string, nested int) bool {
	r := bodyReader{Scanner: jsonscan.Scan(text, jsonscan.Options{Lenient: true, Depth: bodyDepth}), e: e, nested: nested}
	r.root(0)
	err := r.End()
	e.steps += r.Steps()
	return err == nil
}

// members calls f for each member of an object; anything else is skipped.
func (r *bodyReader) members(f func(key string)) {
	if r.Kind() != jsonscan.Object {
		r.Skip()
		return
	}
	r.EnterObject()
	for {
		key, ok := r.NextKey()
		if !ok {
			return
		}
		f(key)
	}
}

// elements calls f for each element of an array; anything else is skipped.
func (r *bodyReader) elements(f func()) int {
	if r.Kind() != jsonscan.Array {
		r.Skip()
		return 0
	}
	r.EnterArray()
	n := 0
	for ; r.NextElement(); n++ {
		f()
	}
	return n
}

// str reads a string as it stands in the text; anything else gives "".
func (r *bodyReader) str() string {
	if r.Kind() != jsonscan.String {
		r.Skip()
		return ""
	}
	raw, _ := r.RawText()
	return raw
}

// token reads a string or a number as a code.
func (r *bodyReader) token() string {
	switch r.Kind() {
	case jsonscan.String:
		raw, _ := r.RawText()
		return raw
	case jsonscan.Number:
		return r.Number()
	}
	r.Skip()
	return ""
}

// truth reads a boolean; anything else gives absent.
func (r *bodyReader) truth() (value, present bool) {
	if r.Kind() != jsonscan.Bool {
		r.Skip()
		return false, false
	}
	return r.Bool(), true
}

// root reads the whole body, or what stands in a place where a body would.
func (r *bodyReader) root(depth int) {
	if r.Kind() == jsonscan.Array { // Vertex answers with an array of responses
		r.elements(func() {
			if depth < 2 {
				r.root(depth + 1)
			} else {
				r.Skip()
			}
		})
		return
	}
	r.members(func(key string) { r.rootMember(key, depth) })
}

func (r *bodyReader) rootMember(key string, depth int) {
	e := r.e
	switch key {
	case "error", "Error":
		r.errorValue()
	case "errors", "Errors":
		r.errorList()
	case "fault": // Apigee and SOAP gateways
		r.errorValue()
	case "type", "object":
		if v := r.str(); v == "error" {
			e.mark(markErrorAnswer)
		} else if key == "type" {
			r.eventType(v)
			r.topCode(v)
		}
	case "code", "error_code", "errorCode", "Code", "reason", "name", "errno", "status_code", "statusCode", "errcode", "errorType", "error_type", "codeName":
		v := r.token()
		r.topCode(v)
		r.topStatus(key, v)
		if key == "errno" && v != "" && v != "0" {
			e.mark(markSQL)
			e.mark(markErrorAnswer)
		}
	case "__type", "sqlstate", "SQLSTATE":
		v := r.str()
		e.mark(markErrorAnswer)
		e.code(v)
		if key != "__type" {
			e.mark(markSQL)
			if len(v) == 5 {
				e.code("class " + v[:2])
			}
		}
	case "status":
		v := r.token()
		r.topCode(v)
		r.topStatus(key, v)
		r.answerStatus(v)
		e.statusSays = v
	case "message", "Message", "msg", "error_message", "errorMessage", "error_description", "title", "description":
		r.topText(depth)
	case "detail", "details":
		r.detail()
	case "ok", "success":
		if v, present := r.truth(); present && !v {
			e.mark(markOKFalse)
			e.mark(markErrorAnswer)
		}
	case "policyName": // HubSpot: SECONDLY or DAILY
		r.quota()
	case "retry_after", "retry_after_ms", "retryAfter", "retryAfterMs":
		r.waitMember(key)
	case "parameters":
		r.members(func(key string) { r.waitMember(key) })
	case "result":
		e.answered = true
		r.result()
	case "method":
		if v := r.str(); e.rpc && v != "" {
			e.notified = true
		}
	case "jsonrpc":
		e.rpc = true
		r.Skip()
	case "estimated_time": // Hugging Face: seconds until a model is loaded
		r.waitMember("retry_after")
	case "choices":
		e.mark(markModelAnswer)
		r.elements(r.choice)
	case "candidates":
		e.mark(markModelAnswer)
		r.elements(r.candidate)
	case "promptFeedback":
		r.members(r.promptFeedback)
	case "content":
		r.content(depth)
	case "stop_reason", "stopReason", "finish_reason", "done_reason":
		r.finish()
	case "stop_details":
		r.Skip()
	case "output":
		r.output()
	case "usageMetadata": // Gemini sends it with every answer, also with an empty one
		e.mark(markModelAnswer)
		r.Skip()
	case "embedding", "embeddings":
		e.hasContent = true
		r.Skip()
	case "delta":
		r.delta()
	case "content_block":
		r.members(r.partMember)
	case "response":
		if depth < 2 && r.Kind() == jsonscan.Object {
			r.root(depth + 1)
		} else {
			r.Skip()
		}
	case "incomplete_details":
		r.members(func(key string) {
			if key == "reason" {
				r.finish()
			} else {
				r.Skip()
			}
		})
	case "done":
		if v, present := r.truth(); present && v {
			e.streamOpen = false
		}
	case "data":
		r.data()
	case "exit_code", "exitCode", "returncode":
		r.exit()
	case "stderr":
		r.stderr()
	case "smtp_phase":
		e.mark(markSMTP)
		e.exact(slotSMTP, r.str())
	case "enhanced":
		r.enhanced()
	default:
		if strings.HasSuffix(key, "Exception") && r.Kind() == jsonscan.Object { // a frame of Bedrock's event stream
			e.mark(markErrorAnswer)
			e.code(key)
			r.members(r.errorMember)
			return
		}
		e.thing = e.thing || names(key)
		r.Skip()
	}
}

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
	case "completed", "incomplete", "failed", "cancelled":
		r.e.streamOpen = false
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
