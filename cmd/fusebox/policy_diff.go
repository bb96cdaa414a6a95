package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
)

func policyDiffCommand() *cobra.Command {
	var markdown, allow bool
	cmd := &cobra.Command{
		Use:   "diff [OLD] NEW",
		Short: "Say which decisions a changed policy answers differently",
		Long: `Diff puts the complete decision table to two policies: every value that either
of them compares with, and each number's neighbours. It prints the decisions
that change, which way they move, and the settings that differ. With one path
the old policy is the one that is built in.

It compares rules, not history: fusebox replay asks what recorded traffic would
have got.

Exit status: 0 it was compared; 4 authority got looser somewhere and
--allow-looser was not given, or a policy does not load.`,
		Example: `  fusebox policy diff ./policies
  fusebox policy diff ./policies ./policies-next --markdown > review.md
  fusebox policy diff old.tar.gz new.tar.gz --allow-looser --json`,
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print a table for a review")
	addAllowLooser(cmd, &allow)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if markdown && *asJSON {
			return usageError(cmd, errors.New("--markdown and --json exclude each other"))
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		if len(args) == 1 {
			args = []string{"", args[0]}
		}
		var bundles [2]*policies.Bundle
		var rules [2]*rego.Snapshot
		for i, path := range args {
			var err error
			if bundles[i], err = bundleAt(path, policies.Options{}); err == nil {
				rules[i], err = snapshotOf(ctx, bundles[i])
			}
			if err != nil {
				return withStatus(exitSetup, err)
			}
		}
		p := progressOf(cmd, "inputs")
		p.say("comparing the decision tables")
		d := diffDoc{Decisions: rego.Compare(ctx, rules[0], rules[1], p.at), Settings: policies.SettingChanges(bundles[0], bundles[1])}
		p.end()
		if err := ctx.Err(); err != nil {
			return err
		}
		d.Looser = d.Decisions.Looser()
		if err := d.print(cmd.OutOrStdout(), *asJSON, markdown); err != nil {
			return err
		}
		if d.Looser && !allow {
			return withStatus(exitLooser, errors.New("authority got looser: the changes above marked so; --allow-looser accepts it"))
		}
		return nil
	}
	return cmd
}

// addAllowLooser adds the flag by which a person says that they saw it.
func addAllowLooser(cmd *cobra.Command, allow *bool) {
	cmd.Flags().BoolVar(allow, "allow-looser", false, "end with 0 although authority allows more than before")
}

// diffDoc is the answer of fusebox policy diff --json.
type diffDoc struct {
	Looser    bool                     `json:"authority_looser"`
	Decisions *rego.Diff               `json:"decisions"`
	Settings  []policies.SettingChange `json:"settings"`
}

func (d *diffDoc) print(w io.Writer, asJSON, markdown bool) error {
	switch {
	case asJSON:
		return writeJSON(w, d)
	case markdown:
		if err := d.Decisions.WriteMarkdown(w); err != nil || len(d.Settings) == 0 {
			return err
		}
		fmt.Fprintf(w, "\n| setting | old | new |\n|---|---|---|\n")
		for _, s := range d.Settings {
			fmt.Fprintf(w, "| %s | %s | %s |\n", printable(s.Key), printable(s.Old), printable(s.New))
		}
		return nil
	}
	if err := d.Decisions.WriteText(w); err != nil || len(d.Settings) == 0 {
		return err
	}
	fmt.Fprintln(w)
	rows := make([][]string, 0, len(d.Settings))
	for _, s := range d.Settings {
		rows = append(rows, []string{s.Key, dash(s.Old), dash(s.New)})
	}
	return writeTable(w, []string{"setting", "old", "new"}, rows)
}
