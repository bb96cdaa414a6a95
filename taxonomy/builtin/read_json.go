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
		if !aside(key) {
			e.others++
		}
		e.thing = e.thing || names(key)
		r.Skip()
	}
}
