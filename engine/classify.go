package engine

import (
	"context"
	"errors"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// judged is a verdict with what a receipt says about how it came about.
type judged struct {
	verdict taxonomy.Verdict
	by      Identity // the module that answered; zero for the table
	asked   []inquiry
	refused string // what the floor refused of the answer
}

// An inquiry is one module that was asked, and what came of it.
type inquiry struct {
	module  Identity
	account Account
	ok      bool  // it answered; neither this nor an error: it had no opinion
	err     error // it cost nothing but itself
}

// An Account is what a receipt keeps of one question to a module: what it was
// given, what it said, under which rules, and what that cost. It is there for a
// question that failed, too.
type Account struct {
	Input  string // "sha256:…" of the document it was given
	Output string // "sha256:…" of its answer; "" when there is none
	Limits string // names the limits and the counting rules, so that Fuel can be compared
	Fuel   int64
	Took   time.Duration
}

// An Accountant is a classifier that gives account of each question. ok together
// with an error is a verdict that policy declared for the case of its failing.
type Accountant interface {
	Classifier
	ClassifyAccount(ctx context.Context, obs *taxonomy.Observation, builtin taxonomy.Verdict) (v taxonomy.Verdict, ok bool, a Account, err error)
}

// A ChoosingAccountant is a chooser that does.
type ChoosingAccountant interface {
	Chooser
	ChooseAccount(ctx context.Context, in *taxonomy.FallbackInput) (c taxonomy.Choice, ok bool, a Account, err error)
}

func askClassifier(ctx context.Context, c Classifier, obs *taxonomy.Observation, builtin taxonomy.Verdict) (v taxonomy.Verdict, q inquiry) {
	q.module = c.Identity()
	if a, accounts := c.(Accountant); accounts {
		v, q.ok, q.account, q.err = a.ClassifyAccount(ctx, obs, builtin)
		return v, q
	}
	v, q.ok, q.err = c.Classify(ctx, obs, builtin)
	return v, q
}

func askChooser(ctx context.Context, c Chooser, in *taxonomy.FallbackInput) (choice taxonomy.Choice, q inquiry) {
	q.module = c.Identity()
	if a, accounts := c.(ChoosingAccountant); accounts {
		choice, q.ok, q.account, q.err = a.ChooseAccount(ctx, in)
		return choice, q
	}
	choice, q.ok, q.err = c.Choose(ctx, in)
	return choice, q
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
		v, q := askClassifier(ctx, c, obs, builtin)
		j.asked = append(j.asked, q)
		if q.ok {
			j.verdict = v
			if q.err == nil {
				j.by = q.module
			}
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
	e.countFaults(j.asked)
	return j
}

func (e *Engine) countFaults(asked []inquiry) {
	for _, q := range asked {
		if q.err != nil {
			e.meter.ModuleFault(q.module.Name, q.err)
		}
	}
}

// code is the short reason of a module's failure, for the receipt.
func (q inquiry) code() string {
	var c interface{ Code() string }
	switch {
	case q.err == nil:
		return ""
	case errors.As(q.err, &c):
		return c.Code()
	}
	return "failed"
}

// telling picks the inquiry that a receipt tells of, since it has room for one:
// the first that failed, because nothing else would say so; else the one that
// answered, whom the verdict names too; else the first that had no opinion.
func telling(asked []inquiry) (inquiry, bool) {
	best := -1
	for i, q := range asked {
		switch {
		case q.err != nil:
			return q, true
		case best < 0, q.ok:
			best = i
		}
	}
	if best < 0 {
		return inquiry{}, false
	}
	return asked[best], true
}

// note writes what became of it.
func (q inquiry) note(r *receipts.Receipt) {
	r.Module = receipts.ModuleNote{Name: q.module.Full(), Digest: q.module.Digest, ABI: q.module.ABI,
		Limits: q.account.Limits, Input: q.account.Input, Output: q.account.Output, Fuel: q.account.Fuel, Error: q.code()}
	if q.module.Plugin {
		r.Plugin = q.module.Full()
	}
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
