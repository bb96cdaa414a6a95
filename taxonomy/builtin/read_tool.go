package builtin

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// exit reads the exit code of a process.
func (r *bodyReader) exit() {
	e := r.e
	e.mark(markExec)
	v := r.token()
	e.exact(slotExit, v)
	if v != "0" && v != "" {
		e.mark(markErrorAnswer)
		e.exact(slotExit, "failed")
	}
}

// stderrTail is how much of a process's last words is read: the cause stands
// at the end.
const stderrTail = 2 << 10

func (r *bodyReader) stderr() {
	v := r.str()
	if strings.Trim(v, ` \nrt`) == "" {
		return
	}
	r.e.mark(markStderr)
	if len(v) > stderrTail {
		v = v[len(v)-stderrTail:]
	}
	r.e.stderr = v
}

// enhanced reads an enhanced status code of RFC 3463, whole and as its class
// and subject.
func (r *bodyReader) enhanced() {
	v := r.str()
	r.e.exact(slotEnhanced, v)
	if i := strings.LastIndexByte(v, '.'); i > 0 {
		r.e.exact(slotEnhanced, v[:i]+".x")
	}
}

// readLocal reads the facts known here. Every scalar "key: value" can be asked
// for as `local key=value`; checks and lists have marks.
func (e *evidence) readLocal(facts taxonomy.Raw) {
	e.mark(markLocal)
	r := bodyReader{Scanner: jsonscan.ScanBytes(facts, jsonscan.Options{Lenient: true, Depth: bodyDepth}), e: e}
	r.members(func(key string) {
		switch key {
		case "checks":
			r.checks()
		case "failed_checks":
			if r.Kind() == jsonscan.Array && r.elements(func() { r.failedCheck(r.token()) }) > 0 {
				e.mark(markCheckFailed)
			}
		case "errors", "schema_errors", "validation_errors":
			if r.elements(r.Skip) > 0 {
				e.mark(markSchemaErrors)
			}
		case "evaluator", "evaluation", "judge", "verdict", "passed", "accepted", "evaluator_verdict":
			r.evaluator()
		case "score":
			e.score, e.scored = r.measure()
		case "threshold", "min_score":
			e.least, e.limited = r.measure()
		case "citations_unsupported", "unsupported_citations":
			if r.Kind() == jsonscan.Array && r.elements(r.Skip) > 0 {
				e.mark(markCheckFailed)
				e.mark(markCitationFailed)
			}
		case "known_tools":
			if r.Kind() == jsonscan.Array {
				e.knownTools = r.Raw()
			} else {
				r.Skip()
			}
		case "schema_id":
			e.wantsJSON = true
			r.Skip()
		case "fallback_of":
			if r.str() != "" {
				e.mark(markStandIn)
			}
		case "cooldown_ms", "retry_after_ms", "retry_in_ms":
			if ms := number(r.token(), 1); ms > 0 {
				e.hint = ms
			}
		default:
			r.localScalar(key)
		}
	})
	e.judgeScore()
	e.steps += r.Steps()
}

// measure reads a number that is not negative, in thousandths.
func (r *bodyReader) measure() (v int64, known bool) {
	t := r.token()
	return number(t, 1000), t != ""
}

func (e *evidence) judgeScore() {
	if e.scored && e.limited && e.score < e.least {
		e.mark(markEvaluatorRejected)
	}
}

func (r *bodyReader) localScalar(key string) {
	e := r.e
	v := ""
	switch r.Kind() {
	case jsonscan.String, jsonscan.Number:
		v = r.token()
	case jsonscan.Bool:
		v = "false"
		if r.Bool() {
			v = "true"
		}
	case jsonscan.Object:
		r.members(func(inner string) {
			if r.Kind() == jsonscan.Object || r.Kind() == jsonscan.Array {
				r.Skip()
				return
			}
			r.localScalar(inner)
		})
		return
	case jsonscan.Array:
		r.elements(func() {
			if r.Kind() == jsonscan.String {
				e.oom(key, r.str())
			} else {
				r.Skip()
			}
		})
		return
	default:
		r.Skip()
		return
	}
	e.wantsJSON = e.wantsJSON || key == "schema_valid"
	if key == "schema_valid" && v == "false" {
		e.mark(markSchemaInvalid)
	}
	if v == "false" && hasFold(key, "citation") {
		r.failedCheck(key)
	}
	if key == "repaired" && v == "true" {
		e.mark(markRepaired)
	}
	e.oom(key, v)
	e.localFact(key, "=", v)
	if number(v, 1) > 0 {
		e.localFact(key, ">", "0")
	}
	if key == "event" { // "tenant_budget_check" is also about budget
		from := 0
		for i := 0; i <= len(v); i++ {
			if i == len(v) || !wordByte(v[i]) {
				e.localFact(key, "~", v[from:i])
				from = i + 1
			}
		}
	}
}

func (e *evidence) localFact(key, sign, v string) {
	if len(key)+1+len(v) > maxValue {
		return
	}
	var buf [maxValue]byte
	e.exact(slotLocal, string(append(append(append(buf[:0], key...), sign...), v...)))
}

// oom recognises evidence that the kernel killed for lack of memory, however
// the sandbox calls it.
func (e *evidence) oom(key, v string) {
	if len(key) > maxValue || len(v) > 8*maxValue {
		return
	}
	named := hasFold(key, "oom") && v != "" && v != "0" && v != "false"
	if named || hasFold(v, "out of memory") || hasFold(v, "oom-kill") || hasFold(v, "oom_kill") || hasFold(v, "oomkilled") {
		e.mark(markOutOfMemory)
	}
}

// checks reads a list of {"name": …, "pass": …}, or an object of booleans.
func (r *bodyReader) checks() {
	if r.Kind() != jsonscan.Object {
		r.elements(r.check)
		return
	}
	r.members(func(name string) {
		if v, present := r.truth(); present && !v {
			r.failedCheck(name)
		}
	})
}

// check reads {"name": …, "pass": false}.
func (r *bodyReader) check() {
	name, failed := "", false
	r.members(func(key string) {
		switch key {
		case "name":
			name = r.str()
		case "pass", "passed", "ok":
			v, present := r.truth()
			failed = failed || present && !v
		default:
			r.Skip()
		}
	})
	if failed {
		r.failedCheck(name)
	}
}

func (r *bodyReader) failedCheck(name string) {
	name = name[:min(len(name), maxValue)]
	r.e.mark(markCheckFailed)
	if hasFold(name, "citation") || hasFold(name, "source") || hasFold(name, "grounded") {
		r.e.mark(markCitationFailed)
	}
	if hasFold(name, "schema") {
		r.e.mark(markSchemaInvalid)
	}
}

// evaluator reads the verdict of an evaluator: a text, a boolean, or an object
// with one of them.
func (r *bodyReader) evaluator() {
	switch r.Kind() {
	case jsonscan.String:
		r.evaluatorSays(r.str())
	case jsonscan.Bool:
		if !r.Bool() {
			r.e.mark(markEvaluatorRejected)
		}
	case jsonscan.Object:
		r.members(func(key string) {
			switch key {
			case "verdict", "result", "decision", "pass", "passed", "accepted", "label":
				r.evaluator()
			case "score":
				r.e.score, r.e.scored = r.measure()
			case "threshold", "min_score":
				r.e.least, r.e.limited = r.measure()
			default:
				r.Skip()
			}
		})
	default:
		r.Skip()
	}
}

func (r *bodyReader) evaluatorSays(v string) {
	switch strings.ToLower(v) {
	case "reject", "rejected", "fail", "failed", "bad", "unacceptable", "incorrect", "no":
		r.e.mark(markEvaluatorRejected)
	}
}

// toolIsUnknown reports whether a list of known tools is given and lacks the
// name.
func (e *evidence) toolIsUnknown(name string) bool {
	if e.knownTools == "" {
		return false
	}
	r := bodyReader{Scanner: jsonscan.Scan(e.knownTools, jsonscan.Options{Lenient: true, Depth: bodyDepth}), e: e}
	known := false
	r.elements(func() { known = r.str() == name || known })
	e.steps += r.Steps()
	return !known
}
