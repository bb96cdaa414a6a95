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
