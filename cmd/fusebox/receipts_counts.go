package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// transition explains a change of a circuit.
func (x *explainer) transition() {
	r := x.r
	say(&x.What, "At %s the %s circuit %s went %s → %s, because of %s.", clock(r.TimeUS), r.Layer, r.Scope, r.PrevState, r.State, r.Reason)
	if r.State == receipts.StateOpen {
		if r.ReopenAtUS > 0 {
			say(&x.What, "It lets a probe through from %s on, %s later.", clock(r.ReopenAtUS), span(time.Duration(r.CooldownMS)*time.Millisecond))
		} else {
			say(&x.What, "Time alone does not close it; it waits for evidence.")
		}
	}
	if r.Mode.OK && r.Mode.V != taxonomy.ModeEnforce {
		say(&x.What, "Its mode is %s: it refuses nothing and is only watched.", r.Mode.V)
	}
	last := "It moved with"
	if r.State == receipts.StateOpen { // what it had counted is no reason to try again, or to close
		x.counts(r)
		last = "The last straw was"
	}
	if !r.Parent.IsZero() {
		if e, err := receipts.Find(x.logs, r.Parent); err == nil {
			row := entryRow(&e)
			say(&x.Why, "%s the %s of %s, %s (receipt %s).", last, row[2], row[3], strings.TrimSpace(row[4]), r.Parent)
		}
	}
	x.reach(r.Layer, r.Scope, "")
	x.flipTransition()
}

// limit is a threshold that was in force; 0 says that it was not watched.
func limit(r *receipts.Receipt, name string) int64 {
	for _, l := range r.Limits {
		if l.Name == name {
			return l.N
		}
	}
	return 0
}

func percent(ppm int64) string { return fmt.Sprintf("%g %%", float64(ppm/1000)/10) }

// counts holds what a circuit had counted against its limits.
func (x *explainer) counts(r *receipts.Receipt) {
	if r.Reason == "hard_signal" || r.Reason == "retry_after" || r.Reason == "override" {
		return // it did not go by counts
	}
	w := &r.Window
	if w.Kind == receipts.NoWindow {
		return
	}
	if n := limit(r, "consecutive"); n > 0 {
		say(&x.Why, "%d %s in a row; the limit is %d.", w.Consecutive, plain(w.Consecutive, "failure", "failures"), n)
	}
	if n := limit(r, "open_ppm"); n > 0 {
		least := limit(r, "min_samples")
		s := fmt.Sprintf("%d of %d failed in its window, %s; the limit is %s of at least %d", w.Failures, w.SampleSize, percent(w.RatioPPM), percent(n), least)
		if w.SampleSize < least {
			s += ", so the share did not count yet"
		}
		say(&x.Why, "%s.", s)
	}
	if n := limit(r, "unknown"); n > 0 {
		say(&x.Why, "It opens at %d %s in its window.", n, plain(n, "UNKNOWN outcome", "UNKNOWN outcomes"))
	}
	for _, c := range w.ExcludedBy {
		say(&x.Why, "%d of class %s %s noted apart and did not count.", c.N, c.Name, plain(c.N, "was", "were"))
	}
}

func plain(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// flipTransition says what would have kept the circuit as it was.
func (x *explainer) flipTransition() {
	r := x.r
	switch w := &r.Window; r.Reason {
	case "consecutive_failures":
		say(&x.Flip, "One success among the last %d outcomes, or a limit of %d, would have kept it %s.", w.Consecutive, w.Consecutive+1, r.PrevState)
	case "failure_ratio":
		// With k failures fewer, turned into successes, the share lies under the limit.
		if n := limit(r, "open_ppm"); n > 0 && w.SampleSize > 0 {
			most := (n*w.SampleSize - 1) / 1_000_000 // failures that stay under the limit
			fewer := max(w.Failures-most, 1)
			say(&x.Flip, "%d %s fewer among %d, or a limit above %s, would have kept it %s.", fewer, plain(fewer, "failure", "failures"), w.SampleSize, percent(w.RatioPPM), r.PrevState)
		}
	case "slow_ratio":
		say(&x.Flip, "Faster answers: too large a share took longer than slow_over.")
	case "unknown_outcomes":
		say(&x.Flip, "A known outcome, or a limit that is higher by one.")
	case "hard_signal":
		say(&x.Flip, "Only the outcome itself: its rule opens at once, whatever was counted.")
	case "retry_after":
		say(&x.Flip, "Only the remote: it asked not to be called before a time.")
	case "rollup":
		say(&x.Flip, "Fewer open circuits under it: enough of the narrower ones opened.")
	case "probe_failed", "probes_lost", "ramp_failed":
		say(&x.Flip, "A probe that succeeds.")
	case "cooldown_over":
		say(&x.Flip, "Nothing: the cooldown had ended, and a call asked.")
	case "probes_passed", "ramp_passed":
		say(&x.Flip, "A probe that fails would have opened it again.")
	case "evidence":
		say(&x.Flip, "It waited for evidence, and got it.")
	case "override", "override_cleared", "override_expired":
		say(&x.Flip, "A person: fusebox receipts list --kind override says who, when and why.")
	default:
		say(&x.Flip, "%s not happening.", r.Reason)
	}
}

// equalCalls says how often a run had made the call that was refused as repeated.
func (x *explainer) equalCalls() {
	r := x.r
	if r.Reason != "identical_call_repeated" || r.ArgsFP == "" || r.RunID == "" {
		return
	}
	var before int64
	q := receipts.Query{Kinds: []receipts.Kind{receipts.KindOutcome}, RunID: r.RunID, Tenant: r.Tenant, Until: time.UnixMicro(r.TimeUS + 1)}
	for e, err := range receipts.All(x.logs, q) {
		if err != nil {
			return
		}
		if o := &e.Receipt; o.Operation == r.Operation && o.ArgsFP == r.ArgsFP && o.RemoteCallAttempted {
			before++
		}
	}
	say(&x.Why, "Run %s had made this call with the same arguments %d %s before, and the policy's [loop] allows no more.", r.RunID, before, plain(before, "time", "times"))
}

// reconciled says how an UNKNOWN outcome was settled later.
func (x *explainer) reconciled() (ok bool) {
	q := receipts.Query{Kinds: []receipts.Kind{receipts.KindReconcile}, Parent: x.r.Parent}
	for e, err := range receipts.All(x.logs, q) {
		if err != nil {
			break
		}
		if f := &e.Receipt; f.Finding == receipts.FindingApplied || f.Finding == receipts.FindingNotApplied {
			say(&x.Flip, "It is known by now: at %s %s found it %s (receipt %s).", clock(f.TimeUS), dash(f.By), strings.ReplaceAll(f.Finding.String(), "_", " "), f.ID)
			ok = true
		}
	}
	return ok
}
