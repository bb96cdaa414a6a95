package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// fleet is what demo --fleet plays: many workers, one dependency, one outage.
var fleet = breaker.Fleet{Workers: 200, Every: time.Second, Call: 200 * time.Millisecond, Outage: 60 * time.Second, Watch: 10 * time.Minute, Seed: 1}

// A fleetRow is what one way of breaking circuits did to the dependency.
type fleetRow struct {
	Way        string `json:"way"`
	Failed     int    `json:"calls_that_failed"`   // while it was down, probes included
	Probes     int    `json:"probes_sent"`         // while it was down
	MostAtOnce int    `json:"most_probes_at_once"` // that were out together
	Closed     bool   `json:"all_closed"`
	ClosedInMS int64  `json:"closed_after_ms"` // from the end of the outage until every circuit was closed
}

// fleetDoc is the answer of fusebox demo --fleet --json.
type fleetDoc struct {
	V        int        `json:"v"`
	Workers  int        `json:"workers"`
	OutageMS int64      `json:"outage_ms"`
	EveryMS  int64      `json:"every_ms"`
	CallMS   int64      `json:"call_ms"`
	Breaker  string     `json:"breaker"`
	Without  int        `json:"calls_without_a_breaker"` // that would have been sent while it was down
	Rows     []fleetRow `json:"ways"`
}

// fleetRule is the provider circuit of the built-in policy, binding.
func fleetRule() (string, breaker.Rule, error) {
	b, err := policies.Embedded()
	if err != nil {
		return "", breaker.Rule{}, err
	}
	for _, s := range b.Settings.Breakers {
		if s.Layer == taxonomy.LayerProvider {
			r := s.Rule
			r.Mode = taxonomy.ModeEnforce
			return s.Name, r, nil
		}
	}
	return "", breaker.Rule{}, fmt.Errorf("demo --fleet: the built-in policy has no circuit of the provider layer")
}

// runFleet plays one outage twice: with one circuit in a store that all workers
// share, and with one in each process.
func runFleet() (fleetDoc, error) {
	name, rule, err := fleetRule()
	if err != nil {
		return fleetDoc{}, err
	}
	f := fleet
	d := fleetDoc{V: 1, Workers: f.Workers, OutageMS: f.Outage.Milliseconds(), EveryMS: f.Every.Milliseconds(), CallMS: f.Call.Milliseconds(),
		Breaker: name, Without: f.Workers * int(f.Outage/f.Every)}
	f.Rule = rule
	for _, way := range []struct {
		name   string
		shared bool
	}{{"one circuit, shared", true}, {"one in each process", false}} {
		f.Shared = way.shared
		r, err := f.Run()
		if err != nil {
			return d, err
		}
		d.Rows = append(d.Rows, fleetRow{way.name, r.Failed, r.Probes, r.MostAtOnce, r.Closed, r.ClosedIn.Milliseconds()})
	}
	return d, nil
}

func demoFleet(cmd *cobra.Command, asJSON bool) error {
	p := progressOf(cmd, "")
	p.say("playing the outage")
	d, err := runFleet()
	p.end()
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), d)
	}
	return d.write(cmd.OutOrStdout())
}

func (d *fleetDoc) write(w io.Writer) error {
	fmt.Fprintf(w, "%d workers call one dependency, each every %s. It is down for %s; without a\nbreaker %d calls would have been sent into it. The rule is that of the %s\ncircuit in the built-in policy.\n\n",
		d.Workers, span(time.Duration(d.EveryMS)*time.Millisecond), span(time.Duration(d.OutageMS)*time.Millisecond), d.Without, d.Breaker)
	rows := make([][]string, 0, len(d.Rows))
	for _, r := range d.Rows {
		closed := "not within " + span(fleet.Watch)
		if r.Closed {
			closed = span(time.Duration(r.ClosedInMS) * time.Millisecond)
		}
		rows = append(rows, []string{r.Way, strconv.Itoa(r.Failed), strconv.Itoa(r.Probes), strconv.Itoa(r.MostAtOnce), closed})
	}
	if err := writeTable(w, []string{"", "calls that failed", "probes sent", "most at once", "closed after"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nThe clock is simulated, the rule's code is the real one, and the same seed gives the same figures.")
	return err
}
