package enginetest

import (
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Meter counts what the engine reports, by name: "decision.reject.circuit_open",
// "outcome.UNKNOWN.ambiguous_write", "transition.provider.CLOSED.OPEN",
// "store_error", "module_fault".
type Meter struct {
	mu     sync.Mutex
	counts map[string]int
}

// Count is how often a name was reported.
func (m *Meter) Count(name string) int { m.mu.Lock(); defer m.mu.Unlock(); return m.counts[name] }

func (m *Meter) add(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = map[string]int{}
	}
	m.counts[name]++
}

func (m *Meter) Decision(_ taxonomy.Mode, _ taxonomy.Layer, _ string, d taxonomy.Decision, reason string) {
	m.add("decision." + d.String() + "." + reason)
}

func (m *Meter) Outcome(_ taxonomy.Layer, v taxonomy.Verdict, _ time.Duration) {
	m.add("outcome." + v.Outcome.String() + "." + v.Class.String())
}

func (m *Meter) Transition(_ taxonomy.Mode, c breaker.Change) {
	if c.Moved() {
		m.add("transition." + c.Breaker + "." + c.From.String() + "." + c.To.String())
	}
}

func (m *Meter) Used(taxonomy.Layer, taxonomy.Verdict, state.Amounts) {}

func (m *Meter) Probe(breaker, result string) { m.add("probe." + breaker + "." + result) }

func (m *Meter) Fallback(_ taxonomy.Layer, t *engine.Taken, used bool) {
	if used {
		m.add("fallback." + t.Candidate.Kind)
	}
}

func (m *Meter) Queue(_, fate string)        { m.add("queue." + fate) }
func (m *Meter) Unretried(reason string)     { m.add("unretried." + reason) }
func (m *Meter) ModuleFault(string, error)   { m.add("module_fault") }
func (m *Meter) StoreError(string, error)    { m.add("store_error") }
func (m *Meter) ReceiptError(error)          { m.add("receipt_error") }
func (m *Meter) Stage(string, time.Duration) {}
