package engine

import (
	"context"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Judge is what the path makes of an observation under a policy, and nothing
// else: modules, table, floor and retry advice. It keeps nothing and counts
// toward nothing, for tools that look at recorded observations.
func Judge(ctx context.Context, p *Policy, obs *taxonomy.Observation) taxonomy.Verdict {
	e := &Engine{meter: noMeter{}}
	return e.classify(ctx, p, obs).verdict
}
