package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/sdk"
)

// checkDoc is the answer of fusebox policy check --json.
type checkDoc struct {
	OK       bool               `json:"ok"`
	Version  string             `json:"version,omitempty"`
	Problems []string           `json:"problems,omitempty"`
	Tests    int                `json:"tests"`              // that passed
	Warnings []string           `json:"warnings,omitempty"` // what is allowed but unwise
	Findings []policies.Finding `json:"findings,omitempty"` // what has no effect, and what writes still need
	Breakers []checkRow         `json:"breakers,omitempty"`
}

type checkRow struct {
	Name  string `json:"name"`
	Layer string `json:"layer"`
	Mode  string `json:"mode"`
}

func policyCheckCommand() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "check [PATH]",
		Short: "Load a policy as a server would, and say what is wrong",
		Long: `Check reads, compiles and type-checks a policy exactly as serve does, runs its
tests, compares the evaluator's modes, opens its modules, and changes nothing. It
prints the version that receipts would carry, or every problem with its file and
line.

Then it says what loads and is not as it should be: what has no effect (settings,
data, rules that no question reaches, breakers that nothing feeds), and, marked
"before writes", what is missing before circuits may bind writes.

Exit status: 0 it loads; 1 it does not, or with --strict something is missing
before writes may be enforced.`,
		Example: `  fusebox policy check ./policies
  fusebox policy check bundle.tar.gz --json
  fusebox policy check ./policies --strict`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail, too, when something is missing before writes may be enforced")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := checkPolicy(cmd, args)
		if err != nil {
			if *asJSON {
				if werr := writeJSON(cmd.OutOrStdout(), checkDoc{Problems: problemsOf(err)}); werr != nil {
					return werr
				}
				return withStatus(exitFailed, errSilent)
			}
			return &statusError{exitFailed, err}
		}
		if *asJSON {
			err = writeJSON(cmd.OutOrStdout(), d)
		} else {
			err = d.write(cmd.OutOrStdout())
		}
		if n := d.must(); err == nil && strict && n > 0 {
			err = withStatus(exitFailed, fmt.Errorf("%s missing before writes may be enforced", plural(n, "thing is", "things are")))
		}
		return err
	}
	return cmd
}

func checkPolicy(cmd *cobra.Command, args []string) (*checkDoc, error) {
	p, warnings, err := policyAt(cmd, args)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	cfg, err := readConfig(cmd)
	if err != nil {
		return nil, err
	}
	if len(args) > 0 {
		cfg.Policies.Path = args[0]
	}
	b, err := bundleAt(cfg.Policies.Path, policies.Options{})
	if err != nil {
		return nil, err
	}
	s, err := provenAt(cmd.Context(), b)
	if err != nil {
		return nil, err
	}
	d := &checkDoc{OK: true, Version: string(p.Version), Warnings: warnings, Findings: findingsOf(b, s)}
	if t := s.Tests(); t != nil {
		d.Tests = t.Passed
	}
	for _, k := range p.Breakers {
		d.Breakers = append(d.Breakers, checkRow{k.Name, k.Layer.String(), k.Rule.Mode.String()})
	}
	return d, nil
}

// provenAt compiles the rules with what a server asks of them before they are in
// force, the built-in ones included.
func provenAt(ctx context.Context, b *policies.Bundle) (*rego.Snapshot, error) {
	f, o := filesOf(b)
	o.RunTests, o.Differential = true, true
	s, err := rego.Compile(ctx, f, o)
	if err != nil {
		return nil, fmt.Errorf("check policy %s: %w", b.Source, err)
	}
	return s, nil
}

// findingsOf is all that loads and is not as it should be.
func findingsOf(b *policies.Bundle, s *rego.Snapshot) []policies.Finding {
	out := b.Findings()
	if breakers, layers, all := s.Fed(); all {
		out = append(out, b.Unfed(breakers, layers)...)
	}
	for _, p := range s.Unused() {
		out = append(out, policies.Finding{Code: p.Code, Text: p.String()})
	}
	return append(out, sdk.Unread(b)...)
}

// must counts what has to be settled before writes may be enforced.
func (d *checkDoc) must() (n int) {
	for _, f := range d.Findings {
		if f.Must {
			n++
		}
	}
	return n
}

func (d *checkDoc) write(w io.Writer) error {
	fmt.Fprintf(w, "%s loads\n%s passed\n", d.Version, plural(d.Tests, "test", "tests"))
	for _, x := range d.Warnings {
		fmt.Fprintf(w, "warning: %s\n", printable(x))
	}
	for _, f := range d.Findings {
		kind := "note"
		if f.Must {
			kind = "before writes"
		}
		fmt.Fprintf(w, "%s: %s\n", kind, printable(f.String()))
	}
	rows := make([][]string, 0, len(d.Breakers))
	for _, b := range d.Breakers {
		rows = append(rows, []string{b.Name, b.Layer, b.Mode})
	}
	return writeTable(w, []string{"breaker", "layer", "mode"}, rows)
}
