package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/sdk"
)

func policyShowCommand() *cobra.Command {
	var source bool
	cmd := &cobra.Command{
		Use:   "show [PATH]",
		Short: "Show what a policy consists of and what its decisions depend on",
		Long: `Show prints the version of a policy, its breakers with their thresholds and
scopes, the modules it pins, the input fields that each question's answers
depend on, and what a person should know before it decides.

Exit status: 0 shown; 4 the policy does not load.`,
		Example: `  fusebox policy show
  fusebox policy show ./policies --json
  fusebox policy show policy.tar.gz --files`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVar(&source, "files", false, "list the files, too")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b, err := bundleAt(first(args), policies.Options{})
		if err != nil {
			return withStatus(exitSetup, err)
		}
		s, err := snapshotOf(cmd.Context(), b)
		if err != nil {
			return withStatus(exitSetup, err)
		}
		d := describePolicy(b, s)
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), d)
		}
		return d.write(cmd.OutOrStdout(), source)
	}
	return cmd
}

// policyDoc is the answer of fusebox policy show --json.
type policyDoc struct {
	Version  string              `json:"version"`
	Revision string              `json:"revision"`
	Source   string              `json:"source"`
	Stage    string              `json:"stage"`
	Breakers []policyBreaker     `json:"breakers"`
	Modules  []policyModule      `json:"modules"`
	Plugins  []policyModule      `json:"plugins,omitempty"`
	Reads    map[string][]string `json:"reads"` // by question: the input fields that its answers depend on
	Warnings []string            `json:"warnings"`
	Findings []policies.Finding  `json:"findings"`
	Files    []string            `json:"files"`
}

type policyBreaker struct {
	Name        string   `json:"name"`
	Layer       string   `json:"layer"`
	Mode        string   `json:"mode"`
	Scope       []string `json:"scope"` // widest first
	Consecutive int      `json:"consecutive"`
	RatioPPM    int64    `json:"failure_ratio_ppm"`
	MinSamples  int      `json:"min_samples"`
	Unknown     int      `json:"unknown"`
	Window      string   `json:"window"` // "1m0s", or "20 calls"
	Cooldown    string   `json:"cooldown"`
	Line        int      `json:"line"`
}

type policyModule struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	SHA256  string   `json:"sha256"`
	Kinds   []string `json:"kinds"`
}

func describePolicy(b *policies.Bundle, s *rego.Snapshot) policyDoc {
	d := policyDoc{Version: string(sdk.Version(b)), Revision: b.Revision, Source: b.Source, Stage: b.Settings.Rollout.Stage.String(),
		Breakers: []policyBreaker{}, Modules: []policyModule{}, Reads: map[string][]string{}, Warnings: []string{},
		Findings: append([]policies.Finding{}, findingsOf(b, s)...), Files: []string{}}
	for _, k := range b.Settings.Breakers {
		r := &k.Rule
		d.Breakers = append(d.Breakers, policyBreaker{Name: k.Name, Layer: k.Layer.String(), Mode: r.Mode.String(), Scope: k.Scope,
			Consecutive: int(r.Trip.Consecutive), RatioPPM: int64(r.Trip.FailureRatio), MinSamples: int(r.Window.MinSamples),
			Unknown: int(r.Trip.Unknown), Window: windowText(&r.Window), Cooldown: span(r.Cooldown.Base), Line: k.Line})
	}
	for _, p := range b.Settings.Plugins {
		d.Plugins = append(d.Plugins, policyModule{p.Name, p.Version, p.SHA256, []string{p.Role}})
	}
	for _, m := range b.Settings.Modules {
		d.Modules = append(d.Modules, policyModule{m.Name, m.Version, m.SHA256, m.Kinds})
	}
	for _, q := range rego.Entrypoints {
		set := s.Reads(q)
		d.Reads[string(q)] = append([]string{}, set.Paths...)
		for _, at := range set.Whole {
			d.Warnings = append(d.Warnings, fmt.Sprintf("%s: the whole input is read, so no answer of %s is remembered", at, q))
		}
	}
	for _, w := range s.Warnings() {
		d.Warnings = append(d.Warnings, w.String())
	}
	for _, f := range b.Rego {
		d.Files = append(d.Files, f.Path)
	}
	return d
}

func windowText(w *breaker.WindowRule) string {
	if w.Kind == breaker.CountWindow {
		return fmt.Sprintf("%d calls", w.Size)
	}
	return span(w.Length)
}

// opens says what opens a circuit, for people.
func (b *policyBreaker) opens() string {
	var out []string
	if b.Consecutive > 0 {
		out = append(out, strconv.Itoa(b.Consecutive)+" in a row")
	}
	if b.RatioPPM > 0 {
		out = append(out, fmt.Sprintf("%g %% of %d or more in %s", float64(b.RatioPPM)/10_000, b.MinSamples, b.Window))
	}
	if b.Unknown > 0 {
		out = append(out, fmt.Sprintf("%d UNKNOWN in %s", b.Unknown, b.Window))
	}
	return dash(strings.Join(out, ", "))
}

func (d *policyDoc) write(w io.Writer, files bool) error {
	fmt.Fprintf(w, "%s\nread from %s, stage %s\n\n", d.Version, printable(d.Source), d.Stage)
	rows := make([][]string, 0, len(d.Breakers))
	for _, b := range d.Breakers {
		rows = append(rows, []string{b.Name, b.Layer, b.Mode, strings.Join(b.Scope, "/"), b.opens(), b.Cooldown})
	}
	if err := writeTable(w, []string{"breaker", "layer", "mode", "scope", "opens after", "cooldown"}, rows); err != nil {
		return err
	}
	for _, m := range d.Modules {
		fmt.Fprintf(w, "\nmodule %s@%s for %s\n  sha256:%s\n", m.Name, printable(m.Version), strings.Join(m.Kinds, ", "), m.SHA256)
	}
	for _, p := range d.Plugins {
		fmt.Fprintf(w, "\nplugin %s@%s, a %s\n  sha256:%s\n", p.Name, printable(p.Version), strings.Join(p.Kinds, ", "), p.SHA256)
	}
	for _, q := range rego.Entrypoints {
		fmt.Fprintf(w, "\n%s depends on %s\n", q, printable(strings.Join(d.Reads[string(q)], ", ")))
	}
	for _, x := range d.Warnings {
		fmt.Fprintf(w, "\nwarning: %s", printable(x))
	}
	for _, f := range d.Findings {
		fmt.Fprintf(w, "\nfinding: %s", printable(f.String()))
	}
	if len(d.Warnings)+len(d.Findings) > 0 {
		fmt.Fprintln(w)
	}
	if files {
		fmt.Fprintln(w, "\nfiles:")
		for _, f := range d.Files {
			fmt.Fprintf(w, "  %s\n", f)
		}
	}
	return nil
}
