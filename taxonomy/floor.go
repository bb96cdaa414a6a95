package taxonomy

// What [Floor] refuses. "" is nothing.
const (
	RefusedDisagreement   = "outcome_and_class_disagree"     // a class with SUCCEEDED, or none without
	RefusedBeforeSend     = "before_send_without_proof"      // FAILED_BEFORE_SEND although bytes may have left
	RefusedSent           = "sent_without_dispatch"          // another outcome although nothing left
	RefusedWriteOutcome   = "outcome_of_a_dispatched_write"  // neither the built-in outcome nor UNKNOWN
	RefusedAmbiguousRead  = "ambiguous_write_of_a_read"      // nothing can be ambiguous about a read
	RefusedAmbiguousKnown = "ambiguous_write_with_an_answer" // ambiguity is UNKNOWN or nothing
	RefusedDenial         = "denial_made_retryable"          // a denial turned into a success or a retry
)

// Floor holds what no module, plugin or caller may lower, whoever proposed the
// verdict (SPEC R-WASM-4). It is pure.
//
// For a dispatched write the built-in outcome stays or becomes UNKNOWN.
// FAILED_BEFORE_SEND follows from the transport's facts alone, in both
// directions. A denial by policy or for lack of authorization never becomes a
// success nor anything that is tried again by itself. What is refused is
// named, and then the built-in verdict stands whole.
//
// The built-in verdict is held to the facts as well: Floor(op, obs, v, v) is
// what the table alone gives.
func Floor(op *Operation, obs *Observation, builtin, proposed Verdict) (v Verdict, refused string) {
	builtin = factual(op, obs, builtin)
	proposed.RetryAfter = clamp(proposed.RetryAfter)
	if refused = refuses(op, obs, builtin, proposed); refused != "" {
		return builtin, refused
	}
	return unknownWrite(op, proposed), ""
}

func refuses(op *Operation, obs *Observation, builtin, p Verdict) string {
	sent := obs.Transport.Dispatched != DispatchedNo
	writes := op.Effect.Writes()
	switch {
	case p.Outcome > Succeeded || p.Class >= classes || p.Retry > RetryBackoff,
		(p.Outcome == Succeeded) != (p.Class == NoClass):
		return RefusedDisagreement
	case sent && p.Outcome == FailedBeforeSend:
		return RefusedBeforeSend
	case !sent && p.Outcome != FailedBeforeSend:
		return RefusedSent
	case sent && writes && p.Outcome != builtin.Outcome && p.Outcome != Unknown:
		return RefusedWriteOutcome
	case p.Class == AmbiguousWrite && !writes:
		return RefusedAmbiguousRead
	case p.Class == AmbiguousWrite && p.Outcome != Unknown:
		return RefusedAmbiguousKnown
	case denial(builtin.Class) && (p.Outcome == Succeeded || Advise(op, obs, unknownWrite(op, p)).Retry.Automatic()):
		return RefusedDenial
	}
	return ""
}

func denial(c Class) bool { return c == PolicyDenial || c == Authorization }

// factual holds a verdict to what the transport and the effect prove.
func factual(op *Operation, obs *Observation, v Verdict) Verdict {
	v.RetryAfter = clamp(v.RetryAfter)
	if v.Outcome > Succeeded {
		v.Outcome = Unknown
	}
	if v.Class >= classes {
		v.Class = NoClass
	}
	if v.Retry > RetryBackoff {
		v.Retry = RetryNever
	}
	switch sent := obs.Transport.Dispatched != DispatchedNo; {
	case !sent:
		v.Outcome = FailedBeforeSend
	case v.Outcome == FailedBeforeSend:
		v.Outcome = Unknown
	}
	switch {
	case v.Outcome == Succeeded:
		v.Class = NoClass
	case v.Class == NoClass, v.Class == AmbiguousWrite && (v.Outcome != Unknown || !op.Effect.Writes()):
		v.Class = TransientTransport
	}
	return unknownWrite(op, v)
}

// unknownWrite gives an UNKNOWN write the class that its circuit is fed by. A
// cancellation keeps its own: the caller left, and nobody is to blame.
func unknownWrite(op *Operation, v Verdict) Verdict {
	if v.Outcome == Unknown && op.Effect.Writes() && v.Class != Cancellation {
		v.Class = AmbiguousWrite
	}
	return v
}
