// Package replay decides again what receipts recorded, under another policy or
// under the same one: what would have been stricter, what looser, and what
// cannot be told.
//
// Every decision's questions lie sealed beside its receipt: the projected input
// of each, and the answer. Circuits are facts of that moment, so they are taken
// as they were; bodies are not kept, so a classification stands as recorded.
package replay

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Policy answers recorded questions again.
type Policy interface {
	Version() taxonomy.PolicyVersion
	// Replay answers the entrypoint's question from a projected input; the
	// answer is of the entrypoint's type.
	Replay(ctx context.Context, entrypoint string, projected []byte) (any, error)
}

// A Source is one log and the keys to its sealed inputs.
type Source struct {
	Log    *receipts.Reader
	Inputs *receipts.Inputs
}

// Options say how a replay runs. The zero value is fine.
type Options struct {
	Workers  int              // default: one for each processor
	Keep     int              // changed decisions listed; default 100, all are counted
	Query    receipts.Query   // which receipts
	Progress func(done int64) // told now and then
}

// A Report says what another policy would have decided.
type Report struct {
	Policy        taxonomy.PolicyVersion `json:"policy"`
	Receipts      int64                  `json:"receipts"`  // read
	Decisions     int64                  `json:"decisions"` // questions answered again
	Buckets       map[string]int64       `json:"buckets"`
	NotReplayable map[string]int64       `json:"not_replayable"` // receipts, by cause
	Looser        int64                  `json:"authority_looser"`
	Changed       []Change               `json:"changed"` // in the order of the log
}

// A Change is one decision that would be another.
type Change struct {
	Log        string       `json:"log"`
	Index      int64        `json:"index"`
	Receipt    string       `json:"receipt"`
	RequestID  string       `json:"request_id"`
	Entrypoint string       `json:"entrypoint"`
	Bucket     string       `json:"bucket"`
	Was        taxonomy.Raw `json:"was"`
	Would      taxonomy.Raw `json:"would"`
	Error      string       `json:"error,omitempty"`
}

// Identical reports whether every replayable decision came out as recorded.
func (r *Report) Identical() bool { return r.Decisions == r.Buckets[Unchanged] }

// Run replays every receipt of the logs. A log being written is read as far as
// it was when its reader was opened.
func Run(ctx context.Context, logs []Source, p Policy, o Options) (*Report, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Keep <= 0 {
		o.Keep = 100
	}
	r := &runner{policy: p, options: o, answers: map[string]answer{}}
	r.report.Policy = p.Version()
	r.report.Buckets, r.report.NotReplayable = map[string]int64{}, map[string]int64{}
	var errs error
	for _, log := range logs {
		errs = errors.Join(errs, r.log(ctx, log))
	}
	slices.SortFunc(r.report.Changed, func(a, b Change) int {
		if a.Log != b.Log {
			if a.Log < b.Log {
				return -1
			}
			return 1
		}
		return int(a.Index - b.Index)
	})
	r.report.Changed = r.report.Changed[:min(len(r.report.Changed), o.Keep)]
	return &r.report, errs
}

type runner struct {
	policy  Policy
	options Options

	mu      sync.Mutex
	report  Report
	answers map[string]answer // by entrypoint and input: most questions repeat
}

type answer struct {
	bytes []byte
	err   error
}

// batch is how many receipts a worker takes at once.
const batch = 256

func (r *runner) log(ctx context.Context, s Source) error {
	work := make(chan []receipts.Entry, r.options.Workers)
	var group sync.WaitGroup
	for range r.options.Workers {
		group.Go(func() {
			for entries := range work {
				r.replay(ctx, s, entries)
			}
		})
	}
	var err error
	entries := make([]receipts.Entry, 0, batch)
	for e, rerr := range s.Log.All(r.options.Query) {
		if err = errors.Join(rerr, ctx.Err()); err != nil {
			break
		}
		if entries = append(entries, e); len(entries) == batch {
			work <- entries
			entries = make([]receipts.Entry, 0, batch)
		}
	}
	work <- entries
	close(work)
	group.Wait()
	if err != nil {
		return fmt.Errorf("replay %s: %w", s.Log.Origin(), err)
	}
	return nil
}

// replay answers the questions of a batch and adds up what came out.
func (r *runner) replay(ctx context.Context, s Source, entries []receipts.Entry) {
	var part Report
	part.Buckets, part.NotReplayable = map[string]int64{}, map[string]int64{}
	for i := range entries {
		r.one(ctx, s, &entries[i], &part)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.report
	t.Receipts += int64(len(entries))
	t.Decisions += part.Decisions
	t.Looser += part.Looser
	for k, n := range part.Buckets {
		t.Buckets[k] += n
	}
	for k, n := range part.NotReplayable {
		t.NotReplayable[k] += n
	}
	t.Changed = append(t.Changed, part.Changed...)
	if r.options.Progress != nil {
		r.options.Progress(t.Receipts)
	}
}

// one replays the questions of one receipt.
func (r *runner) one(ctx context.Context, s Source, e *receipts.Entry, part *Report) {
	if e.Receipt.InputRef == "" {
		if decides(e.Receipt.Kind) {
			part.NotReplayable["no_input"]++
		}
		return
	}
	sealed, err := s.Inputs.Open(&e.Receipt)
	if err != nil {
		part.NotReplayable[causeOf(err)]++
		return
	}
	questions, err := engine.ParseQuestions(sealed)
	if err != nil {
		part.NotReplayable["unreadable"]++
		return
	}
	for _, q := range questions {
		r.ask(ctx, e, q, part)
	}
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

func (r *runner) ask(ctx context.Context, e *receipts.Entry, q engine.Question, part *Report) {
	if len(q.Input) == 0 {
		part.NotReplayable["evaluation_failed"]++
		return
	}
	would, err := r.answer(ctx, q)
	part.Decisions++
	bucket := Errored
	if err == nil {
		bucket = Compare(q.Entrypoint, q.Answer, would)
	}
	part.Buckets[bucket]++
	if bucket == Unchanged {
		return
	}
	c := Change{Log: e.Log, Index: e.Index, Receipt: e.Receipt.ID.String(), RequestID: e.Receipt.RequestID,
		Entrypoint: q.Entrypoint, Bucket: bucket, Was: q.Answer, Would: would}
	if err != nil {
		c.Error = err.Error()
	}
	if bucket == Looser && q.Entrypoint == "authority" {
		part.Looser++
	}
	part.Changed = append(part.Changed, c)
}

// answer asks the policy once for each different question.
func (r *runner) answer(ctx context.Context, q engine.Question) ([]byte, error) {
	const most = 1 << 16
	key := q.Entrypoint + "\x00" + string(q.Input)
	r.mu.Lock()
	a, ok := r.answers[key]
	r.mu.Unlock()
	if ok {
		return a.bytes, a.err
	}
	v, err := r.policy.Replay(ctx, q.Entrypoint, q.Input)
	if err == nil {
		a.bytes = engine.AppendAnswer(nil, v)
	}
	a.err = err
	r.mu.Lock()
	if len(r.answers) < most && ctx.Err() == nil {
		r.answers[key] = a
	}
	r.mu.Unlock()
	return a.bytes, a.err
}
