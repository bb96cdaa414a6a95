package breaker

import "github.com/fusebox-dev/fusebox/taxonomy"

// A Refusal is one circuit's no, with what a receipt needs to show why.
type Refusal struct {
	Layer    taxonomy.Layer
	Breaker  string
	Scope    string // readable: "provider:openai/eu/gpt-x"
	Key      string // of the store
	State    State
	Version  uint64
	Reason   Reason  // why this call is refused: circuit_open, probe_busy, …
	Cause    Reason  // why the circuit is in its state: failure_ratio, retry_after, …
	Detail   string  // what the signal or the operator said
	RetryAt  Instant // ask again then; 0 is not known
	Since    Instant // of the state
	Until    Instant // of the cooldown
	Override Override
	Fallback string // name of the declared contract
	Rule     *Rule  // the limits; not to be changed
	Facts    Facts

	binds bool
	holds Instant // the answer stays the same before this instant
}

// A Denial is the answer of a path that refuses: the decisive refusal, and all
// of them. It is shared and never changed.
type Denial struct {
	Refusal           // the decisive one
	All     []Refusal // every circuit that refuses, in the order of the layers
	Would   []Refusal // those that only observe and would refuse

	seq   uint64  // while the registry is at this sequence …
	until Instant // … and before this instant, the answer stays the same
}

// A Change is a transition of one circuit of the registry.
type Change struct {
	Sequence uint64 // of the process; changes are delivered in this order
	Key      string
	Scope    string
	Layer    taxonomy.Layer
	Breaker  string
	Rule     *Rule // the limits in force; not to be changed
	Transition
}

// Assert is the event that tells a store's copy of the circuit about this
// change, should its own counts not lead to it: the circuit opened here, so it
// opens there, unless it has moved on since.
func (c *Change) Assert() (Event, bool) {
	if c.To != Open || !c.Moved() {
		return Event{}, false
	}
	return Event{Kind: HardSignal, Reason: c.Reason, Until: c.Until, Version: c.Version - 1, Detail: c.Detail, By: c.By}, true
}
