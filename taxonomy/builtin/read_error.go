package builtin

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// errorValue reads the value of an "error" member.
func (r *bodyReader) errorValue() {
	e := r.e
	switch r.Kind() {
	case jsonscan.String:
		v, _ := r.RawText()
		if v == "" {
			return
		}
		e.mark(markErrorAnswer)
		e.mark(markErrorObject)
		r.codeOrText(v)
	case jsonscan.Object:
		e.mark(markErrorAnswer)
		e.mark(markErrorObject)
		r.members(r.errorMember)
	case jsonscan.Bool:
		if r.Bool() {
			e.mark(markErrorAnswer)
			e.mark(markErrorObject)
		}
	default:
		r.Skip()
	}
}

// codeOrText takes a string that is a code when it is one word.
func (r *bodyReader) codeOrText(v string) {
	if strings.IndexByte(v, ' ') < 0 && len(v) <= maxValue {
		r.e.code(v)
	}
	r.errorText(v)
}

// errorText takes a message, which may be a whole body in JSON again.
func (r *bodyReader) errorText(v string) {
	if r.nested < 2 && len(v) > 2 && (v[0] == '{' || v[0] == '[') {
		inner := string(jsonscan.Unescape(make([]byte, 0, len(v)), v))
		if r.e.readJSON(inner, r.nested+1) {
			return
		}
	}
	r.e.message(v, readRaw)
}

func (r *bodyReader) errorMember(key string) {
	e := r.e
	switch key {
	case "code", "status", "http_status", "httpCode", "error_code", "Code":
		v := r.token()
		e.code(v)
		if n := statusNumber(v); n != 0 && e.inner == 0 {
			e.inner = n
		}
	case "type", "reason", "errorCode", "issue", "category", "decline_code", "limit_source", "__type", "name", "kind", "error":
		if r.Kind() == jsonscan.Object {
			r.members(r.errorMember)
		} else {
			e.code(r.token())
		}
	case "message", "Message", "raw", "msg", "detail", "description", "error_description":
		if r.Kind() == jsonscan.String {
			v, _ := r.RawText()
			r.errorText(v)
		} else {
			r.members(r.errorMember)
		}
	case "errors", "details":
		r.elements(func() { r.members(r.errorMember) })
	case "innererror", "inner_error", "innerError", "extensions", "metadata", "cause", "data":
		r.members(r.errorMember)
	case "reasons": // OpenRouter: why the moderation flagged the input
		if r.elements(r.Skip) > 0 {
			e.code("moderation_reasons")
		}
	case "retryDelay":
		if ms := duration(r.str()); ms > 0 && e.hint == 0 {
			e.hint = ms
		}
	case "retry_after", "retry_after_ms", "retryAfter":
		r.waitMember(key)
	case "quotaId", "quota_limit", "quotaMetric", "quota_unit", "violations", "window", "policyName":
		r.quota()
	default:
		r.Skip()
	}
}

// quota reads which window a quota has, out of names such as
// GenerateRequestsPerDayPerProjectPerModel.
func (r *bodyReader) quota() {
	if r.Kind() == jsonscan.Array {
		r.elements(func() { r.members(r.errorMember) })
		return
	}
	v := r.str()
	if len(v) > 4*maxValue {
		return
	}
	switch {
	case hasFold(v, "perday"), hasFold(v, "per_day"), hasFold(v, "/d/"), hasFold(v, "permonth"), hasFold(v, "per_month"),
		hasFold(v, "daily"), hasFold(v, "monthly"):
		r.e.mark(markPerDay)
	case hasFold(v, "perminute"), hasFold(v, "per_minute"), hasFold(v, "/min/"), hasFold(v, "persecond"), hasFold(v, "perhour"):
		r.e.mark(markPerMinute)
	}
}

// hasFold reports whether s contains the lower-case word, whatever its case.
func hasFold(s, word string) bool {
	for i := 0; i+len(word) <= len(s); i++ {
		j := 0
		for j < len(word) && (s[i+j] == word[j] || s[i+j]|0x20 == word[j] && letter(s[i+j])) {
			j++
		}
		if j == len(word) {
			return true
		}
	}
	return false
}

// errorList reads an "errors" member at the top: GraphQL, Cloudflare, SendGrid
// and many more. A list of plain texts counts only in an error answer.
func (r *bodyReader) errorList() {
	e := r.e
	if r.Kind() == jsonscan.Object { // {"errors":{"field":["is missing"]}} of Rails and Laravel
		r.Skip()
		return
	}
	objects := false
	r.elements(func() {
		switch r.Kind() {
		case jsonscan.Object:
			objects = true
			r.members(r.errorMember)
		case jsonscan.String:
			e.plain = true
			r.topText(9)
		default:
			r.Skip()
		}
	})
	if objects {
		e.mark(markErrorAnswer)
		e.mark(markGraphQLErrors)
	}
}

// data reads the "data" member: GraphQL results, or whatever an API wraps in
// it.
func (r *bodyReader) data() {
	r.e.hasContent = true // embeddings and images stand here
	switch r.Kind() {
	case jsonscan.Object:
		r.e.mark(markPartialData)
		r.members(func(string) {
			r.members(func(key string) {
				if key == "userErrors" || key == "user_errors" {
					if r.elements(func() { r.members(r.errorMember) }) > 0 {
						r.e.mark(markUserErrors)
						r.e.mark(markErrorAnswer)
					}
					return
				}
				r.Skip()
			})
		})
	default:
		r.Skip()
	}
}

// result reads a JSON-RPC result; MCP says isError in it.
func (r *bodyReader) result() {
	e := r.e
	var texts [4]string
	n, failed, known := 0, false, false
	r.members(func(key string) {
		switch key {
		case "isError":
			failed, known = r.truth()
		case "content":
			r.elements(func() {
				r.members(func(key string) {
					if key != "text" {
						r.Skip()
						return
					}
					if v := r.str(); v != "" && n < len(texts) {
						texts[n] = v
						n++
					}
				})
			})
		default:
			r.Skip()
		}
	})
	switch {
	case failed:
		e.mark(markToolError)
		e.mark(markErrorAnswer)
		for _, v := range texts[:n] {
			r.errorText(v)
		}
	case known || n > 0:
		e.mark(markToolResult)
		if n == 1 && len(texts[0]) <= shortResult {
			e.wording(&e.table.result, texts[0], readRaw)
		}
	}
}

// shortResult is how long a tool's plain result may be to be read as a message
// about the call itself, as some servers write under isError false.
const shortResult = 300
