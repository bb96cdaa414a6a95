// Package state says what must survive a restart, as small interfaces.
//
// Facts that are overwritten live here: circuits, dispatch intents, budgets,
// the queue, approvals and runs. Facts that are only appended are receipts and
// live elsewhere. A store is opaque storage with versions and transactions: no
// rule of fusebox is written in SQL. Any store that passes [statetest.Run] may
// be used.
package state

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Errors that every store returns, wrapped with the step and the key.
var (
	ErrUnknown     = errors.New("the commit's fate is unknown")           // lost connection or deadline after sending it
	ErrUnavailable = errors.New("the state store is unavailable")         // nothing was changed
	ErrExhausted   = errors.New("budget exhausted")                       // see *Exhausted
	ErrNotFound    = errors.New("not found")                              //
	ErrConflict    = errors.New("already done differently")               // settled twice with different results, claimed by another
	ErrFenced      = errors.New("owner is late; somebody else took over") // a stale claim, lease or owner
	ErrExpired     = errors.New("expired")                                // no claim, use or settlement after expiry
	ErrClosed      = errors.New("store is closed")
	ErrInvalid     = errors.New("not acceptable") // the caller's mistake: a missing id, a negative amount
)

// Exhausted names the account that had no room. errors.Is(err, ErrExhausted).
type Exhausted struct {
	Account string
	Unit    string // "cost_nano_usd", "tokens", "attempts", "time_ms"
	Left    int64
	Wanted  int64
}

func (e *Exhausted) Error() string        { return "budget " + e.Account + " exhausted: " + e.Unit }
func (e *Exhausted) Is(target error) bool { return target == ErrExhausted }

// Rev orders the versions of one document. N rises with every commit of the
// key, also over a deletion; by how much is the store's own affair. Epoch
// changes when the store may have gone back in time.
type Rev struct{ Epoch, N uint64 }

// Newer reports whether r is a later version than o within one epoch, or of
// another epoch.
func (r Rev) Newer(o Rev) bool { return r.Epoch != o.Epoch || r.N > o.N }

// A Doc is one versioned document: an encoded circuit or an override. A key
// that was never written is a Doc with zero Rev and nil Data.
type Doc struct {
	Key  string
	Rev  Rev
	Data []byte
	Now  time.Time // the store's clock at the reply
}

// An Event is one thing a watcher learns.
type Event struct {
	Doc  Doc  // of a change; zero otherwise
	Beat bool // the watch is alive, nothing new
	Lost bool // the last event before the channel closes; what is cached is stale
}

// Circuits keeps encoded circuits by key.
type Circuits interface {
	// Load is linearizable: it never reads a replica. It never writes.
	Load(ctx context.Context, keys ...string) ([]Doc, error)
	// Update runs f, pure and perhaps several times, and commits its result
	// against the version that f saw. A nil result writes nothing. mode says
	// that the change is one of mode (durable on return, and announced to
	// watchers); otherwise it may be lost with the machine's power, never in
	// order.
	Update(ctx context.Context, key string, f func(Doc) (data []byte, mode bool)) (Doc, error)
	// Each calls f for every document whose key begins with prefix, in key order.
	Each(ctx context.Context, prefix string, f func(Doc) error) error
	// Delete forgets documents; only closed, empty circuits are deleted.
	Delete(ctx context.Context, keys ...string) error
	// Watch sends changes of mode, everybody's, and a beat at least every
	// 250 ms, until ctx ends; then the channel is closed. A slow reader misses
	// steps in between, never the newest version of a key.
	Watch(ctx context.Context, prefix string) (<-chan Event, error)
}

// Owner is the process that has a call in flight.
type Owner struct {
	Home        string // the data directory that the slot belongs to; "" where the store serves only one
	Slot        int    // its receipts slot, held by a file lock; below 0 is none
	Incarnation string // unique per process start
}

// IntentState is where an intent stands. The zero value is in flight.
type IntentState uint8

const (
	InFlight  IntentState = iota // dispatched by its owner, no result yet
	Unsettled                    // UNKNOWN: nobody can prove what happened; waits for reconciliation
	Settled                      // has its outcome
)

func (s IntentState) String() string {
	return [...]string{"IN_FLIGHT", "UNKNOWN", "SETTLED"}[min(int(s), 2)]
}

// An Intent is the durable mark that an operation may be about to be sent.
type Intent struct {
	ID             string // the permit's id
	RequestID      string
	Attempt        int64
	Owner          Owner
	Tenant         string
	Action         string // the ambiguity circuit's readable scope: tool, operation, tenant
	Effect         taxonomy.Effect
	IdempotencyKey string
	Operation      []byte // the operation document, canonical JSON
	Policy         taxonomy.PolicyVersion
	Receipt        string // id of its intent receipt
	Created        time.Time
	Expires        time.Time // after it, others may call it UNKNOWN
	State          IntentState
	Result         Settlement // of a settled one, or what is known of an UNKNOWN one
	Tries          int64      // reconciliations tried
	NextTry        time.Time
	Case           string // human review case, "" when there is none
}

// A Settlement is how an intent ended.
type Settlement struct {
	Outcome taxonomy.Outcome
	Class   taxonomy.Class
	Reason  string
	By      string // "engine", "reconcile:http", "operator:ann", "owner_gone", "expired"
	Receipt string
	At      time.Time
}

// IntentQuery selects intents; zero fields select all.
type IntentQuery struct {
	States    []IntentState
	Tenant    string
	RequestID string
	Key       string    // the idempotency key
	Before    time.Time // created before
	Due       time.Time // to be reconciled by then: NextTry is not after it
	Limit     int       // 0 is no limit
}

// Intents keeps what was dispatched until it has an outcome. Every method is
// durable on return.
type Intents interface {
	// Settle gives an intent its outcome. UNKNOWN moves it to Unsettled. The
	// same settlement (outcome and class) twice is a no-op and the first one
	// stands; a different one of a Settled intent is ErrConflict.
	Settle(ctx context.Context, id string, s Settlement) (Intent, error)
	Intent(ctx context.Context, id string) (Intent, error)
	// Find goes through intents, oldest first.
	Find(ctx context.Context, q IntentQuery) iter.Seq2[Intent, error]
	// Condemn moves to Unsettled the in-flight intents of earlier incarnations
	// of the owner's slot in the owner's home, and everybody's that expired
	// before now by the store's clock. It returns those that it moved. No
	// process condemns what another one has in flight.
	Condemn(ctx context.Context, o Owner, by string) ([]Intent, error)
	// Postpone records a reconciliation that stayed UNKNOWN. An empty case
	// leaves the case that there is. ErrConflict unless it is Unsettled.
	Postpone(ctx context.Context, id string, next time.Time, humanCase string) (Intent, error)
}

// Amounts are what a call uses of a budget. A zero limit is no limit.
type Amounts struct {
	CostNanoUSD int64
	Tokens      int64
	Attempts    int64
	TimeMS      int64
}

// Add returns the sum; it saturates instead of wrapping.
func (a Amounts) Add(b Amounts) Amounts {
	return Amounts{sat(a.CostNanoUSD, b.CostNanoUSD), sat(a.Tokens, b.Tokens), sat(a.Attempts, b.Attempts), sat(a.TimeMS, b.TimeMS)}
}

func sat(a, b int64) int64 {
	s := a + b
	switch {
	case a > 0 && b > 0 && s < 0:
		return 1<<63 - 1
	case a < 0 && b < 0 && s >= 0:
		return -1 << 63
	}
	return s
}

// A Line reserves amounts in one account, under the limit in force.
type Line struct {
	Account string // rendered scope and window: "tenant:acme/2026-11-30"
	Limit   Amounts
	Want    Amounts
}

// A Reservation takes all its lines or none. It is idempotent by ID: the same
// one again gives the same grant; another one under that ID, or one whose grant
// was settled, is ErrConflict.
type Reservation struct {
	ID      string
	Lines   []Line
	Expires time.Time // after it the amounts count as used, never as free
}

// A Grant is a reservation that was given.
type Grant struct {
	ID    string
	Lines []Line
}

// Usage is where one account stands.
type Usage struct {
	Account  string
	Used     Amounts // settled
	Reserved Amounts // open grants, expired ones included
}

// Budgets keeps reservations. Never overspent: settled + open grants <= limit
// at every read.
type Budgets interface {
	Reserve(ctx context.Context, r Reservation) (Grant, error) // *Exhausted
	// SettleGrant commits to every line what was used and releases the rest,
	// once; the same again is a no-op, another amount is ErrConflict. It is
	// allowed after expiry, which never frees anything. More than was reserved
	// is recorded as it was used: the account is then over its limit, and gives
	// nothing more.
	SettleGrant(ctx context.Context, id string, used Amounts) error
	Usage(ctx context.Context, accounts ...string) ([]Usage, error)
}

// An Item is one piece of work that waits.
type Item struct {
	ID         string
	RequestID  string
	Created    time.Time
	Expires    time.Time // required: no expiry, no entry
	Priority   int64     // higher first
	Dependency string    // readable scope of the circuit it waits for
	Replay     string    // replay policy: "revalidate" (default), "never"
	Tenant     string
	Operation  []byte // canonical JSON
	Payload    []byte // opaque to fusebox; sealed by the caller where it must be
	Attempts   []ItemAttempt
	State      ItemState
	NotBefore  time.Time
	Reason     string    // why it is dead, dropped or waiting
	Claim      uint64    // fencing token of the present claim
	ClaimUntil time.Time // when that claim ends
	Owner      string
}

// An ItemAttempt is one try of a queued item.
type ItemAttempt struct {
	At      time.Time
	Outcome taxonomy.Outcome
	Reason  string
}

// ItemState is where an item stands. The zero value waits.
type ItemState uint8

const (
	Waiting ItemState = iota
	Claimed
	Done
	Expired // dropped after its expiry, with a reason
	Dead    // failed for good; waits for a person
	Dropped // by a person, or withdrawn
)

func (s ItemState) String() string {
	return [...]string{"WAITING", "CLAIMED", "DONE", "EXPIRED", "DEAD", "DROPPED"}[min(int(s), 5)]
}

// A Disposition ends a claim.
type Disposition struct {
	State   ItemState // Waiting puts it back
	Reason  string
	At      time.Time // with Waiting: not before
	Attempt *ItemAttempt
}

// ItemQuery selects items; zero fields select all.
type ItemQuery struct {
	States     []ItemState
	Dependency string
	Tenant     string
	Limit      int
}

// Queue keeps deferred work and dead letters. Every method is durable on return.
type Queue interface {
	// Put adds an item; the same ID twice is a no-op. ErrExpired without a
	// future expiry. An item may be put as Dead, with any expiry: dead letters
	// wait for a person.
	Put(ctx context.Context, it Item) error
	// Claim leases up to n waiting items of a dependency ("" is any), highest
	// priority and oldest deadline first. Claims that run at the same time may
	// pass over each other's candidates, and then return less, or a lower one.
	// It never hands out an expired item; those it meets become Expired and are
	// returned apart, also with n 0. A claim that ran out waits again, under a
	// new token.
	Claim(ctx context.Context, worker, dependency string, n int, lease time.Duration) (claimed, expired []Item, err error)
	// Renew lengthens a claim to lease from now; ErrFenced once it ran out.
	Renew(ctx context.Context, id string, claim uint64, lease time.Duration) error
	// Finish ends a claim; a stale claim token, or a claim that ran out, is ErrFenced.
	Finish(ctx context.Context, id string, claim uint64, d Disposition) error
	// Move changes an item that nobody has claimed: retry (Waiting), drop, …
	// ErrConflict while it is claimed, and when it is Done or Dropped;
	// ErrExpired when it should wait again after its expiry.
	Move(ctx context.Context, id string, d Disposition) error
	Items(ctx context.Context, q ItemQuery) iter.Seq2[Item, error]
}

// Approvals keeps what people allowed.
type Approvals interface {
	// Grant is durable on return. The same approval twice is a no-op, another
	// one under its ID is ErrConflict, and one without a future end ErrExpired.
	Grant(ctx context.Context, a taxonomy.Approval) error
	// Approved returns the unexpired, unused approvals for any of these scopes
	// of a tenant.
	Approved(ctx context.Context, tenant string, scopes ...string) ([]taxonomy.Approval, error)
	// Approvals lists them all, newest first, and says who used them.
	Approvals(ctx context.Context, limit int) ([]taxonomy.Approval, error)
}

// Runs keeps the recent calls of each run, so that loops are seen across
// restarts, and whether a run was stopped.
type Runs interface {
	// Append adds a call and keeps the newest 64.
	Append(ctx context.Context, run string, c taxonomy.Call) error
	// Run returns the calls kept, oldest first.
	Run(ctx context.Context, run string) ([]taxonomy.Call, error)
	// Stop marks a run as stopped, durably; the first reason stands. Stopped
	// returns the reason, "" for a run that was not stopped.
	Stop(ctx context.Context, run, reason string) error
	Stopped(ctx context.Context, run string) (string, error)
	// Forget drops runs without a call, or a stop, since then.
	Forget(ctx context.Context, before time.Time) (int, error)
}

// A LeaseUpdate is one update of a circuit's document inside a dispatch. f is
// as in Circuits.Update; ok false refuses the whole dispatch.
type LeaseUpdate struct {
	Key string
	F   func(Doc) (data []byte, ok bool)
}

// A Dispatch is everything that must be durable before the first byte leaves:
// one transaction, one commit, all or nothing. It is idempotent by the intent's
// ID while that is in flight: after a lost reply the same dispatch again
// changes nothing and returns the grant and the documents as they stand.
type Dispatch struct {
	Reservation *Reservation
	Leases      []LeaseUpdate
	Intent      *Intent
	UseApproval string // id of an approval, consumed where it is single-use; used or expired is ErrConflict
}

// Dispatched is what a Dispatch wrote.
type Dispatched struct {
	Grant Grant
	Docs  []Doc // one per lease, in order
}

// ErrRefused is returned when a LeaseUpdate's f said no.
var ErrRefused = errors.New("lease refused")

// Dispatcher commits a dispatch.
type Dispatcher interface {
	Dispatch(ctx context.Context, d Dispatch) (Dispatched, error)
}

// Caps says what a store promises.
type Caps struct {
	Name              string        // "memory", "sqlite", "postgres"
	Durable           bool          // survives kill -9 and power loss where a method says so
	Shared            bool          // several processes may use it at once
	Remote            bool          // it lies behind a network, and may be slow or gone by itself
	FailoverMayRewind bool          // acked writes may be gone after a failover
	PushBound         time.Duration // how late a watcher may learn of a change
}

// A Store is all of it.
type Store interface {
	Circuits
	Intents
	Budgets
	Queue
	Approvals
	Runs
	Dispatcher
	Now(ctx context.Context) (time.Time, error) // the store's clock
	// Prune deletes what ended before then: settled intents and grants, items
	// done, dropped or expired, approvals past their end, accounts without an
	// open grant. What is open, UNKNOWN or dead stays. It returns how many.
	Prune(ctx context.Context, before time.Time) (int, error)
	Caps() Caps
	Close() error
}
