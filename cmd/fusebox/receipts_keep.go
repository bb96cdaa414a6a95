package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
)

// eachSlot opens every log of a root as its writer, for work that changes logs
// while no server runs.
func eachSlot(cmd *cobra.Command, root string, f func(slot int, l *receipts.Log) error) error {
	cfg, err := readConfig(cmd)
	if err != nil {
		return err
	}
	// Looked for first: what opens logs as a writer makes folders beside them.
	if logs, err := receipts.Logs(root); err != nil || len(logs) == 0 {
		return withStatus(exitUsage, fmt.Errorf("open receipts %s: %w; name the folder of a run, such as DIR/receipts", root, receipts.ErrNotLog))
	}
	err = receipts.EachSlot(cmd.Context(), root, receipts.Options{Engine: buildName(), KeyFile: cfg.Receipts.Key}, f)
	switch {
	case errors.Is(err, receipts.ErrLocked):
		return withStatus(exitBusy, fmt.Errorf("%w; stop the server of this directory first", err))
	case errors.Is(err, receipts.ErrNotLog):
		return withStatus(exitUsage, fmt.Errorf("%w; name the folder of a run, such as DIR/receipts", err))
	}
	return err
}

// prunedRow is what retention did to one log.
type prunedRow struct {
	Slot      int    `json:"slot"`
	Log       string `json:"log"`
	Receipts  int64  `json:"receipts"`   // bodies replaced by their leaf hashes
	InputDays int    `json:"input_days"` // days of sealed inputs removed
	Receipt   string `json:"receipt,omitempty"`
}

func receiptsPruneCommand() *cobra.Command {
	keep := receipts.DefaultRetention
	var by string
	cmd := &cobra.Command{
		Use:   "prune [DIR]",
		Short: "Take away the bodies of receipts that are old enough",
		Long: `Prune replaces the bodies of old receipts by their hashes, and removes old sealed
inputs. An erasure receipt says first how many and how old, so the log still
verifies and proves everything that is left. How long a body is kept depends on
its class; 0 keeps it for ever. The newest receipts of a log, up to 256, always
stay. No server may run on the directory.

Exit status: 0 done; 2 DIR is no receipts log; 5 a process has a log.`,
		Example: `  fusebox receipts prune DIR/receipts
  fusebox receipts prune DIR/receipts --audit 720h --ledger 0 --json`,
		Args: cobra.MaximumNArgs(1),
	}
	addData(cmd)
	cmd.Flags().DurationVar(&keep.Sample, "sample", keep.Sample, "keep receipts of ordinary successes for this `LONG`")
	cmd.Flags().DurationVar(&keep.Audit, "audit", keep.Audit, "keep decisions and failures for this `LONG`")
	cmd.Flags().DurationVar(&keep.Ledger, "ledger", keep.Ledger, "keep dispatched writes and what became of them for this `LONG`")
	cmd.Flags().DurationVar(&keep.Inputs, "inputs", keep.Inputs, "keep sealed inputs for this `LONG`; replay needs them")
	cmd.Flags().StringVar(&by, "by", "operator "+userName(), "`WHO` decides; it stands in the receipt")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, d := range []time.Duration{keep.Sample, keep.Audit, keep.Ledger, keep.Inputs} {
			if d < 0 {
				return usageError(cmd, errors.New("how long receipts are kept must not be negative; 0 keeps them for ever"))
			}
		}
		root, err := receiptsRoot(cmd, args)
		if err != nil {
			return err
		}
		p := progressOf(cmd, "")
		rows := []prunedRow{}
		err = eachSlot(cmd, receiptsIn(root), func(slot int, l *receipts.Log) error {
			p.say("pruning " + l.Origin())
			// What still lies in the write-ahead file of a server that is gone is old, too.
			if err := l.Seal(cmd.Context()); err != nil {
				return err
			}
			done, err := l.Prune(cmd.Context(), keep, by)
			rows = append(rows, prunedRow{slot, l.Origin(), done.Receipts, done.InputDays, done.Receipt.ID.String()})
			return err
		})
		p.end()
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"logs": rows})
		}
		for _, r := range rows {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bodies and %d days of inputs taken away\n", r.Log, r.Receipts, r.InputDays)
		}
		return nil
	}
	return cmd
}

func receiptsEraseCommand() *cobra.Command {
	var by, reason string
	cmd := &cobra.Command{
		Use:   "erase TENANT [DIR] --reason WHY",
		Short: "Make everything that was sealed for a tenant unreadable, for ever",
		Long: `Erase destroys the key to a tenant's sealed inputs and removes them, in every log,
and leaves a receipt that says who and why. Receipts stay as they are: they hold
no input, only a salted commitment to it, so everything still verifies. It cannot
be taken back. No server may run on the directory.

Exit status: 0 erased; 2 DIR is no receipts log, or no reason was given; 5 a
process has a log.`,
		Example: `  fusebox receipts erase acme DIR/receipts --reason "request 4711"`,
		Args:    cobra.RangeArgs(1, 2),
	}
	addData(cmd)
	cmd.Flags().StringVar(&by, "by", "operator "+userName(), "`WHO` decides; it stands in the receipt")
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, in one line")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkWho(by, reason); err != nil {
			return usageError(cmd, err)
		}
		root, err := receiptsRoot(cmd, args[1:])
		if err != nil {
			return err
		}
		ids := []string{}
		err = eachSlot(cmd, receiptsIn(root), func(_ int, l *receipts.Log) error {
			ref, err := l.Erase(cmd.Context(), args[0], by, reason)
			ids = append(ids, ref.ID.String())
			return err
		})
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"tenant": args[0], "receipts": ids})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the inputs of tenant %s are unreadable in %s\n", printable(args[0]), plural(len(ids), "log", "logs"))
		return err
	}
	return cmd
}

func receiptsExportCommand() *cobra.Command {
	var f queryFlags
	var profile, out string
	cmd := &cobra.Command{
		Use:   "export [DIR] --profile PROFILE",
		Short: "Write receipts in a form that other systems read",
		Long: `Export writes receipts line by line:

  jsonl   the canonical bytes of each receipt; each line is a leaf of the tree
  otlp    OpenTelemetry logs in JSON, one LogsData a line
  opa     decision-log events of OPA, one a line; decisions only

Exit status: 0 written; 1 a log is damaged; 2 DIR is no receipts log, or there is
no such profile; 4 the file cannot be written.`,
		Example: `  fusebox receipts export DIR/receipts --profile otlp --since 24h -o receipts.otlp.jsonl
  fusebox receipts export --kind transition,override | jq .scope`,
		Args: cobra.MaximumNArgs(1),
	}
	addData(cmd)
	f.add(cmd, 0, "write at most `N`; 0 writes all")
	cmd.Flags().StringVar(&profile, "profile", string(receipts.ProfileJSONL), "jsonl, otlp or opa")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to this new `FILE` (default: standard output)")
	asJSON := cmd.Flags().Bool("json", false, "with --output: say in JSON how many were written")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q, err := f.query(cmd)
		if err != nil {
			return err
		}
		root, err := receiptsRoot(cmd, args)
		if err != nil {
			return err
		}
		logs, err := openLogs(receiptsIn(root))
		if err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		var file *os.File
		if out != "" {
			if file, err = os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
				return withStatus(exitSetup, fmt.Errorf("export: %w; nothing is written over", err))
			}
			w = file
		}
		n, err := exportTo(cmd, w, receipts.Profile(profile), logs, q)
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		if errors.Is(err, receipts.ErrProfile) {
			return usageError(cmd, err)
		}
		if err != nil || out == "" {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"path": out, "profile": profile, "receipts": n})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: %s\n", out, plural(int(n), "receipt", "receipts"))
		return err
	}
	return cmd
}

// exportTo writes what a query selects and tells how far it is.
func exportTo(cmd *cobra.Command, w io.Writer, profile receipts.Profile, logs []*receipts.Reader, q receipts.Query) (int64, error) {
	p, read := progressOf(cmd, "receipts"), int64(0)
	defer p.end()
	all := receipts.All(logs, q)
	return receipts.Export(w, profile, func(yield func(receipts.Entry, error) bool) {
		for e, err := range all {
			read++
			p.at(read)
			if !yield(e, err) {
				return
			}
		}
	})
}
