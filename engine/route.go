package engine

import (
	"context"
	"slices"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Feeds says which layers a verdict feeds under this policy, with the readable
// scope of each. Where the rules cannot be evaluated the evaluation says so,
// and only what no policy may lose is fed.
func (p *Policy) Feeds(ctx context.Context, v taxonomy.Verdict, obs *taxonomy.Observation) ([]receipts.Feed, taxonomy.Evaluation) {
	feeds, answer := p.route(ctx, v, obs, 0)
	ev := answer.Evaluation
	out := make([]receipts.Feed, 0, len(feeds))
	for _, f := range feeds {
		key, _ := p.key(&obs.Operation, f)
		out = append(out, receipts.Feed{Layer: f.Layer, Breaker: f.Breaker, Level: f.Level, Scope: breaker.Scope(key), Signal: f.Signal, Reason: f.Reason})
	}
	return out, ev
}

// route asks policy which layers the outcome feeds. The feeds are those of the
// answer that count somewhere.
func (p *Policy) route(ctx context.Context, v taxonomy.Verdict, obs *taxonomy.Observation, repeats int64) ([]taxonomy.Feed, taxonomy.RouteAnswer) {
	op := &obs.Operation
	in := &taxonomy.RouteInput{
		Operation: op, Outcome: v.Outcome, Class: v.Class, Reason: v.Reason, Attempt: op.Attempt,
		Repeats: repeats, RetryAfterMS: v.RetryAfter.Milliseconds(), ElapsedMS: obs.ElapsedMS,
	}
	if obs.Response != nil {
		in.HTTPStatus = int64(obs.Response.Status)
	}
	answer := p.Rules.Route(ctx, in)
	if answer.Evaluation.Error != "" {
		return routeByDefault(op, v), answer
	}
	return p.counting(op, answer.Feeds), answer
}

// counting are the feeds that count somewhere: the list itself where all do, so
// whoever changes one copies it first. The memo has the same list.
func (p *Policy) counting(op *taxonomy.Operation, feeds []taxonomy.Feed) []taxonomy.Feed {
	for i := range feeds {
		if !p.nobodys(op, &feeds[i]) {
			continue
		}
		kept := append(make([]taxonomy.Feed, 0, len(feeds)-1), feeds[:i]...)
		for j := i + 1; j < len(feeds); j++ {
			if !p.nobodys(op, &feeds[j]) {
				kept = append(kept, feeds[j])
			}
		}
		return kept
	}
	return feeds
}

// nobodys reports whether a feed names a circuit none of whose parts the
// operation has: calls without a run must not share one loop circuit.
func (p *Policy) nobodys(op *taxonomy.Operation, f *taxonomy.Feed) bool {
	s := p.setting(f)
	if s == nil {
		return false // recording says what is wrong with it
	}
	for _, field := range s.Scope {
		part, _ := taxonomy.PartNamed(field)
		if part != nil && part(op) != "" {
			return false
		}
		if field == f.Level {
			break
		}
	}
	return true
}

// setting is the breaker that a feed speaks to: the one it names, or the only
// one of its layer.
func (p *Policy) setting(f *taxonomy.Feed) *breaker.Setting {
	var only *breaker.Setting
	for i := range p.Breakers {
		b := &p.Breakers[i]
		if b.Layer != f.Layer || f.Breaker != "" && f.Breaker != b.Name {
			continue
		}
		if only != nil {
			return nil
		}
		only = b
	}
	return only
}

// key is the key of the circuit that a feed names.
func (p *Policy) key(op *taxonomy.Operation, f taxonomy.Feed) (string, bool) {
	s := p.setting(&f)
	if s == nil {
		return "", false
	}
	return s.Key(op, f.Level)
}

// routeByDefault is what happens when the routing rules cannot be evaluated:
// the one feed that no policy may lose is the ambiguity of a write, which
// closes its action until it is reconciled. Everything else is left uncounted,
// and the receipt says so.
func routeByDefault(op *taxonomy.Operation, v taxonomy.Verdict) []taxonomy.Feed {
	if v.Outcome == taxonomy.Unknown && op.Effect.Writes() {
		return []taxonomy.Feed{{Layer: taxonomy.LayerTool, Breaker: "ambiguity", Level: "tenant",
			Signal: taxonomy.SignalFailure, Reason: "routing_unavailable"}}
	}
	return nil
}

// route is the permit's own question; the outcome of a read that nobody
// reported on feeds nothing.
func (p *Permit) route(ctx context.Context, v taxonomy.Verdict, obs *taxonomy.Observation) ([]taxonomy.Feed, taxonomy.Evaluation) {
	if p.uncounted {
		return nil, taxonomy.Evaluation{}
	}
	defer p.measure("route", p.e.clock.Mono())
	feeds, answer := p.routed(ctx, v, obs)
	p.asked(answer.Evaluation, &answer)
	if p.repairs {
		feeds = slices.Clone(feeds)
		for i := range feeds {
			if feeds[i].Layer == taxonomy.LayerSemantic && feeds[i].Signal == taxonomy.SignalFailure {
				feeds[i].Signal, feeds[i].Reason = taxonomy.SignalExcluded, "repair_pending"
			}
		}
	}
	return feeds, answer.Evaluation
}
