package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func breakersCommand() *cobra.Command {
	return group("breakers", "See what is open, and why", `A breaker is a rule of the policy; a circuit is its state for one scope. These
commands show the circuits of a running server: what is open, which figures
opened it, and when it is asked again. Overrides are human decisions over a
circuit: each says who and why, ends by itself, and leaves a receipt.`,
		breakersListCommand(), breakersShowCommand(),
		overrideCommand("force-open", "force_open", "Stop a circuit by hand: nothing is sent until it ends"),
		overrideCommand("force-closed", "force_closed", "Let everything through a circuit by hand, until it ends"),
		overrideCommand("release", "release", "Take an override back before its end"))
}

func breakersListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List every circuit that is not as good as new",
		Example: `  fusebox breakers list
  fusebox breakers list --layer provider
  fusebox breakers list --scope provider:openai --json`,
	}
	addData(cmd)
	addServer(cmd)
	layer := cmd.Flags().String("layer", "", "only of this `LAYER`: provider, tool, workflow, semantic, budget, authority")
	scope := cmd.Flags().String("scope", "", "only those whose scope begins with this `PREFIX`")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := layerNamed(*layer); err != nil {
			return usageError(cmd, err)
		}
		list, err := listCircuits(cmd, *layer, *scope)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"v": 1, "breakers": list})
		}
		if len(list) == 0 {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "every circuit is closed and as good as new")
			return err
		}
		rows := make([][]string, 0, len(list))
		for _, c := range list {
			rows = append(rows, []string{c.Scope, c.State, c.Mode, dash(c.Reason), window(c), retry(c)})
		}
		return writeTable(cmd.OutOrStdout(), []string{"circuit", "state", "mode", "why", "window", "asks again"}, rows)
	}
	return cmd
}

func window(c circuitDoc) string {
	return fmt.Sprintf("%d of %d failed, %d in a row", c.Failures, c.Samples, c.Consecutive)
}

func retry(c circuitDoc) string {
	switch {
	case c.State != "OPEN" && c.Override == "":
		return "-"
	case c.RetryAt.IsZero():
		return "on evidence"
	}
	return ago(time.Since(c.RetryAt))
}

// listCircuits asks the server of the command's data directory. Circuits of a
// directory without a server are not shown: their deadlines run only inside an
// engine.
func listCircuits(cmd *cobra.Command, layer, scope string) ([]circuitDoc, error) {
	dir, srv, err := where(cmd)
	if err != nil {
		return nil, err
	}
	if srv == nil {
		return nil, withStatus(exitSetup, fmt.Errorf("no fusebox server runs on %s; start fusebox serve, or name a running one with --server", dir))
	}
	var answer struct{ Breakers []circuitDoc }
	err = srv.get(cmd.Context(), "/v1/breakers?"+url.Values{"layer": {layer}, "scope": {scope}}.Encode(), &answer)
	return append([]circuitDoc{}, answer.Breakers...), err
}

func breakersShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show SCOPE",
		Short: "Show one circuit with the figures behind its state",
		Example: `  fusebox breakers show provider:openai/-/gpt-x
  fusebox breakers show provider:openai --json`,
		Args: cobra.ExactArgs(1),
	}
	addData(cmd)
	addServer(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := listCircuits(cmd, "", args[0])
		if err != nil {
			return err
		}
		for _, c := range list {
			if c.Scope == args[0] || c.Key == args[0] {
				return showCircuit(cmd, c, *asJSON)
			}
		}
		return errors.New("there is no such circuit, or it is as good as new; fusebox breakers list shows the others")
	}
	return cmd
}

func showCircuit(cmd *cobra.Command, c circuitDoc, asJSON bool) error {
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), c)
	}
	rows := [][]string{
		{"circuit", c.Scope}, {"breaker", c.Breaker + ", layer " + c.Layer}, {"state", c.State}, {"mode", c.Mode},
		{"why", dash(c.Reason)}, {"detail", dash(c.Detail)}, {"window", window(c)},
		{"ratio", strconv.FormatFloat(c.Ratio, 'f', 3, 64)}, {"asks again", retry(c)},
	}
	if !c.Since.IsZero() {
		rows = append(rows, []string{"since", c.Since.Format(time.RFC3339)})
	}
	for class, n := range c.Excluded {
		rows = append(rows, []string{"not counted", class + ": " + strconv.FormatInt(n, 10)})
	}
	if c.Override != "" {
		rows = append(rows, []string{"override", fmt.Sprintf("%s by %s until %s: %s", c.Override, c.OverrideBy, c.OverrideEnd.Format(time.RFC3339), c.OverrideWhy)})
	}
	rows = append(rows, []string{"woken", dash(c.Alerts)}, []string{"may close it", dash(c.Closes)})
	return writeTable(cmd.OutOrStdout(), nil, rows)
}

// overrideCommand is one of the three human decisions about a circuit.
func overrideCommand(use, action, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     use + " SCOPE",
		Short:   short,
		Example: "  fusebox breakers " + use + " provider:openai/-/gpt-x --reason \"ticket 4711\"",
		Args:    cobra.ExactArgs(1),
	}
	by := addChange(cmd)
	reason := cmd.Flags().String("reason", "", "`WHY`, in one line; it stands in the receipt")
	lasts := ""
	if action != "release" {
		cmd.Example += " --for 30m"
		cmd.Flags().StringVar(&lasts, "for", "", "`HOW LONG`, such as 30m; at most 24h")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := overrideRequest{Scope: args[0], Action: action, For: lasts, Reason: *reason}
		var ignored any
		err := change(cmd, "/v1/overrides", req, &ignored, func(ctx context.Context, o operations) error { return o.override(ctx, *by, req) })
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", printable(args[0]), use)
		return err
	}
	return cmd
}
