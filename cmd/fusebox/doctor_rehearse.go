package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A rehearsal runs the policy in a temporary directory against remotes in this
// process that fail on purpose and count what reaches them. Its clock moves only
// when the engine waits, so it takes no time and sends nothing anywhere.
type rehearsal struct {
	err error

	calls    int   // of a model that answers 503
	reached  int   // attempts that the remote counted
	reported int   // attempts that the calls reported
	recorded int   // attempts that receipts record
	most     int   // attempts of one call
	refused  int   // calls that were not sent at all
	allowed  int64 // attempts of one call by [retry]

	class        string // of the write that timed out
	writeErr     error  // why no write could be tried
	writeReached int
	verdict      taxonomy.Verdict
	durable      bool // the intent was in the store when the bytes left
	unsettled    bool // and waits for reconciliation after

	receipts int
	states   int            // receipts with the state of a circuit
	lacking  map[string]int // fields that receipts of outcomes lack
}

const rehearsedCalls = 12

// play rehearses. Its own failure is part of what it reports.
func (x *exam) play() *rehearsal {
	r := &rehearsal{lacking: map[string]int{}, allowed: int64(x.bundle.Settings.Retry.Model.Attempts)}
	dir, err := os.MkdirTemp("", "fusebox-doctor-")
	if err != nil {
		r.err = err
		return r
	}
	ctx := x.cmd.Context()
	clock := &movedClock{now: time.Now(), mono: breaker.Instant(time.Hour)}
	cfg := sdk.Config{Data: dir, Policies: x.cfg.Policies}
	still := false
	cfg.Policies.Watch = &still
	c, err := sdk.Open(ctx, cfg, sdk.Parts{Build: buildName(), Still: true, WithoutPlugins: true, Clock: clock, Draw: func() float64 { return 0.5 }})
	if err != nil {
		r.err = errors.Join(err, os.RemoveAll(dir))
		return r
	}
	r.outage(ctx, c)
	r.silence(ctx, c, x.writes())
	r.err = errors.Join(r.err, c.Close(context.WithoutCancel(ctx)))
	r.read(filepath.Join(dir, "receipts"))
	r.err = errors.Join(r.err, os.RemoveAll(dir))
	return r
}

// outage: a model answers 503 to everything.
func (r *rehearsal) outage(ctx context.Context, c *sdk.Client) {
	for i := range rehearsedCalls {
		op := taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "doctor", Model: "rehearsal", Tenant: "doctor", Agent: "doctor",
			RunID: fmt.Sprintf("outage-%d", i), RequestID: fmt.Sprintf("outage-%d", i), Effect: taxonomy.ReadOnly}
		before := r.reached
		res, err := c.Do(ctx, op, func(context.Context, engine.Call) taxonomy.Observation {
			r.reached++
			return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes}, Response: &taxonomy.Response{Status: 503, Body: "{}"}}
		})
		r.calls++
		r.reported += res.Attempts
		r.most = max(r.most, r.reached-before)
		if _, rejected := errors.AsType[*engine.Rejection](err); rejected && r.reached == before {
			r.refused++
		}
	}
}

// writes are operations that may be tried as the write that times out: what is
// described, then classes that authority allows.
func (x *exam) writes() (out []taxonomy.Operation) {
	add := func(tool, action, class string, effect taxonomy.Effect) {
		out = append(out, taxonomy.Operation{Kind: "tool", Name: tool + "." + action, Tool: tool, Action: action, ActionClass: class, Effect: effect,
			Tenant: "doctor", Agent: "doctor", IdempotencyKey: "doctor-" + class, Amount: 1})
	}
	for _, t := range x.bundle.Settings.Tools {
		if !t.Effect.Repeatable() && t.Action != "" && t.Action[0] != '@' {
			add(t.Tool, t.Action, t.ActionClass, t.Effect)
		}
	}
	for _, class := range x.configData().Authority.Allowed {
		add("doctor", "write", class, taxonomy.NonRepeatable)
	}
	return out
}

// silence: a write is sent, and no answer comes. The first one that authority
// lets through is tried; where all need a person, one is asked for here.
func (r *rehearsal) silence(ctx context.Context, c *sdk.Client, ops []taxonomy.Operation) {
	r.writeErr = errors.New("no write is described, and authority allows no class of actions")
	for i, op := range ops {
		op.RunID, op.RequestID = "silence", fmt.Sprintf("silence-%d", i)
		res, err := c.Do(ctx, op, func(ctx context.Context, call engine.Call) taxonomy.Observation {
			r.writeReached++
			in, err := c.Store().Intent(ctx, call.PermitID)
			r.durable = err == nil && in.State == state.InFlight
			return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: "read_timeout"}, ElapsedMS: 30000}
		})
		if r.writeReached == 0 {
			r.writeErr = cmp.Or(err, errors.New("it was not sent"))
			continue
		}
		r.writeErr, r.class, r.verdict = nil, op.ActionClass, res.Verdict
		for in, err := range c.Store().Find(ctx, state.IntentQuery{States: []state.IntentState{state.Unsettled}}) {
			r.unsettled = r.unsettled || err == nil && in.RequestID == op.RequestID
		}
		return
	}
}

// read goes through the receipts that the rehearsal left.
func (r *rehearsal) read(root string) {
	logs, err := receipts.OpenReaders(root)
	if err != nil {
		r.err = errors.Join(r.err, err)
		return
	}
	for e, err := range receipts.All(logs, receipts.Query{}) {
		if err != nil {
			r.err = errors.Join(r.err, err)
			return
		}
		k := &e.Receipt
		r.receipts++
		if len(k.Circuits) > 0 || k.Kind == receipts.KindTransition && k.State != 0 {
			r.states++
		}
		if k.Kind == receipts.KindOutcome {
			if k.RemoteCallAttempted && len(k.RequestID) > 7 && k.RequestID[:7] == "outage-" {
				r.recorded++
			}
			for _, f := range missingFields(k) {
				r.lacking[f]++
			}
		}
	}
}

// missingFields are those of SPEC R-OPS-8 that a receipt of an outcome lacks.
func missingFields(k *receipts.Receipt) (out []string) {
	for name, there := range map[string]bool{"request": k.RequestID != "", "attempt": k.Attempt > 0, "outcome": k.Outcome.OK, "policy version": k.PolicyVersion != ""} {
		if !there {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// A movedClock stands still until somebody sleeps.
type movedClock struct {
	mu   sync.Mutex
	now  time.Time
	mono breaker.Instant
}

func (c *movedClock) Now() time.Time        { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *movedClock) Mono() breaker.Instant { c.mu.Lock(); defer c.mu.Unlock(); return c.mono }

func (c *movedClock) Sleep(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.mono = c.now.Add(max(d, 0)), c.mono.Add(max(d, 0))
	return true
}

func (c *movedClock) Until(ctx context.Context, _ time.Time) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// A receiptSeen is what doctor reads of a receipt that is there already.
type receiptSeen = receipts.Receipt

// newestReceipts is how many outcomes doctor reads back.
const newestReceipts = 500

// logs opens the receipts of the data directory. A directory without any is an
// error that says so.
func (x *exam) logs() ([]*receipts.Reader, error) {
	root := cmp.Or(x.cfg.Receipts.Dir, filepath.Join(x.cfg.Data, "receipts"))
	if entries, err := os.ReadDir(root); err != nil || len(entries) == 0 {
		return nil, fmt.Errorf("there are none in %s yet", root)
	}
	return receipts.OpenReaders(root)
}

// eachReceipt reads the newest outcomes of the data directory.
func (x *exam) eachReceipt(f func(*receiptSeen)) error {
	logs, err := x.logs()
	if err != nil {
		return err
	}
	for e, err := range receipts.All(logs, receipts.Query{Kinds: []receipts.Kind{receipts.KindOutcome}, Newest: true, Limit: newestReceipts}) {
		if err != nil {
			return err
		}
		f(&e.Receipt)
	}
	return nil
}
