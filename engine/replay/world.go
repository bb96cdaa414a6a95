package replay

import (
	"context"
	"slices"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A world is one run of the circuits under one assumption about what history
// does not tell.
type world struct {
	calls   *calls
	succeed bool // calls that history refused would have gone well
	parts   []*part
	paths   []*breaker.Path            // of the call at hand, one for each breaker; nil where its scope is not known
	tickets map[int32][]breaker.Ticket // of calls that are out
	spare   [][]breaker.Ticket         // to be used again
	op      taxonomy.Operation         // of the call at hand
	now     breaker.Instant
	ticked  breaker.Instant

	opens, refused, avoided, blocked int64
	asked, guessed, misfed           int64
	openTime                         time.Duration
}

// A part is one breaker's circuits. Each breaker has a registry of its own, so
// that a call of which one scope is not known still counts in the others.
type part struct {
	setting  breaker.Setting
	registry *breaker.Registry
	open     map[string]breaker.Instant

	opens, refused, unplaced int64
}

func newWorld(c *calls, settings []breaker.Setting, succeed bool, draw breaker.PPM) (*world, error) {
	w := &world{calls: c, succeed: succeed, paths: make([]*breaker.Path, len(settings)), tickets: map[int32][]breaker.Ticket{}}
	for i := range settings {
		var token uint64
		g, err := breaker.NewRegistry(breaker.Options{Settings: settings[i : i+1],
			Draw: func() breaker.PPM { return draw }, Tokens: func() uint64 { token++; return token }})
		if err != nil {
			return nil, err
		}
		w.parts = append(w.parts, &part{setting: settings[i], registry: g, open: map[string]breaker.Instant{}})
	}
	return w, nil
}

// play goes through the moments in order. A clock that stepped back stands
// still until it has caught up.
func (w *world) play(ctx context.Context, line []moment) {
	for i, m := range line {
		if i%4096 == 0 && ctx.Err() != nil {
			return
		}
		w.now = max(w.now, breaker.Instant(m.at.us)*breaker.Instant(time.Microsecond))
		if w.now.Sub(w.ticked) >= time.Second {
			w.ticked = w.now
			for _, p := range w.parts {
				w.changed(p, p.registry.Tick(w.now))
			}
		}
		switch m.what {
		case acts:
			w.act(&w.calls.acts[m.n])
		case asks:
			w.ask(m.n)
		case ends:
			w.end(m.n)
		}
	}
	for _, p := range w.parts {
		for _, since := range p.open {
			w.openTime += w.now.Sub(since)
		}
	}
}

// changed counts what the circuits of a breaker did.
func (w *world) changed(p *part, cs []breaker.Change) {
	for i := range cs {
		c := &cs[i]
		if c.To == breaker.Open && c.From != breaker.Open {
			w.opens++
			p.opens++
			p.open[c.Key] = w.now
		}
		if since, ok := p.open[c.Key]; ok && c.To != breaker.Open {
			w.openTime += w.now.Sub(since)
			delete(p.open, c.Key)
		}
	}
}

// at finds the circuits of a call. The registries remember paths, and a path
// that lost a circuit is made again.
func (w *world) at(x *call) {
	for i, spot := range w.calls.places.of(x) {
		w.paths[i] = nil
		if spot != nowhere {
			w.paths[i] = w.parts[i].registry.Path(&w.calls.places.breakers[i].ops[spot], w.now)
		}
	}
}

// ask puts a call before every circuit.
func (w *world) ask(n int32) {
	x := &w.calls.list[n]
	w.at(x)
	w.asked++
	for i, p := range w.parts {
		if w.paths[i] == nil {
			p.unplaced++
		}
	}
	if !x.recorded && len(x.refused) == 0 {
		none := w.blank()
		w.record(x, none, x.feeds) // refused by a rule, and heard of
		w.spare = append(w.spare, none)
		return
	}
	w.op = *x.manner
	w.op.RequestID, w.op.Attempt, w.op.Origin = x.request, x.attempt, x.origin
	tickets, ok := w.admit()
	switch {
	case ok && x.recorded:
		w.tickets[n] = tickets
	case ok:
		w.guess(x, tickets)
		w.spare = append(w.spare, tickets)
	default:
		w.refused++
		if x.recorded && x.outcome == taxonomy.Succeeded {
			w.blocked++
		} else if x.recorded {
			w.avoided++
		}
	}
}

// admit asks the circuits and takes the leases that they need; all or none.
func (w *world) admit() ([]breaker.Ticket, bool) {
	tickets := w.blank()
	ask := breaker.Ask{Operation: &w.op}
	ok := true
	for i, path := range w.paths {
		if path == nil {
			continue
		}
		var no *breaker.Denial
		if tickets[i], no = path.Admit(ask, w.now); no != nil {
			w.parts[i].refused++
			ok = false
		}
	}
	for i, path := range w.paths {
		if !ok {
			break
		}
		if path == nil || !tickets[i].Needs() {
			continue
		}
		changes, no := path.Lease(&tickets[i], ask, w.now)
		w.changed(w.parts[i], changes)
		if no != nil {
			w.parts[i].refused++
			ok = false
		}
	}
	if ok {
		return tickets, true
	}
	for i, path := range w.paths {
		if path != nil && tickets[i].Held != 0 {
			r := path.Release(tickets[i], w.now)
			w.changed(w.parts[i], r.Changes)
		}
	}
	w.spare = append(w.spare, tickets)
	return nil, false
}

// blank is a ticket for each breaker, used before where there is one.
func (w *world) blank() []breaker.Ticket {
	n := len(w.spare)
	if n == 0 {
		return make([]breaker.Ticket, len(w.parts))
	}
	t := w.spare[n-1]
	w.spare = w.spare[:n-1]
	clear(t)
	return t
}

// end records how a call ended that was let go.
func (w *world) end(n int32) {
	tickets, ok := w.tickets[n]
	if !ok {
		return
	}
	delete(w.tickets, n)
	x := &w.calls.list[n]
	w.at(x)
	w.record(x, tickets, x.feeds)
	w.spare = append(w.spare, tickets)
}

// guess ends a call that history refused: well or badly for whoever refused it.
func (w *world) guess(x *call, tickets []breaker.Ticket) {
	w.guessed++
	y := *x
	y.outcome, y.class = taxonomy.Succeeded, taxonomy.NoClass
	signal := taxonomy.SignalSuccess
	if !w.succeed {
		y.outcome, signal = taxonomy.Failed, taxonomy.SignalFailure
	}
	var feeds []taxonomy.Feed
	for _, name := range x.refused {
		s := w.calls.settings[name]
		if s == nil {
			continue
		}
		if !w.succeed && len(s.Counts) > 0 {
			y.class = s.Counts[0] // one that counts
		}
		feeds = append(feeds, taxonomy.Feed{Layer: s.Layer, Breaker: name, Level: s.Scope[len(s.Scope)-1], Signal: signal, Reason: "assumed"})
	}
	w.record(&y, tickets, feeds)
}

// record tells every breaker what the call says to it.
func (w *world) record(x *call, tickets []breaker.Ticket, feeds []taxonomy.Feed) {
	res := breaker.Result{Outcome: x.outcome, Class: x.class, Elapsed: x.elapsed}
	heard := 0
	var mine [8]taxonomy.Feed
	for i, p := range w.parts {
		said := mine[:0]
		for j := range feeds {
			if w.calls.hears(&feeds[j], p.setting.Name) {
				said = append(said, feeds[j])
				heard++
			}
		}
		if path := w.paths[i]; path != nil && (len(said) > 0 || tickets[i].Held != 0) {
			r := path.Record(tickets[i], said, res, w.now)
			w.changed(p, r.Changes)
			w.misfed += int64(len(r.Errs))
		}
	}
	w.misfed += int64(len(feeds) - heard)
}

// act lets a person's decision or a proof reach its circuit again.
func (w *world) act(a *act) {
	i := slices.IndexFunc(w.parts, func(p *part) bool { return p.setting.Name == a.breaker })
	if i < 0 {
		return
	}
	p := w.parts[i]
	key, err := p.setting.KeyOf(a.scope)
	if err != nil {
		return // its scope has other parts now
	}
	var changes []breaker.Change
	switch rule := &p.setting.Rule; a.reason {
	case "evidence":
		// The last proof was recorded, and with it that there were enough.
		for range max(rule.Probe.Successes, 1) {
			_, more, err := p.registry.Evidence(key, rule.Probe.Evidence, "recorded", w.now)
			if err != nil {
				break
			}
			changes = append(changes, more...)
		}
	case breaker.NoOverride.String():
		changes, err = p.registry.ClearOverride(key, "recorded", "recorded", w.now)
	default:
		o := breaker.Override{By: "recorded", Why: "recorded", Until: breaker.Instant(a.until) * breaker.Instant(time.Microsecond)}
		if err = o.Kind.UnmarshalText([]byte(a.reason)); err == nil {
			changes, err = p.registry.Override(key, o, w.now)
		}
	}
	if err == nil {
		w.changed(p, changes)
	}
}
