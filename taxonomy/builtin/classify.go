package builtin

import "github.com/fusebox-dev/fusebox/taxonomy"

// Classify judges an observation by the table alone: outcome, class, reason
// and hint. Its Retry is the most the rule would allow; [Table.Judge] makes
// the advice.
func (t *Table) Classify(o *taxonomy.Observation) taxonomy.Verdict {
	s := t.begin(o)
	v := s.verdict(t.decide(&s.evidence))
	s.end()
	return v
}

// Judge classifies, holds the verdict to the floor and makes the advice: what
// fusebox says where no module is asked.
func (t *Table) Judge(o *taxonomy.Observation) taxonomy.Verdict {
	v := t.Classify(o)
	v, _ = taxonomy.Floor(&o.Operation, o, v, v)
	return taxonomy.Advise(&o.Operation, o, v)
}

func (t *Table) decide(e *evidence) *rule {
	if r := t.match(&e.seen); r != nil {
		return r
	}
	return e.last()
}

// The rules that stand when none of the table matched.
var (
	lastOK = rule{pack: "last", name: "ok", succeeds: true, reason: "ok", by: "table:last/ok", tier: tierStatus,
		source: "RFC 9110 section 15.3"}
	lastSilent = rule{pack: "last", name: "no_answer", class: taxonomy.TransientTransport, reason: "no_answer", unknown: true,
		retry: taxonomy.RetryBackoff, by: "table:last/no_answer", tier: tierStatus, source: "SPEC R-TAX-5"}
	lastUnsent = rule{pack: "last", name: "not_sent", class: taxonomy.TransientTransport, reason: "local_not_sent",
		retry: taxonomy.RetryNever, by: "table:last/not_sent", tier: tierStatus, source: "SPEC R-TAX-1"}
	lastError = rule{pack: "last", name: "unclear_error", class: taxonomy.ClientInput, reason: "unclear_error",
		retry: taxonomy.RetryNever, by: "table:last/unclear_error", tier: tierStatus, source: "SPEC R-TAX-5", unproven: true}
	lastModelError = rule{pack: "last", name: "unclear_model_error", class: taxonomy.TransientTransport, reason: "unclear_error",
		retry: taxonomy.RetryBackoff, by: "table:last/unclear_model_error", tier: tierStatus, source: "SPEC R-TAX-5"}
)

// last decides what no rule knows. An answer without a sign of an error is a
// success, and silence is UNKNOWN; what was not sent for no stated reason says
// nothing about anybody's health. An error nobody understands comes from a
// model as a fault that may pass; from a tool it is its own business: it feeds
// no circuit and is not retried by itself, and of a write it proves nothing.
func (e *evidence) last() *rule {
	switch {
	case e.has(markErrorAnswer) && e.obs.Operation.Kind == "model":
		return &lastModelError
	case e.has(markErrorAnswer):
		return &lastError
	case e.has(markAnswer), e.has(markPolling), e.obs.Operation.Kind == "workflow":
		return &lastOK
	}
	if e.obs.Transport.Dispatched == taxonomy.DispatchedNo && !e.has(markTransportError) {
		return &lastUnsent
	}
	return &lastSilent
}

// An Explanation says how a verdict came about.
type Explanation struct {
	Verdict  taxonomy.Verdict
	Refused  string // what the floor refused of it; always "" for the table's own verdicts unless a rule is wrong
	Rule     Rule
	Evidence []string // what was seen of that which rules ask for, sorted
	Steps    int      // work done reading, in bytes and tokens
}

// Explain judges and says why: the rule, its pack and what was seen.
func (t *Table) Explain(o *taxonomy.Observation) Explanation {
	s := t.begin(o)
	defer s.end()
	r := t.decide(&s.evidence)
	said := s.verdict(r)
	v, refused := taxonomy.Floor(&o.Operation, o, said, said)
	return Explanation{Verdict: taxonomy.Advise(&o.Operation, o, v), Refused: refused, Rule: r.public(), Evidence: t.names(&s.seen), Steps: s.steps}
}
