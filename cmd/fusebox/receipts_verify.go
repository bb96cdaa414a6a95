package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
)

func receiptsVerifyCommand() *cobra.Command {
	var o receipts.VerifyOptions
	cmd := &cobra.Command{
		Use:   "verify [DIR]",
		Short: "Check that no receipt was edited, removed, reordered or cut off",
		Long: `Verify judges every log in DIR (the receipts folder of a run, or one log in
it) and trusts nothing in there: signatures of all checkpoints, the Merkle root
over all receipts, numbering, the chain of circuit states, and that every write
that was dispatched has an answer. --deep also reads every field, and looks at
every sealed input for replay: it must be there or erased by a receipt, whole,
and, where the tenant's key is at hand, the one that its receipt committed to.

By itself it proves that a log is consistent. Whoever holds the signing key
could still write another consistent log, so compare with a checkpoint that was
kept elsewhere: --trusted FILE. serve and demo print the last checkpoint, and
keep a copy in DATA/trusted, which you can collect from another machine.

Exit status: 0 every check passed; 1 tampered: something was edited, removed,
cut back or rewritten; 2 not a receipts log; 3 nothing wrong was found, but not
everything is proven, such as receipts newer than the trusted checkpoint.`,
		Example: `  fusebox receipts verify                             the default data directory
  fusebox receipts verify /var/lib/fusebox/receipts
  fusebox receipts verify DIR/receipts --trusted checkpoint-of-monday
  fusebox receipts verify DIR/receipts --deep --json`,
		Args: cobra.MaximumNArgs(1),
	}
	addData(cmd)
	cmd.Flags().StringArrayVar(&o.Trusted, "trusted", nil, "compare with the checkpoints in this `FILE`, or in the *.checkpoint files of this folder; may be repeated")
	cmd.Flags().StringArrayVar(&o.Keys, "key", nil, "accept only logs that begin with this verifier key; a `KEY` or a file of keys; may be repeated")
	cmd.Flags().BoolVar(&o.Deep, "deep", false, "read every field of every receipt and encode it again")
	cmd.Flags().StringVar(&o.InputKeys, "input-keys", "", "folder of the `KEYS` to sealed inputs, without the slot's number at its end (default: keys/inputs beside the receipts folder)")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root, err := receiptsRoot(cmd, args)
		if err != nil {
			return err
		}
		if o.InputKeys == "" {
			logs := root
			if dirs, err := receipts.Logs(root); err == nil && len(dirs) == 1 && filepath.Clean(dirs[0]) == filepath.Clean(root) {
				logs = filepath.Dir(filepath.Clean(root)) // one log was named, not the folder of logs
			}
			o.InputKeys = inputKeysBeside(logs)
		}
		v, err := receipts.Verify(cmd.Context(), root, o)
		if err != nil {
			return withStatus(exitUsage, err)
		}
		if *asJSON {
			err = writeJSON(cmd.OutOrStdout(), v)
		} else {
			err = v.WriteText(cmd.OutOrStdout())
		}
		if err != nil {
			return fmt.Errorf("print the verdicts: %w", err)
		}
		if v.Exit == receipts.ExitPass {
			return nil
		}
		return withStatus(v.Exit, errSilent)
	}
	return cmd
}
