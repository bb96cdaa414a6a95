package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// gauges are figures that are read when somebody asks, so that none of them
// costs a decision anything.
type gauges struct {
	s *server

	scopes, overrides, unknown, oldest, policy           *prometheus.Desc
	submitted, written, dropped, unsynced, age, verified *prometheus.Desc
	undelivered, percent, diffs                          *prometheus.Desc
	degraded, heard                                      *prometheus.Desc
}

// watch adds the figures of a server to its meter.
func (m *meter) watch(s *server) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("fusebox_"+name, help, labels, nil)
	}
	m.registry.MustRegister(&gauges{
		s:           s,
		scopes:      desc("breaker_scopes", "Circuits in each state; those that are as good as new are left out.", "breaker", "state"),
		overrides:   desc("overrides_active", "Circuits under a human decision.", "breaker"),
		unknown:     desc("unknown_pending", "Writes whose outcome is UNKNOWN.", "layer"),
		oldest:      desc("unknown_oldest_seconds", "Age of the oldest of them.", "layer"),
		policy:      desc("policy_info", "1, with the policy in force.", "policy"),
		submitted:   desc("receipts_submitted_total", "Receipts handed to the log.", "class"),
		written:     desc("receipts_written_total", "Receipts in the log's files.", "class"),
		dropped:     desc("receipts_dropped_total", "Receipts that a gap receipt counts instead.", "class"),
		unsynced:    desc("receipts_unsynced_bytes", "Bytes written and not yet known to be on disk."),
		age:         desc("receipts_checkpoint_age_seconds", "Since the last signed head."),
		verified:    desc("receipts_sealed", "Receipts under the last signed head."),
		undelivered: desc("transitions_undelivered_total", "Changes of circuits that no listener heard."),
		percent:     desc("rollout_percent", "Share of the units that the candidate decides for; 0 without a canary."),
		degraded:    desc("store_degraded", "1 while decisions are made without the state store: it was not heard for a second, or went back in time.", "reason"),
		heard:       desc("store_heard_seconds", "Since a change or a beat of the state store was heard."),
		diffs:       desc("shadow_diff_total", "Decisions and verdicts of a candidate in observe or shadow, by how they stand to those in force.", "bucket"),
	})
}

// Describe implements [prometheus.Collector].
func (g *gauges) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect implements [prometheus.Collector].
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	g.circuits(gauge)
	g.intents(gauge)
	gauge(g.policy, 1, string(g.s.engine.Version()))
	st := g.s.log.Stats()
	for i, class := range []string{"audit", "sample", "ledger"} { // receipts.Delivery, in order
		counter(g.submitted, st.Submitted[i], class)
		counter(g.written, st.Written[i], class)
		counter(g.dropped, st.Dropped[i], class)
	}
	gauge(g.unsynced, float64(st.UnsyncedBytes))
	gauge(g.verified, float64(st.Sealed))
	if !st.LastCheckpoint.IsZero() {
		gauge(g.age, time.Since(st.LastCheckpoint).Seconds())
	}
	trial, _ := g.s.engine.TrialReport()
	gauge(g.percent, float64(trial.BasisPoints)/100)
	for d := receipts.DiffUnchanged; d <= receipts.DiffError; d++ {
		counter(g.diffs, trial.Differences[d.String()], d.String())
	}
	g.store(gauge)
	lost, _ := g.s.engine.Breakers().Undelivered()
	counter(g.undelivered, int64(lost))
}

// store tells how far the process's copy of the store can be trusted.
func (g *gauges) store(gauge func(*prometheus.Desc, float64, ...string)) {
	v := g.s.engine.StoreView()
	for reason, is := range map[string]bool{"stale": v.Stale, "went_back": v.WentBack} {
		n := 0.0
		if is {
			n = 1
		}
		gauge(g.degraded, n, reason)
	}
	gauge(g.heard, v.Age.Seconds())
}

// circuits counts scopes by breaker and state. Breakers of the policy beyond
// the cap share the name "other".
func (g *gauges) circuits(gauge func(*prometheus.Desc, float64, ...string)) {
	type key struct{ breaker, state string }
	n, forced := map[key]int{}, map[string]int{}
	for _, b := range g.s.engine.Breakers().Settings() {
		name := g.s.meter.name(b.Name)
		forced[name] += 0
		for _, st := range []breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen, breaker.Ramping} {
			n[key{name, st.String()}] += 0
		}
	}
	for _, c := range circuitsOf(g.s.engine.Breakers(), g.s.clock, "", "") {
		name := g.s.meter.name(c.Breaker)
		n[key{name, c.State}]++
		if c.Override != "" {
			forced[name]++
		}
	}
	for k, v := range n {
		gauge(g.scopes, float64(v), k.breaker, k.state)
	}
	for name, v := range forced {
		gauge(g.overrides, float64(v), name)
	}
}

// intents counts what is UNKNOWN. A store that cannot be read leaves the series
// out: a gap alarms, a zero would calm.
func (g *gauges) intents(gauge func(*prometheus.Desc, float64, ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	n, oldest := 0, time.Time{}
	for in, err := range g.s.store.Find(ctx, state.IntentQuery{States: []state.IntentState{state.Unsettled}}) {
		if err != nil {
			return
		}
		if n++; n == 1 {
			oldest = in.Created // they come oldest first
		}
	}
	layer := taxonomy.LayerTool.String() // an intent is a write, and a write belongs to its tool
	gauge(g.unknown, float64(n), layer)
	if n > 0 {
		gauge(g.oldest, time.Since(oldest).Seconds(), layer)
	} else {
		gauge(g.oldest, 0, layer)
	}
}
