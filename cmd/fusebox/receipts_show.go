package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
)

func receiptsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID [DIR]",
		Short: "Show one receipt, as it was sealed",
		Long: `Show prints one receipt with all its fields; --json adds its log and its place in
it. The fields are those of receipts/schema/receipt.v1.json: times are Unix
microseconds, ratios parts per million. fusebox receipts explain says the same in
sentences.

Exit status: 0 shown; 1 there is no such receipt; 2 DIR is no receipts log, or ID
is no receipt id.`,
		Example: `  fusebox receipts show 0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c
  fusebox receipts show 0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c DIR/receipts --json`,
		Args: cobra.RangeArgs(1, 2),
	}
	addData(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := receipts.ParseID(args[0])
		if err != nil {
			return withStatus(exitUsage, err)
		}
		root, err := receiptsRoot(cmd, args[1:])
		if err != nil {
			return err
		}
		logs, err := openLogs(root)
		if err != nil {
			return err
		}
		e, err := receipts.Find(logs, id)
		if errors.Is(err, receipts.ErrNotFound) {
			return fmt.Errorf("%w in %s; fusebox receipts list shows those that are there", err, root)
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), describeEntry(&e))
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, e.Raw, "", "  "); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "receipt %d of %s\n%s\n", e.Index, e.Log, pretty.Bytes())
		return err
	}
	return cmd
}
