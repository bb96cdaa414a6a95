package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
)

func policyCommand() *cobra.Command {
	return group("policy", "Write, test, compare, sign and check policy bundles", `A policy is one bundle with one version: Rego, its data, policy.toml and the
modules that it pins. These commands read a folder or an archive; without a path
they mean the policy that is built in.`,
		policyVersionCommand(), policyCheckCommand(), policyShowCommand(), policyExportCommand(), policyNewRuleCommand(),
		policyFmtCommand(), policyTestCommand(), policyDiffCommand(), policyBuildCommand(), policySignCommand(), policyVerifyCommand())
}

func policyVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version [PATH]",
		Short: "Print the version of a policy, as receipts carry it",
		Example: `  fusebox policy version
  fusebox policy version ./policies --json`,
		Args: cobra.MaximumNArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, _, err := policyAt(cmd, args)
		if err != nil {
			return err
		}
		defer p.Close()
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"version": p.Version})
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), p.Version)
		return err
	}
	return cmd
}

// checkDoc is the answer of fusebox policy check --json.
type checkDoc struct {
	OK       bool       `json:"ok"`
	Version  string     `json:"version,omitempty"`
	Problems []string   `json:"problems,omitempty"`
	Warnings []string   `json:"warnings,omitempty"` // what is allowed but unwise, or not carried out by this build
	Breakers []checkRow `json:"breakers,omitempty"`
}

type checkRow struct {
	Name  string `json:"name"`
	Layer string `json:"layer"`
	Mode  string `json:"mode"`
}

func policyCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [PATH]",
		Short: "Load a policy as a server would, and say what is wrong",
		Long: `Check reads, compiles and type-checks a policy exactly as serve does, opens its
modules, and changes nothing. It prints the version that receipts would carry,
or every problem with its file and line.

Exit status: 0 it loads; 1 it does not.`,
		Example: `  fusebox policy check ./policies
  fusebox policy check bundle.tar.gz --json`,
		Args: cobra.MaximumNArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, warnings, err := policyAt(cmd, args)
		if err != nil {
			if *asJSON {
				if werr := writeJSON(cmd.OutOrStdout(), checkDoc{Problems: problemsOf(err)}); werr != nil {
					return werr
				}
				return withStatus(exitFailed, errSilent)
			}
			return &statusError{exitFailed, err}
		}
		defer p.Close()
		d := checkDoc{OK: true, Version: string(p.Version), Warnings: warnings}
		for _, b := range p.Breakers {
			d.Breakers = append(d.Breakers, checkRow{b.Name, b.Layer.String(), b.Rule.Mode.String()})
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), d)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s loads\n", d.Version)
		for _, w := range d.Warnings {
			fmt.Fprintf(cmd.OutOrStdout(), "warning: %s\n", w)
		}
		rows := make([][]string, 0, len(d.Breakers))
		for _, b := range d.Breakers {
			rows = append(rows, []string{b.Name, b.Layer, b.Mode})
		}
		return writeTable(cmd.OutOrStdout(), []string{"breaker", "layer", "mode"}, rows)
	}
	return cmd
}

func policyExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write the built-in policy into a folder, to begin your own from",
		Example: `  fusebox policy export ./policies
  fusebox serve --policies ./policies`,
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if entries, err := os.ReadDir(args[0]); err == nil && len(entries) > 0 {
			return withStatus(exitSetup, fmt.Errorf("folder %s is not empty; name a new one, nothing is written over", args[0]))
		}
		if err := os.CopyFS(args[0], policies.Files()); err != nil {
			return withStatus(exitSetup, fmt.Errorf("write policy: %w", err))
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; edit it, then check it with: %s policy check %s\n", args[0], self(), shellQuote(args[0]))
		return err
	}
	return cmd
}

// writeBundle writes a bundle as the folder that it could have been read from.
func writeBundle(dir string, b *policies.Bundle, revision string, settings []byte) error {
	files := map[string][]byte{
		policies.SettingsFile: settings,
		".manifest":           fmt.Appendf(nil, "{\"revision\":%q,\"roots\":[\"fusebox\"],\"rego_version\":1}\n", revision),
		"data.json":           b.Data,
	}
	for _, f := range b.Rego {
		files[f.Path] = f.Bytes
	}
	for _, m := range b.Settings.Modules {
		files[m.File] = b.Modules[m.Name]
	}
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write policy: %w", err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return fmt.Errorf("write policy: %w", err)
		}
	}
	return nil
}
