package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
)

// A runsDoc is the answer of fusebox receipts why --runs --json.
type runsDoc struct {
	Runs      [2]string `json:"runs"`
	Decisions [2]int    `json:"decisions"`      // admissions and outcomes recorded of each
	Equal     int       `json:"equal_at_first"` // pairs that came out alike before the first that did not
	Receipts  [2]string `json:"receipts"`       // of that pair; "" where a run had ended
	Why       *whyDoc   `json:"why,omitempty"`  // what differs between them
	Says      string    `json:"says"`
}

// compareRuns walks two runs side by side, in the order of their logs, to the
// first decision that differs: what comes after it may follow from it.
func compareRuns(logs []*receipts.Reader, runs [2]string) (runsDoc, error) {
	d := runsDoc{Runs: runs}
	var steps [2][]receipts.Receipt
	for i, run := range runs {
		q := receipts.Query{RunID: run, Kinds: []receipts.Kind{receipts.KindAdmission, receipts.KindOutcome}}
		for e, err := range receipts.All(logs, q) {
			if err != nil {
				return d, err
			}
			steps[i] = append(steps[i], e.Receipt)
		}
		if d.Decisions[i] = len(steps[i]); d.Decisions[i] == 0 {
			return d, fmt.Errorf("no receipt of a run %s; fusebox receipts list --run shows those of one", run)
		}
	}
	a, b := steps[0], steps[1]
	for d.Equal < min(len(a), len(b)) {
		x, y := &a[d.Equal], &b[d.Equal]
		if w := compareReceipts(x, y); !w.Same || x.Operation != y.Operation {
			d.Receipts, d.Why = [2]string{x.ID.String(), y.ID.String()}, &w
			d.Says = fmt.Sprintf("The runs part at step %d: %s, %s against %s, %s.", d.Equal+1, dash(x.Operation), w.Decisions[0], dash(y.Operation), w.Decisions[1])
			if w.Same {
				w.Says = "The decisions are the same, about different operations: the agent asked for something else."
			}
			return d, nil
		}
		d.Equal++
	}
	switch {
	case len(a) == len(b):
		d.Says = fmt.Sprintf("The runs came out alike in all of %s.", plural(d.Equal, "decision", "decisions"))
	default:
		longer := 0
		if len(b) > len(a) {
			longer = 1
		}
		d.Receipts[longer] = steps[longer][d.Equal].ID.String()
		d.Says = fmt.Sprintf("The runs came out alike in %s; then only %s went on.", plural(d.Equal, "decision", "decisions"), runs[longer])
	}
	return d, nil
}

// whyRuns is fusebox receipts why --runs.
func whyRuns(cmd *cobra.Command, args []string, asJSON bool) error {
	root, err := receiptsRoot(cmd, args[2:])
	if err != nil {
		return err
	}
	logs, err := openLogs(receiptsIn(root))
	if err != nil {
		return err
	}
	d, err := compareRuns(logs, [2]string{args[0], args[1]})
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), d)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n", printable(d.Says))
	if d.Why == nil {
		return nil
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return d.Why.write(cmd.OutOrStdout())
}

// write shows a comparison to people.
func (d *whyDoc) write(w io.Writer) error {
	rows := [][]string{{"decision", d.Decisions[0], d.Decisions[1]}}
	for _, x := range d.Differ {
		rows = append(rows, []string{x.Dimension, dash(x.A), dash(x.B)})
	}
	if err := writeTable(w, []string{"", "first", "second"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", printable(d.Says))
	return err
}
