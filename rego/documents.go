package rego

import "github.com/fusebox-dev/fusebox/taxonomy"

// The four input documents (DESIGN decision 5). Every field is always present.

func withSchema[T any](name, title string, fields []field[T], op func(T) *taxonomy.Operation) *document[T] {
	d := &document[T]{name: name, title: title, operation: op}
	d.fields = append(d.fields, field[T]{path: "schema", kind: constant, about: "name and version of this document",
		enum: []string{name}, text: func(T) string { return name }})
	d.fields = append(d.fields, fields...)
	d.fields = append(d.fields, operationFields(op)...)
	return d
}

type (
	routeIn     = *taxonomy.RouteInput
	authorityIn = *taxonomy.AuthorityInput
	admissionIn = *taxonomy.AdmissionInput
	fallbackIn  = *taxonomy.FallbackInput
)

var outcomeDocument = withSchema("fusebox.outcome/v1", "What routing rules see: a judged attempt",
	[]field[routeIn]{
		{path: "outcome.status", kind: text, about: "what is known about the attempt", enum: names[taxonomy.Outcome](4),
			text: func(in routeIn) string { return in.Outcome.String() }},
		{path: "outcome.class", kind: text, about: "the error class; none only with SUCCEEDED", enum: names[taxonomy.Class](taxonomy.Classes),
			text: func(in routeIn) string { return in.Class.String() }},
		{path: "outcome.reason", kind: text, about: "finer, in snake_case: read_timeout", text: func(in routeIn) string { return in.Reason }},
		{path: "outcome.http_status", kind: number, about: "0 when no response arrived", number: func(in routeIn) int64 { return in.HTTPStatus }},
		{path: "outcome.attempt", kind: number, about: "1 is the first", number: func(in routeIn) int64 { return in.Attempt }},
		{path: "outcome.repeats", kind: number, about: "equivalent earlier calls of the run", number: func(in routeIn) int64 { return in.Repeats }},
		{path: "outcome.retry_after_ms", kind: number, about: "the remote's instruction to wait; 0 is none", number: func(in routeIn) int64 { return in.RetryAfterMS }},
		{path: "outcome.elapsed_ms", kind: number, about: "time of the attempt", id: true, number: func(in routeIn) int64 { return in.ElapsedMS }},
	},
	func(in routeIn) *taxonomy.Operation { return in.Operation })

var operationDocument = withSchema("fusebox.operation/v1", "What authority rules see: an operation and who asks",
	[]field[authorityIn]{
		{path: "agent.id", kind: text, about: "the authenticated agent", part: true, text: func(in authorityIn) string { return in.AgentID }},
		{path: "agent.roles", kind: texts, about: "its roles, sorted", most: maxList, texts: func(in authorityIn) []string { return in.Roles }},
		{path: "approvals", kind: rows, about: "unexpired approvals that fit this operation, sorted; no ids, no times", most: maxList,
			count: func(in authorityIn) int { return len(in.Approvals) },
			columns: []column[authorityIn]{
				{name: "by", about: "who approved", text: func(in authorityIn, i int) string { return in.Approvals[i].By }},
				{name: "scope", about: "what: an action class or a request id", text: func(in authorityIn, i int) string { return in.Approvals[i].Scope }},
			}},
		{path: "clock.date", kind: text, about: "UTC, 2026-11-30", text: func(in authorityIn) string { return in.Clock.Date }},
		{path: "clock.hour", kind: number, about: "UTC, 0 to 23", number: func(in authorityIn) int64 { return in.Clock.Hour }},
		{path: "clock.weekday", kind: text, about: "UTC",
			enum: []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"},
			text: func(in authorityIn) string { return in.Clock.Weekday }},
	},
	func(in authorityIn) *taxonomy.Operation { return in.Operation })

var admissionDocument = withSchema("fusebox.admission/v1", "What admission rules see: new work, and the circuits that refuse it",
	[]field[admissionIn]{
		{path: "blocked", kind: rows, about: "the circuits that refuse this operation", most: maxList,
			count: func(in admissionIn) int { return len(in.Blocked) },
			columns: []column[admissionIn]{
				{name: "layer", about: "provider, tool, workflow, semantic, budget or authority", text: func(in admissionIn, i int) string { return in.Blocked[i].Layer.String() }},
				{name: "breaker", about: "its name in policy.toml", text: func(in admissionIn, i int) string { return in.Blocked[i].Breaker }},
				{name: "scope", about: "readable", text: func(in admissionIn, i int) string { return in.Blocked[i].Scope }},
				{name: "state", about: "OPEN, HALF_OPEN or RAMP", text: func(in admissionIn, i int) string { return in.Blocked[i].State }},
				{name: "reason", about: "why it refuses", text: func(in admissionIn, i int) string { return in.Blocked[i].Reason }},
				{name: "retry_in_ms", about: "until its cooldown ends; 0 is not known", number: func(in admissionIn, i int) int64 { return in.Blocked[i].RetryInMS }},
			}},
	},
	func(in admissionIn) *taxonomy.Operation { return in.Operation })

var fallbackDocument = withSchema("fusebox.fallback/v1", "What fallback rules see: a refused operation and its declared candidates",
	[]field[fallbackIn]{
		{path: "rejection.decision", kind: text, about: "what admission decided", enum: names[taxonomy.Decision](5),
			text: func(in fallbackIn) string { return in.Rejection.Decision.String() }},
		{path: "rejection.layer", kind: text, about: "the layer that refused", enum: names[taxonomy.Layer](taxonomy.Layers),
			text: func(in fallbackIn) string { return in.Rejection.Layer.String() }},
		{path: "rejection.breaker", kind: text, about: "its name in policy.toml", text: func(in fallbackIn) string { return in.Rejection.Breaker }},
		{path: "rejection.reason", kind: text, about: "circuit_open, probe_busy, budget_exhausted, …", text: func(in fallbackIn) string { return in.Rejection.Reason }},
		{path: "rejection.class", kind: text, about: "the error class behind it", enum: names[taxonomy.Class](taxonomy.Classes),
			text: func(in fallbackIn) string { return in.Rejection.Class.String() }},
		{path: "rejection.state", kind: text, about: "state of the circuit", text: func(in fallbackIn) string { return in.Rejection.State }},
		{path: "candidates", kind: rows, about: "the declared ways to go on", most: maxList,
			count: func(in fallbackIn) int { return len(in.Candidates) },
			columns: []column[fallbackIn]{
				{name: "id", about: "its name", text: func(in fallbackIn, i int) string { return in.Candidates[i].ID }},
				{name: "kind", about: "cached, alternate, reduced, draft, queued, human or refuse", text: func(in fallbackIn, i int) string { return in.Candidates[i].Kind }},
				{name: "provider", about: "of an alternate", text: func(in fallbackIn, i int) string { return in.Candidates[i].Provider }},
				{name: "model", about: "of an alternate", text: func(in fallbackIn, i int) string { return in.Candidates[i].Model }},
				{name: "tool", about: "of an alternate", text: func(in fallbackIn, i int) string { return in.Candidates[i].Tool }},
				{name: "losses", about: "freshness, accuracy, privacy, authority, audit", texts: func(in fallbackIn, i int) []string { return in.Candidates[i].Losses }},
				{name: "prohibited", about: "actions not allowed while on it", texts: func(in fallbackIn, i int) []string { return in.Candidates[i].Prohibited }},
				{name: "message", about: "what the caller is told", text: func(in fallbackIn, i int) string { return in.Candidates[i].Message }},
			}},
	},
	func(in fallbackIn) *taxonomy.Operation { return in.Operation })
