package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// operatorEndpoints are what people and their tools may ask of the operator
// plane, besides its page.
func (s *server) operatorEndpoints() []endpoint {
	change := func(more map[int]answer) map[int]answer {
		out := looks(more)
		out[400] = answer{"the request cannot be read, or says not who and why", errorDoc{}}
		out[403] = answer{"the role may not do this, or nobody may: there are no operators", errorDoc{}}
		out[413] = answer{"the body is too large", errorDoc{}}
		return out
	}
	why := ofType("string", "why, in one line of 1 to 80 bytes; it stands in the receipt")
	long := func(most string) object { return ofType("string", "how long, such as 30m; at most "+most) }
	return []endpoint{
		{method: "GET", path: "/status.json", handle: s.statusJSON, summary: "What the status page shows", answers: looks(map[int]answer{200: {"the status", statusDoc{}}})},
		{method: "GET", path: "/healthz", handle: s.health, summary: "Whether calls can be decided and evidence can be written; asks for no token",
			answers: map[int]answer{200: {"yes", healthDoc{}}, 503: {"no, and why", healthDoc{}}}},
		{method: "GET", path: "/metrics", handle: promhttp.HandlerFor(s.meter.registry, promhttp.HandlerOpts{}).ServeHTTP, summary: "Metrics in the text format of Prometheus",
			answers: map[int]answer{200: {"text, not JSON", nil}, 401: {"the operator is not known", errorDoc{}}}},
		{method: "GET", path: "/v1/breakers", handle: s.breakers, summary: "Circuits that are not as good as new", query: []string{"layer", "scope"},
			answers: looks(map[int]answer{200: {"what is open, and why", breakersDoc{}}})},
		{method: "GET", path: "/v1/intents", handle: s.intents, summary: "What was dispatched and waits for its outcome, oldest first", query: []string{"state", "tenant", "request_id", "limit"},
			answers: looks(map[int]answer{200: {"the intents", intentsDoc{}}})},
		{method: "GET", path: "/v1/queue", handle: s.getQueue, summary: "Queued work and dead letters, without payloads", query: []string{"state"},
			answers: looks(map[int]answer{200: {"the items", queueDoc{}}})},
		{method: "GET", path: "/v1/approvals", handle: s.getApprovals, summary: "What people allowed or refused, newest first",
			answers: looks(map[int]answer{200: {"the approvals", approvalsDoc{}}})},
		{method: "GET", path: "/v1/report", handle: s.getReport, summary: "The operating figures of a span, from receipts and state", query: []string{"since", "missed"},
			answers: looks(map[int]answer{200: {"the figures", reportDoc{}}})},
		{method: "GET", path: "/v1/rollout", handle: s.getRollout, summary: "The version on trial, its figures and the verdict", answers: looks(map[int]answer{200: {"the rollout", sdk.RolloutStatus{}}})},
		{method: "POST", path: "/v1/overrides", handle: s.changes(mayOperate, s.postOverride), may: mayOperate, summary: "Force a circuit open or closed for a while, or release it",
			request: closed([]string{"scope", "action", "reason"}, object{
				"scope":  ofType("string", "of the circuit, such as provider:openai/eu/gpt-x, or its key"),
				"action": object{"enum": []string{"force_open", "force_closed", "release"}},
				"for":    long("24h; release needs none"), "reason": why}),
			answers: change(map[int]answer{200: {"the circuit", breakersDoc{}}, 404: {"there is no such circuit", errorDoc{}}})},
		{method: "POST", path: "/v1/queue/{id}", handle: s.changes(mayOperate, s.postQueue), may: mayOperate, summary: "Retry, discard or compensate an item that nobody has claimed",
			request: closed([]string{"action", "reason"}, object{"action": object{"enum": []string{"retry", "discard", "compensate"}}, "reason": why}),
			answers: change(map[int]answer{200: {"the item", itemDoc{}}, 404: {"there is no such item", errorDoc{}}, 409: {"it cannot be moved now", errorDoc{}}})},
		{method: "POST", path: "/v1/approvals", handle: s.changes(mayApprove, s.postApproval), may: mayApprove, summary: "Allow or refuse an action class, an action or one request, for a while",
			request: closed([]string{"scope", "for", "reason"}, object{
				"scope":  ofType("string", "an action class, a tool.action, or a request id"),
				"tenant": ofType("string", "for whom"), "for": long("720h"), "reason": why,
				"single_use": ofType("boolean", "it is used up by the first call"), "denies": ofType("boolean", "a person's no instead")}),
			answers: change(map[int]answer{200: {"the approval", taxonomy.Approval{}}})},
		{method: "POST", path: "/v1/reconcile", handle: s.changes(mayOperate, s.postReconcile), may: mayOperate, summary: "What a status look-up found about an UNKNOWN write",
			request: reconcileSchema(),
			answers: change(map[int]answer{200: {"the intent as it is now", intentDoc{}}, 404: {"there is no such intent", errorDoc{}}, 409: {"it cannot be reconciled now", errorDoc{}}})},
		{method: "POST", path: "/v1/rollout/{step}", handle: s.changes(mayOperate, s.postRollout), may: mayOperate, summary: "Move a rollout: start, advance, hold or rollback",
			request: closed([]string{"reason"}, object{
				"reason": why, "percent": ofType("number", "of a canary; 0 is as policy says"), "by": ofType("string", "ignored: the token says who"),
				"source": ofType("string", "with start: where the candidate came from"), "archive": ofType("string", "with start: the candidate's archive in base64"),
				"stage": object{"enum": []string{"observe", "shadow", "canary"}, "description": "with start: where to begin"}, "auto": ofType("boolean", "with start"),
				"allow_looser": ofType("boolean", "with start: authority may grant more than before")}),
			answers: change(map[int]answer{200: {"the rollout", sdk.RolloutStatus{}}, 404: {"there is no such step", errorDoc{}}, 409: {"the step is refused", errorDoc{}}})},
		{method: "GET", path: "/v1/openapi.json", handle: s.operatorAPI, summary: "This document", answers: map[int]answer{200: {"OpenAPI 3.1", object{}}, 401: {"the operator is not known", errorDoc{}}}},
	}
}

// looks are the answers that every request of an operator may get.
func looks(more map[int]answer) map[int]answer {
	out := refusals(more)
	out[401] = answer{"the operator is not known, where the configuration has operators", errorDoc{}}
	return out
}

// closed is a request body without other members.
func closed(required []string, members object) object {
	return object{"type": "object", "additionalProperties": false, "required": required, "properties": members}
}

// postReconcile is POST /v1/reconcile on the operator plane.
func (s *server) postReconcile(w http.ResponseWriter, r *http.Request, who string) error {
	s.reconcileAs(w, r, who)
	return nil
}
