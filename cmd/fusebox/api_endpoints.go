package main

import (
	"net/http"

	"github.com/fusebox-dev/fusebox/sdk"
)

// An endpoint is one request of a plane. Its mux, its OpenAPI document and the
// page that is printed from it are made of such lists.
type endpoint struct {
	method, path string
	handle       http.HandlerFunc
	summary      string
	request      object         // of the body; nil where there is none
	query        []string       // names of query parameters
	answers      map[int]answer // by status
	reports      bool           // tells what happened, and must be heard when asking is throttled
	may          []sdk.Role     // of the operator plane: who may change this
}

// answer is what one status means.
type answer struct {
	says string
	body any // a Go value of the body's type; nil is an empty body
}

// object is one JSON Schema.
type object = map[string]any

type errorDoc struct {
	Error problem `json:"error"`
}

type breakersDoc struct {
	V        int          `json:"v"`
	Policy   string       `json:"policy"`
	Breakers []circuitDoc `json:"breakers"`
}

type intentsDoc struct {
	V       int         `json:"v"`
	Intents []intentDoc `json:"intents"`
}

// refusals are the answers that most requests may get besides their own.
func refusals(more map[int]answer) map[int]answer {
	out := map[int]answer{
		400: {"the request cannot be read; the member that is wrong is named", errorDoc{}},
		401: {"the caller is not known, where the configuration has clients", errorDoc{}},
		429: {"too many requests of this caller; Retry-After says when to ask again", errorDoc{}},
		503: {"a part that is needed is not available; nothing was changed", errorDoc{}},
	}
	for status, a := range more {
		out[status] = a
	}
	return out
}

func requestOf(required []string, members object) object {
	members["v"] = object{"const": 1, "description": "version of the API; absent is 1"}
	return closed(required, members)
}

func described(schema object, text string) object {
	schema["description"] = text
	return schema
}

func ofType(name, text string) object { return object{"type": name, "description": text} }

func schemaRef(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// endpoints are the decision API.
func (s *server) endpoints() []endpoint { return append(s.decisionEndpoints(), s.queueEndpoints()...) }

func (s *server) decisionEndpoints() []endpoint {
	amount := func(text string) object { return object{"type": "integer", "minimum": 0, "description": text} }
	return []endpoint{
		{method: "POST", path: "/v1/admit", handle: s.admit, summary: "May this be sent?",
			request: requestOf([]string{"operation"}, object{
				"operation": schemaRef("operation.v1"),
				"shadow":    ofType("boolean", "decide and give nothing: there is no permit, and nothing may be sent"),
			}),
			answers: refusals(map[int]answer{200: {"the decision, a rejection too", admitAnswer{}}, 413: {"the body is too large", errorDoc{}}})},
		{method: "POST", path: "/v1/permits/{id}/dispatch", handle: s.dispatch, reports: true, summary: "It is about to be sent; for a write, the intent is durable afterwards",
			request: requestOf([]string{"token"}, object{"token": ofType("string", "of the permit")}),
			answers: refusals(map[int]answer{204: {"send it now, once", nil}, 403: {"the token is not this permit's", errorDoc{}}, 404: {"there is no such permit", errorDoc{}},
				409: {"do not send: the permit was used, it expired, or something said no in the meantime; then the decision stands beside the error", dispatchRefusal{}}, 413: {"the body is too large", errorDoc{}}})},
		{method: "POST", path: "/v1/record", handle: s.record, reports: true, summary: "What came back, or did not; may be repeated after a lost answer",
			request: requestOf([]string{"permit", "token", "observation"}, object{
				"permit":      ofType("string", "its id"),
				"token":       ofType("string", "of the permit"),
				"stage":       object{"enum": []string{"before_send", "sent", "first_output", "complete"}, "description": "how far the call came; it completes what the observation leaves open"},
				"outcome":     described(object{}, "the caller's opinion; the engine decides"),
				"observation": schemaRef("observation.v1"),
				"usage": object{"type": "object", "additionalProperties": false, "properties": object{
					"input_tokens": amount("tokens in"), "output_tokens": amount("tokens out"),
					"cost_nano_usd": amount("1e9 is one dollar"), "bytes_out": amount("bytes sent")}},
				"semantic": described(object{}, "accepted and not used"),
			}),
			answers: refusals(map[int]answer{200: {"what it means, and what may be done now", recordAnswer{}}, 403: {"the token is not this permit's", errorDoc{}},
				404: {"there is no such permit", errorDoc{}}, 409: {"it was recorded with another observation, which stands", errorDoc{}}, 413: {"the body is too large", errorDoc{}}})},
		{method: "POST", path: "/v1/reconcile", handle: s.reconcile, reports: true, summary: "What a status look-up found about an UNKNOWN write",
			request: reconcileSchema(),
			answers: refusals(map[int]answer{200: {"the intent as it is now", intentDoc{}}, 404: {"there is no such intent", errorDoc{}}, 409: {"it cannot be reconciled now", errorDoc{}}, 413: {"the body is too large", errorDoc{}}})},
		{method: "GET", path: "/v1/breakers", handle: s.breakers, summary: "Circuits that are not as good as new", query: []string{"layer", "scope"},
			answers: refusals(map[int]answer{200: {"what is open, and why", breakersDoc{}}})},
		{method: "GET", path: "/v1/intents", handle: s.intents, summary: "What was dispatched and waits for its outcome, oldest first", query: []string{"state", "tenant", "request_id", "limit"},
			answers: refusals(map[int]answer{200: {"the intents", intentsDoc{}}})},
		{method: "GET", path: "/v1/receipts/{id}", handle: s.receipt, summary: "One receipt as it is sealed, with its place in the log",
			answers: refusals(map[int]answer{200: {"the receipt", entryDoc{}}, 404: {"there is no such receipt", errorDoc{}}})},
		{method: "GET", path: "/v1/openapi.json", handle: s.openAPI, summary: "This document",
			answers: map[int]answer{200: {"OpenAPI 3.1", object{}}}},
	}
}

func reconcileSchema() object {
	return requestOf([]string{"finding"}, object{
		"permit":     ofType("string", "names the intent by its permit"),
		"request_id": ofType("string", "or by the operation's request id"),
		"call_id":    ofType("string", "older name of request_id"),
		"finding":    object{"enum": []string{"applied", "not_applied", "still_unknown", "lookup"}, "description": "lookup asks the reconciler that policy declares"},
		"by":         ofType("string", "who looked; at most 40 bytes"),
		"evidence":   ofType("string", "where, and what was there; one line of at most 80 bytes, without secrets"),
	})
}
