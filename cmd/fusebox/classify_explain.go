package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/builtin"
)

// An explainDoc is how the built-in table came to its verdict, also where a
// module answered instead.
type explainDoc struct {
	Rule     string   `json:"rule"`     // "openai/insufficient_quota"
	Pack     string   `json:"pack"`     // the file of rules that it is in
	Line     int      `json:"line"`     // in that file
	When     string   `json:"when"`     // what it asks for
	Source   string   `json:"source"`   // where the fact comes from
	Evidence []string `json:"evidence"` // what was seen of that which rules ask for
	Steps    int      `json:"steps"`    // work done reading
	Answered bool     `json:"answered"` // false: a module, or the floor, had the last word
	Floor    string   `json:"refused_by_floor,omitempty"`
}

// explain says which rule the table went by.
func explain(obs *taxonomy.Observation, by, refused string) *explainDoc {
	e := builtin.Default().Explain(obs)
	return &explainDoc{Rule: e.Rule.ID, Pack: e.Rule.Pack, Line: e.Rule.Line, When: e.Rule.When, Source: e.Rule.Source,
		Evidence: append([]string{}, e.Evidence...), Steps: e.Steps, Answered: by == e.Verdict.By && refused == "", Floor: refused}
}

// A coverageDoc says which rules of the built-in table an input exercised.
type coverageDoc struct {
	Rules        int          `json:"rules"`
	Exercised    int          `json:"exercised"`
	Observations int          `json:"observations"`
	Unread       int          `json:"lines_not_read"`
	Table        string       `json:"table"` // digest of the rules
	Missing      []missingDoc `json:"missing"`
}

type missingDoc struct {
	Rule   string `json:"rule"`
	Pack   string `json:"pack"`
	Line   int    `json:"line"`
	When   string `json:"when"`
	Class  string `json:"class"`
	Reason string `json:"reason"`
}

// coverage judges every line by the table alone and prints which of its rules
// none of them exercised.
func (c *classifier) coverage(ctx context.Context, cmd *cobra.Command, asJSON bool) (bad int, err error) {
	table := builtin.Default()
	cover, seen := table.Cover(), 0
	p := progressOf(cmd, "observations")
	c.each = func(_ context.Context, _ string, obs *taxonomy.Observation) any {
		cover.Saw(table.Classify(obs).By)
		seen++
		p.at(int64(seen))
		return nil
	}
	bad, err = c.stream(ctx, cmd.InOrStdin(), io.Discard)
	p.end()
	if err != nil {
		return bad, err
	}
	d := coverageDoc{Rules: len(table.Rules()), Observations: seen, Unread: bad, Table: table.Digest(), Missing: []missingDoc{}}
	for _, r := range cover.Missing() {
		d.Missing = append(d.Missing, missingDoc{r.ID, r.Pack, r.Line, r.When, r.Class.String(), r.Reason})
	}
	d.Exercised = d.Rules - len(d.Missing)
	if asJSON {
		return bad, writeJSON(cmd.OutOrStdout(), d)
	}
	return bad, d.write(cmd.OutOrStdout())
}

func (d *coverageDoc) write(w io.Writer) error {
	rows := make([][]string, 0, len(d.Missing))
	for _, m := range d.Missing {
		rows = append(rows, []string{m.Rule, m.Class, dash(m.Reason), m.When})
	}
	if len(rows) > 0 {
		if err := writeTable(w, []string{"not exercised", "class", "reason", "when"}, rows); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "%d of %d rules answered for %s\n", d.Exercised, d.Rules, plural(d.Observations, "observation", "observations"))
	return err
}
