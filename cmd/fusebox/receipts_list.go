package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
)

func receiptsListCommand() *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "list [DIR]",
		Short: "List receipts, the newest last",
		Example: `  fusebox receipts list
  fusebox receipts list --kind transition --since 1h
  fusebox receipts list DIR/receipts --request 0198c5f0-… --json`,
		Args: cobra.MaximumNArgs(1),
	}
	addData(cmd)
	f.add(cmd, 40, "at most the newest `N`; 0 is all")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q, err := f.query(cmd)
		if err != nil {
			return err
		}
		root, err := receiptsRoot(cmd, args)
		if err != nil {
			return err
		}
		logs, err := openLogs(root)
		if err != nil {
			return err
		}
		q.Newest = true
		var list []receipts.Entry
		for e, err := range receipts.All(logs, q) {
			if err != nil {
				return err
			}
			list = append(list, e)
		}
		slices.Reverse(list)
		if *asJSON {
			for i := range list {
				if err := writeJSONLine(cmd.OutOrStdout(), describeEntry(&list[i])); err != nil {
					return err
				}
			}
			return nil
		}
		rows := make([][]string, 0, len(list))
		for i := range list {
			rows = append(rows, entryRow(&list[i]))
		}
		return writeTable(cmd.OutOrStdout(), entryHeader, rows)
	}
	return cmd
}
