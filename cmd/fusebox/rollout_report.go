package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// writeRollout prints a rollout as a person reads it.
func writeRollout(w io.Writer, s *sdk.RolloutStatus) error {
	r := s.Rollout
	if r == nil {
		fmt.Fprintln(w, "no rollout was ever started here; fusebox rollout start CANDIDATE begins one")
	} else if err := writeTable(w, nil, rolloutRows(r)); err != nil {
		return err
	}
	for _, c := range s.Open {
		fmt.Fprintf(w, "candidate's circuit %s is %s\n", printable(c.Scope), c.State)
	}
	if s.Error != "" {
		fmt.Fprintf(w, "\nit cannot be followed here: %s\n", printable(s.Error))
	}
	if s.Report == nil {
		return nil
	}
	if r.Active() {
		if err := writeArms(w, s.Report); err != nil {
			return err
		}
		if err := writeVerdict(w, s.Verdict); err != nil {
			return err
		}
	}
	if r.Active() && r.Stage == taxonomy.ModeCanary {
		return nil // what a canary stops, it stops
	}
	return writeReview(w, &s.Report.Review)
}

func rolloutRows(r *sdk.Rollout) [][]string {
	state := r.State + ", in " + r.Stage.String()
	if r.Stage == taxonomy.ModeCanary {
		state += fmt.Sprintf(" for %g %% of all %s", float64(r.BasisPoints)/100, r.Unit+"s")
	}
	if !r.Active() {
		state = r.State
	}
	rows := [][]string{
		{"rollout", r.ID + ", " + state}, {"in force", string(r.InForce)}, {"candidate", string(r.Candidate) + " from " + r.Source},
		{"began", r.Began.UTC().Format(time.RFC3339)}, {"latest step", fmt.Sprintf("%s by %s: %s", r.Reason, r.By, r.Why)}, {"its receipt", r.Receipt},
	}
	if r.State == "promoted" {
		rows[1][0] = "before it"
	}
	if r.Active() {
		rows = append(rows, []string{"this stage since", r.StageBegan.UTC().Format(time.RFC3339)})
		if d := r.Criteria.Deadline; d > 0 {
			rows = append(rows, []string{"rolled back at", r.Began.Add(d).UTC().Format(time.RFC3339)})
		}
	}
	return rows
}

// writeArms prints the figures of both arms.
func writeArms(w io.Writer, r *engine.TrialReport) error {
	candidate := "candidate"
	if r.Stage != taxonomy.ModeCanary {
		candidate = "candidate would"
	}
	a, b := &r.Control, &r.Trial
	n := func(k int64) string { return strconv.FormatInt(k, 10) }
	rows := [][]string{
		{"decisions", n(a.Decisions), n(b.Decisions)},
		{"rejected", byLayer(a.Rejected), byLayer(b.Rejected)},
		{"circuits opened", n(a.Opens), n(b.Opens)},
		{"failures users see", n(a.UserFailures), n(b.UserFailures)},
		{"sent, end not known", n(a.Unseen), n(b.Unseen)},
		{"UNKNOWN writes", n(a.UnknownWrites), n(b.UnknownWrites)},
		{"fallbacks, with a loss", n(a.Fallbacks) + ", " + n(a.Losses), n(b.Fallbacks) + ", " + n(b.Losses)},
		{"people stepped in", n(a.Interventions), n(b.Interventions)},
		{"corrected downstream", n(a.Corrections), n(b.Corrections)},
		{"failed to decide", n(a.Errors), n(b.Errors)},
	}
	fmt.Fprintln(w)
	if err := writeTable(w, []string{"", "in force", candidate}, rows); err != nil {
		return err
	}
	var diffs []string
	for _, d := range slices.Sorted(maps.Keys(r.Differences)) {
		diffs = append(diffs, d+" "+n(r.Differences[d]))
	}
	if len(diffs) > 0 {
		fmt.Fprintf(w, "decisions and verdicts compared: %s\n", strings.Join(diffs, ", "))
	}
	if r.Looser > 0 {
		fmt.Fprintf(w, "authority would grant more in %s\n", plural(int(r.Looser), "decision", "decisions"))
	}
	if r.Shed > 0 {
		fmt.Fprintf(w, "%s not compared, because too many came at once\n", plural(int(r.Shed), "call was", "calls were"))
	}
	return nil
}

func byLayer(rejected map[string]int64) string {
	var parts []string
	total := int64(0)
	for _, layer := range slices.Sorted(maps.Keys(rejected)) {
		total += rejected[layer]
		parts = append(parts, fmt.Sprintf("%s %d", layer, rejected[layer]))
	}
	if total == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", total, strings.Join(parts, ", "))
}

func writeVerdict(w io.Writer, v *engine.Verdict) error {
	rows := [][]string{}
	for _, g := range v.Gates {
		limit := []string{}
		if g.MaxRatio > 0 {
			limit = append(limit, fmt.Sprintf("at most %g times", g.MaxRatio))
		}
		if g.MaxRise > 0 {
			limit = append(limit, fmt.Sprintf("at most %g more", g.MaxRise))
		}
		rows = append(rows, []string{g.Measure, fmt.Sprintf("%.4f", g.Control), fmt.Sprintf("%.4f", g.Candidate), strings.Join(limit, ", "), g.Result})
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := writeTable(w, []string{"gate", "in force", "candidate", "allowed", "it"}, rows); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\nrisk per decision: %.4f in force, %.4f for the candidate; harm in it: %.4f and %.4f\n", v.Risk[0], v.Risk[1], v.Harm[0], v.Harm[1])
	fmt.Fprintf(w, "verdict: %s\n", v.Judgement)
	for _, reason := range v.Reasons {
		fmt.Fprintf(w, "  - %s\n", printable(reason))
	}
	return nil
}

// writeReview prints what a version that does not bind would have done.
func writeReview(w io.Writer, v *engine.Review) error {
	if v.Stopped == 0 && len(v.Opens) == 0 {
		_, err := fmt.Fprintln(w, "\nno circuit would have opened so far")
		return err
	}
	fmt.Fprintf(w, "\n%s would have been short-circuited: %d of them failed, %d succeeded, %d were not sent anyway\n",
		plural(int(v.Stopped), "call", "calls"), v.Failed, v.Succeeded, v.NotSent)
	fmt.Fprintf(w, "the fallback would have helped in %d, had nothing in %d, and replaced a good answer in %d\n", v.Helps, v.Lacks, v.Needless)
	rows := make([][]string, 0, len(v.Opens))
	for _, o := range v.Opens {
		rows = append(rows, []string{o.Scope, o.Reason, o.At.UTC().Format(time.RFC3339), fmt.Sprintf("%d failed, %d succeeded", o.Failed, o.Succeeded), o.Right, scoped(&o)})
	}
	if err := writeTable(w, []string{"would have opened", "why", "at", "calls it would have stopped", "it was", "its scope"}, rows); err != nil {
		return err
	}
	if v.More > 0 {
		fmt.Fprintf(w, "and %d before those\n", v.More)
	}
	return nil
}

// scoped says where the failures really were.
func scoped(o *engine.OpenReview) string {
	switch o.Scoped {
	case "too_wide":
		var where []string
		for _, s := range o.Within {
			if s.Failed >= s.Succeeded {
				where = append(where, s.Scope)
			}
		}
		return "too wide: the fault was in " + strings.Join(where[:min(len(where), 3)], ", ")
	case "too_narrow":
		return fmt.Sprintf("too narrow: %d failures beside it", o.Beside)
	}
	return o.Scoped
}
