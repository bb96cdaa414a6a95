package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Rejection is a local decision not to send; see [taxonomy.Rejection].
type Rejection = taxonomy.Rejection

// ErrClosed is the cause of every rejection after Close began.
var ErrClosed = errors.New("engine is closed")

var zeroTime time.Time

// Parts is everything an engine is built from. Policy, Store and Log are
// required; the rest has a default.
type Parts struct {
	Policy *Policy
	Store  state.Store
	Log    *receipts.Log
	Owner  state.Owner // of this process; its slot is the log's slot

	Clock       Clock                 // default: the machine's
	Draw        func() float64        // in [0, 1); default: random. Jitter and ramp shares come from it
	Meter       Meter                 // default: counts nothing
	Tracer      Tracer                // nil shows nothing
	Reconcilers map[string]Reconciler // by the name that policy's [[tool]] entries use
	Checker     Checker               // default: checks nothing
	Faults      Faults                // tests only

	Build        string                           // "fusebox/0.1.0 opa/1.22.3", for receipts
	ConfigDigest string                           // "sha256:…" of the wiring, for receipts
	Fingerprint  func(tenant, text string) string // keyed; nil leaves fingerprints out of receipts

	PermitTTL   time.Duration // from admit to dispatch; default 60 s
	Grace       time.Duration // from the deadline to UNKNOWN; default 5 s
	StoreWait   time.Duration // the most a dispatch waits for the store; default 2 s
	ReadWait    time.Duration // the most an admission waits for it; default 50 ms, StoreWait where the store is in this process
	LogWait     time.Duration // the most a dispatch waits for its receipt; default 2 s
	ReplayInput bool          // keep projected policy inputs in receipts, for replay
}

// Checker judges a result by itself, before classification: schemas, required
// meaning. Its facts become observation.local.
type Checker interface {
	Check(op *taxonomy.Operation, obs *taxonomy.Observation) taxonomy.Raw
}

// A Reconciler looks up whether an operation was applied.
type Reconciler interface {
	Reconcile(ctx context.Context, in state.Intent) (Finding, error)
}

// Finding is what a status lookup says. The zero value is still unknown.
type Finding uint8

const (
	StillUnknown Finding = iota
	Applied
	NotApplied
)

var findingNames = [...]string{"still_unknown", "applied", "not_applied"}

func (f Finding) String() string { return findingNames[min(int(f), 2)] }

// ParseFinding reads a finding's name.
func ParseFinding(s string) (Finding, error) {
	for i, n := range findingNames {
		if n == s {
			return Finding(i), nil
		}
	}
	return StillUnknown, fmt.Errorf("finding %q is none of applied, not_applied, still_unknown", s)
}

// An Engine carries operations through admission, dispatch and settlement.
// All its methods may be called from any number of goroutines.
type Engine struct {
	parts     Parts
	clock     Clock
	meter     Meter
	caps      state.Caps // of the store
	past      history    // of the store
	pastCalls pastCalls
	home      *partition   // the version in force and its circuits
	plain     arm          // of every call while there is no trial
	swap      sync.RWMutex // held for reading while a path is admitted, for writing while policy changes
	trial     atomic.Pointer[trial]
	stage     sync.Mutex // one change of the trial at a time
	permits   *permits
	runs      *runs
	tokens    retryTokens
	storeTime storeTime
	blocks    *state.Blocks
	usage     usages
	pace      pace // of the queue
	closed    atomic.Bool

	condemnedAt, sweptAt breaker.Instant // only Tick touches them
}

// New builds an engine, restores its circuits from the store and declares
// UNKNOWN what an earlier process of the same slot left in flight. It starts
// nothing: call Run for expiry and flushing, and Close at the end.
func New(ctx context.Context, parts Parts) (*Engine, error) {
	if err := parts.complete(); err != nil {
		return nil, err
	}
	e := &Engine{parts: parts, clock: parts.Clock, meter: parts.Meter, caps: parts.Store.Caps(), permits: newPermits(), runs: newRuns(parts.Store, parts.StoreWait)}
	e.storeTime.store, e.storeTime.clock, e.storeTime.wait = parts.Store, parts.Clock, parts.ReadWait
	if err := e.storeTime.learn(ctx); err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	e.blocks = state.NewBlocks(parts.Store, state.BlockOptions{NewID: newID, Now: e.StoreNow, Wait: parts.StoreWait})
	var err error
	if e.home, err = newPartition(e, docPrefix); err != nil {
		return nil, err
	}
	e.plain.partition = e.home
	if err := e.Use(parts.Policy); err != nil {
		return nil, err
	}
	if err := e.beginHistory(ctx); err != nil {
		return nil, err
	}
	if err := e.home.restore(ctx); err != nil {
		return nil, fmt.Errorf("restore circuits: %w", err)
	}
	if err := e.condemn(ctx, "owner_gone"); err != nil {
		return nil, fmt.Errorf("look for intents of an earlier process: %w", err)
	}
	return e, nil
}

// complete fills defaults and names the missing part.
func (p *Parts) complete() error {
	switch {
	case p.Policy == nil:
		return errors.New("engine.Parts.Policy is missing")
	case p.Policy.Rules == nil:
		return errors.New("engine.Parts.Policy.Rules is missing")
	case p.Policy.Table == nil:
		return errors.New("engine.Parts.Policy.Table is missing")
	case p.Store == nil:
		return errors.New("engine.Parts.Store is missing")
	case p.Log == nil:
		return errors.New("engine.Parts.Log is missing")
	}
	if p.Clock == nil {
		p.Clock = RealClock()
	}
	if p.Draw == nil {
		p.Draw = rand.Float64
	}
	if p.Meter == nil {
		p.Meter = noMeter{}
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&p.PermitTTL, 60*time.Second)
	def(&p.Grace, 5*time.Second)
	def(&p.StoreWait, 2*time.Second)
	if p.Store.Caps().Remote {
		def(&p.ReadWait, 50*time.Millisecond)
	}
	def(&p.ReadWait, p.StoreWait)
	def(&p.LogWait, 2*time.Second)
	return nil
}

func (e *Engine) draw() float64 { return e.parts.Draw() }

// current pins the policy in force; the caller releases it.
func (e *Engine) current() *Policy {
	p, _ := e.home.acquire() // this partition has no end
	return p
}

// Version is the policy in force.
func (e *Engine) Version() taxonomy.PolicyVersion { return e.home.policy.Load().Version }

// Breakers is the process's working copy of all circuits of the version in
// force.
func (e *Engine) Breakers() *breaker.Registry { return e.home.registry }

// Use puts a policy in force: circuits keep their state where it still makes
// sense, permits that are out keep the policy that admitted them.
func (e *Engine) Use(p *Policy) error {
	e.swap.Lock()
	old := e.home.policy.Load()
	now := e.clock.Mono()
	swapped, err := e.home.registry.Swap(p.Breakers, now)
	if err != nil {
		e.swap.Unlock()
		return fmt.Errorf("use policy %s: %w", p.Version, err)
	}
	p.users.Add(1) // a promoted candidate has users already
	e.home.policy.Store(p)
	e.home.rerules(old, p)
	if e.trial.Load() == nil {
		e.home.observe(p)
	}
	e.swap.Unlock()
	e.note(e.policyReceipt(p, old))
	e.home.noteChanges(swapped.Changes, nil)
	if old != nil {
		return old.release()
	}
	return nil
}

// Run drives what time drives, and follows what other processes on the same
// store change, until ctx ends. Nothing of it is left behind when it returns, so
// that the store can be closed.
func (e *Engine) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { e.home.follow(ctx) })
	group.Go(func() { e.followTrials(ctx) })
	group.Go(func() {
		for e.clock.Sleep(time.Second, ctx.Done()) {
			_ = e.LookUpDue(ctx) // metered; what failed is due again
		}
	})
	for e.clock.Sleep(beat, ctx.Done()) {
		e.Tick(ctx)
	}
	group.Wait()
	return context.Cause(ctx)
}

// beat is the pause between two ticks.
const beat = 100 * time.Millisecond

// Tick does one round of what time drives: permits that expired, counts on
// their way to the store, every five seconds the store's clock and intents whose
// owner is gone, and every minute dead letters that were kept long enough.
func (e *Engine) Tick(ctx context.Context) {
	e.expire(ctx)
	e.catchTime(ctx)
	e.renew(ctx)
	now := e.clock.Mono()
	for _, s := range e.partitions() {
		s.tick(ctx)
	}
	if now.Sub(e.condemnedAt) >= 5*time.Second {
		e.condemnedAt = now
		wait, cancel := context.WithTimeout(ctx, e.parts.StoreWait) // a frozen store must not hold up expiry
		if err := e.storeTime.learn(wait); err != nil {
			e.meter.StoreError("clock", err) // reckoned on, and asked again
		}
		_ = e.blocks.Return(wait, 30*time.Second) // tried again; until then the units count as used
		_ = e.condemn(wait, "expired")            // metered, and tried again
		cancel()
	}
	if now.Sub(e.sweptAt) >= time.Minute {
		e.sweptAt = now
		wait, cancel := context.WithTimeout(ctx, e.parts.StoreWait)
		e.sweep(wait)
		cancel()
	}
}

// Close stops admission, waits until ctx ends for calls that are out, declares
// what remains UNKNOWN, and flushes. The log and the store stay open: they are
// the caller's, and the log writes its own shutdown receipt.
func (e *Engine) Close(ctx context.Context) error {
	if e.closed.Swap(true) {
		return nil
	}
	for len(e.permits.all()) > 0 && e.clock.Sleep(10*time.Millisecond, ctx.Done()) {
	}
	var errs error
	for _, p := range e.permits.all() {
		errs = errors.Join(errs, p.lapse(context.WithoutCancel(ctx), "shutdown"))
	}
	for _, s := range e.partitions() {
		s.combine.flush(context.WithoutCancel(ctx))
	}
	errs = errors.Join(errs, e.stopTrial(ctx), e.runs.endAll(context.WithoutCancel(ctx)))
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.parts.StoreWait)
	defer cancel()
	errs = errors.Join(errs, e.blocks.Close(wait))
	return errors.Join(errs, e.home.policy.Load().release())
}
