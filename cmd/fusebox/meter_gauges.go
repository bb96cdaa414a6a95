package main

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// gauges are figures that are read when somebody asks, so that none of them
// costs a decision anything. A figure that cannot be read is left out: a gap
// alarms, a zero would calm.
type gauges struct {
	s    *server
	desc map[string]*prometheus.Desc
	out  chan<- prometheus.Metric
}

// gaugeList are the gauges and their labels.
var gaugeList = []struct {
	name, help string
	labels     []string
}{
	{"breaker_info", "1, with what the policy in force says of a breaker.", []string{"breaker", "layer", "mode", "owner"}},
	{"breaker_state", "1 for the state of a breaker's worst circuit of this scope class, 0 for the others.", []string{"layer", "breaker", "scope_class", "mode", "state"}},
	{"breaker_scopes", "Circuits in each state; those that are as good as new are left out.", []string{"breaker", "mode", "state"}},
	{"overrides_active", "Circuits under a human decision.", []string{"breaker"}},
	{"unknown_pending", "Writes whose outcome is UNKNOWN.", []string{"layer"}},
	{"unknown_oldest_seconds", "Age of the oldest of them.", []string{"layer"}},
	{"queue_depth", "Work that waits for a circuit.", []string{"breaker"}},
	{"queue_oldest_seconds", "Age of the oldest of it.", nil},
	{"dead_letters", "Work that failed for good, or waits for a person.", nil},
	{"budget_used_ratio", "Share of its limit that the fullest account of a budget has used.", []string{"budget", "unit"}},
	{"policy_info", "1, with the policy in force.", []string{"revision", "digest12"}},
	{"policy_load_failed", "1 while the latest policy did not load and the one before it is in force.", nil},
	{"state_store_degraded", "1 while decisions are made without the state store: it does not answer, was not heard for a second, or went back in time.", []string{"reason"}},
	{"state_store_heard_seconds", "Since a change or a beat of the state store was heard.", nil},
	{"receipts_degraded", "1 while receipts cannot be written.", nil},
	{"receipts_submitted_total", "Receipts handed to the log.", []string{"class"}},
	{"receipts_written_total", "Receipts in the log's files.", []string{"class"}},
	{"receipts_dropped_total", "Receipts that a gap receipt counts instead.", []string{"class"}},
	{"receipts_unsynced_bytes", "Bytes written and not yet known to be on disk.", nil},
	{"receipts_checkpoint_age_seconds", "Since the last signed head.", nil},
	{"receipts_sealed", "Receipts under the last signed head.", nil},
	{"receipts_verify_ok", "1 where the server's last look at its receipts found nothing wrong, 0 where it did.", nil},
	{"receipts_verified_size", "Receipts that it looked at.", nil},
	{"receipts_verify_age_seconds", "Since that look.", nil},
	{"transitions_undelivered_total", "Changes of circuits that no listener heard.", nil},
	{"rollout_percent", "Share of the units that the candidate decides for; 0 without a canary.", nil},
	{"shadow_diff_total", "Decisions and verdicts of a candidate in observe or shadow, by how they stand to those in force.", []string{"bucket"}},
	{"plugin_running", "1 while the plugin's process runs.", []string{"plugin", "kind"}},
	{"plugin_benched", "1 while the plugin is left alone after too many failures.", []string{"plugin", "kind"}},
	{"plugin_failures_total", "Calls of the plugin that failed by its own fault.", []string{"plugin", "kind"}},
	{"sink_missed_total", "Receipts that a sink was not told, because it was too slow.", []string{"plugin"}},
	{"sink_behind", "Receipts that a sink was not told yet.", []string{"plugin"}},
	{"spans_lost_total", "Spans that the endpoint of [trace] did not take.", nil},
}

// watch adds the figures of a server to its meter.
func (m *meter) watch(s *server) {
	g := &gauges{s: s, desc: map[string]*prometheus.Desc{}}
	for _, d := range gaugeList {
		g.desc[d.name] = prometheus.NewDesc("fusebox_"+d.name, d.help, d.labels, nil)
	}
	m.registry.MustRegister(g)
	m.expect(s)
}

// expect makes the counters that alerts watch begin at zero, so that their first
// count is an increase.
func (m *meter) expect(s *server) {
	for _, b := range s.engine.Breakers().Settings() {
		for _, result := range []string{"granted", "busy", "passed", "failed", "released"} {
			m.probes.add(0, b.Name, result)
		}
		mode := b.Rule.Mode.String()
		m.expired.add(0, b.Name)
		m.shortCut.add(0, b.Name, b.Layer.String(), mode, "circuit_open")
		m.transitions.add(0, b.Name, mode, "CLOSED", "OPEN", "consecutive_failures")
		m.transitions.add(0, b.Name, mode, "OPEN", "HALF_OPEN", "cooldown_over")
		m.transitions.add(0, b.Name, mode, "HALF_OPEN", "OPEN", "probe_failed")
	}
	for _, op := range []string{"dispatch", "settle", "circuit", "watch"} {
		m.storeErrs.add(0, op, "unavailable")
	}
	for _, fate := range []string{"queued", "expired", "withdrawn", "dead"} {
		m.queued.add(0, fate)
	}
	for _, outcome := range []taxonomy.Outcome{taxonomy.Succeeded, taxonomy.Failed, taxonomy.Unknown} {
		m.cost.add(0, taxonomy.LayerProvider.String(), outcome.String())
	}
	m.fallbacks.add(0, taxonomy.LayerProvider.String(), "", "used")
	m.quality.add(0, "", "full")
	m.unretried.add(0, "attempt_budget_exhausted")
	m.modules.add(0, "", "failed")
}

// Describe implements [prometheus.Collector].
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.desc {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	c := &gauges{s: g.s, desc: g.desc, out: ch}
	c.s.meter.countOpen()
	c.circuits()
	c.budgets()
	c.receipts()
	c.rollout()
	c.plugins()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if c.storeAnswers(ctx) {
		c.intents(ctx)
		c.queue(ctx)
	}
}

// set is one gauge, or a counter where the name says so.
func (g *gauges) set(name string, v float64, labels ...string) {
	kind := prometheus.GaugeValue
	if strings.HasSuffix(name, "_total") {
		kind = prometheus.CounterValue
	}
	g.out <- prometheus.MustNewConstMetric(g.desc[name], kind, v, labels...)
}

// plugins are those of the policy in force, and the receipt sinks; their names
// are configured, and few.
func (g *gauges) plugins() {
	for _, p := range g.s.plugins() {
		g.set("plugin_running", truth(p.Running), p.Name, p.Kind)
		g.set("plugin_benched", truth(p.Benched), p.Name, p.Kind)
		g.set("plugin_failures_total", float64(p.Failures), p.Name, p.Kind)
		if p.Kind == "receipts" {
			g.set("sink_missed_total", float64(p.Missed), p.Name)
			g.set("sink_behind", float64(p.Behind), p.Name)
		}
	}
}

// storeAnswers asks the state store for its time, and tells how far this
// process's copy of it can be trusted.
func (g *gauges) storeAnswers(ctx context.Context) bool {
	_, err := g.s.store.Now(ctx)
	v := g.s.engine.StoreView()
	for reason, is := range map[string]bool{"unavailable": err != nil, "stale": v.Stale, "went_back": v.WentBack} {
		g.set("state_store_degraded", truth(is), reason)
	}
	g.set("state_store_heard_seconds", v.Age.Seconds())
	return err == nil
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// intents counts what is UNKNOWN.
func (g *gauges) intents(ctx context.Context) {
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
	g.set("unknown_pending", float64(n), layer)
	g.set("unknown_oldest_seconds", g.waited(oldest), layer)
}

// age is 0 for what never was.
func age(since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(time.Since(since).Seconds(), 0)
}

// waited is the age of what is stored, by the store's clock.
func (g *gauges) waited(since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(g.s.engine.StoreNow().Sub(since).Seconds(), 0)
}

// maxItems is how many waiting items are looked at for their age.
const maxItems = 10_000

// queue counts what waits, and what is dead.
func (g *gauges) queue(ctx context.Context) {
	depth, oldest := map[string]int{}, time.Time{}
	for _, b := range g.s.engine.Breakers().Settings() {
		depth[g.s.meter.name(b.Name)] += 0
	}
	for it, err := range g.s.store.Items(ctx, state.ItemQuery{States: []state.ItemState{state.Waiting, state.Claimed}, Limit: maxItems}) {
		if err != nil {
			return
		}
		depth[g.s.meter.name(g.s.engine.WaitsFor(it.Dependency))]++
		if oldest.IsZero() || it.Created.Before(oldest) {
			oldest = it.Created
		}
	}
	dead := 0
	for _, err := range g.s.store.Items(ctx, state.ItemQuery{States: []state.ItemState{state.Dead}, Limit: maxItems}) {
		if err != nil {
			return
		}
		dead++
	}
	for name, n := range depth {
		g.set("queue_depth", float64(n), name)
	}
	g.set("queue_oldest_seconds", g.waited(oldest))
	g.set("dead_letters", float64(dead))
}

func (g *gauges) budgets() {
	full := map[[2]string]float64{}
	for _, b := range g.s.engine.BudgetUses() {
		key := [2]string{g.s.meter.name(b.Budget), b.Unit}
		full[key] = max(full[key], b.Share)
	}
	for key, share := range full {
		g.set("budget_used_ratio", share, key[0], key[1])
	}
}

func (g *gauges) receipts() {
	st := g.s.log.Stats()
	for i, class := range []string{"audit", "sample", "ledger"} { // receipts.Delivery, in order
		g.set("receipts_submitted_total", float64(st.Submitted[i]), class)
		g.set("receipts_written_total", float64(st.Written[i]), class)
		g.set("receipts_dropped_total", float64(st.Dropped[i]), class)
	}
	g.set("receipts_degraded", truth(st.Degraded != nil))
	g.set("receipts_unsynced_bytes", float64(st.UnsyncedBytes))
	g.set("receipts_sealed", float64(st.Sealed))
	g.set("receipts_checkpoint_age_seconds", age(st.LastCheckpoint))
	if v := g.s.page.verified.Load(); v != nil {
		g.set("receipts_verify_ok", truth(v.Status != string(receipts.Fail)))
		g.set("receipts_verified_size", float64(v.Receipts))
		g.set("receipts_verify_age_seconds", age(v.At))
	}
}

func (g *gauges) rollout() {
	revision, digest, _ := strings.Cut(string(g.s.engine.Version()), "@sha256:")
	if unfit(revision) {
		revision = other
	}
	g.set("policy_info", 1, revision, digest[:min(len(digest), 12)])
	g.set("policy_load_failed", truth(g.s.policy().Err != nil))
	trial, _ := g.s.engine.TrialReport()
	g.set("rollout_percent", float64(trial.BasisPoints)/100)
	for d := receipts.DiffUnchanged; d <= receipts.DiffError; d++ {
		g.set("shadow_diff_total", float64(trial.Differences[d.String()]), d.String())
	}
	lost, _ := g.s.engine.Breakers().Undelivered()
	g.set("transitions_undelivered_total", float64(lost))
	g.set("spans_lost_total", float64(g.s.spans.lost()))
}
