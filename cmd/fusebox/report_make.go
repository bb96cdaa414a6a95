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
	circuits  map[circuitID]*circuitFigure
	nanoUSD   int64
}

// A circuitID is one circuit, of the version in force or of a candidate.
type circuitID struct{ breaker, scope, cohort string }

// covers reports whether a circuit is that of a scope or wider.
func (c circuitID) covers(breaker, scope string) bool {
	return c.breaker == breaker && (scope == c.scope || strings.HasPrefix(scope, c.scope+"/"))
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
		recovery: map[string]*recoveryDoc{}, fallbacks: map[string]*fallbackCount{}, open: map[circuitID]*episode{}, streaks: map[circuitID]*streak{}, circuits: map[circuitID]*circuitFigure{}}
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

// admission counts what a circuit stopped.
func (x *reporter) admission(r *receipts.Receipt) {
	if !r.Decision.OK || r.Decision.V == taxonomy.DecideAllow || r.State == receipts.NoState {
		return
	}
	x.stopped[stopCount{Breaker: r.Breaker, Reason: r.Reason}]++
	if c := x.circuit(idOf(r)); c != nil {
		c.Rejected++
	}
	if ep := x.open[idOf(r)]; ep != nil {
		ep.Stopped++
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
		x.circuit(circuitID{f.Breaker, f.Scope, cohortOf(r)}).counts(failed)
		for id, ep := range x.open {
			if id.cohort != cohortOf(r) || !id.covers(f.Breaker, f.Scope) || failed && id.scope != f.Scope || at.Equal(ep.opened) {
				continue // a failure counts at its own level alone
			}
			x.against(ep, r, failed, probe)
		}
	}
	x.streak(r, at, succeeded)
}

// circuit is the figures of one circuit; nil where there are too many to list.
func (x *reporter) circuit(id circuitID) *circuitFigure {
	c := x.circuits[id]
	if c == nil && len(x.circuits) < maxStreaks {
		c = &circuitFigure{Breaker: id.breaker, Scope: id.scope, State: receipts.StateClosed.String()}
		x.circuits[id] = c
	}
	return c
}

func (c *circuitFigure) counts(failed bool) {
	switch {
	case c == nil:
	case failed:
		c.Total, c.Failed, c.Consecutive = c.Total+1, c.Failed+1, c.Consecutive+1
	default:
		c.Total, c.Successful, c.Consecutive = c.Total+1, c.Successful+1, 0
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
	d.Circuits = make([]circuitFigure, 0, len(x.circuits))
	for _, c := range x.circuits {
		d.Circuits = append(d.Circuits, *c)
	}
	slices.SortFunc(d.Circuits, func(a, b circuitFigure) int { return strings.Compare(a.Scope, b.Scope) })
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
