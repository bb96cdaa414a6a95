package replay

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A worker replays the receipts of one job.
type worker struct {
	*runner
	inputs *receipts.InputReader
	job    *job
}

// cannot counts a receipt that cannot be replayed.
func (w *worker) cannot(cause string) { w.job.part.NotReplayable[cause]++ }

// one replays the questions of one receipt.
func (w *worker) one(ctx context.Context, e *receipts.Entry) {
	sealed, cause := w.sealed(e)
	if cause != "" {
		w.cannot(cause)
	}
	questions := sealed.Questions
	answers := make([]any, len(questions))
	for i := range questions {
		answers[i] = w.ask(ctx, e, &questions[i])
	}
	if w.options.Modules == nil && w.calls == nil {
		return
	}
	var who fields
	if decides(e.Receipt.Kind) {
		factsOf(&who, &e.Receipt, &sealed, w.settings)
	}
	if w.options.Modules != nil {
		if m, ok := w.modules.of(&e.Receipt, &who); ok {
			w.job.modules = append(w.job.modules, m)
		}
	}
	if w.calls != nil {
		if h, ok := w.calls.happened(e, &who, questions, answers); ok {
			w.job.seen = append(w.job.seen, h)
		}
	}
}

// sealed is what policy was asked on the way to a receipt, or why nobody can
// tell.
func (w *worker) sealed(e *receipts.Entry) (s engine.Sealed, cause string) {
	if e.Receipt.InputRef == "" {
		return s, unasked(&e.Receipt)
	}
	w.job.part.Recorded[e.Receipt.PolicyVersion]++
	b, err := w.inputs.Open(&e.Receipt)
	if err != nil {
		return s, causeOf(err)
	}
	if s, err = engine.ParseSealed(b); err != nil {
		return s, "unreadable"
	}
	return s, ""
}

// unasked says why a receipt has no questions: "" where policy was asked none.
func unasked(r *receipts.Receipt) string {
	switch {
	case slices.Contains(r.Flags, "input_lost"):
		return "input_lost"
	case !decides(r.Kind):
		return ""
	case r.Kind == receipts.KindAdmission && !r.Parent.IsZero():
		return "" // refused at dispatch: its questions lie with the admission
	case r.Kind == receipts.KindFallback && !r.Parent.IsZero():
		return "" // another candidate of one choice
	case r.Kind == receipts.KindOutcome && r.ClassifiedBy == "":
		return "" // a permit that came back unused
	case r.Kind == receipts.KindOutcome && r.Effect.Is(taxonomy.ReadOnly) && len(r.Feeds) == 0 &&
		(slices.Contains(r.Flags, "abandoned") || slices.Contains(r.Flags, "permit_expired")):
		return "" // nobody said how that read ended, so it counts toward nothing
	}
	return "no_input"
}

// decides reports whether receipts of this kind stand for a question to policy.
func decides(k receipts.Kind) bool {
	return k == receipts.KindAdmission || k == receipts.KindOutcome || k == receipts.KindFallback
}

func causeOf(err error) string {
	switch {
	case errors.Is(err, receipts.ErrErased):
		return "erased"
	case errors.Is(err, receipts.ErrNotFound):
		return "not_found"
	}
	return "input_does_not_match"
}

// ask puts one question again and says how the answer differs. What it returns
// is the new answer; nil where there is none.
func (w *worker) ask(ctx context.Context, e *receipts.Entry, q *engine.Question) any {
	switch {
	case len(q.Input) == 0:
		w.cannot("evaluation_failed") // the input itself could not be made
		return nil
	case q.Error == "policy_timeout" || q.Error == "policy_memory" || q.Error == "policy_canceled":
		w.cannot("out_of_time") // an accident of that moment, and no rule
		return nil
	}
	p := w.policies[Digest(w.policy.Version())]
	if w.options.Self {
		if p = w.policies[Digest(e.Receipt.PolicyVersion)]; p == nil {
			w.cannot("other_policy")
			return nil
		}
	}
	a := p.answer(ctx, q)
	part := &w.job.part
	part.Decisions++
	bucket := Errored
	if a.err == nil {
		bucket = Compare(q.Entrypoint, q.Answer, a.bytes)
	}
	part.Buckets[bucket]++
	if bucket == Unchanged {
		return a.value
	}
	c := Change{Log: e.Log, Index: e.Index, Receipt: e.Receipt.ID.String(), RequestID: e.Receipt.RequestID,
		Entrypoint: q.Entrypoint, Bucket: bucket, Was: q.Answer, Would: a.bytes}
	if a.err != nil {
		c.Error = a.err.Error()
	}
	if bucket == Looser && q.Entrypoint == "authority" {
		part.Looser++
	}
	part.Changed = append(part.Changed, c)
	return a.value
}

// asked is a policy with the answers that it gave.
type asked struct {
	Policy
	mu      sync.RWMutex
	answers map[string]answer // by entrypoint and input: most questions repeat
}

type answer struct {
	value any
	bytes []byte
	err   error
}

// answer asks the policy once for each different question.
func (p *asked) answer(ctx context.Context, q *engine.Question) answer {
	const most = 1 << 16
	var space [1024]byte
	key := append(append(append(space[:0], q.Entrypoint...), 0), q.Input...)
	p.mu.RLock()
	a, ok := p.answers[string(key)]
	p.mu.RUnlock()
	if ok {
		return a
	}
	v, err := p.Replay(ctx, q.Entrypoint, taxonomy.Raw(q.Input))
	if err == nil {
		a.value, a.bytes = v, engine.AppendAnswer(nil, v)
	}
	a.err = err
	p.mu.Lock()
	if len(p.answers) < most && ctx.Err() == nil {
		p.answers[string(key)] = a
	}
	p.mu.Unlock()
	return a
}
