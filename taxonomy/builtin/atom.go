package builtin

import (
	"math/bits"
	"slices"
)

// An atom is one value that some rule asks for: "code insufficient_quota",
// "status 5xx". Evidence is a set of atoms.
type atom uint16

const maxAtoms = 2048 // a table that needs more is refused when it is built

type atoms [maxAtoms / 64]uint64

func (s *atoms) add(a atom)      { s[a>>6] |= 1 << (a & 63) }
func (s *atoms) has(a atom) bool { return s[a>>6]>>(a&63)&1 != 0 }

// each calls f with every atom of the set.
func (s *atoms) each(f func(atom)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			f(atom(i*64 + bits.TrailingZeros64(w)))
		}
	}
}

// A mark is evidence that the readers compute.
type mark uint8

const (
	markNone              mark = iota
	markTransportError         // the transport reported an error
	markAnswer                 // a response arrived
	markErrorAnswer            // the answer says itself that it is an error
	markErrorObject            // a JSON error object, whatever the status
	markEmptyBody              // a response without content
	markHTML                   // a page
	markLoginForm              // a page with a password field
	markLoginURL               // the final address is a login page
	markMalformedBody          // the body claims to be JSON and is not
	markCutBody                // the body is JSON that ends too early
	markModelAnswer            // the body has the shape of a model's answer
	markEmptyContent           // … without text, refusal or tool call
	markRefusal                // … with a refusal
	markTruncatedOutput        // … that ran into the output cap
	markContentNotJSON         // … whose text had to be JSON and is not
	markToolArgsNotJSON        // … whose tool call has arguments that are not JSON
	markUnknownTool            // … that calls a tool nobody offered
	markPromptBlocked          // the prompt was blocked before any answer
	markSchemaInvalid          // a check here found that the schema does not fit
	markSchemaErrors           // a check here listed schema errors
	markRepaired               // a lenient parser repaired the output
	markCheckFailed            // a declared check failed
	markCitationFailed         // a failed check is about citations
	markEvaluatorRejected      // an evaluator rejected the result
	markStandIn                // the answer came from a fallback
	markStream                 // an event stream
	markStreamError            // … with an error event
	markStreamUnfinished       // … that ended without its terminal event
	markStreamOutput           // … with output in it
	markGraphQLErrors          // GraphQL errors
	markPartialData            // … beside data
	markUserErrors             // … or mutation errors about the input, nothing applied
	markToolError              // an MCP result with isError
	markToolResult             // an MCP result without
	markRPCError               // a JSON-RPC error
	markOKFalse                // "ok": false or "success": false
	markPerDay                 // a quota of a day or longer
	markPerMinute              // a quota of a minute or shorter
	markAllowanceUsedUp        // a remaining-header says 0
	markHint                   // the answer says when to come back
	markPriorUnknown           // an earlier attempt of this is UNKNOWN
	markRepeated               // the same was done before in this run
	markSQL                    // a database answered
	markExec                   // a process ended
	markStderr                 // … and wrote to stderr
	markSMTP                   // a mail server answered
	markLoopSame               // identical calls
	markLoopError              // one tool, one error under changing words
	markLoopCycle              // a short cycle of calls
	markLoopStale              // steps without new evidence
	markPolling                // declared polling
	markLocal                  // there are local facts
	markOutOfMemory            // the kernel killed for lack of memory
	markRPCPending             // JSON-RPC notifications came and no result
	markBodyTooLong            // the body is longer than what is read
	marks
)

// markNames are the names of marks in rule files.
var markNames = [marks]string{"none", "transport-error", "answer", "error-answer", "error-object", "empty-body", "html",
	"login-form", "login-url", "malformed-body", "cut-body", "model-answer", "empty-content", "refusal", "truncated-output",
	"content-not-json", "tool-args-not-json", "unknown-tool", "prompt-blocked", "schema-invalid", "schema-errors",
	"repaired", "check-failed", "citation-failed", "evaluator-rejected", "stand-in", "stream", "stream-error",
	"stream-unfinished", "stream-output", "graphql-errors", "partial-data", "user-errors", "tool-error", "tool-result",
	"rpc-error", "ok-false", "per-day", "per-minute", "allowance-used-up", "hint", "prior-unknown", "repeated", "sql",
	"exec", "stderr", "smtp", "loop-same", "loop-error", "loop-cycle", "loop-stale", "polling", "local",
	"out-of-memory", "rpc-pending", "body-too-long"}

// names writes a set of atoms as rule files would.
func (t *Table) names(seen *atoms) []string {
	var out []string
	for s, m := range t.exact {
		for v, a := range m {
			if seen.has(a) {
				out = append(out, slotNames[s]+" "+v)
			}
		}
	}
	for m, a := range t.marks {
		if a != 0 && seen.has(a) {
			out = append(out, "mark "+markNames[m])
		}
	}
	for s, x := range map[slot]*index{slotText: &t.text, slotError: &t.error, slotResult: &t.result, slotPage: &t.page, slotAnswer: &t.answer} {
		for v, a := range x.phrase {
			if seen.has(a) {
				out = append(out, slotNames[s]+" "+v)
			}
		}
	}
	slices.Sort(out)
	return out
}
