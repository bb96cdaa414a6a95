package mcpguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// JSON-RPC error codes of ours. Everything else that we answer is a result.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeParams   = -32602
	codeDenied   = -32050 // a denial, for hosts that must not show it to the model
	codeInternal = -32603
)

// A notice is what a call that brings no answer of the server is answered with.
type notice struct {
	text    string // for the model: what happened, why, what to do next
	detail  []byte // structuredContent.fusebox, a JSON object
	receipt string
	denial  bool // authority said no
}

// refused says why a call was not sent.
func (g *Guard) refused(a *attempt, tool string, err error) notice {
	rej, ok := errors.AsType[*engine.Rejection](err)
	if !ok {
		code := "not_sent"
		if _, ok := errors.AsType[errInput](err); ok {
			code = "invalid_call"
		} else if _, ok := errors.AsType[*engine.InputError](err); ok {
			code = "invalid_call"
		}
		b := append([]byte(`{"next":"stop","outcome":"FAILED_BEFORE_SEND","reason":`), quote(code)...)
		return notice{text: "fusebox did not send the call to " + shown(tool) + ": " + strings.TrimSuffix(err.Error(), "; the request was not sent") +
			". Nothing happened.", detail: append(b, `,"remote_called":false,"retryable":false,"v":1}`...)}
	}
	b := taxonomy.AppendRejection(nil, rej)
	b = append(b[:len(b)-1], `,"outcome":"FAILED_BEFORE_SEND","retryable":false,"v":1}`...)
	if rej.Dispatched {
		b = bytes.Replace(b, []byte(`"FAILED_BEFORE_SEND","retryable"`), []byte(`"UNKNOWN","retryable"`), 1)
	}
	return notice{text: g.explain(a, tool, rej), detail: b, receipt: rej.Receipt,
		denial: rej.Layer == taxonomy.LayerAuthority && rej.Decision != taxonomy.DecideApproval}
}

// explain puts a rejection into words that a model can act on.
func (g *Guard) explain(a *attempt, tool string, rej *engine.Rejection) string {
	at := shown(g.o.Server + "." + tool)
	not := "fusebox did not send the call to " + at + ": "
	switch {
	case rej.Reason == "outcome_unknown", a.op.PriorUnknown && rej.Decision == taxonomy.DecideApproval:
		return not + "the same call was sent before and nobody knows whether it was carried out. Do not call it again. " +
			"Tell the user that request " + shown(a.op.RequestID) + " must be looked up first: fusebox intents list."
	case rej.Reason == "in_flight":
		return not + "the same call is being carried out right now. Do not call it again; wait for its result."
	case rej.Reason == "already_applied":
		return "fusebox did not send the call to " + at + " again: the earlier one was carried out after all, as was found out meanwhile. " +
			"Take it for done. Call again only if it is really wanted a second time."
	case rej.Decision == taxonomy.DecideApproval:
		return not + "it needs a person's approval (" + because(rej) + "). Ask the user to have it approved, then call once more: " +
			"fusebox approvals grant " + at + forTenant(a.op.Tenant) + " --for 10m --once --reason WHY"
	case rej.Class == taxonomy.NoProgress:
		return not + "the same step was repeated without new evidence (" + rej.Reason + "). Do not repeat it. Use what you have, try something else, or ask the user for what is missing."
	case rej.Layer == taxonomy.LayerBudget:
		return not + "the budget is used up (" + because(rej) + "). Do not call again; finish with what you have and say what is missing."
	case rej.Layer == taxonomy.LayerAuthority && rej.State == "":
		return not + "it is not allowed (" + because(rej) + "). Do not try it again, and not by other means; tell the user."
	case rej.Reason == "run_stopped":
		return not + "this run was stopped (" + because(rej) + "). Make no further calls; tell the user."
	case rej.State != "" || rej.Reason == "circuit_open":
		return not + "it keeps failing, so its circuit is open (" + shown(rej.Scope) + ", " + rej.Reason + ")." + until(rej) +
			" Go on without it, use another way, or tell the user what is missing."
	}
	return not + because(rej) + "." + until(rej) + " Nothing happened."
}

func forTenant(tenant string) string {
	if tenant == "" {
		return ""
	}
	return " --tenant " + shown(tenant)
}

func because(rej *engine.Rejection) string {
	if len(rej.Reasons) == 0 {
		return rej.Reason
	}
	return rej.Reason + ": " + strings.Join(rej.Reasons, ", ")
}

// until says when to come back, where that is known.
func until(rej *engine.Rejection) string {
	if rej.RetryAt.IsZero() {
		return " Do not call it again soon."
	}
	wait := max(time.Until(rej.RetryAt).Round(time.Second), time.Second)
	return " Do not call it before " + rej.RetryAt.UTC().Format(time.RFC3339) + " (in " + wait.String() + ")."
}

// gaveUp says how a call ended that was sent and brought no answer.
func gaveUp(res engine.Result) notice {
	v := res.Verdict
	at := shown(res.Operation.Name)
	n := notice{receipt: res.Receipt, detail: resultDetail(res)}
	switch {
	case v.Outcome == taxonomy.FailedBeforeSend:
		n.text = "The call to " + at + " could not be sent (" + v.Reason + "). Nothing happened."
	case v.Outcome == taxonomy.Unknown && res.Operation.Effect.Writes():
		n.text = "The call to " + at + " was sent and no answer came (" + v.Reason + "). It may have been carried out. " +
			"It is not sent again. Do not call it again: tell the user, and have request " + res.Operation.RequestID + " looked up (fusebox intents list)."
		if res.Operation.Effect.Repeatable() {
			n.text = "The call to " + at + " was sent and no answer came (" + v.Reason + "). It may have been carried out; it is declared safe to repeat."
		}
	case v.Outcome == taxonomy.Failed:
		n.text = "The server refused the call to " + at + " (" + v.Reason + "). Nothing was done." + waitText(res)
	default:
		n.text = "The call to " + at + " brought no answer (" + v.Reason + "). It only reads, so nothing was changed."
	}
	return n
}

// waitText says how long the server asks to be left alone.
func waitText(res engine.Result) string {
	if w := res.Verdict.RetryAfter; w > 0 {
		return " Do not call it again within " + w.String() + "."
	}
	return ""
}

// resultDetail is the structure for something that was sent.
func resultDetail(res engine.Result) []byte {
	v := res.Verdict
	b := []byte(`{`)
	for _, kv := range [][2]string{{"class", v.Class.String()}, {"next", res.Next}, {"outcome", v.Outcome.String()}, {"policy", string(res.Policy)},
		{"reason", v.Reason}, {"receipt", res.Receipt}, {"request_id", res.Operation.RequestID}} {
		b = append(append(append(b, quote(kv[0])...), ':'), quote(kv[1])...)
		b = append(b, ',')
	}
	b = append(b, `"remote_called":`...)
	b = jsonscan.AppendBool(b, v.Outcome != taxonomy.FailedBeforeSend)
	b = append(b, `,"retryable":`...)
	b = jsonscan.AppendBool(b, v.Retry.Automatic())
	return append(b, `,"v":1}`...)
}

// result is a notice as the result of a tools/call. A tool with a schema of its
// output gets the structure in _meta: clients check structuredContent against
// that schema, also in an error, and then drop the text with it.
func (n notice) result(t tool) []byte {
	b := append([]byte(`{"content":[{"type":"text","text":`), quote(n.text)...)
	b = append(b, `}],"isError":true`...)
	if !t.output {
		b = append(append(append(b, `,"structuredContent":{"fusebox":`...), n.detail...), '}')
	}
	b = append(append(b, `,"_meta":{"`+metaReceipt+`":`...), quote(n.receipt)...)
	if t.output {
		b = append(append(b, `,"fusebox/detail":`...), n.detail...)
	}
	return append(b, `}}`...)
}

// message is a notice as the answer to a request.
func (n notice) message(id json.RawMessage, t tool, d Denials) []byte {
	if n.denial && d == AsError {
		b := errorHead(id, codeDenied, n.text)
		return append(append(append(b, `,"data":{"fusebox":`...), n.detail...), `}}}`...)
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	return append(append(append(b, `,"result":`...), n.result(t)...), '}')
}

// fault is a JSON-RPC error of ours.
func fault(id json.RawMessage, code int64, text string) []byte {
	return append(errorHead(id, code, text), `}}`...)
}

func errorHead(id json.RawMessage, code int64, text string) []byte {
	if !validID(id) {
		id = json.RawMessage("null")
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = jsonscan.AppendInt(append(b, `,"error":{"code":`...), code)
	return append(append(b, `,"message":`...), quote("fusebox: "+text)...)
}

// warned adds a word of ours to an answer of the server whose outcome is
// unknown: its own text may sound as if another try were harmless.
func warned(raw []byte, res engine.Result) []byte {
	ms, err := membersOf(raw)
	if err != nil {
		return raw
	}
	result, err := membersOf(find(ms, "result"))
	var content []json.RawMessage
	if err != nil || json.Unmarshal(find(result, "content"), &content) != nil {
		return raw
	}
	content = append(content, append(append([]byte(`{"type":"text","text":`), quote(doubt(res))...), '}'))
	b, err := json.Marshal(content)
	if err != nil {
		return raw
	}
	meta, err := membersOf(find(result, "_meta"))
	if err != nil {
		meta = nil
	}
	result = set(result, "content", b)
	result = set(result, "_meta", object(set(meta, metaReceipt, quote(res.Receipt))))
	return object(set(ms, "result", object(result)))
}

// doubt is that word.
func doubt(res engine.Result) string {
	return "fusebox: after this answer nobody knows whether " + shown(res.Operation.Name) + " was carried out (" + res.Verdict.Reason +
		"). Do not call it again with the same arguments before request " + res.Operation.RequestID + " was looked up."
}

// compact is JSON without white space; what is no JSON stays as it is.
func compact(v []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return v
	}
	return b.Bytes()
}

// shown is a name that somebody else chose, safe to print.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '·'
		}
		return r
	}, s)
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}
