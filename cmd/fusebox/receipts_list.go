package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
)

func receiptsListCommand() *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "list [DIR]",
		Short: "List receipts, the newest last",
		Long: `List shows receipts one to a line: when, of what kind, about which operation or
circuit, what was decided and why, and the id that show, explain, why and prove
take. It judges nothing: fusebox receipts verify does. Where the log holds fewer
receipts than its signed head knows, it says so.

Exit status: 0 listed; 1 a log is damaged; 2 DIR is no receipts log.`,
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
		for _, l := range logs {
			warnShort(cmd, l)
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

// warnShort says on standard error that a log ends before its signed head: what
// is listed is not all there was.
func warnShort(cmd *cobra.Command, l *receipts.Reader) {
	head, err := l.Head()
	if err != nil || head.Size <= l.Size() {
		return
	}
	// A live log may have grown since it was opened.
	if again, err := receipts.OpenReader(l.Dir()); err == nil && again.Size() < head.Size {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: a signed head knows %d receipts, only %d are there; fusebox receipts verify says more\n", l.Dir(), head.Size, again.Size())
	}
}
