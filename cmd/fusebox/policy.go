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

func policyExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write the built-in policy into a folder, to begin your own from",
		Example: `  fusebox policy export ./policies
  fusebox serve --policies ./policies`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if entries, err := os.ReadDir(args[0]); err == nil && len(entries) > 0 {
			return withStatus(exitSetup, fmt.Errorf("folder %s is not empty; name a new one, nothing is written over", args[0]))
		}
		if err := os.CopyFS(args[0], policies.Files()); err != nil {
			return withStatus(exitSetup, fmt.Errorf("write policy: %w", err))
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"v": 1, "dir": args[0]})
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
