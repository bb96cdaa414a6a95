package httpguard

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// Profile shapes the answer to a call that was not sent, never the decision.
type Profile uint8

const (
	// Auto gives each client the status that makes it stop after one attempt,
	// as measured against the clients themselves.
	Auto   Profile = iota
	SDK            // 429 with x-should-retry: false, which the official SDKs obey
	Strict         // 403, which everybody obeys
	Wait           // 429 with Retry-After, for callers that would rather sleep
)

var profileNames = [...]string{"auto", "sdk", "strict", "wait"}

func (p Profile) String() string { return profileNames[min(int(p), len(profileNames)-1)] }

// ParseProfile reads a profile's name.
func ParseProfile(s string) (Profile, bool) {
	for i, n := range profileNames {
		if n == s {
			return Profile(i), true
		}
	}
	return Auto, false
}

// client is what is known of the caller's own retry loop.
type client struct {
	obeys bool // an official SDK: it obeys x-should-retry
}

// clientOf recognises official SDKs by the headers they all send. The User-Agent
// is no help: some clients put another product's name in theirs.
func clientOf(h http.Header) client {
	for k := range h {
		if strings.HasPrefix(k, "X-Stainless-") {
			return client{obeys: true}
		}
	}
	return client{}
}

const longestWait = 60 * time.Second // beyond it clients fall back to their own backoff

// notice is everything that an answer of ours says.
type notice struct {
	status  int
	code    string // error.code: circuit_open, budget_exhausted, denied, …
	message string
	retry   bool          // the caller may come again by itself
	after   time.Duration // then: how soon
	head    [][2]string
	detail  []byte // the fusebox member, a JSON object
}

// refused is the answer to a call that admission, or the dispatch, refused.
func refused(req *http.Request, c *call, err error) *http.Response {
	if rej, ok := errors.AsType[*engine.Rejection](err); ok {
		return c.dialect.respond(req, rejected(c, rej))
	}
	n := notice{status: http.StatusServiceUnavailable, code: "not_sent", message: "fusebox: " + err.Error()}
	if _, ok := errors.AsType[*engine.InputError](err); ok {
		n.status, n.code = http.StatusBadRequest, "invalid_operation"
	}
	n.head = [][2]string{{"Fusebox-Decision", "rejected"}, {"Fusebox-Outcome", "FAILED_BEFORE_SEND"}, {"Fusebox-Remote-Called", "false"}}
	n.detail = []byte(`{"v":1,"outcome":"FAILED_BEFORE_SEND","retryable":false}`)
	return c.dialect.respond(req, n)
}

// rejected says a rejection in a client's words.
func rejected(c *call, rej *engine.Rejection) notice {
	n := notice{code: codeOf(rej), message: "fusebox: " + strings.TrimPrefix(rej.Error(), "admit ")}
	n.status = statusOf(c, rej)
	if c.profile == Wait && n.status == http.StatusTooManyRequests && !rej.RetryAt.IsZero() {
		n.retry = true
		n.after = min(max(time.Until(rej.RetryAt), time.Second), longestWait)
		n.after += time.Duration(rand.Int64N(int64(n.after)/4 + 1)) // so that not everybody comes back at once
	}
	add := func(k, v string) {
		if v != "" {
			n.head = append(n.head, [2]string{k, v})
		}
	}
	add("Fusebox-Decision", decisionWord(rej.Decision))
	add("Fusebox-Outcome", outcomeOf(rej).String())
	add("Fusebox-Class", rej.Class.String())
	add("Fusebox-Layer", rej.Layer.String())
	add("Fusebox-Reason", rej.Reason)
	add("Fusebox-Scope", rej.Scope)
	if !rej.RetryAt.IsZero() {
		add("Fusebox-Retry-At", rej.RetryAt.UTC().Format(time.RFC3339))
	}
	add("Fusebox-Next-Action", rej.Next)
	add("Fusebox-Fallback", rej.Fallback)
	add("Fusebox-Remote-Called", strconv.FormatBool(rej.Dispatched))
	add("Fusebox-Policy", string(rej.Policy))
	add("Fusebox-Receipt", rej.Receipt)
	n.detail = detailOf(rej, n.retry)
	return n
}

func outcomeOf(rej *engine.Rejection) taxonomy.Outcome {
	if rej.Dispatched {
		return taxonomy.Unknown
	}
	return taxonomy.FailedBeforeSend
}

func decisionWord(d taxonomy.Decision) string {
	switch d {
	case taxonomy.DecideReject:
		return "rejected"
	case taxonomy.DecideQueue:
		return "queued"
	}
	return d.String()
}

// undecided are reasons that say nothing about the call: we could not decide.
func undecided(reason string) bool {
	return reason == "state_unavailable" || reason == "evidence_unavailable" || reason == "shutting_down"
}

// codeOf is the short word in error.code, which also those clients keep that
// drop the rest.
func codeOf(rej *engine.Rejection) string {
	switch {
	case undecided(rej.Reason):
		return rej.Reason
	case rej.Decision == taxonomy.DecideApproval:
		return "approval_required"
	case rej.Layer == taxonomy.LayerBudget:
		return "budget_exhausted"
	case rej.Layer == taxonomy.LayerAuthority && rej.State == "":
		return "denied"
	case rej.Reason == "bulkhead_full", rej.Reason == "probe_busy", rej.Reason == "no_progress":
		return rej.Reason
	case rej.State == "":
		return rej.Reason
	}
	return "circuit_open"
}

// statusOf chooses the status by what the rejection is about. 402 and 403 stop
// every client that was measured; 429 without Retry-After stops the official
// SDKs, and says more; 503 is retried by everybody and is used only where
// nothing is known about the call.
func statusOf(c *call, rej *engine.Rejection) int {
	switch {
	case undecided(rej.Reason):
		return http.StatusServiceUnavailable
	case rej.Layer == taxonomy.LayerBudget:
		return http.StatusPaymentRequired
	case rej.Layer == taxonomy.LayerAuthority, rej.Decision == taxonomy.DecideApproval, rej.Breaker == "ambiguity",
		rej.Class == taxonomy.PolicyDenial && rej.State == "":
		return http.StatusForbidden
	}
	switch c.profile {
	case SDK, Wait:
		return http.StatusTooManyRequests
	case Strict:
		return http.StatusForbidden
	}
	if c.client.obeys {
		return http.StatusTooManyRequests
	}
	return http.StatusForbidden
}

// detailOf is the fusebox member of the error: the rejection's own document,
// which survives in the error values of the official SDKs.
func detailOf(rej *engine.Rejection, retry bool) []byte {
	b := taxonomy.AppendRejection(nil, rej)
	b = append(b[:len(b)-1], `,"outcome":`...)
	b = jsonscan.AppendString(b, outcomeOf(rej).String())
	b = append(b, `,"retryable":`...)
	b = jsonscan.AppendBool(b, retry)
	return append(b, `,"v":1}`...)
}

// unknown is the answer for a write that was sent and whose end nobody knows.
func unknown(req *http.Request, c *call, res *engine.Result) *http.Response {
	n := notice{
		status: http.StatusForbidden, code: "outcome_unknown",
		message: "fusebox: " + res.Operation.Name + " was sent and its outcome is unknown (" + res.Verdict.Reason +
			"); it is not sent again before it is looked up: reconcile request " + res.Operation.RequestID,
		head: append(resultHead(res), [2]string{"Fusebox-Next-Action", "reconcile"}),
	}
	n.detail = resultDetail(res)
	return c.dialect.respond(req, n)
}

// disclose adds the verdict to a remote's answer, and tells the client's retry
// loop what the engine knows: another attempt cannot help.
func disclose(resp *http.Response, c *call, res *engine.Result) {
	set(resp.Header, resultHead(res))
	v := res.Verdict
	if v.Outcome == taxonomy.Succeeded {
		return
	}
	if !v.Retry.Automatic() {
		resp.Header.Set("x-should-retry", "false")
	}
	// An error inside a 200 passes for a success in some SDKs and crashes
	// others: the same body under an honest status is understood by all.
	if resp.StatusCode < 300 && c.model && inBandError(v) {
		resp.StatusCode = statusFor(v)
		resp.Status = strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode)
	}
}

// inBandError reports whether a verdict on a 2xx answer is about an error that
// stood in it, rather than about the quality of the content.
func inBandError(v taxonomy.Verdict) bool {
	switch v.Class {
	case taxonomy.SemanticQuality, taxonomy.Validation, taxonomy.NoProgress, taxonomy.PolicyDenial:
		return false
	}
	return v.Outcome == taxonomy.Failed
}

// statusFor is the status that says what a class says.
func statusFor(v taxonomy.Verdict) int {
	switch v.Class {
	case taxonomy.RateLimit:
		return http.StatusTooManyRequests
	case taxonomy.Authentication:
		return http.StatusUnauthorized
	case taxonomy.Authorization:
		return http.StatusForbidden
	case taxonomy.Budget:
		return http.StatusPaymentRequired
	case taxonomy.ClientInput:
		return http.StatusBadRequest
	}
	return http.StatusBadGateway
}

// set writes headers whose names are canonical.
func set(h http.Header, list [][2]string) {
	values := make([]string, len(list))
	for i, kv := range list {
		values[i] = headerText(kv[1])
		h[kv[0]] = values[i : i+1 : i+1]
	}
}

func resultHead(res *engine.Result) [][2]string {
	v := res.Verdict
	return [][2]string{
		{"Fusebox-Outcome", v.Outcome.String()}, {"Fusebox-Class", v.Class.String()}, {"Fusebox-Reason", v.Reason},
		{"Fusebox-Remote-Called", strconv.FormatBool(v.Outcome != taxonomy.FailedBeforeSend)},
		{"Fusebox-Policy", string(res.Policy)}, {"Fusebox-Receipt", res.Receipt},
	}
}

// resultDetail is the fusebox member of an answer about something that was sent.
func resultDetail(res *engine.Result) []byte {
	v := res.Verdict
	b := append([]byte(nil), `{"class":`...)
	b = jsonscan.AppendString(b, v.Class.String())
	b = append(b, `,"next":`...)
	b = jsonscan.AppendString(b, res.Next)
	b = append(b, `,"outcome":`...)
	b = jsonscan.AppendString(b, v.Outcome.String())
	b = append(b, `,"policy":`...)
	b = jsonscan.AppendString(b, string(res.Policy))
	b = append(b, `,"reason":`...)
	b = jsonscan.AppendString(b, v.Reason)
	b = append(b, `,"receipt":`...)
	b = jsonscan.AppendString(b, res.Receipt)
	b = append(b, `,"request_id":`...)
	b = jsonscan.AppendString(b, res.Operation.RequestID)
	b = append(b, `,"retryable":`...)
	b = jsonscan.AppendBool(b, v.Retry.Automatic())
	return append(b, `,"v":1}`...)
}

// respond makes the HTTP response of a notice.
func (d Dialect) respond(req *http.Request, n notice) *http.Response {
	body := d.errorBody(n)
	resp := &http.Response{
		StatusCode: n.status, Status: strconv.Itoa(n.status) + " " + http.StatusText(n.status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        make(http.Header, len(n.head)+4),
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       req,
	}
	resp.Header.Set("Content-Type", "application/json")
	set(resp.Header, n.head)
	switch {
	case n.retry && n.after > 0:
		resp.Header.Set("Retry-After", strconv.FormatInt(int64((n.after+time.Second-1)/time.Second), 10))
	case !n.retry:
		resp.Header.Set("x-should-retry", "false")
	}
	return resp
}

// errorBody is an error as the dialect words it, with our own member in it.
func (d Dialect) errorBody(n notice) []byte {
	b := append([]byte(nil), `{`...)
	if d == Anthropic {
		b = append(b, `"type":"error",`...)
	}
	b = append(b, `"error":{"code":`...)
	b = jsonscan.AppendString(b, n.code)
	b = append(b, `,"fusebox":`...)
	b = append(b, n.detail...)
	b = append(b, `,"message":`...)
	b = jsonscan.AppendString(b, n.message)
	if d == OpenAI {
		b = append(b, `,"param":null`...)
	}
	return append(b, `,"type":"fusebox_rejected"}}`...)
}

// headerText keeps a header to printable ASCII: scopes carry names that callers
// chose.
func headerText(s string) string {
	if printable(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// interrupted is the event that tells the caller of a stream that it broke. The
// partial output stays what it is; it is not passed off as finished.
func (d Dialect) interrupted(endpoint string, res *engine.Result, t taxonomy.Transport) []byte {
	code, why := "stream_truncated", "the stream ended before it was finished"
	switch t.ErrorKind {
	case "read_timeout":
		code, why = "stream_stalled", "the upstream went silent"
	case "deadline":
		code, why = "deadline_exceeded", "the deadline passed"
	}
	n := notice{code: code, message: "fusebox: " + why + "; the output so far is incomplete", detail: resultDetail(res)}
	body := d.errorBody(n)
	body = bytes.Replace(body, []byte(`"type":"fusebox_rejected"`), []byte(`"type":"fusebox_incomplete"`), 1)
	switch {
	case d == Plain:
		return nil // whose words are unknown gets a broken connection
	case d == Anthropic, endpoint == "responses":
		if d == OpenAI {
			b := append([]byte(`{"type":"error","code":`), jsonscan.AppendString(nil, code)...)
			b = append(append(b, `,"message":`...), jsonscan.AppendString(nil, n.message)...)
			body = append(append(b, `,"param":null,`...), body[1:]...)
		}
		return append(append([]byte("event: error\ndata: "), body...), "\n\n"...)
	}
	return append(append([]byte("data: "), body...), "\n\n"...)
}
