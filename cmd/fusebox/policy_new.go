package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
)

func policyNewRuleCommand() *cobra.Command {
	var class, kind, dir string
	cmd := &cobra.Command{
		Use:   "new-rule TEAM NAME --class ACTION_CLASS",
		Short: "Write the beginning of a team's authority rule, with its tests",
		Long: `New-rule writes two files into a policy folder: a rule about one action class
that passes as it is and is to be changed, and its tests. A team's rules can deny
and ask for approval; they can never allow. A server that watches the folder has
the rule in force as soon as it is written; to watch it first, list TEAM_NAME
under authority.observe in fusebox/config/data.json before.

Exit status: 0 written; 2 a name cannot be used; 4 the folder cannot be used.`,
		Example: `  fusebox policy export ./policies
  fusebox policy new-rule payments large_payouts --class payout --kind require_approval --policies ./policies
  fusebox policy test ./policies`,
		Args: cobra.ExactArgs(2),
	}
	cmd.Flags().StringVar(&class, "class", "", "the rule is about this `ACTION_CLASS`, such as payout")
	cmd.Flags().StringVar(&kind, "kind", string(policies.RuleDeny), "what the rule does: `deny` or require_approval")
	cmd.Flags().StringVar(&dir, "policies", ".", "the policy `FOLDER`")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		files, err := policies.NewRule(args[0], args[1], policies.RuleKind(kind), class)
		if err != nil {
			return usageError(cmd, err)
		}
		if _, err := os.Stat(filepath.Join(dir, policies.SettingsFile)); err != nil {
			return withStatus(exitSetup, fmt.Errorf("folder %s holds no %s; name a policy folder with --policies, or make one with: %s policy export DIR", dir, policies.SettingsFile, self()))
		}
		written := make([]string, 0, len(files))
		for _, f := range files {
			path := filepath.Join(dir, filepath.FromSlash(f.Path))
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			if err == nil {
				err = writeNew(path, f.Bytes, 0o644)
			}
			if err != nil {
				for _, w := range written { // a rule without its tests is no beginning
					err = errors.Join(err, os.Remove(w))
				}
				return withStatus(exitSetup, err)
			}
			written = append(written, path)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"files": written})
		}
		for _, w := range written {
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", w)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "edit them, then: %s policy test %s\n", self(), shellQuote(dir))
		return err
	}
	return cmd
}
