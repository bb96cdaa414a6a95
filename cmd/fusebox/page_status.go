package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A youDoc is who looks, and what they may change.
type youDoc struct {
	Name       string `json:"name,omitempty"`
	Role       string `json:"role,omitempty"`
	MayOperate bool   `json:"may_operate"`
	MayApprove bool   `json:"may_approve"`
}

func (s *server) you(r *http.Request) youDoc {
	who, known := s.operatorOf(r)
	if !known {
		return youDoc{}
	}
	return youDoc{Name: who.Name, Role: who.Role.String(), MayOperate: slices.Contains(mayOperate, who.Role), MayApprove: slices.Contains(mayApprove, who.Role)}
}

// A sourceDoc says where the policy in force came from.
type sourceDoc struct {
	Path     string    `json:"path"` // "embedded" is the built-in one
	LoadedAt time.Time `json:"loaded_at,omitzero"`
	SignedBy string    `json:"signed_by,omitempty"`
	Stage    string    `json:"stage"`
}

func describeSource(p *sdk.PolicyStatus) sourceDoc {
	return sourceDoc{Path: p.Source, LoadedAt: p.LoadedAt.UTC(), SignedBy: p.SignedBy, Stage: p.Stage.String()}
}

// A layerDoc is one of the six layers at a glance.
type layerDoc struct {
	Layer    string `json:"layer"`
	Breakers int    `json:"breakers"` // of the policy
	Open     int    `json:"open"`     // enforced, forced ones too
	Partly   int    `json:"partly"`   // half-open, or with a share of the traffic
	Observed int    `json:"observed"` // not closed, and binding nobody
	Forced   int    `json:"forced"`   // under an override
	Worst    string `json:"worst,omitempty"`
}

// Mood is the colour of a layer's tile.
func (l *layerDoc) Mood() string {
	switch {
	case l.Open > 0:
		return "bad"
	case l.Partly > 0 || l.Forced > 0:
		return "warn"
	case l.Observed > 0:
		return "seen"
	}
	return "good"
}

// layersOf counts the circuits of each layer that are not closed.
func layersOf(open []openDoc, breakers []breakerDoc) []layerDoc {
	out := make([]layerDoc, 0, taxonomy.Layers-1)
	for l := taxonomy.LayerProvider; int(l) < taxonomy.Layers; l++ {
		d := layerDoc{Layer: l.String()}
		for i := range breakers {
			if breakers[i].Layer == l {
				d.Breakers++
			}
		}
		worst := -1
		for i := range open {
			c := &open[i]
			if c.Layer != d.Layer {
				continue
			}
			switch {
			case c.rank() <= rankOpen:
				d.Open++
			case c.rank() == rankPartly:
				d.Partly++
			case c.rank() == rankObserved:
				d.Observed++
			}
			if c.Override != "" {
				d.Forced++
			}
			if worst < 0 || c.rank() < open[worst].rank() {
				worst, d.Worst = i, c.Scope
			}
		}
		out = append(out, d)
	}
	return out
}

// An openDoc is a circuit that is not closed, with what opened it.
type openDoc struct {
	circuitDoc
	StateVersion uint64        `json:"state_version"`
	Window       windowDoc     `json:"window"`
	Evidence     string        `json:"evidence"` // what closes it
	TellsUsers   string        `json:"tells_users,omitempty"`
	Why          []explanation `json:"why"` // of the change, and of the receipt that caused it
}

// A windowDoc is what a circuit counts, and the limits that it is held against.
// A limit of 0 is not watched.
type windowDoc struct {
	Over       string      `json:"over"` // "60s", "50 outcomes"
	MinSamples uint32      `json:"min_samples"`
	MaxRatio   float64     `json:"max_failure_ratio"`
	MaxRow     uint32      `json:"max_consecutive"`
	MaxUnknown uint32      `json:"max_unknown"`
	Unknown    uint32      `json:"unknown"`
	SlowOver   string      `json:"slow_over,omitempty"`
	MaxSlow    float64     `json:"max_slow_ratio"`
	Slow       float64     `json:"slow_ratio"`
	Buckets    []bucketDoc `json:"buckets"` // oldest first
}

// A bucketDoc is one slice of the window.
type bucketDoc struct {
	OK      uint32 `json:"ok"`
	Slow    uint32 `json:"slow"`
	Failed  uint32 `json:"failed"`
	Unknown uint32 `json:"unknown"`
}

func describeOpen(l *breaker.Listing, at func(breaker.Instant) time.Time) openDoc {
	c, trip := &l.Circuit, &l.Rule.Trip
	w := windowDoc{MinSamples: l.Rule.Window.MinSamples, MaxRatio: trip.FailureRatio.Float(), MaxRow: trip.Consecutive, MaxUnknown: trip.Unknown,
		Unknown: l.Facts.Tally.Unknown, MaxSlow: trip.SlowRatio.Float(), Slow: l.Facts.SlowRatio.Float(), Buckets: []bucketDoc{}}
	if trip.SlowOver > 0 {
		w.SlowOver = span(trip.SlowOver)
	}
	w.Over = span(l.Rule.Window.Length)
	if l.Rule.Window.Kind == breaker.CountWindow {
		w.Over = plural(int(l.Rule.Window.Size), "outcome", "outcomes")
	}
	n := min(max(int(l.Rule.Window.Buckets), 1), breaker.MaxBuckets)
	for i := range n {
		b := c.Window.Ring[(int(c.Window.Pos)+1+i)%n]
		w.Buckets = append(w.Buckets, bucketDoc{b.OK, b.Slow, b.Failed, b.Unknown})
	}
	d := openDoc{circuitDoc: describeCircuit(l, at), StateVersion: c.Version, Window: w, TellsUsers: l.Owner.TellsUsers, Why: []explanation{}}
	d.Evidence = strings.ReplaceAll(l.Rule.Probe.Evidence.String(), "_", " ")
	if l.Rule.Probe.All {
		d.Evidence = strings.ReplaceAll(d.Evidence, "+", " and ")
	} else {
		d.Evidence = strings.ReplaceAll(d.Evidence, "+", " or ")
	}
	if l.Rule.Probe.Successes > 1 {
		d.Evidence = fmt.Sprintf("%s, %d times", d.Evidence, l.Rule.Probe.Successes)
	}
	return d
}

// Ranks of what is not closed, the worst first.
const (
	rankForced = iota
	rankOpen
	rankPartly
	rankObserved
	rankHeld // held closed by hand
)

func (c *openDoc) rank() int {
	switch {
	case c.Override == breaker.ForcedOpen.String():
		return rankForced
	case c.Override == breaker.ForcedClosed.String():
		return rankHeld
	case c.Mode != taxonomy.ModeEnforce.String():
		return rankObserved
	case c.State == breaker.Open.String():
		return rankOpen
	}
	return rankPartly
}

// worstFirst orders circuits by what they stop, the latest first among equals.
func worstFirst(list []openDoc) {
	slices.SortStableFunc(list, func(a, b openDoc) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), strings.Compare(a.Cohort, b.Cohort), b.Since.Compare(a.Since), strings.Compare(a.Key, b.Key))
	})
}

// Shown is the state as the page names it.
func (c *openDoc) Shown() string {
	switch c.Override {
	case breaker.ForcedOpen.String():
		return "FORCED OPEN"
	case breaker.ForcedClosed.String():
		return "HELD CLOSED"
	}
	return strings.ReplaceAll(c.State, "_", "-")
}

// Mood is the colour of a circuit's card.
func (c *openDoc) Mood() string {
	return [...]string{"bad", "bad", "warn", "seen", "warn"}[c.rank()]
}

// Overrides are the human decisions in force.
func (d *statusDoc) Overrides() (out []openDoc) {
	for _, c := range d.Open {
		if c.Override != "" {
			out = append(out, c)
		}
	}
	return out
}

// Stopped are the circuits that are not closed by themselves, or forced open.
func (d *statusDoc) Stopped() (out []openDoc) {
	for _, c := range d.Open {
		if c.State != breaker.Closed.String() || c.Override == breaker.ForcedOpen.String() {
			out = append(out, c)
		}
	}
	return out
}

// Counts of the page's parts, those that are not listed too.
func (d *statusDoc) OpenCount() int    { return len(d.Stopped()) + d.MoreOpen }
func (d *statusDoc) UnknownCount() int { return len(d.Unknown) + d.MoreUnknown }
func (d *statusDoc) QueueCount() int   { return len(d.Queue) + d.MoreQueue }
func (d *statusDoc) DeadCount() int    { return len(d.Dead) + d.MoreDead }

// An itemsView is one list of queued work, with what its rows need.
type itemsView struct {
	Items []itemDoc
	Dead  bool
	Now   time.Time
	You   youDoc
}

// Waiting and Died are the two lists of work.
func (d *statusDoc) Waiting() itemsView { return itemsView{d.Queue, false, d.Now, d.You} }
func (d *statusDoc) Died() itemsView    { return itemsView{d.Dead, true, d.Now, d.You} }
