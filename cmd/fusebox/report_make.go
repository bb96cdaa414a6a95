package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A reporter reads receipts in the order of their time, once.
type reporter struct {
	doc       *reportDoc
	until     time.Time
	missed    int64
	opens     map[openCount]int64
	stopped   map[stopCount]int64
	times     map[string]*timeOpen
	recovery  map[string]*recoveryDoc
	fallbacks map[string]*fallbackCount
	open      map[circuitID]*episode
	streaks   map[circuitID]*streak
	nanoUSD   int64
}

// A circuitID is one circuit, of the version in force or of a candidate.
type circuitID struct{ breaker, scope, cohort string }

// covers reports whether a circuit is that of a scope or wider.
func (c circuitID) covers(breaker, scope string) bool {
	return c.breaker == breaker && (scope == c.scope || strings.HasPrefix(scope, c.scope+"/"))
}

// An episode is one circuit from its opening to its closing.
type episode struct {
	openReview
	opened    time.Time
	succeeded int64
	failed    int64
	right     bool
	overruled bool
}

// A streak is failures in a row at one scope.
type streak struct {
	missedOpen
	observed bool // its circuit opened, and bound nobody
}

// Bounds of what a report keeps and lists.
const (
	maxReview  = 100
	maxStreaks = 10_000
)

// makeReport computes the figures of the last span of time.
func makeReport(ctx context.Context, root string, store state.Store, since time.Duration, missed int) (*reportDoc, error) {
	until := time.Now().UTC()
	x := &reporter{until: until, missed: int64(missed), opens: map[openCount]int64{}, stopped: map[stopCount]int64{}, times: map[string]*timeOpen{},
		recovery: map[string]*recoveryDoc{}, fallbacks: map[string]*fallbackCount{}, open: map[circuitID]*episode{}, streaks: map[circuitID]*streak{}}
	x.doc = &reportDoc{V: 1, Since: until.Add(-since), Until: until, Missed: []missedOpen{}, False: falseOpens{Review: []openReview{}}}
	var err error
	x.doc.Queue, err = queueNow(func(q state.ItemQuery) (n int64, oldest time.Time, err error) {
		for it, err := range store.Items(ctx, q) {
			if err != nil {
				return 0, oldest, fmt.Errorf("read the queue: %w", err)
			}
			if n++; oldest.IsZero() || it.Created.Before(oldest) {
				oldest = it.Created
			}
		}
		return n, oldest, nil
	})
	if err != nil {
		return nil, err
	}
	logs, err := openLogs(root)
	if err != nil {
		return nil, err
	}
	for e, err := range receipts.All(logs, receipts.Query{Since: x.doc.Since}) {
		if err != nil {
			return nil, fmt.Errorf("read receipts: %w", err)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		x.doc.Receipts++
		x.read(&e.Receipt)
	}
	x.finish()
	return x.doc, nil
}

func (x *reporter) read(r *receipts.Receipt) {
	if r.Cohort == "shadow" {
		return // what a candidate would have done did not happen
	}
	at := time.UnixMicro(r.TimeUS).UTC()
	switch r.Kind {
	case receipts.KindTransition:
		x.transition(r, at)
	case receipts.KindAdmission:
		x.admission(r)
	case receipts.KindOutcome:
		x.outcome(r, at)
	case receipts.KindOverride:
		x.override(r)
	case receipts.KindFallback:
		x.fallback(r)
	case receipts.KindReconcile:
		if r.Finding == receipts.FindingApplied {
			x.doc.Cost.Verified++
		}
	case receipts.KindQueue:
		switch r.Reason {
		case "expired":
			x.doc.Queue.Expired++
		case "withdrawn":
			x.doc.Queue.Withdrawn++
		}
	}
}

// idOf is the circuit that a receipt is about.
func idOf(r *receipts.Receipt) circuitID {
	return circuitID{r.Breaker, r.Scope, cohortOf(r)}
}

func (x *reporter) recovered(breaker string) *recoveryDoc {
	if x.recovery[breaker] == nil {
		x.recovery[breaker] = &recoveryDoc{Breaker: breaker}
	}
	return x.recovery[breaker]
}

// transition follows a circuit through its states.
func (x *reporter) transition(r *receipts.Receipt, at time.Time) {
	id := idOf(r)
	switch {
	case r.State == receipts.StateOpen && r.PrevState == receipts.StateClosed:
		mode := r.Mode.V.String()
		x.opens[openCount{Breaker: r.Breaker, Mode: mode, Reason: r.Reason}]++
		x.open[id] = &episode{openReview: openReview{Breaker: r.Breaker, Scope: r.Scope, Mode: mode, Reason: r.Reason, At: at,
			Receipts: []string{r.ID.String()}}, opened: at, right: openedBy(r)}
		x.opened(id, r)
	case r.State == receipts.StateOpen && r.PrevState != receipts.StateOpen:
		x.recovered(r.Breaker).Reopened++
		if ep := x.open[id]; ep != nil {
			ep.right = true
		}
	case r.State == receipts.StateHalfOpen && r.PrevState == receipts.StateOpen:
		x.recovered(r.Breaker).Attempts++
	case r.State == receipts.StateClosed && r.PrevState != receipts.StateClosed:
		x.recovered(r.Breaker).Closed++
		if ep := x.open[id]; ep != nil {
			x.closed(id, ep, at, false)
		}
	}
}

// closed ends an episode, and judges it.
func (x *reporter) closed(id circuitID, ep *episode, at time.Time, still bool) {
	delete(x.open, id)
	ep.Seconds, ep.After = at.Sub(ep.opened).Seconds(), ep.succeeded
	t := x.times[ep.Breaker]
	if t == nil {
		t = &timeOpen{Breaker: ep.Breaker}
		x.times[ep.Breaker] = t
	}
	t.Seconds += ep.Seconds
	t.Longest = max(t.Longest, ep.Seconds)
	if still {
		t.Still++
	}
	f := &x.doc.False
	switch {
	case ep.overruled:
		f.Undone++
		ep.Finding = "overruled"
	case ep.right || ep.failed > 0:
		f.Right++
		return
	case ep.succeeded == 0:
		f.Unknown++
		return
	default:
		f.Doubted++
		ep.Finding = "doubtful"
	}
	f.Review = append(f.Review, ep.openReview)
	if len(f.Review) > maxReview {
		f.Review, f.More = slices.Delete(f.Review, 0, 1), f.More+1
	}
}

// admission counts what a circuit stopped.
func (x *reporter) admission(r *receipts.Receipt) {
	if !r.Decision.OK || r.Decision.V == taxonomy.DecideAllow || r.State == receipts.NoState {
		return
	}
	x.stopped[stopCount{Breaker: r.Breaker, Reason: r.Reason}]++
	if ep := x.open[idOf(r)]; ep != nil {
		ep.Stopped++
	}
}

// override notes a person who closed what was open.
func (x *reporter) override(r *receipts.Receipt) {
	if ep := x.open[idOf(r)]; ep != nil && r.Reason == "forced_closed" {
		ep.overruled = true
		ep.Receipts = append(ep.Receipts, r.ID.String())
	}
}

func (x *reporter) fallback(r *receipts.Receipt) {
	contract, _, _ := strings.Cut(r.Fallback, ":")
	f := x.fallbacks[contract]
	if f == nil {
		f = &fallbackCount{Contract: contract, Losses: map[string]int64{}}
		x.fallbacks[contract] = f
	}
	if r.FallbackResult != receipts.FallbackUsed {
		f.Unanswered++
		return
	}
	f.Used++
	if len(r.FallbackLoss) == 0 {
		f.Full++
	}
	for _, loss := range r.FallbackLoss {
		f.Losses[loss]++
	}
}

// outcome counts an attempt: what it cost, what it says of circuits that are
// open, and of those that are not.
func (x *reporter) outcome(r *receipts.Receipt, at time.Time) {
	for _, used := range r.Budget {
		if used.Name == "used_cost_nano_usd" {
			x.nanoUSD += used.N
		}
	}
	if !r.Outcome.OK || !r.RemoteCallAttempted {
		return
	}
	succeeded := r.Outcome.V == taxonomy.Succeeded
	if succeeded {
		x.doc.Cost.Verified++
	}
	probe := slices.Contains(r.Flags, "probe")
	for i := range r.Feeds {
		f := &r.Feeds[i]
		failed := f.Signal == taxonomy.SignalFailure || f.Signal == taxonomy.SignalOpenNow
		if f.Signal == taxonomy.SignalExcluded {
			continue
		}
		for id, ep := range x.open {
			if id.cohort != cohortOf(r) || !id.covers(f.Breaker, f.Scope) || failed && id.scope != f.Scope || at.Equal(ep.opened) {
				continue // a failure counts at its own level alone
			}
			x.against(ep, r, failed, probe)
		}
	}
	x.streak(r, at, succeeded)
}

// against is what a call under an open circuit says of its opening.
func (x *reporter) against(ep *episode, r *receipts.Receipt, failed, probe bool) {
	if probe {
		rec := x.recovered(ep.Breaker)
		if failed {
			rec.Failed++
		} else {
			rec.Passed++
		}
	}
	if failed {
		ep.failed++
		return
	}
	if ep.succeeded++; ep.succeeded <= 2 {
		ep.Receipts = append(ep.Receipts, r.ID.String())
	}
}

// finish puts in order what was counted.
func (x *reporter) finish() {
	for id, ep := range x.open {
		x.closed(id, ep, x.until, true)
	}
	for id, s := range x.streaks {
		x.ends(id, s)
	}
	d := x.doc
	for k, n := range x.opens {
		k.N = n
		d.Opens = append(d.Opens, k)
	}
	for k, n := range x.stopped {
		k.N = n
		d.Stopped = append(d.Stopped, k)
	}
	d.TimeOpen, d.Recovery, d.Fallbacks = sortedValues(x.times), sortedValues(x.recovery), sortedValues(x.fallbacks)
	slices.SortFunc(d.Opens, func(a, b openCount) int {
		return strings.Compare(a.Breaker+a.Mode+a.Reason, b.Breaker+b.Mode+b.Reason)
	})
	slices.SortFunc(d.Stopped, func(a, b stopCount) int { return strings.Compare(a.Breaker+a.Reason, b.Breaker+b.Reason) })
	slices.SortFunc(d.False.Review, func(a, b openReview) int { return a.At.Compare(b.At) })
	slices.SortFunc(d.Missed, func(a, b missedOpen) int { return a.From.Compare(b.From) })
	d.Cost.USD = float64(x.nanoUSD) / 1e9
	if d.Cost.Verified > 0 {
		d.Cost.PerVerified = d.Cost.USD / float64(d.Cost.Verified)
	}
	d.Opens, d.Stopped = append([]openCount{}, d.Opens...), append([]stopCount{}, d.Stopped...)
}

func sortedValues[T any](m map[string]*T) []T {
	out := make([]T, 0, len(m))
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, *m[name])
	}
	return out
}
