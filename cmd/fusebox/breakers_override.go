package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// overrideCommand is one of the three human decisions about a circuit.
func overrideCommand(use, action, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use + " SCOPE",
		Short: short,
		Long: short + `.

SCOPE is the breaker's name and the values of its scope, widest first, as
fusebox breakers list shows them: provider:openai is wider than
provider:openai/-/gpt-x, "-" stands for a part that is absent, and %2F for a
slash inside a value. The circuit need not have been used yet; the name alone is
the circuit that scopes without room in a full table share. The decision is on
disk when the command returns, with its receipt; servers on that directory hear
of it at once, and one that starts later finds it in force.`,
		Example: "  fusebox breakers " + use + " provider:openai/-/gpt-x --reason \"ticket 4711\"",
		Args:    cobra.ExactArgs(1),
	}
	by := addChange(cmd)
	reason := cmd.Flags().String("reason", "", "`WHY`, in one line; it stands in the receipt")
	lasts := ""
	if action != "release" {
		cmd.Example += " --for 30m"
		cmd.Flags().StringVar(&lasts, "for", "", "`HOW LONG`, such as 30m; from 1s to 24h")
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := overrideRequest{Scope: args[0], Action: action, For: lasts, Reason: *reason}
		after := circuitsFound{Breakers: []circuitDoc{}}
		err := change(cmd, "/v1/overrides", req, &after, func(ctx context.Context, o operations) error {
			if err := o.override(ctx, *by, req); err != nil {
				return err
			}
			after.Breakers = o.circuit(req.Scope)
			return nil
		})
		if err != nil {
			return err
		}
		if len(after.Breakers) != 1 {
			return fmt.Errorf("%.100q was decided, and the answer does not show the circuit; fusebox breakers list does", req.Scope)
		}
		c := &after.Breakers[0]
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), overriddenDoc{1, action, *c})
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), inForce(c))
		return err
	}
	return cmd
}

// An overriddenDoc is the answer of fusebox breakers open, close and release
// with --json.
type overriddenDoc struct {
	V       int        `json:"v"`
	Action  string     `json:"action"`  // force_open, force_closed, release
	Circuit circuitDoc `json:"circuit"` // after it
}

// circuit is the one circuit that a scope names, also when it is as good as new.
func (o operations) circuit(scope string) []circuitDoc {
	reg := o.engine.Breakers()
	key, err := reg.Find(scope)
	if err != nil {
		return []circuitDoc{}
	}
	l, err := reg.Show(key, o.clock.Mono())
	if err != nil {
		return []circuitDoc{}
	}
	return []circuitDoc{describeCircuit(&l, wall(o.clock))}
}

// inForce says in one line what now holds.
func inForce(c *circuitDoc) string {
	if c.Override == "" {
		return fmt.Sprintf("%s: no override; the circuit is %s", printable(c.Scope), c.State)
	}
	return fmt.Sprintf("%s: %s until %s, decided by %s: %s", printable(c.Scope), c.Override,
		c.OverrideEnd.Format(time.RFC3339), printable(c.OverrideBy), printable(c.OverrideWhy))
}
