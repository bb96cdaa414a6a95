// Package replay decides again what receipts recorded, under another policy or
// under the same one: what would have been stricter, what looser, and what
// cannot be told.
//
// Every decision's questions lie sealed beside its receipt: the projected input
// of each, and the answer. [Run] puts them again, with the circuits as they were
// at that moment. Bodies are not kept, so a classification stands as recorded,
// and what a changed module would have said of it is told as not replayable.
// What changed settings would have made of the circuits is a run of its own,
// with bounds in the place of figures: see [Circuits].
package replay

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/fusebox-dev/fusebox/breaker"
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

	// Self puts each question to the policy of the digest that decided it: the
	// one of the run or one of Others.
	Self   bool
	Others []Policy

	// Modules are those of the policy. A classification that another module
	// made, or that one of these would have been asked for, cannot be replayed.
	// nil judges none of it; an empty list says that the policy has none.
	Modules []Module

	// Breakers are the policy's settings; with them the circuits run again.
	Breakers []breaker.Setting
	MaxCalls int // calls whose circuits run again; default 4 million, about 150 bytes each
}

// A Report says what another policy would have decided.
type Report struct {
	Policy        taxonomy.PolicyVersion `json:"policy"`
	Receipts      int64                  `json:"receipts"`  // read
	Decisions     int64                  `json:"decisions"` // questions answered again
	Buckets       map[string]int64       `json:"buckets"`
	NotReplayable map[string]int64       `json:"not_replayable"` // receipts, by cause
	Looser        int64                  `json:"authority_looser"`
	// Recorded counts receipts with inputs by the policy that decided them.
	Recorded map[taxonomy.PolicyVersion]int64 `json:"recorded_under"`
	Changed  []Change                         `json:"changed"` // in the order of the log
	Circuits *Circuits                        `json:"circuits,omitempty"`
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

func (r *Report) clear() {
	r.Buckets, r.NotReplayable = map[string]int64{}, map[string]int64{}
	r.Recorded = map[taxonomy.PolicyVersion]int64{}
}

// Identical reports whether every replayable decision came out as recorded.
func (r *Report) Identical() bool { return r.Decisions == r.Buckets[Unchanged] }

// Run replays every receipt of the logs. A log being written is read as far as
// it was when its reader was opened. The same logs and policies give the same
// report, with any number of workers.
func Run(ctx context.Context, logs []Source, p Policy, o Options) (*Report, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Keep <= 0 {
		o.Keep = 100
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = 4_000_000
	}
	r := &runner{policy: p, options: o, policies: map[string]*asked{}, modules: modulesOf(o.Modules),
		settings: map[string]*breaker.Setting{}}
	for _, p := range append([]Policy{p}, o.Others...) {
		r.policies[Digest(p.Version())] = &asked{Policy: p, answers: map[string]answer{}}
	}
	for i := range o.Breakers {
		r.settings[o.Breakers[i].Name] = &o.Breakers[i]
	}
	if len(o.Breakers) > 0 {
		r.calls = newCalls(o.Breakers, r.settings, o.MaxCalls)
	}
	r.report.Policy = p.Version()
	r.report.clear()
	var errs error
	for _, log := range logs {
		errs = errors.Join(errs, r.log(ctx, log))
	}
	r.modules.close(&r.report)
	slices.SortFunc(r.report.Changed, func(a, b Change) int {
		if c := strings.Compare(a.Log, b.Log); c != 0 {
			return c
		}
		return int(a.Index - b.Index)
	})
	r.report.Changed = r.report.Changed[:min(len(r.report.Changed), o.Keep)]
	if r.calls != nil && errs == nil {
		r.report.Circuits, errs = r.calls.run(ctx, o.Breakers)
	}
	return &r.report, errs
}

// Digest is the part of a version that decides. The revision before it is a
// name, and ends in -dev where the folder was watched.
func Digest(v taxonomy.PolicyVersion) string {
	_, digest, _ := strings.Cut(string(v), "@")
	return digest
}

type runner struct {
	policy   Policy
	options  Options
	policies map[string]*asked // by digest
	settings map[string]*breaker.Setting
	calls    *calls // nil: circuits do not run again

	mu      sync.Mutex
	report  Report
	modules *modules
}

// A job is some receipts of one log, in order. Workers answer their questions;
// what they found is added up in the order of the log.
type job struct {
	entries []receipts.Entry
	part    Report
	seen    []happening
	modules []module
	done    chan struct{}
}

// batch is how many receipts a worker takes at once.
const batch = 256

func (r *runner) log(ctx context.Context, s Source) error {
	work, order := make(chan *job, r.options.Workers), make(chan *job, 4*r.options.Workers)
	var workers, adder sync.WaitGroup
	for range r.options.Workers {
		workers.Go(func() {
			inputs := s.Inputs.Reader()
			defer inputs.Close()
			for j := range work {
				r.work(ctx, inputs, j)
			}
		})
	}
	adder.Go(func() {
		for j := range order {
			<-j.done
			r.add(j)
		}
	})
	send := func(entries []receipts.Entry) {
		j := &job{entries: entries, done: make(chan struct{})}
		order <- j
		work <- j
	}
	var err error
	entries := make([]receipts.Entry, 0, batch)
	for e, rerr := range s.Log.All(r.options.Query) {
		if err = errors.Join(rerr, ctx.Err()); err != nil {
			break
		}
		if entries = append(entries, e); len(entries) == batch {
			send(entries)
			entries = make([]receipts.Entry, 0, batch)
		}
	}
	send(entries)
	close(work)
	close(order)
	workers.Wait()
	adder.Wait()
	if err != nil {
		return fmt.Errorf("replay %s: %w", s.Log.Origin(), err)
	}
	return nil
}

// work answers the questions of a job.
func (r *runner) work(ctx context.Context, inputs *receipts.InputReader, j *job) {
	defer close(j.done)
	j.part.clear()
	w := worker{runner: r, inputs: inputs, job: j}
	for i := range j.entries {
		w.one(ctx, &j.entries[i])
	}
}

// add takes a job's findings into the report.
func (r *runner) add(j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.report
	t.Receipts += int64(len(j.entries))
	t.Decisions += j.part.Decisions
	t.Looser += j.part.Looser
	for k, n := range j.part.Buckets {
		t.Buckets[k] += n
	}
	for k, n := range j.part.NotReplayable {
		t.NotReplayable[k] += n
	}
	for k, n := range j.part.Recorded {
		t.Recorded[k] += n
	}
	t.Changed = append(t.Changed, j.part.Changed...)
	for i := range j.modules {
		r.modules.add(&j.modules[i])
	}
	if r.calls != nil {
		for i := range j.seen {
			r.calls.add(&j.seen[i])
		}
	}
	if r.options.Progress != nil {
		r.options.Progress(t.Receipts)
	}
}
