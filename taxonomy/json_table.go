package taxonomy

import "time"

// The tables below are the documents, each sorted by name; a test holds that.
// They are made when they are first asked for, so that a guest module carries
// only those it uses. ParseObservation, AppendObservation, the classify and
// fallback documents and the published JSON Schemas are all read off them, so
// that nothing is said twice.

var operationTable lazy[Operation]

func operationFields() fields[Operation] {
	return operationTable.get(func() fields[Operation] {
		return fields[Operation]{
			text("action", "the action of the tool", func(o *Operation) *string { return &o.Action }),
			text("action_class", "the kind of action that policy speaks of", func(o *Operation) *string { return &o.ActionClass }),
			text("agent", "by which agent", func(o *Operation) *string { return &o.Agent }),
			whole("amount", "in the smallest unit of its currency", func(o *Operation) *int64 { return &o.Amount }),
			text("args_fp", "keyed fingerprint of the canonical arguments", func(o *Operation) *string { return &o.ArgsFP }),
			whole("attempt", "1 is the first", func(o *Operation) *int64 { return &o.Attempt }),
			attributesField("attributes", "declared facts: strings, whole numbers, booleans"),
			text("credential", "keyed fingerprint of the credential, never the secret", func(o *Operation) *string { return &o.Credential }),
			whole("deadline", "Unix milliseconds; 0 is none", func(o *Operation) *int64 { return &o.Deadline }),
			texts("depends_on", "what else it needs", func(o *Operation) *[]string { return &o.DependsOn }),
			choice("effect", "whether it may be repeated; absent is non_repeatable", effectNames, func(o *Operation) *Effect { return &o.Effect }),
			part("estimate", "what it is expected to use at most", estimateFields, func(o *Operation) *Estimate { return &o.Estimate }),
			keyField("idempotency_key", "the key it carries; true where the text of the key is not told"),
			text("impact", "high where the caller marks it so", func(o *Operation) *string { return &o.Impact }),
			text("kind", "model, tool or workflow", func(o *Operation) *string { return &o.Kind }),
			text("model", "the model's name", func(o *Operation) *string { return &o.Model }),
			text("name", "what is done: chat.completions, orders.create", func(o *Operation) *string { return &o.Name }),
			choice("origin", "which road it took to the dependency", originNames, func(o *Operation) *Origin { return &o.Origin }),
			text("parent_id", "the operation that asked for it", func(o *Operation) *string { return &o.ParentID }),
			flag("prior_unknown", "an earlier attempt's outcome is UNKNOWN", func(o *Operation) *bool { return &o.PriorUnknown }),
			whole("priority", "higher is more urgent", func(o *Operation) *int64 { return &o.Priority }),
			text("prompt_version", "the version of the prompt", func(o *Operation) *string { return &o.PromptVersion }),
			text("provider", "who does it", func(o *Operation) *string { return &o.Provider }),
			text("region", "where it is done", func(o *Operation) *string { return &o.Region }),
			text("request_id", "the same on every attempt", func(o *Operation) *string { return &o.RequestID }),
			text("run_id", "the run it belongs to", func(o *Operation) *string { return &o.RunID }),
			text("schema", "name of the output schema", func(o *Operation) *string { return &o.Schema }),
			text("task_class", "the kind of task", func(o *Operation) *string { return &o.TaskClass }),
			text("tenant", "on whose behalf", func(o *Operation) *string { return &o.Tenant }),
			text("tool", "the tool's name", func(o *Operation) *string { return &o.Tool }),
			text("user", "for which user", func(o *Operation) *string { return &o.User }),
			text("workflow", "the workflow's name", func(o *Operation) *string { return &o.Workflow }),
			text("workflow_version", "the workflow's version", func(o *Operation) *string { return &o.WorkflowVersion }),
		}
	})
}

var estimateTable lazy[Estimate]

func estimateFields() fields[Estimate] {
	return estimateTable.get(func() fields[Estimate] {
		return fields[Estimate]{
			whole("cost_nano_usd", "1e9 is one dollar", func(e *Estimate) *int64 { return &e.CostNanoUSD }),
			whole("input_tokens", "tokens in", func(e *Estimate) *int64 { return &e.InputTokens }),
			whole("output_tokens", "tokens out", func(e *Estimate) *int64 { return &e.OutputTokens }),
		}
	})
}

var observationTable lazy[Observation]

func observationFields() fields[Observation] {
	return observationTable.get(func() fields[Observation] {
		return fields[Observation]{
			whole("elapsed_ms", "time of the attempt", func(o *Observation) *int64 { return &o.ElapsedMS }),
			list("history", "earlier calls of the run, oldest first", callFields, func(o *Observation) *[]Call { return &o.History }),
			localField("local", "facts known here"),
			part("operation", "what was attempted", operationFields, func(o *Observation) *Operation { return &o.Operation }),
			optional("response", "the answer, or null", responseFields, func(o *Observation) **Response { return &o.Response }),
			part("stream", "how far a streamed answer came", streamFields, func(o *Observation) *Stream { return &o.Stream }),
			part("transport", "what the client's transport recorded", transportFields, func(o *Observation) *Transport { return &o.Transport }),
		}
	})
}

var transportTable lazy[Transport]

func transportFields() fields[Transport] {
	return transportTable.get(func() fields[Transport] {
		return fields[Transport]{
			choice("dispatched", "whether bytes of the request may have left", dispatchedNames, func(t *Transport) *Dispatched { return &t.Dispatched }),
			text("error", "the client's own words", func(t *Transport) *string { return &t.Error }),
			text("error_kind", "read_timeout, dns, reset, …", func(t *Transport) *string { return &t.ErrorKind }),
		}
	})
}

var responseTable lazy[Response]

func responseFields() fields[Response] {
	return responseTable.get(func() fields[Response] {
		return fields[Response]{
			text("body", "the content", func(r *Response) *string { return &r.Body }),
			strs("headers", "names in lower case", func(r *Response) *map[string]string { return &r.Headers }),
			field[Response]{"status", "HTTP status; 0 or null where the protocol has none", shape{kind: "integer", null: true},
				func(r *reader, v *Response) {
					n := r.whole()
					if n < 0 || n > 999 {
						r.refuse("an HTTP status or null", "a number outside 0 to 999")
						return
					}
					v.Status = int(n)
				},
				func(b []byte, v *Response) []byte { return appendInt(b, v.Status) }},
		}
	})
}

var streamTable lazy[Stream]

func streamFields() fields[Stream] {
	return streamTable.get(func() fields[Stream] {
		return fields[Stream]{
			whole("bytes", "how many", func(s *Stream) *int64 { return &s.Bytes }),
			flag("started", "content bytes reached the caller", func(s *Stream) *bool { return &s.Started }),
		}
	})
}

var callTable lazy[Call]

func callFields() fields[Call] {
	return callTable.get(func() fields[Call] {
		return fields[Call]{
			text("args_hash", "fingerprint of the canonical arguments", func(c *Call) *string { return &c.ArgsHash }),
			text("declared", "poll where the tool declares polling", func(c *Call) *string { return &c.Declared }),
			text("error", "its error, in the tool's words", func(c *Call) *string { return &c.Error }),
			text("name", "the tool's name", func(c *Call) *string { return &c.Name }),
			choice("outcome", "what is known of it", outcomeNames, func(c *Call) *Outcome { return &c.Outcome }),
			text("result_hash", "fingerprint of its result", func(c *Call) *string { return &c.ResultHash }),
		}
	})
}

// verdictFields are what a classifier is told about the built-in verdict.
var verdictTable lazy[Verdict]

func verdictFields() fields[Verdict] {
	return verdictTable.get(func() fields[Verdict] {
		return fields[Verdict]{
			text("by", "who judged", func(v *Verdict) *string { return &v.By }),
			choice("class", "kind of error; none with SUCCEEDED", classNames, func(v *Verdict) *Class { return &v.Class }),
			factsField("facts", "what else the classifier says"),
			choice("outcome", "what is known of the operation", outcomeNames, func(v *Verdict) *Outcome { return &v.Outcome }),
			text("reason", "snake_case", func(v *Verdict) *string { return &v.Reason }),
			choice("retry", "advice about another attempt", retryNames, func(v *Verdict) *Retry { return &v.Retry }),
			millis("retry_after_ms", "wait at least this long; 0 is no hint", func(v *Verdict) *time.Duration { return &v.RetryAfter }),
		}
	})
}

// classifyAnswerFields are what a classifier may answer. There is no retry
// advice among them: the host makes it, after the floor.
var classifyAnswerTable lazy[Verdict]

func classifyAnswerFields() fields[Verdict] {
	return classifyAnswerTable.get(func() fields[Verdict] {
		return fields[Verdict]{
			choice("class", "kind of error; none with SUCCEEDED", classNames, func(v *Verdict) *Class { return &v.Class }),
			factsField("facts", "what else is known, from the module's declared vocabulary"),
			choice("outcome", "what is known of the operation", outcomeNames, func(v *Verdict) *Outcome { return &v.Outcome }),
			short("reason", "snake_case", maxReason, func(v *Verdict) *string { return &v.Reason }),
			millis("retry_after_ms", "wait at least this long; 0 is no hint", func(v *Verdict) *time.Duration { return &v.RetryAfter }),
		}
	})
}

var rejectionTable lazy[Rejection]

func rejectionFields() fields[Rejection] {
	return rejectionTable.get(func() fields[Rejection] {
		return fields[Rejection]{
			text("breaker", "the breaker's name", func(r *Rejection) *string { return &r.Breaker }),
			choice("class", "kind of error", classNames, func(r *Rejection) *Class { return &r.Class }),
			choice("decision", "what admission decided", decisionNames, func(r *Rejection) *Decision { return &r.Decision }),
			text("fallback", "name of the declared contract", func(r *Rejection) *string { return &r.Fallback }),
			choice("layer", "which kind of health refused", layerNames, func(r *Rejection) *Layer { return &r.Layer }),
			text("next", "wait, fallback, ask, reconcile, stop", func(r *Rejection) *string { return &r.Next }),
			field[Rejection]{"policy", "the version in force", shape{kind: "string"},
				func(r *reader, v *Rejection) { v.Policy = PolicyVersion(r.text("a string")) },
				func(b []byte, v *Rejection) []byte { return appendText(b, string(v.Policy)) }},
			text("reason", "circuit_open, budget_exhausted, …", func(r *Rejection) *string { return &r.Reason }),
			texts("reasons", "what the rules said", func(r *Rejection) *[]string { return &r.Reasons }),
			text("receipt", "id of its receipt", func(r *Rejection) *string { return &r.Receipt }),
			whole("receipt_index", "position in the log; -1 while not written", func(r *Rejection) *int64 { return &r.Index }),
			flag("remote_called", "whether anything was sent", func(r *Rejection) *bool { return &r.Dispatched }),
			moment("retry_at", "not before; empty where nobody knows", func(r *Rejection) *time.Time { return &r.RetryAt }),
			text("scope", "provider:openai/eu/gpt-x", func(r *Rejection) *string { return &r.Scope }),
			text("state", "OPEN, HALF_OPEN, …", func(r *Rejection) *string { return &r.State }),
			field[Rejection]{"state_version", "which state refused", shape{kind: "integer", natural: true},
				func(r *reader, v *Rejection) { v.StateVersion = uint64(max(r.whole(), 0)) },
				func(b []byte, v *Rejection) []byte { return appendUint(b, v.StateVersion) }},
		}
	})
}

var candidateTable lazy[Candidate]

func candidateFields() fields[Candidate] {
	return candidateTable.get(func() fields[Candidate] {
		return fields[Candidate]{
			text("id", "what a choice names", func(c *Candidate) *string { return &c.ID }),
			text("kind", "cached, alternate, reduced, draft, queued, human, refuse", func(c *Candidate) *string { return &c.Kind }),
			texts("losses", "freshness, accuracy, privacy, authority, audit", func(c *Candidate) *[]string { return &c.Losses }),
			text("message", "what the caller is told", func(c *Candidate) *string { return &c.Message }),
			text("model", "with which model", func(c *Candidate) *string { return &c.Model }),
			texts("prohibited", "actions not allowed meanwhile", func(c *Candidate) *[]string { return &c.Prohibited }),
			text("provider", "who would do it", func(c *Candidate) *string { return &c.Provider }),
			text("tool", "with which tool", func(c *Candidate) *string { return &c.Tool }),
		}
	})
}

var choiceTable lazy[Choice]

func choiceFields() fields[Choice] {
	return choiceTable.get(func() fields[Choice] {
		return fields[Choice]{
			text("choose", "id of a declared candidate", func(c *Choice) *string { return &c.ID }),
			short("reason", "why", maxReason, func(c *Choice) *string { return &c.Reason }),
		}
	})
}

// The whole input documents of the two module exports.

type classifyInput struct {
	observation Observation
	builtin     Verdict
}

type fallbackInput struct {
	operation  Operation
	rejection  Rejection
	candidates []Candidate
}

var classifyInputTable lazy[classifyInput]

func classifyInputFields() fields[classifyInput] {
	return classifyInputTable.get(func() fields[classifyInput] {
		return fields[classifyInput]{
			part("builtin", "what the built-in table says", verdictFields, func(d *classifyInput) *Verdict { return &d.builtin }),
			part("observation", "what came back, redacted", observationFields, func(d *classifyInput) *Observation { return &d.observation }),
			schemaField[classifyInput](ClassifySchema),
		}
	})
}

var fallbackInputTable lazy[fallbackInput]

func fallbackInputFields() fields[fallbackInput] {
	return fallbackInputTable.get(func() fields[fallbackInput] {
		return fields[fallbackInput]{
			list("candidates", "the declared ways on", candidateFields, func(d *fallbackInput) *[]Candidate { return &d.candidates }),
			part("operation", "what could not be sent, redacted", operationFields, func(d *fallbackInput) *Operation { return &d.operation }),
			part("rejection", "why not", rejectionFields, func(d *fallbackInput) *Rejection { return &d.rejection }),
			schemaField[fallbackInput](FallbackSchema),
		}
	})
}
