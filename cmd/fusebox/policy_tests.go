package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
)

func policyTestCommand() *cobra.Command {
	var coverage, verbose bool
	var least float64
	cmd := &cobra.Command{
		Use:   "test [PATH]",
		Short: "Run the tests of a policy",
		Long: `Test runs every rule named test_… in the policy, as opa test would, and prints
those that fail. --coverage lists the lines of rules that no test reached.
Unlike with opa test, a test fails, too, when a rule of the policy had a builtin
error meanwhile: a server answers policy_error then.

Exit status: 0 every test passed; 1 one failed, there is none, or they cover
less than --min-coverage; 4 the policy does not load.`,
		Example: `  fusebox policy test ./policies
  fusebox policy test ./policies --coverage --min-coverage 90
  fusebox policy test ./policies --json`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVar(&coverage, "coverage", false, "list the lines of rules that no test reached")
	cmd.Flags().Float64Var(&least, "min-coverage", 0, "fail when tests cover less than this `PERCENT` of the rules' lines")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the tests that pass, too")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if least < 0 || least > 100 {
			return usageError(cmd, fmt.Errorf("--min-coverage must be 0 to 100, got %v", least))
		}
		b, err := bundleAt(first(args), policies.Options{})
		if err != nil {
			return withStatus(exitSetup, err)
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		p := progressOf(cmd, "tests")
		p.say("running the tests of " + b.Source)
		files, o := filesOf(b)
		r, err := rego.Test(ctx, files, o)
		p.end()
		if err != nil {
			return withStatus(exitSetup, fmt.Errorf("test policy %s: %w", b.Source, err))
		}
		d := describeTests(string(o.Version), r, least)
		if *asJSON {
			err = writeJSON(cmd.OutOrStdout(), d)
		} else {
			err = d.write(cmd.OutOrStdout(), verbose, coverage)
		}
		if err == nil && !d.OK {
			err = withStatus(exitFailed, d.failure(least))
		}
		return err
	}
	return cmd
}

// testDoc is the answer of fusebox policy test --json.
type testDoc struct {
	OK       bool      `json:"ok"`
	Version  string    `json:"version"`
	Passed   int       `json:"passed"`
	Failed   int       `json:"failed"`
	Skipped  int       `json:"skipped"`
	Coverage float64   `json:"coverage_percent"`
	Missed   []lineDoc `json:"not_covered"`
	Tests    []testRow `json:"tests"`
}

type lineDoc struct {
	File string `json:"file"`
	From int    `json:"from"`
	To   int    `json:"to"`
}

type testRow struct {
	Name    string        `json:"name"` // "data.fusebox.routing_test.test_timeout_after_write"
	Verdict string        `json:"verdict"`
	File    string        `json:"file"`
	Line    int           `json:"line"`
	Detail  string        `json:"detail,omitempty"`
	Took    time.Duration `json:"took_ns"`
}

func describeTests(version string, r *rego.TestReport, least float64) testDoc {
	d := testDoc{OK: r.Ok() && r.Coverage >= least, Version: version, Passed: r.Passed, Failed: r.Failed, Skipped: r.Skipped,
		Coverage: r.Coverage, Missed: []lineDoc{}, Tests: []testRow{}}
	for _, l := range r.Missed {
		d.Missed = append(d.Missed, lineDoc(l))
	}
	for _, t := range r.Tests {
		d.Tests = append(d.Tests, testRow{t.Package + "." + t.Name, t.Verdict, t.File, t.Line, t.Detail, t.Took})
	}
	return d
}

// failure is why the tests are not good enough, in one line.
func (d *testDoc) failure(least float64) error {
	switch {
	case d.Failed > 0:
		return fmt.Errorf("%s failed", plural(d.Failed, "test", "tests"))
	case d.Passed == 0:
		return fmt.Errorf("no test ran; write rules named test_… in files named *_test.rego")
	}
	return fmt.Errorf("tests cover %.1f %% of the rules, %.1f %% are required; --coverage lists what they do not reach", d.Coverage, least)
}

func (d *testDoc) write(w io.Writer, verbose, coverage bool) error {
	for _, t := range d.Tests {
		if t.Verdict == "PASS" && !verbose {
			continue
		}
		fmt.Fprintf(w, "%s  %s  %s:%d\n", t.Verdict, printable(t.Name), printable(t.File), t.Line)
		if t.Detail != "" {
			fmt.Fprintf(w, "      %s\n", printable(t.Detail))
		}
	}
	if coverage {
		for _, l := range d.Missed {
			if l.From == l.To {
				fmt.Fprintf(w, "not reached  %s:%d\n", printable(l.File), l.From)
			} else {
				fmt.Fprintf(w, "not reached  %s:%d-%d\n", printable(l.File), l.From, l.To)
			}
		}
	}
	_, err := fmt.Fprintf(w, "%d passed, %d failed, %d skipped; %.1f %% of the rules' lines covered\n", d.Passed, d.Failed, d.Skipped, d.Coverage)
	return err
}
