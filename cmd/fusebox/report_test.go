package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A night writes receipts of a made-up night into a real log.
type night struct {
	t   *testing.T
	log *receipts.Log
	dir string
	at  time.Time
}

func newNight(t *testing.T) *night {
	n := &night{t: t, dir: t.TempDir() + "/receipts/0", at: time.Now().Add(-time.Hour)}
	var err error
	n.log, err = receipts.Open(t.Context(), n.dir, receipts.Options{Origin: "test.example/night", KeyFile: t.TempDir() + "/log.key"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.log.Close(context.Background()) })
	return n
}

// write adds a receipt one second later, and returns its id.
func (n *night) write(r receipts.Receipt) string {
	n.t.Helper()
	n.at = n.at.Add(time.Second)
	r.ID, r.TimeUS, r.Class = receipts.NewID(), n.at.UnixMicro(), receipts.Audit
	if _, err := n.log.Submit(&r); err != nil {
		n.t.Fatal(err)
	}
	return r.ID.String()
}

func (n *night) moves(breaker, scope string, from, to receipts.State, reason string, mode taxonomy.Mode) string {
	return n.write(receipts.Receipt{Kind: receipts.KindTransition, Breaker: breaker, Scope: scope, PrevState: from, State: to, Reason: reason, Mode: receipts.Some(mode)})
}

// calls ends an attempt that counted toward a circuit.
func (n *night) calls(breaker, scope string, outcome taxonomy.Outcome, signal taxonomy.Signal, more func(*receipts.Receipt)) string {
	r := receipts.Receipt{Kind: receipts.KindOutcome, Operation: "chat", RemoteCallAttempted: true, Outcome: receipts.Some(outcome)}
	if outcome != taxonomy.Succeeded {
		r.ErrorClass = taxonomy.PersistentDependency
	}
	if breaker != "" {
		r.Feeds = []receipts.Feed{{Layer: taxonomy.LayerProvider, Breaker: breaker, Scope: scope, Signal: signal, Reason: "because"}}
	}
	if more != nil {
		more(&r)
	}
	return n.write(r)
}

func (n *night) report(missed int) *reportDoc {
	n.t.Helper()
	if err := n.log.Flush(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	store := memory.New(memory.Options{})
	defer store.Close()
	if err := store.Put(n.t.Context(), state.Item{ID: "i", Created: time.Now(), Expires: time.Now().Add(time.Hour), Dependency: "provider:x"}); err != nil {
		n.t.Fatal(err)
	}
	d, err := makeReport(n.t.Context(), n.dir, store, 2*time.Hour, missed)
	if err != nil {
		n.t.Fatal(err)
	}
	return d
}

const failure, success = taxonomy.SignalFailure, taxonomy.SignalSuccess

// R-OPS-3: the operating figures of a night, from its receipts.
func TestReportFigures(t *testing.T) {
	n := newNight(t)
	enforce := taxonomy.ModeEnforce
	probe := func(r *receipts.Receipt) { r.Flags = []string{"probe"} }
	paid := func(r *receipts.Receipt) {
		r.Budget = []receipts.Count{{Name: "used_cost_nano_usd", N: 5e8}}
	}
	const a, b = "provider:a/-/m", "provider:b/-/m"

	// a opens rightly: its first probe fails, its second passes.
	n.moves("provider", a, receipts.StateClosed, receipts.StateOpen, "consecutive_failures", enforce)
	for range 3 {
		n.write(receipts.Receipt{Kind: receipts.KindAdmission, Breaker: "provider", Scope: a, State: receipts.StateOpen, Reason: "circuit_open", Decision: receipts.Some(taxonomy.DecideReject)})
	}
	n.moves("provider", a, receipts.StateOpen, receipts.StateHalfOpen, "cooldown_over", enforce)
	n.calls("provider", a, taxonomy.Failed, failure, probe)
	n.moves("provider", a, receipts.StateHalfOpen, receipts.StateOpen, "probe_failed", enforce)
	n.moves("provider", a, receipts.StateOpen, receipts.StateHalfOpen, "cooldown_over", enforce)
	n.calls("provider", a, taxonomy.Succeeded, success, probe)
	n.moves("provider", a, receipts.StateHalfOpen, receipts.StateClosed, "probes_passed", enforce)

	// b opens, and nothing ever fails after it: somebody should look.
	openedB := n.moves("provider", b, receipts.StateClosed, receipts.StateOpen, "failure_ratio", enforce)
	n.moves("provider", b, receipts.StateOpen, receipts.StateHalfOpen, "cooldown_over", enforce)
	speaks := n.calls("provider", b, taxonomy.Succeeded, success, probe)
	n.moves("provider", b, receipts.StateHalfOpen, receipts.StateClosed, "probes_passed", enforce)

	// A person overrules one, and one is still open and untested.
	n.moves("tool", "tool:mail", receipts.StateClosed, receipts.StateOpen, "slow_ratio", enforce)
	overruled := n.write(receipts.Receipt{Kind: receipts.KindOverride, Breaker: "tool", Scope: "tool:mail", Reason: "forced_closed", By: "ann"})
	n.moves("tool", "tool:mail", receipts.StateOpen, receipts.StateClosed, "override", enforce)
	n.moves("tool", "tool:bank", receipts.StateClosed, receipts.StateOpen, "slow_ratio", enforce)

	for _, loss := range [][]string{nil, {"accuracy", "freshness"}} {
		n.write(receipts.Receipt{Kind: receipts.KindFallback, Fallback: "provider-open:small", FallbackResult: receipts.FallbackUsed, FallbackLoss: loss})
	}
	n.write(receipts.Receipt{Kind: receipts.KindFallback, Fallback: "provider-open:cache", FallbackResult: receipts.FallbackFailed})
	n.write(receipts.Receipt{Kind: receipts.KindQueue, Reason: "expired", QueueID: "q"})
	n.calls("provider", a, taxonomy.Failed, failure, paid)
	n.calls("provider", a, taxonomy.Succeeded, success, paid)

	d := n.report(10)
	got, err := json.Marshal(map[string]any{"opens": d.Opens, "stopped": d.Stopped, "recovery": d.Recovery, "fallbacks": d.Fallbacks})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"fallbacks":[{"contract":"provider-open","used":2,"full":1,"losses":{"accuracy":1,"freshness":1},"unanswered":1}],` +
		`"opens":[{"breaker":"provider","mode":"enforce","reason":"consecutive_failures","n":1},{"breaker":"provider","mode":"enforce","reason":"failure_ratio","n":1},{"breaker":"tool","mode":"enforce","reason":"slow_ratio","n":2}],` +
		`"recovery":[{"breaker":"provider","attempts":3,"closed":2,"reopened":1,"probes_passed":2,"probes_failed":1},{"breaker":"tool","attempts":0,"closed":1,"reopened":0,"probes_passed":0,"probes_failed":0}],` +
		`"stopped":[{"breaker":"provider","reason":"circuit_open","n":3}]}`
	if string(got) != want {
		t.Errorf("figures\n%s\nwant\n%s", got, want)
	}
	circuits := map[string]circuitFigure{}
	for _, c := range d.Circuits {
		circuits[c.Scope] = c
	}
	if got, want := circuits[a], (circuitFigure{"provider", a, "CLOSED", 4, 2, 2, 3, 0}); got != want {
		t.Errorf("a circuit's figures: %+v, want %+v", got, want)
	}
	if circuits["tool:bank"].State != "OPEN" {
		t.Errorf("a circuit that is open: %+v", circuits["tool:bank"])
	}
	f := d.False
	if f.Right != 1 || f.Doubted != 1 || f.Undone != 1 || f.Unknown != 1 || len(f.Review) != 2 {
		t.Fatalf("false opens: %+v", f)
	}
	if r := f.Review[0]; r.Scope != b || r.Finding != "doubtful" || fmt.Sprint(r.Receipts) != fmt.Sprint([]string{openedB, speaks}) || r.After != 1 {
		t.Errorf("the doubtful one: %+v", r)
	}
	if r := f.Review[1]; r.Finding != "overruled" || r.Receipts[1] != overruled {
		t.Errorf("the overruled one: %+v", r)
	}
	if p := d.TimeOpen[0]; p.Breaker != "provider" || p.Seconds < 11.9 || p.Seconds > 12.1 || p.Longest < 8.9 || d.TimeOpen[1].Still != 1 {
		t.Errorf("time open: %+v", d.TimeOpen)
	}
	if c := d.Cost; c.USD != 1 || c.Verified != 3 || d.Queue.Waiting != 1 || d.Queue.Expired != 1 {
		t.Errorf("cost %+v, queue %+v", c, d.Queue)
	}
	var text strings.Builder
	if err := d.write(&text); err != nil || !strings.Contains(text.String(), openedB) || !strings.Contains(text.String(), "1 doubtful") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// R-OPS-3: missed opens name the circuit, the receipts, and why nothing opened.
func TestReportMissedOpens(t *testing.T) {
	n := newNight(t)
	var first, last string
	for i := range 6 { // counted, and under the limits
		last = n.calls("provider", "provider:a", taxonomy.Failed, failure, nil)
		if i == 0 {
			first = last
		}
		n.calls("provider", "provider:excluded", taxonomy.Failed, taxonomy.SignalExcluded, nil)
		n.calls("", "", taxonomy.Failed, failure, func(r *receipts.Receipt) { r.Operation = "nobody.counts" })
		n.calls("provider", "provider:input", taxonomy.Failed, failure, func(r *receipts.Receipt) { r.ErrorClass = taxonomy.ClientInput })
		n.calls("provider", "provider:opens", taxonomy.Failed, failure, nil)
		n.calls("quality", "quality:watched", taxonomy.Failed, failure, nil)
		n.calls("provider", "provider:recovers", taxonomy.Failed, failure, nil)
		if i == 2 {
			n.moves("provider", "provider:opens", receipts.StateClosed, receipts.StateOpen, "consecutive_failures", taxonomy.ModeEnforce)
			n.moves("quality", "quality:watched", receipts.StateClosed, receipts.StateOpen, "failure_ratio", taxonomy.ModeObserve)
			n.calls("provider", "provider:recovers/-/m", taxonomy.Succeeded, success, func(r *receipts.Receipt) { r.Operation = "another" })
		}
	}
	got := map[string]missedOpen{}
	d := n.report(5)
	for _, m := range d.Missed {
		got[m.Scope] = m
	}
	for scope, why := range map[string]string{"provider:a": "limits were not reached", "provider:excluded": "does not count", "nobody.counts": "no rule", "quality:watched": "observe"} {
		if m := got[scope]; m.Failures != 6 || !strings.Contains(m.Why, why) {
			t.Errorf("%s: %+v, want %q", scope, m, why)
		}
		delete(got, scope)
	}
	if len(got) != 0 {
		t.Errorf("not missed: %+v", got)
	}
	if m := d.Missed[0]; m.Scope != "provider:a" || fmt.Sprint(m.Receipts) != fmt.Sprint([]string{first, last}) {
		t.Errorf("receipts of %+v, want %s and %s", m, first, last)
	}
}
