package taxonomy_test

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// product calls f with every combination that the floor and the advice look at.
func product(f func(op *taxonomy.Operation, obs *taxonomy.Observation, builtin, proposed taxonomy.Verdict)) {
	for _, effect := range []taxonomy.Effect{taxonomy.NonRepeatable, taxonomy.ConditionallyRepeatable, taxonomy.IdempotentWrite, taxonomy.ReadOnly} {
		for _, sent := range []taxonomy.Dispatched{taxonomy.DispatchedUnknown, taxonomy.DispatchedYes, taxonomy.DispatchedNo} {
			for _, kind := range []string{"model", "tool"} {
				for _, started := range []bool{false, true} {
					op := &taxonomy.Operation{Kind: kind, Effect: effect}
					obs := &taxonomy.Observation{Operation: *op, Transport: taxonomy.Transport{Dispatched: sent}}
					if started {
						obs.Stream = taxonomy.Stream{Started: true, Bytes: 9}
					}
					for b := range 4 * taxonomy.Classes {
						builtin := verdict(b)
						for p := range 4 * taxonomy.Classes {
							f(op, obs, builtin, verdict(p))
						}
					}
				}
			}
		}
	}
}

func verdict(n int) taxonomy.Verdict {
	v := taxonomy.Verdict{Outcome: taxonomy.Outcome(n % 4), Class: taxonomy.Class(n / 4), Retry: taxonomy.RetryBackoff, By: "x"}
	if n%3 == 0 {
		v.RetryAfter = time.Minute
	}
	return v
}

// TestFloorOverTheFullProduct proves R-TAX-1, R-TAX-5 and R-WASM-4: whatever a table
// says and whatever a module proposes, these hold.
func TestFloorOverTheFullProduct(t *testing.T) {
	n, refusals := 0, map[string]int{}
	product(func(op *taxonomy.Operation, obs *taxonomy.Observation, builtin, proposed taxonomy.Verdict) {
		n++
		base, none := taxonomy.Floor(op, obs, builtin, builtin)
		v, refused := taxonomy.Floor(op, obs, builtin, proposed)
		refusals[refused]++
		a := taxonomy.Advise(op, obs, v)
		sent := obs.Transport.Dispatched != taxonomy.DispatchedNo
		write := op.Effect != taxonomy.ReadOnly
		check := func(name string, ok bool) {
			if !ok {
				t.Fatalf("%s\n op %+v dispatched %v stream %+v\n builtin %v/%v proposed %v/%v\n base %v/%v (%s)\n got %v/%v (%s) retry %v",
					name, op, obs.Transport.Dispatched, obs.Stream, builtin.Outcome, builtin.Class, proposed.Outcome, proposed.Class,
					base.Outcome, base.Class, none, v.Outcome, v.Class, refused, a.Retry)
			}
		}
		check("a dispatched write keeps the built-in outcome or becomes UNKNOWN",
			!(sent && write) || v.Outcome == base.Outcome || v.Outcome == taxonomy.Unknown)
		check("UNKNOWN of a dispatched write never becomes anything else",
			!(sent && write && builtin.Outcome == taxonomy.Unknown) || v.Outcome == taxonomy.Unknown)
		check("FAILED_BEFORE_SEND follows from the transport alone", (v.Outcome == taxonomy.FailedBeforeSend) == !sent)
		check("SUCCEEDED has no class and everything else has one", (v.Outcome == taxonomy.Succeeded) == (v.Class == taxonomy.NoClass))
		check("ambiguity is an UNKNOWN write", v.Class != taxonomy.AmbiguousWrite || v.Outcome == taxonomy.Unknown && write)
		check("an UNKNOWN write feeds the ambiguity circuit",
			!(v.Outcome == taxonomy.Unknown && write) || v.Class == taxonomy.AmbiguousWrite || v.Class == taxonomy.Cancellation)
		denied := base.Class == taxonomy.PolicyDenial || base.Class == taxonomy.Authorization
		check("a denial is never a success", !denied || v.Outcome != taxonomy.Succeeded)
		check("a denial is never retried by itself", !denied || !a.Retry.Automatic())
		check("what is refused leaves the built-in verdict", refused == "" || v.Outcome == base.Outcome && v.Class == base.Class)
		check("what is accepted is the proposal", refused != "" || v.Outcome == proposed.Outcome)
		check("an UNKNOWN write that may not be repeated is reconciled first",
			!(v.Outcome == taxonomy.Unknown && write && op.Effect != taxonomy.IdempotentWrite) || a.Retry == taxonomy.RetryReconcileFirst)
		check("nothing is tried again after first streamed output", !(obs.Stream.Started && op.Kind == "model") || !a.Retry.Automatic())
		check("a success is not tried again", v.Outcome != taxonomy.Succeeded || a.Retry == taxonomy.RetryNever)
		check("a wait needs a hint", a.Retry != taxonomy.RetryAfterHint || a.RetryAfter > 0)
		again, why := taxonomy.Floor(op, obs, base, v)
		check("the floor accepts its own answer", why == "" && again.Outcome == v.Outcome && again.Class == v.Class)
		check("advice is stable", taxonomy.Advise(op, obs, a).Retry == a.Retry)
	})
	if n < 100000 {
		t.Fatalf("only %d combinations", n)
	}
	for _, code := range []string{"", taxonomy.RefusedDisagreement, taxonomy.RefusedBeforeSend, taxonomy.RefusedSent, taxonomy.RefusedWriteOutcome,
		taxonomy.RefusedAmbiguousRead, taxonomy.RefusedAmbiguousKnown, taxonomy.RefusedDenial} {
		if refusals[code] == 0 {
			t.Errorf("no combination was refused with %q", code)
		}
	}
}

// TestFloorRefusesByName proves that what the floor refuses is visible
// (R-WASM-4), case by case.
func TestFloorRefusesByName(t *testing.T) {
	v := func(o taxonomy.Outcome, c taxonomy.Class) taxonomy.Verdict {
		return taxonomy.Verdict{Outcome: o, Class: c, Retry: taxonomy.RetryBackoff}
	}
	ambiguous := v(taxonomy.Unknown, taxonomy.AmbiguousWrite)
	for _, c := range []struct {
		name              string
		effect            taxonomy.Effect
		sent              taxonomy.Dispatched
		builtin, proposed taxonomy.Verdict
		want              string
	}{
		{"UNKNOWN to FAILED would make a committed write retryable", taxonomy.NonRepeatable, taxonomy.DispatchedYes, ambiguous,
			v(taxonomy.Failed, taxonomy.TransientTransport), taxonomy.RefusedWriteOutcome},
		{"UNKNOWN to SUCCEEDED would hide it", taxonomy.NonRepeatable, taxonomy.DispatchedYes, ambiguous,
			v(taxonomy.Succeeded, taxonomy.NoClass), taxonomy.RefusedWriteOutcome},
		{"SUCCEEDED to FAILED would make it run twice", taxonomy.IdempotentWrite, taxonomy.DispatchedYes, v(taxonomy.Succeeded, taxonomy.NoClass),
			v(taxonomy.Failed, taxonomy.TransientTransport), taxonomy.RefusedWriteOutcome},
		{"unknown dispatch counts as dispatched", taxonomy.NonRepeatable, taxonomy.DispatchedUnknown, ambiguous,
			v(taxonomy.FailedBeforeSend, taxonomy.TransientTransport), taxonomy.RefusedBeforeSend},
		{"a read was not sent", taxonomy.ReadOnly, taxonomy.DispatchedNo, v(taxonomy.FailedBeforeSend, taxonomy.TransientTransport),
			v(taxonomy.Succeeded, taxonomy.NoClass), taxonomy.RefusedSent},
		{"a denial stays one", taxonomy.ReadOnly, taxonomy.DispatchedYes, v(taxonomy.Failed, taxonomy.Authorization),
			v(taxonomy.Failed, taxonomy.RateLimit), taxonomy.RefusedDenial},
		{"a denied read is no success", taxonomy.ReadOnly, taxonomy.DispatchedYes, v(taxonomy.Failed, taxonomy.PolicyDenial),
			v(taxonomy.Succeeded, taxonomy.NoClass), taxonomy.RefusedDenial},
		{"UNKNOWN may always be said of a write", taxonomy.NonRepeatable, taxonomy.DispatchedYes, v(taxonomy.Failed, taxonomy.ClientInput),
			v(taxonomy.Unknown, taxonomy.TransientTransport), ""},
		{"a better class for the same outcome", taxonomy.NonRepeatable, taxonomy.DispatchedYes, v(taxonomy.Failed, taxonomy.ClientInput),
			v(taxonomy.Failed, taxonomy.Budget), ""},
		{"a read may be judged freely", taxonomy.ReadOnly, taxonomy.DispatchedYes, v(taxonomy.Failed, taxonomy.ClientInput),
			v(taxonomy.Succeeded, taxonomy.NoClass), ""},
	} {
		op := &taxonomy.Operation{Kind: "tool", Effect: c.effect}
		obs := &taxonomy.Observation{Operation: *op, Transport: taxonomy.Transport{Dispatched: c.sent}}
		got, refused := taxonomy.Floor(op, obs, c.builtin, c.proposed)
		if refused != c.want {
			t.Errorf("%s: refused %q, want %q", c.name, refused, c.want)
		}
		if c.want != "" && (got.Outcome != c.builtin.Outcome || got.Class != c.builtin.Class) {
			t.Errorf("%s: %v/%v stands", c.name, got.Outcome, got.Class)
		}
	}
}

func TestFloorOnValuesOutsideTheEnums(t *testing.T) {
	op := &taxonomy.Operation{Kind: "tool"}
	obs := &taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes}}
	bad := taxonomy.Verdict{Outcome: 200, Class: 200, Retry: 200, RetryAfter: -time.Hour}
	v, _ := taxonomy.Floor(op, obs, bad, bad)
	if v.Outcome != taxonomy.Unknown || v.Class != taxonomy.AmbiguousWrite || v.RetryAfter != 0 {
		t.Errorf("nonsense became %+v", v)
	}
	if r := taxonomy.Advise(op, obs, v).Retry; r != taxonomy.RetryReconcileFirst {
		t.Errorf("advice %v", r)
	}
}

// TestAdvise states the advice for what reaches it from the table (R-CALL-5).
func TestAdvise(t *testing.T) {
	type in struct {
		kind    string
		effect  taxonomy.Effect
		outcome taxonomy.Outcome
		class   taxonomy.Class
		ceiling taxonomy.Retry
		hint    time.Duration
		stream  string // "", "content", "sse"
	}
	const open = taxonomy.RetryBackoff
	for _, c := range []struct {
		name string
		in   in
		want taxonomy.Retry
	}{
		{"rate limit", in{"model", taxonomy.ReadOnly, taxonomy.Failed, taxonomy.RateLimit, open, 0, ""}, taxonomy.RetryBackoff},
		{"rate limit with a hint", in{"model", taxonomy.ReadOnly, taxonomy.Failed, taxonomy.RateLimit, open, time.Second, ""}, taxonomy.RetryAfterHint},
		{"refused write", in{"tool", taxonomy.NonRepeatable, taxonomy.Failed, taxonomy.RateLimit, open, 0, ""}, taxonomy.RetryBackoff},
		{"own never", in{"model", taxonomy.ReadOnly, taxonomy.Failed, taxonomy.TransientTransport, taxonomy.RetryNever, time.Second, ""}, taxonomy.RetryNever},
		{"own reconcile", in{"tool", taxonomy.NonRepeatable, taxonomy.Failed, taxonomy.TransientTransport, taxonomy.RetryReconcileFirst, 0, ""}, taxonomy.RetryReconcileFirst},
		{"unknown read", in{"tool", taxonomy.ReadOnly, taxonomy.Unknown, taxonomy.TransientTransport, open, 0, ""}, taxonomy.RetryBackoff},
		{"unknown write", in{"tool", taxonomy.NonRepeatable, taxonomy.Unknown, taxonomy.AmbiguousWrite, taxonomy.RetryNever, time.Second, ""}, taxonomy.RetryReconcileFirst},
		{"unknown conditional write", in{"tool", taxonomy.ConditionallyRepeatable, taxonomy.Unknown, taxonomy.AmbiguousWrite, open, 0, ""}, taxonomy.RetryReconcileFirst},
		{"unknown idempotent write", in{"tool", taxonomy.IdempotentWrite, taxonomy.Unknown, taxonomy.AmbiguousWrite, open, 0, ""}, taxonomy.RetryBackoff},
		{"cancelled write", in{"tool", taxonomy.NonRepeatable, taxonomy.Unknown, taxonomy.Cancellation, open, 0, ""}, taxonomy.RetryReconcileFirst},
		{"cancelled read", in{"model", taxonomy.ReadOnly, taxonomy.Unknown, taxonomy.Cancellation, open, 0, ""}, taxonomy.RetryNever},
		{"not sent", in{"tool", taxonomy.NonRepeatable, taxonomy.FailedBeforeSend, taxonomy.TransientTransport, open, 0, ""}, taxonomy.RetryBackoff},
		{"persistent", in{"model", taxonomy.ReadOnly, taxonomy.Failed, taxonomy.PersistentDependency, open, 0, ""}, taxonomy.RetryNever},
		{"persistent with a hint", in{"model", taxonomy.ReadOnly, taxonomy.FailedBeforeSend, taxonomy.PersistentDependency, open, time.Second, ""}, taxonomy.RetryAfterHint},
		{"budget with a hint", in{"model", taxonomy.ReadOnly, taxonomy.Failed, taxonomy.Budget, open, time.Second, ""}, taxonomy.RetryNever},
		{"input", in{"model", taxonomy.ReadOnly, taxonomy.Failed, taxonomy.ClientInput, open, time.Second, ""}, taxonomy.RetryNever},
		{"validation", in{"model", taxonomy.ReadOnly, taxonomy.Failed, taxonomy.Validation, open, 0, ""}, taxonomy.RetryNever},
		{"broken model stream", in{"model", taxonomy.ReadOnly, taxonomy.Failed, taxonomy.TransientTransport, open, time.Second, "content"}, taxonomy.RetryNever},
		{"truncated tool read", in{"tool", taxonomy.ReadOnly, taxonomy.Unknown, taxonomy.TransientTransport, open, 0, "content"}, taxonomy.RetryBackoff},
		{"broken tool event stream", in{"tool", taxonomy.ReadOnly, taxonomy.Unknown, taxonomy.TransientTransport, open, 0, "sse"}, taxonomy.RetryNever},
	} {
		op := &taxonomy.Operation{Kind: c.in.kind, Effect: c.in.effect}
		obs := &taxonomy.Observation{}
		if c.in.stream != "" {
			obs.Stream = taxonomy.Stream{Started: true, Bytes: 1}
		}
		if c.in.stream == "sse" {
			obs.Response = &taxonomy.Response{Status: 200, Headers: map[string]string{"content-type": "text/event-stream; charset=utf-8"}}
		}
		v := taxonomy.Verdict{Outcome: c.in.outcome, Class: c.in.class, Retry: c.in.ceiling, RetryAfter: c.in.hint}
		if got := taxonomy.Advise(op, obs, v).Retry; got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestHintsAreClamped(t *testing.T) {
	for _, c := range []struct{ in, want time.Duration }{{-time.Hour, 0}, {time.Hour, time.Hour}, {1 << 62, taxonomy.MaxRetryAfter}, {-1 << 63, 0}} {
		v := taxonomy.Advise(&taxonomy.Operation{}, &taxonomy.Observation{}, taxonomy.Verdict{RetryAfter: c.in})
		if v.RetryAfter != c.want {
			t.Errorf("%v became %v", c.in, v.RetryAfter)
		}
	}
	for _, c := range []struct {
		ms   int64
		want time.Duration
	}{{-1, 0}, {1500, 1500 * time.Millisecond}, {1 << 62, taxonomy.MaxRetryAfter}, {-1 << 63, 0}} {
		if got := taxonomy.ClampRetryAfter(c.ms); got != c.want {
			t.Errorf("%d ms became %v", c.ms, got)
		}
	}
	if taxonomy.Milliseconds(1500*time.Microsecond) != 2 {
		t.Error("a hint is rounded down")
	}
}
