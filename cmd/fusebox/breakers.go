package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/breaker"
)

func breakersCommand() *cobra.Command {
	return group("breakers", "See what is open, and why", `A breaker is a rule of the policy; a circuit is its state for one scope. These
commands show what is open, which figures opened it, and when it is asked again.
Open, close and release are human decisions over a circuit: each says who and
why, ends by itself, and leaves a receipt. All of them work the same against a
running server and a data directory.`,
		breakersListCommand(), breakersShowCommand(),
		overrideCommand("open", "force_open", "Stop a circuit by hand: nothing is sent until it ends"),
		overrideCommand("close", "force_closed", "Let everything through a circuit by hand, until it ends"),
		overrideCommand("release", "release", "Take an override back before its end"),
		hidden(overrideCommand("force-open", "force_open", "The former name of open")),
		hidden(overrideCommand("force-closed", "force_closed", "The former name of close")))
}

// hidden keeps a former name working without showing it.
func hidden(cmd *cobra.Command) *cobra.Command {
	cmd.Hidden = true
	return cmd
}

func breakersListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List every circuit that is not as good as new",
		Long: `List shows every circuit that is not as good as new: of the server that runs on
the data directory, else as the directory's store has them. What a closed
circuit counts lives in the process that runs, and reaches the store in beats.`,
		Example: `  fusebox breakers list
  fusebox breakers list --layer provider
  fusebox breakers list --scope provider:openai --json`,
	}
	addLook(cmd)
	layer := cmd.Flags().String("layer", "", "only of this `LAYER`: provider, tool, workflow, semantic, budget, authority")
	scope := cmd.Flags().String("scope", "", "only those whose scope begins with this `PREFIX`")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := layerNamed(*layer); err != nil {
			return usageError(cmd, err)
		}
		found, err := lookAtCircuits(cmd, *layer, *scope)
		if found == nil {
			return err
		}
		return errors.Join(found.writeList(cmd.OutOrStdout(), *asJSON), err)
	}
	return cmd
}

// writeList prints circuits, and where they were read when that is not a server.
func (f *circuitsFound) writeList(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(w, f)
	}
	if len(f.Breakers) == 0 {
		fmt.Fprintln(w, f.nothing())
		return f.writeSource(w)
	}
	rows := make([][]string, 0, len(f.Breakers))
	for _, c := range f.Breakers {
		rows = append(rows, []string{c.Scope, stateOf(c), c.Mode, dash(c.Reason), window(c), retry(c)})
	}
	if err := writeTable(w, []string{"circuit", "state", "mode", "why", "window", "asks again"}, rows); err != nil {
		return err
	}
	return f.writeSource(w)
}

// nothing says what an empty list means: for those that were asked for, and of
// those that could be read.
func (f *circuitsFound) nothing() string {
	which := ""
	if f.layer != "" {
		which += " of the " + f.layer + " layer"
	}
	if f.scope != "" {
		which += fmt.Sprintf(" whose scope begins with %.200q", f.scope)
	}
	switch {
	case f.partly:
		return "no circuit" + which + " that could be read is open, forced or counting"
	case which != "":
		return "no circuit" + which + " is open, forced or counting; fusebox breakers list shows all that are"
	}
	return "every circuit is closed and as good as new"
}

// writeSource says what of a directory without a server is known.
func (f *circuitsFound) writeSource(w io.Writer) error {
	if f.Source == fromServer {
		return nil
	}
	_, err := fmt.Fprintf(w, "as last stored in %s, on which no server runs; what closed circuits count since then lived in the process that ran\n", printable(f.dir))
	if n := len(f.Orphans); n > 0 {
		_, err = fmt.Fprintf(w, "%d stored circuits belong to no breaker of this policy; --policies names another one: %s\n", n, printable(strings.Join(f.Orphans[:min(n, 5)], ", ")))
	}
	return err
}

// stateOf is the state, the decision that lies over it, and whom it binds.
func stateOf(c circuitDoc) string {
	out := c.State
	if c.Override != "" {
		out += ", " + c.Override
	}
	if c.Cohort != "" {
		out += ", " + c.Cohort + "'s"
	}
	return out
}

func window(c circuitDoc) string {
	return fmt.Sprintf("%d of %d failed, %d in a row", c.Failures, c.Samples, c.Consecutive)
}

func retry(c circuitDoc) string {
	switch {
	case c.State == breaker.HalfOpen.String() && c.Override == "":
		return "by probes"
	case c.State == breaker.Ramping.String() && c.Override == "":
		return "a growing share"
	case c.Override == breaker.ForcedClosed.String(), c.State != breaker.Open.String() && c.Override == "":
		return "-"
	case c.RetryAt.IsZero():
		return "on evidence"
	case time.Since(c.RetryAt) >= 0:
		return "at the next call" // the cooldown is over, and nobody has called since
	}
	return ago(time.Since(c.RetryAt))
}

func breakersShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show SCOPE",
		Short: "Show one circuit with the figures behind its state",
		Example: `  fusebox breakers show provider:openai/-/gpt-x
  fusebox breakers show provider:openai --json`,
		Args: cobra.ExactArgs(1),
	}
	addLook(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		widest, _, _ := strings.Cut(args[0], "/") // with those around it, since what is wider binds it too
		found, err := lookAtCircuits(cmd, "", widest)
		if found == nil {
			return err
		}
		if c := found.named(args[0]); c != nil {
			return found.writeOne(cmd.OutOrStdout(), c, *asJSON)
		}
		return errors.Join(err, fmt.Errorf("there is no circuit %.200q, or it is as good as new; fusebox breakers list shows the others", args[0]))
	}
	return cmd
}

// named is the circuit of exactly this scope or key; nil when it is not there.
func (f *circuitsFound) named(scope string) *circuitDoc {
	for i := range f.Breakers {
		if c := &f.Breakers[i]; c.Scope == scope || c.Key == scope {
			return c
		}
	}
	return nil
}

// wider are the circuits around one that are not closed: what they stop, it
// does not get.
func (f *circuitsFound) wider(c *circuitDoc) (out []*circuitDoc) {
	for i := range f.Breakers {
		w := &f.Breakers[i]
		if strings.HasPrefix(c.Scope, w.Scope+"/") && w.Cohort == c.Cohort && (w.State != breaker.Closed.String() || w.Override != "") {
			out = append(out, w)
		}
	}
	return out
}

func (f *circuitsFound) writeOne(w io.Writer, c *circuitDoc, asJSON bool) error {
	if asJSON {
		return writeJSON(w, c)
	}
	rows := [][]string{
		{"circuit", c.Scope}, {"breaker", c.Breaker + ", layer " + c.Layer}, {"state", stateOf(*c)}, {"mode", c.Mode},
		{"why", dash(c.Reason)}, {"detail", dash(c.Detail)}, {"window", window(*c)},
		{"ratio", strconv.FormatFloat(c.Ratio, 'f', 3, 64)}, {"asks again", retry(*c)},
	}
	if !c.Since.IsZero() {
		rows = append(rows, []string{"since", c.Since.Format(time.RFC3339)})
	}
	for _, class := range slices.Sorted(maps.Keys(c.Excluded)) {
		rows = append(rows, []string{"not counted", class + ": " + strconv.FormatInt(c.Excluded[class], 10)})
	}
	if c.Override != "" {
		rows = append(rows, []string{"override", fmt.Sprintf("%s by %s until %s: %s", c.Override, c.OverrideBy, c.OverrideEnd.Format(time.RFC3339), c.OverrideWhy)})
	}
	for _, w := range f.wider(c) {
		rows = append(rows, []string{"wider", w.Scope + " is " + stateOf(*w)})
	}
	rows = append(rows, []string{"woken", dash(c.Alerts)}, []string{"may close it", dash(c.Closes)})
	if err := writeTable(w, nil, rows); err != nil {
		return err
	}
	return f.writeSource(w)
}
