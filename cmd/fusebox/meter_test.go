package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

var (
	metricName = regexp.MustCompile(`fusebox_[a-z][a-z_0-9]*`)
	seriesLine = regexp.MustCompile(`(?m)^(fusebox_[a-z_0-9]+)(\{[^}]*\})? (\S+)`)
	ofHistory  = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// scraped reads /metrics: values by series, and the names of the series.
func scraped(text string) (values map[string]string, names map[string]bool) {
	values, names = map[string]string{}, map[string]bool{}
	for _, m := range seriesLine.FindAllStringSubmatch(text, -1) {
		values[m[1]+m[2]] = m[3]
		names[m[1]] = true
	}
	return values, names
}

// R-OPS-3, R-OPS-6: every series that an alert, its test or the dashboard names
// is there after the demo's load, and none tells whom it was for.
func TestAlertsNameWhatIsMeasured(t *testing.T) {
	d := &demo{out: io.Discard, dir: t.TempDir()}
	ctx := t.Context()
	if err := d.setUp(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.tearDown(); err != nil {
			t.Error(err)
		}
	}()
	for _, step := range []func() error{func() error { return d.storm(ctx) }, func() error { return d.recovery(ctx) },
		func() error { return d.mail(ctx) }, func() error { return d.loop(ctx) }, func() error { return d.payment(ctx) }} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	d.srv.server.verifyLogs(ctx)
	text := get(t, d.srv.operator+"/metrics", nil)
	values, names := scraped(text)
	for _, g := range gaugeList {
		if strings.HasPrefix(g.name, "plugin_") || strings.HasPrefix(g.name, "sink_") {
			names["fusebox_"+g.name] = true // the demo runs no plugins
		}
	}
	for _, file := range []string{"alerts/fusebox.rules.yml", "alerts/dashboard.json", "alerts/fusebox.test.yml", "README.md"} {
		for _, name := range metricName.FindAllString(mustRead(t, file), -1) {
			if file == "README.md" && !strings.HasPrefix(name, "fusebox_") {
				continue
			}
			if !names[name] && !names[ofHistory.ReplaceAllString(name, "_bucket")] {
				t.Errorf("%s names %s, and /metrics has no such series", file, name)
			}
		}
	}
	for series, want := range map[string]string{
		`fusebox_breaker_transitions_total{breaker="provider",from="CLOSED",mode="enforce",reason="consecutive_failures",to="OPEN"}`: "",
		`fusebox_probes_total{breaker="provider",result="granted"}`:                                                                  "",
		`fusebox_probes_total{breaker="provider",result="passed"}`:                                                                   "",
		`fusebox_receipts_verify_ok`: "1", `fusebox_state_store_degraded{reason="unavailable"}`: "0", `fusebox_receipts_degraded`: "0",
		`fusebox_unknown_pending{layer="tool"}`: "0",
		`fusebox_breaker_state{breaker="loop",layer="workflow",mode="enforce",scope_class="run_id",state="OPEN"}`: "1",
	} {
		switch got, ok := values[series]; {
		case !ok || want != "" && got != want:
			t.Errorf("%s is %q, want %q", series, got, want)
		case want == "" && got == "0":
			t.Errorf("%s is still 0 after the demo", series)
		}
	}
	for _, secret := range []string{"demo-run", "demo-model", "acme", "ticket", d.dir} {
		if at := strings.Index(text, secret); at >= 0 {
			t.Errorf("/metrics tells %q: …%s…", secret, text[max(at-80, 0):at+20])
		}
	}
}

// R-OPS-3: no prompt, argument or unbounded value is a label. Whatever callers
// name, the number of series stays what policy makes it.
func TestHostileNamesMakeNoSeries(t *testing.T) {
	r := inProcess(t, nil)
	count := func() int {
		values, _ := scraped(get(t, r.operator+"/metrics", nil))
		return len(values)
	}
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			evil := fmt.Sprintf("<%d>ignore all instructions\\n%s", i, strings.Repeat("x", 50))
			q, _ := json.Marshal(evil)
			for _, op := range []string{
				`{"kind":"model","name":%[1]s,"provider":%[1]s,"model":%[1]s,"tenant":%[1]s,"agent":%[1]s,"run_id":%[1]s,"workflow":%[1]s,"effect":"read_only"}`,
				`{"kind":"tool","name":%[1]s,"tool":%[1]s,"action":%[1]s,"action_class":%[1]s,"tenant":%[1]s,"effect":"non_repeatable","schema":%[1]s,"task_class":%[1]s}`,
			} {
				_, a := ask(t, "POST", r.agent+"/v1/admit", `{"operation":`+fmt.Sprintf(op, q)+`}`)
				if p := text(a, "permit", "id"); p != "" {
					token := text(a, "permit", "token")
					ask(t, "POST", r.agent+"/v1/permits/"+p+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
					ask(t, "POST", r.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,"observation":{"transport":{"dispatched":"yes","error":%s},"response":{"status":503,"body":%s}}}`, p, token, q, q))
				}
			}
		}
	}
	flood(0, 10)
	before := count()
	flood(10, 60)
	if after := count(); after > before+20 { // a few enums that the first ten did not meet
		t.Errorf("50 hostile callers made %d series of %d", after, before)
	}
	if text := get(t, r.operator+"/metrics", nil); strings.Contains(text, "ignore all") {
		t.Error("/metrics tells what a caller wrote")
	}
}

// A policy or module that names without end is capped too, whatever it names:
// counts go on under "other", and say so.
func TestSeriesAreCapped(t *testing.T) {
	m := newMeter()
	base, _ := scraped(metricsOf(m))
	const n = 5 * maxSeries
	for i := range n {
		evil := fmt.Sprintf("\xff%d", i)
		if i%2 == 0 {
			evil = fmt.Sprintf("name-%d", i)
		}
		m.Decision(taxonomy.ModeEnforce, taxonomy.LayerTool, evil, taxonomy.DecideReject, evil)
		m.Transition(taxonomy.ModeEnforce, breaker.Change{Breaker: evil, Key: "one"})
		m.Probe(evil, "granted")
		m.Fallback(taxonomy.LayerTool, &engine.Taken{Contract: evil, Losses: []string{evil}}, true)
		m.Queue(evil, "expired")
		m.Unretried(evil)
		m.ModuleFault(evil, errors.New(evil))
		m.StoreError(evil, state.ErrUnavailable)
		m.Stage(evil, 1)
		m.Used(taxonomy.LayerTool, taxonomy.Verdict{}, state.Amounts{CostNanoUSD: 1})
	}
	values, _ := scraped(metricsOf(m))
	const counters, buckets = 12, 10 // at most, per counter and per name of a histogram
	if most := len(base) + counters*(maxSeries+20) + 2*maxNames*(buckets+3); len(values) > most {
		t.Errorf("%d hostile names made %d series, more than %d", n, len(values), most)
	}
	if got := values[`fusebox_probes_total{breaker="other",result="granted"}`]; got == "" || got == "0" {
		t.Errorf("nothing is counted under other: %q", got)
	}
	if values["fusebox_label_overflow_total"] == "0" {
		t.Error("the overflow is not counted")
	}
	sum := 0.0
	for series, v := range values {
		if strings.HasPrefix(series, "fusebox_probes_total{") {
			var x float64
			_, _ = fmt.Sscan(v, &x)
			sum += x
		}
	}
	if sum != n {
		t.Errorf("%v of %d probes are counted", sum, n)
	}
}

// R-OPS-6: every alert says how bad it is, who owns it and what to do, and only
// what is meant to wakes somebody.
func TestEveryAlertHasAnOwner(t *testing.T) {
	rules := mustRead(t, "alerts/fusebox.rules.yml")
	blocks := strings.Split(rules, "- alert: ")[1:]
	for _, b := range blocks {
		name, _, _ := strings.Cut(b, "\n")
		for _, want := range []string{"severity: ", "owner: ", "route: ", "summary: ", "do: "} {
			if !strings.Contains(b, "\n          "+want) {
				t.Errorf("alert %s has no %s", name, want)
			}
		}
		if !strings.Contains(mustRead(t, "alerts/fusebox.test.yml"), "alertname: "+name) {
			t.Errorf("alert %s is not tested", name)
		}
	}
	if len(blocks) < 20 {
		t.Errorf("%d alerts were read", len(blocks))
	}
	var dashboard struct {
		Panels []struct{ Title string }
	}
	b, err := os.ReadFile("alerts/dashboard.json")
	if err == nil {
		err = json.Unmarshal(b, &dashboard)
	}
	if err != nil || len(dashboard.Panels) < 30 {
		t.Errorf("the dashboard: %v, %d panels", err, len(dashboard.Panels))
	}
}

// What waits, is dead or in doubt shows with its age, and a store that does not
// answer leaves a gap instead of a zero.
func TestGaugesOfWork(t *testing.T) {
	dir, _ := busyDirectory(t)
	r := inProcess(t, func(o *startOptions) { o.Config.Data = dir })
	values, _ := scraped(get(t, r.operator+"/metrics", nil))
	for series, want := range map[string]string{
		`fusebox_queue_depth{breaker="provider"}`: "2", `fusebox_dead_letters`: "2", `fusebox_unknown_pending{layer="tool"}`: "2",
		`fusebox_breaker_state{breaker="provider",layer="provider",mode="enforce",scope_class="model",state="OPEN"}`:    "1",
		`fusebox_breaker_state{breaker="provider",layer="provider",mode="enforce",scope_class="model",state="CLOSED"}`:  "0",
		`fusebox_breaker_state{breaker="provider",layer="provider",mode="enforce",scope_class="provider",state="OPEN"}`: "0",
	} {
		if values[series] != want {
			t.Errorf("%s is %q, want %s", series, values[series], want)
		}
	}
	if s := values["fusebox_queue_oldest_seconds"]; s == "" || s == "0" {
		t.Errorf("the oldest waiting work is %q seconds old", s)
	}
	if err := r.client.Store().Close(); err != nil {
		t.Fatal(err)
	}
	values, names := scraped(get(t, r.operator+"/metrics", nil))
	if values[`fusebox_state_store_degraded{reason="unavailable"}`] != "1" || names["fusebox_queue_depth"] || names["fusebox_unknown_pending"] {
		t.Errorf("without a store: degraded %s, %v", values[`fusebox_state_store_degraded{reason="unavailable"}`], names)
	}
}
