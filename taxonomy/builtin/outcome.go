package builtin

import "github.com/fusebox-dev/fusebox/taxonomy"

// verdict derives the outcome from the rule, the effect and what was
// dispatched. The rule knows what went wrong; whether anything was applied
// follows from here (SPEC R-TAX-5, R-TAX-6).
func (e *evidence) verdict(r *rule) taxonomy.Verdict {
	op, sent := &e.obs.Operation, e.obs.Transport.Dispatched != taxonomy.DispatchedNo
	v := taxonomy.Verdict{Class: r.class, Reason: r.reason, Retry: r.retry, By: r.by}
	switch {
	case !sent:
		v.Outcome = taxonomy.FailedBeforeSend
		if r.succeeds {
			v.Class = taxonomy.Cancellation
		}
	case r.succeeds:
		v.Outcome = taxonomy.Succeeded
		return v
	case e.unanswered(r):
		v.Outcome = taxonomy.Unknown
	case op.Effect.Writes() && !r.refused && !refusal(r):
		v.Outcome = taxonomy.Unknown
	default:
		v.Outcome = taxonomy.Failed
	}
	if v.Class == taxonomy.AmbiguousWrite && (v.Outcome != taxonomy.Unknown || !op.Effect.Writes()) {
		v.Class = taxonomy.TransientTransport
	}
	if v.Outcome == taxonomy.Unknown && op.Effect.Writes() && v.Class != taxonomy.Cancellation {
		v.Class = taxonomy.AmbiguousWrite
	}
	if v.RetryAfter = e.wait; v.RetryAfter == 0 && waitable(v.Class) {
		v.RetryAfter = taxonomy.ClampRetryAfter(e.spoken)
	}
	return v
}

// waitable reports whether a wait told in words can matter: for other classes
// nobody will come back because of it.
func waitable(c taxonomy.Class) bool {
	return c == taxonomy.RateLimit || c == taxonomy.TransientTransport || c == taxonomy.PersistentDependency
}

// unanswered reports whether nobody can know from an answer what happened.
func (e *evidence) unanswered(r *rule) bool {
	return r.unknown || r.tier == tierTransport && !r.refused
}

// refusal reports whether an answer of this class proves by itself that
// nothing was applied: the remote said no before doing anything. A check made
// here proves nothing about a write that was dispatched.
func refusal(r *rule) bool {
	if r.unproven {
		return false
	}
	switch r.class {
	case taxonomy.ClientInput, taxonomy.Authentication, taxonomy.Authorization, taxonomy.RateLimit, taxonomy.PolicyDenial, taxonomy.Budget:
		return true
	case taxonomy.Validation:
		return r.tier != tierContent && r.tier != tierLocal
	}
	return false
}
