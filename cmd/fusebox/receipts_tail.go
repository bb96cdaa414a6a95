package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
)

func receiptsTailCommand() *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "tail [DIR]",
		Short: "Show receipts as they are written, until interrupted",
		Long: `Tail begins with the newest receipts and shows each new one as it reaches the
log's files, of all logs in DIR, until interrupted. It judges nothing and may run
beside a server.

Exit status: 0 interrupted; 1 a log is damaged; 2 DIR is no receipts log.`,
		Example: `  fusebox receipts tail
  fusebox receipts tail --kind transition,reconcile
  fusebox receipts tail DIR/receipts --json`,
		Args: cobra.MaximumNArgs(1),
	}
	addData(cmd)
	f.add(cmd, 10, "begin with the newest `N`")
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
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		return tail(ctx, root, q, func(e *receipts.Entry) error {
			if *asJSON {
				return writeJSONLine(cmd.OutOrStdout(), describeEntry(e))
			}
			return writeTail(cmd, e)
		})
	}
	return cmd
}

func writeTail(cmd *cobra.Command, e *receipts.Entry) error {
	c := entryRow(e)
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  %-11s %-40s %s\n", c[1], c[2], printable(c[3]), printable(c[4]))
	return err
}

// tail shows the newest q.Limit receipts and then every new one. The logs are
// read again only when their files have grown.
func tail(ctx context.Context, root string, q receipts.Query, show func(*receipts.Entry) error) error {
	next := map[string]int64{} // by log: the first index not yet shown
	begun := false
	seen := int64(-1)
	for {
		size := bytesUnder(root)
		if size != seen {
			seen = size
			logs, err := openLogs(root)
			if err != nil {
				return err
			}
			for _, l := range logs {
				if err := tailOne(l, q, next, begun, show); err != nil {
					return err
				}
			}
			begun = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func tailOne(l *receipts.Reader, q receipts.Query, next map[string]int64, begun bool, show func(*receipts.Entry) error) error {
	from, known := next[l.Dir()]
	size := l.Size()
	next[l.Dir()] = size
	if !known && !begun {
		newest, err := newestOf(l, q)
		if err != nil {
			return err
		}
		for i := range newest {
			if err := show(&newest[len(newest)-1-i]); err != nil {
				return err
			}
		}
		return nil
	}
	q.From, q.Limit = from, 0
	for e, err := range l.All(q) {
		if err != nil {
			return err
		}
		if e.Index >= size {
			return nil
		}
		if err := show(&e); err != nil {
			return err
		}
	}
	return nil
}

func newestOf(l *receipts.Reader, q receipts.Query) (list []receipts.Entry, err error) {
	if q.Limit == 0 {
		return nil, nil
	}
	q.Newest = true
	for e, err := range l.All(q) {
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// bytesUnder is the size of everything below a folder; a file that vanishes
// meanwhile was sealed into another one.
func bytesUnder(root string) (n int64) {
	_ = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
