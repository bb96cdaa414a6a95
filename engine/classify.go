package engine

import (
	"context"
	"errors"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// judged is a verdict with what a receipt says about how it came about.
type judged struct {
	verdict taxonomy.Verdict
	by      Identity // the module that answered; zero for the table
	failed  []moduleFault
	refused string // what the floor refused of the answer
}

// moduleFault is one module that cost nothing but itself.
type moduleFault struct {
	module Identity
	err    error
}

// Judge says what an observation means under this policy, and who said so: the
// chain of classifiers, then the table; whatever answered, the floor is
// applied, and the retry advice is made once, after it. refused names what the
// floor refused of a module's answer.
func (p *Policy) Judge(ctx context.Context, obs *taxonomy.Observation) (v taxonomy.Verdict, by Identity, refused string) {
	j := p.judge(ctx, obs)
	return j.verdict, j.by, j.refused
}

func (p *Policy) judge(ctx context.Context, obs *taxonomy.Observation) judged {
	builtin := p.Table.Classify(obs)
	j := judged{verdict: builtin}
	for _, c := range p.Classifiers {
		if !c.Selects(&obs.Operation) {
			continue
		}
		v, ok, err := c.Classify(ctx, obs, builtin)
		if err != nil {
			j.failed = append(j.failed, moduleFault{c.Identity(), err})
			continue
		}
		if ok {
			j.by, j.verdict = c.Identity(), v
			break
		}
	}
	j.verdict, j.refused = taxonomy.Floor(&obs.Operation, obs, builtin, j.verdict)
	if p.HintMost > 0 {
		j.verdict.RetryAfter = min(j.verdict.RetryAfter, p.HintMost)
	}
	j.verdict = taxonomy.Advise(&obs.Operation, obs, j.verdict)
	return j
}

// classify judges for the path, which also counts the modules that failed.
func (e *Engine) classify(ctx context.Context, p *Policy, obs *taxonomy.Observation) judged {
	j := p.judge(ctx, obs)
	for _, f := range j.failed {
		e.meter.ModuleFault(f.module.Name, f.err)
	}
	return j
}

// code is the short reason of a module's failure, for the receipt.
func (f moduleFault) code() string {
	var c interface{ Code() string }
	if errors.As(f.err, &c) {
		return c.Code()
	}
	return "failed"
}

// refusal judges a local decision not to send. Local refusals are observations
// like any other: the table gives them their class, and routing their layers.
func (e *Engine) refusal(p *Policy, op *taxonomy.Operation, local string) taxonomy.Verdict {
	obs := taxonomy.Observation{
		Operation: *op,
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedNo},
		Local:     taxonomy.Raw(local),
	}
	v := p.Table.Classify(&obs)
	v, _ = taxonomy.Floor(op, &obs, v, v)
	return taxonomy.Advise(op, &obs, v)
}
