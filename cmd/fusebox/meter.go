package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// meter counts what the engine does, for /metrics. Every label is an enum of
// ours or a name or reason of the policy: never a tenant, scope, request, run or
// argument. What is no enum is capped (meter_series.go), so that no module or
// policy can grow the series without bound.
type meter struct {
	registry *prometheus.Registry
	overflow prometheus.Counter
	names    capped // of breakers, modules, contracts and budgets, for gauges

	decisions, outcomes, transitions, shortCut    *series
	probes, fallbacks, quality, expired, queued   *series
	unretried, modules, storeErrs, cost, openSecs *series
	receiptErrs                                   prometheus.Counter
	openFor, stages                               *prometheus.HistogramVec

	tell func(taxonomy.Mode, *breaker.Change) // nil tells nobody

	mu     sync.Mutex
	opened map[openKey]opening
}

// An openKey is a circuit of the version in force, or of a canary.
type openKey struct {
	mode taxonomy.Mode
	key  string
}

// An opening is since when a circuit has been open, and up to when that is
// counted.
type opening struct {
	breaker string
	since   time.Time
	counted time.Time
}

func newMeter() *meter {
	m := &meter{registry: prometheus.NewRegistry(), names: capped{most: maxNames}, opened: map[openKey]opening{}}
	m.overflow = prometheus.NewCounter(prometheus.CounterOpts{Name: "fusebox_label_overflow_total", Help: "Times a label value was replaced by \"other\"."})
	m.decisions = m.counter("decisions_total", "Admission decisions.", []string{"layer", "decision", "mode", "reason"}, 3)
	m.outcomes = m.counter("outcomes_total", "Judged attempts.", []string{"layer", "outcome", "error_class"})
	m.transitions = m.counter("breaker_transitions_total", "Circuits that changed their state.", []string{"breaker", "mode", "from", "to", "reason"}, 0, 4)
	m.shortCut = m.counter("short_circuited_total", "Calls that were not sent because a circuit was not closed.", []string{"breaker", "layer", "mode", "reason"}, 0, 3)
	m.probes = m.counter("probes_total", "Rights to probe a circuit, by what became of them.", []string{"breaker", "result"}, 0)
	m.fallbacks = m.counter("fallbacks_total", "Candidates of a contract that were tried.", []string{"layer", "fallback", "result"}, 1)
	m.quality = m.counter("fallback_quality_total", "Fallbacks by quality: full, each declared loss, deferred to later or to a person, or unanswered.", []string{"fallback", "quality"}, 0, 1)
	m.expired = m.counter("queue_expired_total", "Queued work that was discarded because it was stale.", []string{"breaker"}, 0)
	m.queued = m.counter("queue_items_total", "Queued work, by what became of it.", []string{"fate"}, 0)
	m.unretried = m.counter("retries_suppressed_total", "Calls that were not tried again although that might have helped.", []string{"reason"}, 0)
	m.modules = m.counter("wasm_failures_total", "Failures of modules and plugins; each cost that one and nothing else.", []string{"module", "kind"}, 0, 1)
	m.storeErrs = m.counter("state_store_errors_total", "Errors of the state store.", []string{"op", "kind"}, 0)
	m.cost = m.counter("cost_usd_total", "What judged attempts cost, by their answers' usage and the policy's prices.", []string{"layer", "outcome"})
	m.openSecs = m.counter("open_seconds_total", "Time that circuits were open, half-open or ramping, those that still are included.", []string{"breaker"}, 0)
	m.openFor = m.histogram("open_duration_seconds", "How long circuits stayed open.", []float64{1, 5, 15, 30, 60, 120, 300, 900, 3600}, "breaker")
	m.stages = m.histogram("decision_duration_seconds", "Time of one stage of a decision.", []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1}, "stage")
	m.receiptErrs = prometheus.NewCounter(prometheus.CounterOpts{Name: "fusebox_receipts_errors_total", Help: "Receipts that the log refused."})
	m.registry.MustRegister(m.receiptErrs, m.overflow,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *meter) Decision(mode taxonomy.Mode, layer taxonomy.Layer, breaker string, d taxonomy.Decision, reason string) {
	m.decisions.add(1, layer.String(), d.String(), mode.String(), reason)
	if d != taxonomy.DecideAllow && breaker != "" {
		m.shortCut.add(1, breaker, layer.String(), mode.String(), reason)
	}
}

func (m *meter) Outcome(layer taxonomy.Layer, v taxonomy.Verdict, _ time.Duration) {
	m.outcomes.add(1, layer.String(), v.Outcome.String(), v.Class.String())
}

func (m *meter) Used(layer taxonomy.Layer, v taxonomy.Verdict, used state.Amounts) {
	if used.CostNanoUSD > 0 {
		m.cost.add(float64(used.CostNanoUSD)/1e9, layer.String(), v.Outcome.String())
	}
}

func (m *meter) Transition(mode taxonomy.Mode, c breaker.Change) {
	if m.tell != nil {
		m.tell(mode, &c)
	}
	m.transitions.add(1, c.Breaker, mode.String(), c.From.String(), c.To.String(), c.Reason.String())
	m.mu.Lock()
	defer m.mu.Unlock()
	key := openKey{mode, c.Key}
	switch {
	case c.To == breaker.Open && c.From == breaker.Closed:
		now := time.Now()
		m.opened[key] = opening{c.Breaker, now, now}
	case c.To == breaker.Closed:
		if o, ok := m.opened[key]; ok {
			m.openFor.WithLabelValues(m.name(c.Breaker)).Observe(time.Since(o.since).Seconds())
			m.openSecs.add(time.Since(o.counted).Seconds(), c.Breaker)
			delete(m.opened, key)
		}
	}
}

// countOpen counts the time of circuits that are open still.
func (m *meter) countOpen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for key, o := range m.opened {
		m.openSecs.add(now.Sub(o.counted).Seconds(), o.breaker)
		o.counted = now
		m.opened[key] = o
	}
}

func (m *meter) Probe(breaker, result string) { m.probes.add(1, breaker, result) }

func (m *meter) Fallback(layer taxonomy.Layer, t *engine.Taken, used bool) {
	result := "used"
	if !used {
		result = "not_available"
	}
	m.fallbacks.add(1, layer.String(), t.Contract, result)
	switch {
	case !used:
		m.quality.add(1, t.Contract, "unanswered")
	case t.Candidate.Kind != "alternate" && t.Candidate.Kind != "cached" && t.Candidate.Kind != "reduced":
		m.quality.add(1, t.Contract, "deferred")
	case len(t.Losses) == 0:
		m.quality.add(1, t.Contract, "full")
	}
	if used {
		for _, loss := range t.Losses { // freshness, accuracy, privacy, authority, audit
			m.quality.add(1, t.Contract, loss)
		}
	}
}

func (m *meter) Queue(breaker, fate string) {
	m.queued.add(1, fate)
	if fate == "expired" {
		m.expired.add(1, breaker)
	}
}

func (m *meter) Unretried(reason string) { m.unretried.add(1, reason) }

func (m *meter) ModuleFault(module string, err error) {
	kind := "failed"
	if c, ok := errors.AsType[interface {
		error
		Code() string
	}](err); ok {
		kind = c.Code()
	}
	m.modules.add(1, module, kind)
}

func (m *meter) StoreError(step string, err error) {
	kind := "other"
	for _, k := range []struct {
		err  error
		name string
	}{
		{state.ErrUnavailable, "unavailable"}, {state.ErrUnknown, "fate_unknown"}, {state.ErrFenced, "fenced"},
		{state.ErrConflict, "conflict"}, {context.DeadlineExceeded, "timeout"}, {state.ErrClosed, "closed"},
	} {
		if errors.Is(err, k.err) {
			kind = k.name
			break
		}
	}
	m.storeErrs.add(1, step, kind)
}

func (m *meter) ReceiptError(error) { m.receiptErrs.Inc() }

func (m *meter) Stage(stage string, took time.Duration) {
	m.stages.WithLabelValues(m.name(stage)).Observe(took.Seconds())
}
