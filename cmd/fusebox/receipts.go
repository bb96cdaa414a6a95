package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
)

func receiptsCommand() *cobra.Command {
	return group("receipts", "Check, read, explain and keep the evidence", `Every decision leaves a receipt in an append-only log: a Merkle tree whose head
is signed. These commands read such logs and may run beside a live server; erase,
prune and keys --rotate write, and want the directory for themselves.`,
		receiptsVerifyCommand(), receiptsListCommand(), receiptsShowCommand(), receiptsTailCommand(),
		receiptsExplainCommand(), receiptsWhyCommand(), receiptsProveCommand(), receiptsCheckProofCommand(), receiptsExportCommand(),
		receiptsKeysCommand(), receiptsPruneCommand(), receiptsEraseCommand())
}

// receiptsRoot is the folder of logs that a command reads: its argument, which may
// also be a data directory or one log, or the one of the configuration.
func receiptsRoot(cmd *cobra.Command, args []string) (string, error) {
	if len(args) > 0 {
		return receiptsIn(args[0]), nil
	}
	cfg, err := readConfig(cmd)
	if err != nil {
		return "", err
	}
	if cfg.Receipts.Dir != "" {
		return cfg.Receipts.Dir, nil
	}
	dir, err := dataDir(cfg)
	return filepath.Join(dir, "receipts"), err
}

// dataDir is where a configuration keeps its data.
func dataDir(cfg sdk.Config) (string, error) {
	if cfg.Data != "" {
		return cfg.Data, nil
	}
	dir, err := sdk.DefaultData()
	return dir, withStatus(exitSetup, err)
}

// openLogs opens every log under a root for reading.
func openLogs(root string) ([]*receipts.Reader, error) {
	logs, err := receipts.OpenReaders(root)
	if errors.Is(err, receipts.ErrNotLog) {
		err = fmt.Errorf("%w; name the folder of a run, such as DIR/receipts", err)
	}
	return logs, withStatus(exitUsage, err)
}

// queryFlags are the filters of list and tail.
type queryFlags struct {
	kinds                       []string
	request, run, scope, tenant string
	breaker                     string
	since                       time.Duration
	limit                       int
}

func (f *queryFlags) add(cmd *cobra.Command, limit int, limitHelp string) {
	cmd.Flags().StringSliceVar(&f.kinds, "kind", nil, "only these `KINDS`: admission, intent, outcome, transition, reconcile, …")
	cmd.Flags().StringVar(&f.request, "request", "", "only of this request `ID`")
	cmd.Flags().StringVar(&f.run, "run", "", "only of this run `ID`")
	cmd.Flags().StringVar(&f.breaker, "breaker", "", "only of this breaker `NAME`")
	cmd.Flags().StringVar(&f.scope, "scope", "", "only of this `SCOPE`, such as provider:openai/eu/gpt-x")
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "only of this `TENANT`")
	cmd.Flags().DurationVar(&f.since, "since", 0, "only of the last `DURATION`, such as 15m")
	cmd.Flags().IntVarP(&f.limit, "limit", "n", limit, limitHelp)
}

func (f *queryFlags) query(cmd *cobra.Command) (receipts.Query, error) {
	q := receipts.Query{RequestID: f.request, RunID: f.run, Breaker: f.breaker, Scope: f.scope, Tenant: f.tenant, Limit: f.limit}
	for _, name := range f.kinds {
		var k receipts.Kind
		if err := k.UnmarshalText([]byte(name)); err != nil {
			return q, usageError(cmd, fmt.Errorf("--kind: %w", err))
		}
		q.Kinds = append(q.Kinds, k)
	}
	if f.limit < 0 || f.since < 0 {
		return q, usageError(cmd, errors.New("--limit and --since must not be negative"))
	}
	if f.since > 0 {
		q.Since = time.Now().Add(-f.since)
	}
	return q, nil
}

// entryRow is one receipt as a line for people.
func entryRow(e *receipts.Entry) []string {
	r := &e.Receipt
	what := r.Reason
	switch {
	case r.Kind == receipts.KindOutcome && r.Outcome.OK:
		what = r.Outcome.V.String() + " " + r.ErrorCode
	case r.Kind == receipts.KindTransition:
		what = r.PrevState.String() + " → " + r.State.String() + " " + r.Reason
	case r.Kind == receipts.KindRollout && r.Diff != receipts.NoDiff:
		what = "candidate: " + r.Diff.String() + " " + r.Reason
	case r.Decision.OK:
		what = r.Decision.V.String() + " " + r.Reason
	case r.Kind == receipts.KindPolicyLoad:
		what = string(r.PolicyVersion)
	}
	about := r.Scope
	if about == "" || r.Kind == receipts.KindOutcome || r.Kind == receipts.KindAdmission && r.Operation != "" {
		about = r.Operation
	}
	return []string{fmt.Sprint(e.Index), time.UnixMicro(r.TimeUS).UTC().Format("15:04:05.000"), r.Kind.String(), dash(about), dash(what), r.ID.String()}
}

var entryHeader = []string{"index", "time (UTC)", "kind", "about", "what", "id"}

// entryDoc is one receipt with its place, for --json.
type entryDoc struct {
	Log     string          `json:"log"`
	Index   int64           `json:"index"`
	Receipt json.RawMessage `json:"receipt"`
}

func describeEntry(e *receipts.Entry) entryDoc {
	return entryDoc{Log: e.Log, Index: e.Index, Receipt: json.RawMessage(bytes.Clone(e.Raw))}
}
