package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// A shared circuit sends far fewer probes into an outage than one in each
// process does, never more than its budget at once, and both recover.
func TestDemoFleet(t *testing.T) {
	status, out, errs := fusebox(t, "", "demo", "--fleet", "--json")
	if status != exitOK || errs != "" {
		t.Fatalf("status %d: %s", status, errs)
	}
	var d fleetDoc
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Rows) != 2 || d.Workers != 200 || d.OutageMS != 60_000 {
		t.Fatalf("%+v", d)
	}
	shared, apart := d.Rows[0], d.Rows[1]
	_, rule, err := fleetRule()
	if err != nil {
		t.Fatal(err)
	}
	if shared.MostAtOnce > int(rule.Probe.Budget) || shared.MostAtOnce < 1 || apart.MostAtOnce <= shared.MostAtOnce {
		t.Errorf("most at once: %d shared, %d apart, the budget is %d", shared.MostAtOnce, apart.MostAtOnce, rule.Probe.Budget)
	}
	if shared.Probes == 0 || apart.Probes < 10*shared.Probes || apart.Failed <= shared.Failed || apart.Failed >= d.Without {
		t.Errorf("%+v against %+v", shared, apart)
	}
	if !shared.Closed || !apart.Closed || shared.ClosedInMS <= 0 {
		t.Errorf("not every circuit closed: %+v, %+v", shared, apart)
	}
	_, text, _ := fusebox(t, "", "demo", "--fleet")
	for _, want := range []string{"200 workers", "one circuit, shared", "one in each process", "most at once"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}
