package main

import (
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Caps of what is not an enum. Beyond them the label says "other".
const (
	maxNames  = 200 // names of breakers, modules, contracts and budgets
	maxSeries = 500 // of one counter, besides those with "other"
	maxLabel  = 80  // bytes of a value
	other     = "other"
)

// series is a counter whose number of series is bounded, whatever its free
// labels are given.
type series struct {
	vec      *prometheus.CounterVec
	free     []int // places of the labels that are no enum
	overflow prometheus.Counter

	mu   sync.RWMutex
	seen map[[maxLabels]string]prometheus.Counter
}

const maxLabels = 5

// counter registers a counter; free are the places of the labels whose values
// are names or reasons.
func (m *meter) counter(name, help string, labels []string, free ...int) *series {
	s := &series{vec: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fusebox_" + name, Help: help}, labels),
		free: free, overflow: m.overflow, seen: map[[maxLabels]string]prometheus.Counter{}}
	m.registry.MustRegister(s.vec)
	return s
}

// histogram registers a histogram with one label; its caller bounds the values.
func (m *meter) histogram(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fusebox_" + name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: 1.1}, []string{label})
	m.registry.MustRegister(h)
	return h
}

// add counts under these labels, or under "other" when there is no room for
// another series.
func (s *series) add(n float64, labels ...string) {
	var key [maxLabels]string
	copy(key[:], labels)
	s.mu.RLock()
	c := s.seen[key]
	s.mu.RUnlock()
	if c == nil {
		c = s.new(key, len(labels))
	}
	c.Add(n)
}

func (s *series) new(key [maxLabels]string, n int) prometheus.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	full, changed := len(s.seen) >= maxSeries, false
	for i := range key[:n] {
		if unfit(key[i]) || full && slices.Contains(s.free, i) {
			key[i], changed = other, true
		}
	}
	if changed {
		s.overflow.Inc()
	}
	if c := s.seen[key]; c != nil {
		return c
	}
	c := s.vec.WithLabelValues(key[:n]...)
	s.seen[key] = c
	return c
}

// unfit reports a text that cannot be a label's value, or that is no name.
func unfit(s string) bool { return len(s) > maxLabel || !utf8.ValidString(s) }

// name bounds the names of gauges and histograms.
func (m *meter) name(s string) string {
	if !unfit(s) && m.names.allow(s) {
		return s
	}
	m.overflow.Inc()
	return other
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
