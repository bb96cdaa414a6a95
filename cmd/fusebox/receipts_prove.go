package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
)

// findReceipt finds one receipt by its id, and the log that it is in.
func findReceipt(cmd *cobra.Command, id string, dir []string) (receipts.Entry, []*receipts.Reader, error) {
	want, err := receipts.ParseID(id)
	if err != nil {
		return receipts.Entry{}, nil, withStatus(exitUsage, err)
	}
	root, err := receiptsRoot(cmd, dir)
	if err != nil {
		return receipts.Entry{}, nil, err
	}
	root = receiptsIn(root)
	logs, err := openLogs(root)
	if err != nil {
		return receipts.Entry{}, nil, err
	}
	e, err := receipts.Find(logs, want)
	if errors.Is(err, receipts.ErrNotFound) {
		err = fmt.Errorf("%w in %s; fusebox receipts list shows those that are there", err, root)
	}
	return e, logs, err
}

func receiptsProveCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "prove ID [DIR]",
		Short: "Write the proof that a receipt is in the log, for somebody without it",
		Long: `Prove writes one receipt with the hashes that lead from it to a signed head of the
log, in the form of c2sp.org/tlog-proof. Whoever has the log's verifier key checks
it offline, without the log: fusebox receipts check-proof.

Exit status: 0 written; 1 there is no such receipt, or the log is damaged; 2 DIR
is no receipts log; 3 no head covers the receipt yet: ask again in a second.`,
		Example: `  fusebox receipts prove ID DIR/receipts -o refund.tlog-proof
  fusebox receipts keys DIR/receipts > keys
  fusebox receipts check-proof refund.tlog-proof --key keys`,
		Args: cobra.RangeArgs(1, 2),
	}
	addData(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to this `FILE` (default: standard output)")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e, logs, err := findReceipt(cmd, args[0], args[1:])
		if err != nil {
			return err
		}
		i := slices.IndexFunc(logs, func(l *receipts.Reader) bool { return l.Origin() == e.Log })
		if i < 0 {
			return fmt.Errorf("prove: the log %s is not there", e.Log)
		}
		p, err := logs[i].Prove(e.Receipt.ID)
		if errors.Is(err, receipts.ErrUnsealed) {
			return withStatus(exitUnproven, err)
		}
		if err != nil {
			return err
		}
		text, err := p.MarshalText()
		if err != nil {
			return err
		}
		if out != "" {
			if err := replaceFile(out, text, 0o644); err != nil {
				return withStatus(exitSetup, fmt.Errorf("write proof: %w", err))
			}
		}
		switch {
		case *asJSON:
			return writeJSON(cmd.OutOrStdout(), proofDoc{OK: true, Log: e.Log, Index: p.Index, Size: p.Checkpoint.Size, Receipt: e.Receipt.ID.String(), Proof: string(text)})
		case out != "":
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: receipt %d of %s under a head of %d\n", out, p.Index, e.Log, p.Checkpoint.Size)
		default:
			_, err = cmd.OutOrStdout().Write(text)
		}
		return err
	}
	return cmd
}

// proofDoc is the answer of prove and check-proof with --json.
type proofDoc struct {
	OK      bool   `json:"ok"`
	Log     string `json:"log,omitempty"`
	Index   int64  `json:"index"`
	Size    int64  `json:"head_size"` // receipts under the signed head
	Receipt string `json:"receipt,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Proof   string `json:"proof,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func receiptsCheckProofCommand() *cobra.Command {
	var keys []string
	var body string
	cmd := &cobra.Command{
		Use:   "check-proof FILE --key KEY",
		Short: "Check the proof of one receipt, without its log",
		Long: `Check-proof holds a proof against verifier keys that you have from elsewhere, and
prints the receipt. It needs no log and no network.

Exit status: 0 the receipt is in the log; 1 the proof does not hold; 2 a file
cannot be read.`,
		Example: `  fusebox receipts check-proof refund.tlog-proof --key keys
  fusebox receipts check-proof refund.tlog-proof --key "fusebox.local/…+1a2b3c4d+Aa…" --json`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "accept this verifier `KEY`, or those in a file; may be repeated")
	cmd.Flags().StringVar(&body, "receipt", "", "the receipt's bytes are in this `FILE` and not in the proof")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(keys) == 0 {
			return usageError(cmd, errors.New("--key must name a verifier key; whoever made the proof could have made a key too"))
		}
		known, err := receipts.ReadKeys(keys...)
		if err != nil {
			return withStatus(exitUsage, err)
		}
		proof, err := os.ReadFile(args[0])
		if err != nil {
			return withStatus(exitUsage, fmt.Errorf("read proof: %w", err))
		}
		var bytes []byte
		if body != "" {
			if bytes, err = os.ReadFile(body); err != nil {
				return withStatus(exitUsage, fmt.Errorf("read receipt: %w", err))
			}
		}
		r, p, err := receipts.CheckProof(proof, bytes, known)
		if err != nil {
			if *asJSON {
				err = errors.Join(writeJSON(cmd.OutOrStdout(), proofDoc{Problem: oneLine(err)}), errSilent)
			}
			return withStatus(exitFailed, err)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), proofDoc{OK: true, Log: p.Checkpoint.Origin, Index: p.Index, Size: p.Checkpoint.Size, Receipt: r.ID.String(), Kind: r.Kind.String()})
		}
		row := entryRow(&receipts.Entry{Index: p.Index, Receipt: r})
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the proof holds: receipt %d of %s, under a head of %d\n%s %s: %s %s\n", p.Index, p.Checkpoint.Origin, p.Checkpoint.Size,
			row[1], row[2], printable(row[3]), printable(row[4]))
		return err
	}
	return cmd
}

// keyRow is one verifier key of a log.
type keyRow struct {
	Log   string `json:"log"`
	Epoch string `json:"epoch"`
	VKey  string `json:"vkey"`
}

func receiptsKeysCommand() *cobra.Command {
	var rotate bool
	cmd := &cobra.Command{
		Use:   "keys [DIR]",
		Short: "Print the verifier keys of the logs, or begin new ones",
		Long: `Keys prints the public key of every log and epoch, one a line, as --key of verify
and check-proof reads them. Hand them to whoever checks, by another way than the
receipts themselves.

--rotate begins a new key in every log: the old one announces it in a receipt.
It writes, so no server may run on the directory.

Exit status: 0 printed; 2 DIR is no receipts log; 5 a process has a log.`,
		Example: `  fusebox receipts keys DIR/receipts > keys
  fusebox receipts verify DIR/receipts --key keys
  fusebox receipts keys DIR/receipts --rotate`,
		Args: cobra.MaximumNArgs(1),
	}
	addData(cmd)
	cmd.Flags().BoolVar(&rotate, "rotate", false, "begin a new key in every log")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root, err := receiptsRoot(cmd, args)
		if err != nil {
			return err
		}
		root = receiptsIn(root)
		if rotate {
			err := eachSlot(cmd, root, func(_ int, l *receipts.Log) error { return l.RotateKey(cmd.Context()) })
			if err != nil {
				return err
			}
		}
		logs, err := openLogs(root)
		if err != nil {
			return err
		}
		rows := []keyRow{}
		for _, l := range logs {
			more, err := keysOf(l)
			if err != nil {
				return err
			}
			rows = append(rows, more...)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"keys": rows})
		}
		for _, r := range rows {
			fmt.Fprintln(cmd.OutOrStdout(), printable(r.VKey))
		}
		return nil
	}
	return cmd
}

// keysOf reads the verifier keys that lie with a log, by epoch.
func keysOf(l *receipts.Reader) ([]keyRow, error) {
	files, err := fs.Glob(os.DirFS(l.Dir()), "keys/*.vkey")
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var rows []keyRow
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(l.Dir(), f))
		if err != nil {
			return nil, fmt.Errorf("read keys of %s: %w", l.Origin(), err)
		}
		rows = append(rows, keyRow{l.Origin(), strings.TrimLeft(strings.TrimSuffix(filepath.Base(f), ".vkey"), "0"), strings.TrimSpace(string(text))})
	}
	return rows, nil
}
