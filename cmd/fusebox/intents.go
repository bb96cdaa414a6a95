package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/sdk"
)

func intentsCommand() *cobra.Command {
	return group("intents", "See and settle writes whose outcome is UNKNOWN", `Before a write is sent, an intent is made durable. When nobody can prove what
became of it, it is UNKNOWN: it is not repeated, and waits for a status look-up
or a person. These commands work the same against a running server and a data
directory.`,
		intentsListCommand(), intentsShowCommand(), intentsReconcileCommand())
}

func intentsListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List intents, oldest first",
		Example: `  fusebox intents list                      what is UNKNOWN
  fusebox intents list --state ALL --limit 20
  fusebox intents list --server http://127.0.0.1:4142 --json`,
	}
	addData(cmd)
	addServer(cmd)
	states := cmd.Flags().String("state", "UNKNOWN", "UNKNOWN, IN_FLIGHT, SETTLED or ALL")
	tenant := cmd.Flags().String("tenant", "", "only of this `TENANT`")
	limit := cmd.Flags().Int("limit", 100, "at most `N`, up to 1000")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := intentQuery(*states, strconv.Itoa(*limit))
		if err != nil {
			return usageError(cmd, err)
		}
		q.Tenant = *tenant
		list, err := listIntents(cmd, q, url.Values{"state": {*states}, "tenant": {*tenant}, "limit": {strconv.Itoa(*limit)}})
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"v": 1, "intents": list})
		}
		if len(list) == 0 {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "no such intents; what a process that is gone had in flight becomes UNKNOWN when its slot is taken again (--state ALL shows everything)")
			return err
		}
		rows := make([][]string, 0, len(list))
		for _, in := range list {
			rows = append(rows, []string{in.ID, in.State, in.Action, ago(time.Since(in.Created)), dash(in.Reason), dash(in.IdempotencyKey)})
		}
		return writeTable(cmd.OutOrStdout(), []string{"intent", "state", "action", "sent", "why", "key"}, rows)
	}
	return cmd
}

// listIntents asks the server, or reads the store where none runs.
func listIntents(cmd *cobra.Command, q state.IntentQuery, query url.Values) ([]intentDoc, error) {
	dir, srv, err := where(cmd)
	if err != nil {
		return nil, err
	}
	list := []intentDoc{}
	if srv != nil {
		var answer struct{ Intents []intentDoc }
		err := srv.get(cmd.Context(), "/v1/intents?"+query.Encode(), &answer)
		return append(list, answer.Intents...), err
	}
	store, err := openStore(cmd, dir)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	for in, err := range store.Find(cmd.Context(), q) {
		if err != nil {
			return nil, err
		}
		list = append(list, describeIntent(in))
	}
	return list, nil
}

// where is the data directory that a command means, and its server, if any.
func where(cmd *cobra.Command) (dir string, srv *serverClient, err error) {
	cfg, err := readConfig(cmd)
	if err != nil {
		return "", nil, err
	}
	if dir, err = dataDir(cfg); err != nil {
		return "", nil, err
	}
	srv, err = serverOf(cmd, dir)
	return dir, srv, err
}

// openStore opens the state of a data directory that must exist, or the database
// that its configuration names: looking at a directory must not make one.
func openStore(cmd *cobra.Command, dir string) (state.Store, error) {
	cfg, err := readConfig(cmd)
	if err != nil {
		return nil, err
	}
	cfg.Data = dir
	if !shared(cfg) {
		path := filepath.Join(dir, "state.db")
		if _, err := os.Stat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, withStatus(exitSetup, fmt.Errorf("open %w; name a data directory that this user may read with --data, or a running server with --server", err))
		} else if err != nil {
			return nil, withStatus(exitSetup, fmt.Errorf("open %s: there is no state; name the directory of a server with --data, or a running one with --server", path))
		}
	}
	store, err := sdk.OpenStore(cmd.Context(), cfg, sdk.Parts{Stores: stores})
	return store, withStatus(exitSetup, err)
}

func intentsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one intent",
		Example: `  fusebox intents show 0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c`,
		Args:    cobra.ExactArgs(1),
	}
	addData(cmd)
	addServer(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := listIntents(cmd, state.IntentQuery{}, url.Values{"state": {"ALL"}, "limit": {"1000"}})
		if err != nil {
			return err
		}
		for _, in := range list {
			if in.ID == args[0] {
				return showIntent(cmd, in, *asJSON)
			}
		}
		return noIntent(args[0])
	}
	return cmd
}

func showIntent(cmd *cobra.Command, in intentDoc, asJSON bool) error {
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), in)
	}
	rows := [][]string{
		{"intent", in.ID}, {"state", in.State}, {"action", in.Action}, {"effect", in.Effect.String()},
		{"request", in.RequestID + ", attempt " + strconv.FormatInt(in.Attempt, 10)}, {"key", dash(in.IdempotencyKey)},
		{"sent", in.Created.Format(time.RFC3339)}, {"outcome", dash(in.Outcome)}, {"why", dash(in.Reason)}, {"said by", dash(in.By)},
		{"look-ups", strconv.FormatInt(in.Lookups, 10)}, {"policy", string(in.Policy)}, {"receipt", in.Receipt},
	}
	return writeTable(cmd.OutOrStdout(), nil, rows)
}

func intentsReconcileCommand() *cobra.Command {
	var applied, notApplied, lookup bool
	var evidence string
	cmd := &cobra.Command{
		Use:   "reconcile ID",
		Short: "Record what a status look-up found about an UNKNOWN intent",
		Long: `Reconcile is the only way in which an UNKNOWN becomes anything else. Look the
operation up at the remote, by its idempotency key or transaction id, and record
what you found. Applied settles it SUCCEEDED; not applied settles it FAILED and
so allows another attempt. Who looked and where stands in the receipt.`,
		Example: `  fusebox intents reconcile ID --applied --evidence "mail log of 09:12, message 4711"
  fusebox intents reconcile ID --not-applied --evidence "no such key at the bank"
  fusebox intents reconcile ID --lookup      ask the reconciler that policy declares`,
		Args: cobra.ExactArgs(1),
	}
	by := addChange(cmd)
	cmd.Flags().BoolVar(&applied, "applied", false, "it took effect")
	cmd.Flags().BoolVar(&notApplied, "not-applied", false, "it did not take effect")
	cmd.Flags().BoolVar(&lookup, "lookup", false, "ask the reconciler that policy declares for the tool")
	cmd.Flags().StringVar(&evidence, "evidence", "", "`WHERE` you looked and what was there, in one line without secrets")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		finding, err := findingOf(applied, notApplied, lookup)
		if err != nil {
			return usageError(cmd, err)
		}
		if !lookup {
			if err := checkWho(*by, evidence); err != nil {
				return usageError(cmd, fmt.Errorf("--evidence: say where you looked, in one line of at most %d bytes", maxWhy))
			}
		}
		var in intentDoc
		body := map[string]any{"v": 1, "permit": args[0], "finding": finding, "by": *by, "evidence": evidence}
		err = change(cmd, "/v1/reconcile", body, &in, func(ctx context.Context, o operations) error {
			found, err := o.reconcile(ctx, args[0], finding, *by+": "+evidence)
			in = describeIntent(found)
			return err
		})
		if p, ok := errors.AsType[*problem](err); ok && (p.Code == "not_found" || p.Code == "permit_unknown") {
			err = noIntent(args[0])
		}
		if err != nil {
			return err
		}
		return showIntent(cmd, in, *asJSON)
	}
	return cmd
}

// noIntent says that an id names none, in the same words wherever it was looked for.
func noIntent(id string) error {
	return fmt.Errorf("there is no intent %s; fusebox intents list --state ALL shows those that are there", printable(id))
}

// findingOf reads the one flag that says what was found.
func findingOf(applied, notApplied, lookup bool) (string, error) {
	switch {
	case applied && !notApplied && !lookup:
		return engine.Applied.String(), nil
	case notApplied && !applied && !lookup:
		return engine.NotApplied.String(), nil
	case lookup && !applied && !notApplied:
		return "lookup", nil
	}
	return "", errors.New("say what was found with one of --applied, --not-applied, --lookup")
}
