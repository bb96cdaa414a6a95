package main

import (
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
)

// An episode is one circuit from its opening to its closing.
type episode struct {
	openReview
	opened    time.Time
	succeeded int64
	failed    int64
	right     bool
	overruled bool
}

// transition follows a circuit through its states.
func (x *reporter) transition(r *receipts.Receipt, at time.Time) {
	id := idOf(r)
	if c := x.circuit(id); c != nil && r.State != receipts.NoState {
		c.State = r.State.String()
	}
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

// override notes a person who closed what was open.
func (x *reporter) override(r *receipts.Receipt) {
	if ep := x.open[idOf(r)]; ep != nil && r.Reason == "forced_closed" {
		ep.overruled = true
		ep.Receipts = append(ep.Receipts, r.ID.String())
	}
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
