package replay

import (
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A call is one attempt as history saw it: when it asked, when it ended, and
// where that counts under the replayed policy.
type call struct {
	request  string
	attempt  int64
	origin   taxonomy.Origin
	manner   *taxonomy.Operation // kind, name and effect; shared among calls
	place    int                 // in calls.places
	asked    stamp
	ended    stamp // zero: refused by a circuit, or nothing is known of its end
	feeds    []taxonomy.Feed
	refused  []string // breakers that refused it then
	outcome  taxonomy.Outcome
	class    taxonomy.Class
	elapsed  time.Duration
	recorded bool // it went through then
}

// A stamp orders what happened: by time, and within one moment as the logs do.
type stamp struct {
	us   int64 // Unix microseconds
	turn int64
}

// A happening is what one receipt adds to the calls.
type happening struct {
	kind     receipts.Kind
	id       receipts.ID
	parent   receipts.ID
	at       int64
	who      fields
	call     call
	admitted bool

	// Of transitions and overrides.
	breaker, scope, reason string
	from, to               receipts.State
	until                  int64

	left int64 // calls that the log only counts
}

// An act is what a person or a proof did to one circuit.
type act struct {
	at      stamp
	breaker string
	scope   string
	reason  string // "evidence", or the kind of an override
	until   int64  // of an override, Unix microseconds
}

// calls gathers what the circuits saw, in the order of the logs.
type calls struct {
	settings map[string]*breaker.Setting
	only     map[taxonomy.Layer]string // the layer's only breaker
	most     int

	list    []call
	acts    []act
	turn    int64
	open    map[receipts.ID]pending     // admissions that have not ended
	chain   map[receipts.ID]receipts.ID // intent to admission
	places  places
	manners map[string]*taxonomy.Operation // each once
	feeds   map[string][]taxonomy.Feed     // each once

	history history
	left    int64 // receipts that the logs only count
	cut     int64 // calls beyond most
}

func newCalls(settings []breaker.Setting, byName map[string]*breaker.Setting, most int) *calls {
	c := &calls{settings: byName, only: map[taxonomy.Layer]string{}, most: most,
		open: map[receipts.ID]pending{}, chain: map[receipts.ID]receipts.ID{}, places: newPlaces(settings),
		manners: map[string]*taxonomy.Operation{}, feeds: map[string][]taxonomy.Feed{}}
	c.history.since = map[string]int64{}
	for i := range settings {
		s := &settings[i]
		if _, several := c.only[s.Layer]; several {
			c.only[s.Layer] = ""
		} else {
			c.only[s.Layer] = s.Name
		}
	}
	return c
}

// happened reads a receipt for the circuits. Workers call it: it changes nothing.
func (c *calls) happened(e *receipts.Entry, who *fields, questions []engine.Question, answers []any) (h happening, ok bool) {
	r := &e.Receipt
	if r.Cohort == engine.CohortCandidate || r.Cohort == engine.CohortShadow {
		return h, false // a candidate on trial has circuits of its own
	}
	h = happening{kind: r.Kind, id: r.ID, parent: r.Parent, at: r.TimeUS}
	switch r.Kind {
	case receipts.KindAdmission, receipts.KindOutcome:
		h.who = *who
		h.call = call{request: r.RequestID, attempt: r.Attempt, origin: r.Origin.V, class: r.ErrorClass,
			elapsed: time.Duration(r.ElapsedMS) * time.Millisecond, feeds: c.fed(r, questions, answers)}
		h.call.outcome = r.Outcome.V
		h.admitted = r.Decision.OK && r.Decision.V == taxonomy.DecideAllow
		if r.Kind == receipts.KindAdmission && !h.admitted && r.State != receipts.NoState {
			h.call.refused = refusedBy(r)
		}
	case receipts.KindIntent:
	case receipts.KindTransition, receipts.KindOverride:
		h.breaker, h.scope, h.reason, h.from, h.to = r.Breaker, r.Scope, r.Reason, r.PrevState, r.State
		if r.Override != nil {
			h.until = r.Override.ExpiresUS
		}
	case receipts.KindRollup:
		if r.Rollup != nil {
			h.left = r.Rollup.Total
		}
	case receipts.KindGap:
		if r.Gap != nil {
			h.left = r.Gap.Count
		}
	default:
		return h, false
	}
	return h, true
}

func refusedBy(r *receipts.Receipt) []string {
	out := []string{r.Breaker}
	for i := range r.Circuits {
		if b := r.Circuits[i].Breaker; !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
}

// fed is where the call counts under the replayed policy; what its receipt says
// where no rule could be asked. What the engine held back, it holds back again.
func (c *calls) fed(r *receipts.Receipt, questions []engine.Question, answers []any) []taxonomy.Feed {
	for i, a := range answers {
		route, ok := a.(*taxonomy.RouteAnswer)
		if !ok || questions[i].Error != "" || route.Evaluation.Error != "" {
			continue
		}
		out := slices.Clone(route.Feeds)
		for j := range out {
			f := &out[j]
			if slices.ContainsFunc(r.Feeds, func(was receipts.Feed) bool {
				return was.Reason == "repair_pending" && was.Breaker == f.Breaker && was.Layer == f.Layer && was.Level == f.Level
			}) {
				f.Signal, f.Reason = taxonomy.SignalExcluded, "repair_pending"
			}
		}
		return out
	}
	var out []taxonomy.Feed
	for _, f := range r.Feeds {
		out = append(out, taxonomy.Feed{Layer: f.Layer, Breaker: f.Breaker, Level: f.Level, Signal: f.Signal, Reason: f.Reason})
	}
	return out
}

// add takes the next happening.
func (c *calls) add(h *happening) {
	c.turn++
	c.left += h.left
	switch h.kind {
	case receipts.KindAdmission:
		c.admission(h)
	case receipts.KindIntent:
		c.chain[h.id] = h.parent
	case receipts.KindOutcome:
		c.outcome(h)
	case receipts.KindTransition:
		c.history.transition(h)
		if h.reason == "evidence" {
			c.acts = append(c.acts, act{at: stamp{h.at, c.turn}, breaker: h.breaker, scope: h.scope, reason: h.reason})
		}
	case receipts.KindOverride:
		c.acts = append(c.acts, act{at: stamp{h.at, c.turn}, breaker: h.breaker, scope: h.scope, reason: h.reason, until: h.until})
	}
}

func (c *calls) admission(h *happening) {
	x := h.call
	x.asked, x.outcome = stamp{h.at, c.turn}, taxonomy.Succeeded
	if !h.admitted {
		x.class = h.call.class
		x.outcome = taxonomy.FailedBeforeSend
	}
	if len(x.refused) > 0 {
		c.history.refused++
	} else if !h.admitted && len(x.feeds) == 0 {
		return // refused by a rule, and no circuit heard of it
	}
	if len(c.list) >= c.most {
		c.cut++
		return
	}
	x.manner, x.place, x.feeds = c.manner(&h.who), c.places.add(&h.who), c.internFeeds(x.feeds)
	c.list = append(c.list, x)
	if !h.admitted {
		return
	}
	p := pending{call: len(c.list) - 1}
	if !h.who.complete() {
		p.who = new(h.who)
	}
	c.open[h.id] = p
}

// pending is a call that has not ended, and what is known of its operation while
// the end may say more.
type pending struct {
	call int
	who  *fields
}

func (c *calls) outcome(h *happening) {
	at := h.parent
	if admission, ok := c.chain[at]; ok {
		delete(c.chain, at)
		at = admission
	}
	p, ok := c.open[at]
	if !ok {
		return // its admission was not read
	}
	delete(c.open, at)
	x := &c.list[p.call]
	if p.who != nil {
		p.who.add(&h.who)
		x.manner = c.manner(p.who)
		c.places.set(x.place, p.who)
	}
	x.feeds = c.internFeeds(h.call.feeds)
	x.ended, x.recorded = stamp{max(h.at, x.asked.us), c.turn}, true
	x.outcome, x.class, x.elapsed = h.call.outcome, h.call.class, h.call.elapsed
}

// manner is what circuits ask about a call beside where it lies.
func (c *calls) manner(f *fields) *taxonomy.Operation {
	op := f.operation()
	key := op.Kind + "\x00" + op.Name + "\x00" + op.Effect.String()
	if have, ok := c.manners[key]; ok {
		return have
	}
	op = taxonomy.Operation{Kind: op.Kind, Name: op.Name, Effect: op.Effect}
	c.manners[key] = &op
	return &op
}

func (c *calls) internFeeds(feeds []taxonomy.Feed) []taxonomy.Feed {
	if len(feeds) == 0 {
		return nil
	}
	key := string(engine.AppendAnswer(nil, &taxonomy.RouteAnswer{Feeds: feeds}))
	if have, ok := c.feeds[key]; ok {
		return have
	}
	c.feeds[key] = feeds
	return feeds
}

// history is what the receipts say the circuits did.
type history struct {
	opens, refused, openUS int64
	since                  map[string]int64 // open circuits, by scope
	last                   int64
}

func (y *history) transition(h *happening) {
	y.last = max(y.last, h.at)
	if h.to == receipts.StateOpen && h.from != receipts.StateOpen {
		y.opens++
		y.since[h.scope] = h.at
	}
	if since, ok := y.since[h.scope]; ok && h.to != receipts.StateOpen {
		y.openUS += h.at - since
		delete(y.since, h.scope)
	}
}
