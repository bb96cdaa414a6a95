package main

// queueEndpoints are the queue over the decision API.
func (s *server) queueEndpoints() []endpoint {
	claim := ofType("string", "of the item")
	lost := answer{"the claim ran out, ended, or is another server's", errorDoc{}}
	large := answer{"the body is too large", errorDoc{}}
	return []endpoint{
		{method: "POST", path: "/v1/queue", handle: s.putQueue, summary: "Keep what admit answered with \"queue\", until its circuit lets it go or it expires; the same request is kept once",
			request: requestOf([]string{"ticket", "operation"}, object{
				"ticket":    ofType("string", "of admit's answer"),
				"operation": described(object{"allOf": []object{schemaRef("operation.v1")}}, "as it was admitted, with the request_id of the answer"),
				"payload":   ofType("string", "what a worker needs to send it, or where that lies; opaque, and stored as it is: seal it where it must not be read"),
			}),
			answers: refusals(map[int]answer{200: {"the item", queuedDoc{}}, 403: {"the ticket is not this operation's", errorDoc{}},
				409: {"the ticket expired, the queue is full, or the request_id is another item's", errorDoc{}}, 413: large})},
		{method: "GET", path: "/v1/queue", handle: s.ownQueue, summary: "The caller's queued items, the most urgent first, without their payloads", query: []string{"state", "limit"},
			answers: refusals(map[int]answer{200: {"the items", queueDoc{}}})},
		{method: "GET", path: "/v1/queue/{id}", handle: s.ownItem, summary: "One queued item; its id is the request_id",
			answers: refusals(map[int]answer{200: {"the item", queuedDoc{}}, 404: {"there is no such item", errorDoc{}}})},
		{method: "POST", path: "/v1/queue/claim", handle: s.claimQueue, summary: "Lease the next items to a worker, at the pace of the policy; none is an answer too",
			request: requestOf([]string{"worker"}, object{
				"worker":     ofType("string", "who works; at most 40 bytes"),
				"dependency": ofType("string", "only what waits for this circuit"),
				"most":       object{"type": "integer", "minimum": 0, "description": "no more than these; 0 is as many as policy says"},
			}),
			answers: refusals(map[int]answer{200: {"what the worker holds now", claimsDoc{}}, 413: large})},
		{method: "POST", path: "/v1/queue/{id}/release", handle: s.claimed(s.releaseItem), summary: "Ask admission afresh for a claimed item; once for each claim, and asked again it says the same",
			request: requestOf([]string{"claim"}, object{"claim": claim}),
			answers: refusals(map[int]answer{200: {"the decision; with allow a permit, whose record ends the claim, and with any other the claim has ended", admitAnswer{}}, 409: lost, 413: large})},
		{method: "POST", path: "/v1/queue/{id}/renew", handle: s.claimed(s.renewItem), reports: true, summary: "Hold a claimed item for longer",
			request: requestOf([]string{"claim"}, object{"claim": claim}),
			answers: refusals(map[int]answer{200: {"until when", renewedDoc{}}, 409: lost, 413: large})},
		{method: "POST", path: "/v1/queue/{id}/finish", handle: s.claimed(s.finishItem), reports: true, summary: "End a claim without sending: the item is dead, withdrawn, waiting again, or done",
			request: requestOf([]string{"claim", "state"}, object{
				"claim":  claim,
				"state":  object{"enum": []string{"done", "dead", "waiting", "withdrawn"}, "description": "done is believed of a write only where an intent of it succeeded"},
				"reason": ofType("string", "why, in one line of at most 80 bytes; done needs none"),
			}),
			answers: refusals(map[int]answer{200: {"the item as it is now", queuedDoc{}}, 409: {"the claim is lost, the item was released, or nothing proves that it is done", errorDoc{}}, 413: large})},
	}
}
