package replay

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Circuits says what the settings of a policy would have made of the recorded
// calls: every circuit runs again, closed at first, on the times and outcomes of
// the receipts. History cannot tell how a call would have ended that it refused
// itself, nor how long a cooldown would have been drawn. So the run is made four
// times, with all such calls succeeding and all failing, with the shortest and
// the longest cooldowns, and each figure lies between the lowest and the highest
// of the four. Calls that come earlier or not at all because of an answer, such
// as retries, are taken as they were.
type Circuits struct {
	Calls          int64 `json:"calls"`           // that circuits were asked about
	OutcomeUnknown int64 `json:"outcome_unknown"` // … of them refused by a circuit then

	Opens            Bound `json:"opens"`
	ShortCircuited   Bound `json:"short_circuited"`   // calls refused by a circuit
	OpenMS           Bound `json:"open_ms"`           // time open, over all circuits
	AvoidedFailures  Range `json:"avoided_failures"`  // calls refused that went through then, and failed
	BlockedSuccesses Range `json:"blocked_successes"` // … and succeeded

	Breakers []BreakerBounds `json:"breakers"` // those that opened, in the order of the policy

	// What the figures leave out.
	Unplaced  map[string]int64 `json:"unplaced"`   // calls, by breaker, of whose scope the receipts do not say enough
	Misfed    int64            `json:"misfed"`     // feeds that name no circuit of these settings
	OnlyCount int64            `json:"only_count"` // receipts that the log only counts: sampled out or lost
	Cut       int64            `json:"cut"`        // calls beyond the limit of memory
}

// A Range holds what lies between two assumptions.
type Range struct {
	Low  int64 `json:"low"`
	High int64 `json:"high"`
}

// A Bound is a range beside what the receipts recorded.
type Bound struct {
	Recorded int64 `json:"recorded"`
	Range
}

// BreakerBounds are the opens and refusals of one breaker's circuits.
type BreakerBounds struct {
	Breaker        string `json:"breaker"`
	Mode           string `json:"mode"`
	Opens          Range  `json:"opens"`
	ShortCircuited Range  `json:"short_circuited"` // calls that it refused, alone or with others
}

func (r *Range) take(n int64, first bool) {
	if first {
		r.Low, r.High = n, n
	}
	r.Low, r.High = min(r.Low, n), max(r.High, n)
}

// A moment is something to play, in the order of time.
type moment struct {
	at   stamp
	what uint8
	n    int32
}

const (
	acts uint8 = iota
	asks
	ends
)

// timeline puts what happened in order.
func (c *calls) timeline() []moment {
	out := make([]moment, 0, 2*len(c.list)+len(c.acts))
	for i := range c.acts {
		out = append(out, moment{c.acts[i].at, acts, int32(i)})
	}
	for i := range c.list {
		x := &c.list[i]
		if !x.recorded && len(x.refused) == 0 && len(x.feeds) == 0 {
			continue // nobody knows whether it was sent
		}
		out = append(out, moment{x.asked, asks, int32(i)})
		if x.recorded {
			out = append(out, moment{x.ended, ends, int32(i)})
		}
	}
	slices.SortFunc(out, func(a, b moment) int {
		return cmp.Or(cmp.Compare(a.at.us, b.at.us), cmp.Compare(a.at.turn, b.at.turn))
	})
	return out
}

// run lets the circuits run again under the settings.
func (c *calls) run(ctx context.Context, settings []breaker.Setting) (*Circuits, error) {
	line := c.timeline()
	var worlds []*world
	for _, succeed := range []bool{true, false} {
		for _, draw := range []breaker.PPM{0, breaker.One - 1} {
			w, err := newWorld(c, settings, succeed, draw)
			if err != nil {
				return nil, err
			}
			worlds = append(worlds, w)
		}
	}
	var group sync.WaitGroup
	for _, w := range worlds {
		group.Go(func() { w.play(ctx, line) })
	}
	group.Wait()
	return c.bounds(settings, worlds), ctx.Err()
}

func (c *calls) bounds(settings []breaker.Setting, worlds []*world) *Circuits {
	y := &c.history
	for _, since := range y.since {
		y.openUS += y.last - since
	}
	out := &Circuits{Unplaced: map[string]int64{}, Breakers: []BreakerBounds{}, OnlyCount: c.left, Cut: c.cut,
		Opens: Bound{Recorded: y.opens}, ShortCircuited: Bound{Recorded: y.refused},
		OpenMS: Bound{Recorded: time.Duration(y.openUS * 1000).Milliseconds()}}
	for i, w := range worlds {
		out.Calls, out.OutcomeUnknown, out.Misfed = w.asked, w.guessed, max(out.Misfed, w.misfed)
		out.Opens.take(w.opens, i == 0)
		out.ShortCircuited.take(w.refused, i == 0)
		out.OpenMS.take(w.openTime.Milliseconds(), i == 0)
		out.AvoidedFailures.take(w.avoided, i == 0)
		out.BlockedSuccesses.take(w.blocked, i == 0)
	}
	for b := range settings {
		s := BreakerBounds{Breaker: settings[b].Name, Mode: settings[b].Rule.Mode.String()}
		for i, w := range worlds {
			s.Opens.take(w.parts[b].opens, i == 0)
			s.ShortCircuited.take(w.parts[b].refused, i == 0)
		}
		if s.Opens.High > 0 || s.ShortCircuited.High > 0 {
			out.Breakers = append(out.Breakers, s)
		}
		if n := worlds[0].parts[b].unplaced; n > 0 {
			out.Unplaced[s.Breaker] = n
		}
	}
	return out
}

// hears reports whether a feed is for this breaker.
func (c *calls) hears(f *taxonomy.Feed, name string) bool {
	if f.Breaker == "" {
		return c.only[f.Layer] == name
	}
	return f.Breaker == name
}
