package taxonomy

import (
	"strings"
	"time"
)

// Advise makes the advice about another attempt, once, after [Floor]. It is
// pure.
//
// The verdict's Retry on the way in is the most its classifier would allow:
// never stays never (a deterministic fault), reconcile_first stays that, and
// backoff forbids nothing. What the outcome, the class, the effect and the
// stream say can only make it stricter, with one exception: a write whose
// outcome is UNKNOWN must be reconciled even where nobody would send it again,
// because somebody has to find out (SPEC R-CALL-3, R-TAX-5).
func Advise(op *Operation, obs *Observation, v Verdict) Verdict {
	v.RetryAfter = clamp(v.RetryAfter)
	v.Retry = advice(op, obs, v)
	return v
}

func advice(op *Operation, obs *Observation, v Verdict) Retry {
	writes := op.Effect.Writes()
	if v.Outcome == Unknown && writes && (!op.Effect.Repeatable() || v.Class == Cancellation) {
		return RetryReconcileFirst
	}
	if v.Outcome == Succeeded || v.Retry == RetryNever {
		return RetryNever
	}
	if v.Retry == RetryReconcileFirst {
		return RetryReconcileFirst
	}
	if shown(op, obs) {
		return RetryNever
	}
	switch v.Class {
	case TransientTransport, RateLimit, AmbiguousWrite:
		if v.RetryAfter > 0 {
			return RetryAfterHint
		}
		return RetryBackoff
	case PersistentDependency:
		// No short wait cures it; only who says when to come back is believed.
		if v.RetryAfter > 0 {
			return RetryAfterHint
		}
	}
	return RetryNever
}

// shown reports whether part of a streamed answer already reached the caller,
// so that a second answer would be stitched to the first (SPEC R-FBK-1). The
// bytes of a tool's plain response body went to the client and no further.
func shown(op *Operation, obs *Observation) bool {
	if !obs.Stream.Started && obs.Stream.Bytes <= 0 {
		return false
	}
	return op.Kind != "tool" || obs.Response != nil && strings.HasPrefix(obs.Response.Headers["content-type"], "text/event-stream")
}

func clamp(d time.Duration) time.Duration { return min(max(d, 0), MaxRetryAfter) }

// ClampRetryAfter turns milliseconds into a hint between 0 and [MaxRetryAfter].
func ClampRetryAfter(ms int64) time.Duration {
	return clamp(time.Duration(min(ms, int64(MaxRetryAfter/time.Millisecond))) * time.Millisecond)
}

// Milliseconds rounds a hint up, so that nobody comes back early.
func Milliseconds(d time.Duration) int64 {
	return int64((clamp(d) + time.Millisecond - 1) / time.Millisecond)
}
