package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// meter counts what the engine does, for /metrics. Every label is an enum of
// ours or a configured name: never a tenant, scope, request, run or argument.
// Configured names and reasons are capped, so that no module or policy can
// grow the series without bound.
type meter struct {
	registry *prometheus.Registry

	decisions   *prometheus.CounterVec
	outcomes    *prometheus.CounterVec
	transitions *prometheus.CounterVec
	shortCut    *prometheus.CounterVec
	openFor     *prometheus.HistogramVec
	stages      *prometheus.HistogramVec
	modules     *prometheus.CounterVec
	storeErrs   *prometheus.CounterVec
	receiptErrs prometheus.Counter
	overflow    prometheus.Counter

	names   capped // breakers and modules
	reasons capped

	mu     sync.Mutex
	opened map[string]time.Time // by store key of the circuit, since when
}

// Caps of what is not an enum. Beyond them the label says "other".
const (
	maxNames   = 200
	maxReasons = 300
)

func newMeter() *meter {
	m := &meter{registry: prometheus.NewRegistry(), names: capped{most: maxNames}, reasons: capped{most: maxReasons}, opened: map[string]time.Time{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fusebox_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fusebox_" + name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: 1.1}, []string{label})
		m.registry.MustRegister(h)
		return h
	}
	m.decisions = counter("decisions_total", "Admission decisions.", "layer", "decision", "breaker", "reason")
	m.outcomes = counter("outcomes_total", "Judged attempts.", "layer", "outcome", "error_class")
	m.transitions = counter("breaker_transitions_total", "Circuits that changed their state.", "breaker", "from", "to", "reason")
	m.shortCut = counter("short_circuited_total", "Calls that were not sent because a circuit was not closed.", "breaker", "reason")
	m.openFor = histogram("open_duration_seconds", "How long circuits stayed open.", []float64{1, 5, 15, 30, 60, 120, 300, 900, 3600}, "breaker")
	m.stages = histogram("decision_duration_seconds", "Time of one stage of a decision.", []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1}, "stage")
	m.modules = counter("wasm_failures_total", "Failures of classifier modules; each cost the module itself and nothing else.", "module", "kind")
	m.storeErrs = counter("state_store_errors_total", "Errors of the state store.", "op", "kind")
	m.receiptErrs = prometheus.NewCounter(prometheus.CounterOpts{Name: "fusebox_receipts_errors_total", Help: "Receipts that the log refused."})
	m.overflow = prometheus.NewCounter(prometheus.CounterOpts{Name: "fusebox_label_overflow_total", Help: "Times a label value was replaced by \"other\"."})
	m.registry.MustRegister(m.receiptErrs, m.overflow,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *meter) Decision(layer taxonomy.Layer, breaker string, d taxonomy.Decision, reason string) {
	breaker, reason = m.name(breaker), m.reason(reason)
	m.decisions.WithLabelValues(layer.String(), d.String(), breaker, reason).Inc()
	if d != taxonomy.DecideAllow && breaker != "" {
		m.shortCut.WithLabelValues(breaker, reason).Inc()
	}
}

func (m *meter) Outcome(layer taxonomy.Layer, v taxonomy.Verdict, _ time.Duration) {
	m.outcomes.WithLabelValues(layer.String(), v.Outcome.String(), v.Class.String()).Inc()
}

func (m *meter) Transition(c breaker.Change) {
	name := m.name(c.Breaker)
	m.transitions.WithLabelValues(name, c.From.String(), c.To.String(), m.reason(c.Reason.String())).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.To == breaker.Open && c.From == breaker.Closed:
		m.opened[c.Key] = time.Now()
	case c.To == breaker.Closed:
		if since, ok := m.opened[c.Key]; ok {
			m.openFor.WithLabelValues(name).Observe(time.Since(since).Seconds())
			delete(m.opened, c.Key)
		}
	}
}

func (m *meter) ModuleFault(module string, err error) {
	kind := "failed"
	if c, ok := errors.AsType[interface {
		error
		Code() string
	}](err); ok {
		kind = c.Code()
	}
	m.modules.WithLabelValues(m.name(module), m.reason(kind)).Inc()
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
	m.storeErrs.WithLabelValues(m.reason(step), kind).Inc()
}

func (m *meter) ReceiptError(error) { m.receiptErrs.Inc() }

func (m *meter) Stage(stage string, took time.Duration) {
	m.stages.WithLabelValues(m.reason(stage)).Observe(took.Seconds())
}

func (m *meter) name(s string) string   { return m.bounded(&m.names, s) }
func (m *meter) reason(s string) string { return m.bounded(&m.reasons, s) }

func (m *meter) bounded(c *capped, s string) string {
	if c.allow(s) {
		return s
	}
	m.overflow.Inc()
	return "other"
}

// capped remembers the first so many distinct values.
type capped struct {
	most int
	mu   sync.RWMutex
	seen map[string]struct{}
}

func (c *capped) allow(s string) bool {
	if s == "" {
		return true
	}
	c.mu.RLock()
	_, known := c.seen[s]
	c.mu.RUnlock()
	if known {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]struct{}{}
	}
	if len(c.seen) >= c.most {
		return false
	}
	c.seen[s] = struct{}{}
	return true
}
