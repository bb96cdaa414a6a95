package engine

import (
	"context"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// route asks policy which layers the outcome feeds.
func (p *Permit) route(ctx context.Context, v taxonomy.Verdict, obs *taxonomy.Observation) ([]taxonomy.Feed, taxonomy.Evaluation) {
	start := p.e.clock.Mono()
	in := &taxonomy.RouteInput{
		Operation: &p.op, Outcome: v.Outcome, Class: v.Class, Reason: v.Reason, Attempt: p.op.Attempt,
		Repeats: p.repeats, RetryAfterMS: v.RetryAfter.Milliseconds(), ElapsedMS: obs.ElapsedMS,
	}
	if obs.Response != nil {
		in.HTTPStatus = int64(obs.Response.Status)
	}
	if p.uncounted {
		return nil, taxonomy.Evaluation{}
	}
	answer := p.policy.Rules.Route(ctx, in)
	p.e.meter.Stage("route", time.Duration(p.e.clock.Mono()-start))
	if answer.Evaluation.Error != "" {
		return p.routeByDefault(v), answer.Evaluation
	}
	return answer.Feeds, answer.Evaluation
}

// routeByDefault is what happens when the routing rules cannot be evaluated:
// the one feed that no policy may lose is the ambiguity of a write, which
// closes its action until it is reconciled. Everything else is left uncounted,
// and the receipt says so.
func (p *Permit) routeByDefault(v taxonomy.Verdict) []taxonomy.Feed {
	if v.Outcome == taxonomy.Unknown && p.op.Effect.Writes() {
		return []taxonomy.Feed{{Layer: taxonomy.LayerTool, Breaker: "ambiguity", Level: "tenant",
			Signal: taxonomy.SignalFailure, Reason: "routing_unavailable"}}
	}
	return nil
}
