package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// banner says what runs where, how to point an agent at it, and what binds.
func (r *running) banner(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "fusebox %s\n\n", version)
	fmt.Fprintf(&b, "agent plane      %s\n", r.agent)
	fmt.Fprintf(&b, "operator plane   %s\n", r.operator)
	fmt.Fprintf(&b, "data             %s\n", r.client.Config().Data)
	fmt.Fprintf(&b, "policy           %s\n", r.client.Engine().Version())
	enforced, observed := r.modes()
	fmt.Fprintf(&b, "enforced         %s\n", enforced)
	fmt.Fprintf(&b, "observed only    %s\n", observed)
	for _, warning := range r.client.PolicyStatus().Warnings {
		fmt.Fprintf(&b, "warning          %s\n", warning)
	}
	fmt.Fprintf(&b, "checkpoint       %s\n                 in %s\n", r.checkpointLine(), r.trusted())
	fmt.Fprintf(&b, "\nPoint an agent at it:\n")
	fmt.Fprintf(&b, "  export OPENAI_BASE_URL=%s/openai/v1\n", r.agent)
	fmt.Fprintf(&b, "  export ANTHROPIC_BASE_URL=%s/anthropic\n", r.agent)
	fmt.Fprintf(&b, "or ask before a tool call:\n")
	fmt.Fprintf(&b, "  curl -s %s/v1/admit -d '{\"v\":1,\"operation\":{\"kind\":\"tool\",\"tool\":\"search\",\"action\":\"query\",\"effect\":\"read_only\"}}'\n", r.agent)
	fmt.Fprintf(&b, "\nCtrl-C stops it; kill -HUP reads the policy again.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// modes lists which breakers bind and which only observe.
func (r *running) modes() (enforced, observed string) {
	var binds, looks []string
	for _, s := range r.client.Engine().Breakers().Settings() {
		if s.Rule.Mode == taxonomy.ModeEnforce {
			binds = append(binds, s.Name)
		} else {
			looks = append(looks, s.Name)
		}
	}
	always := "authority denials, no repeat of an UNKNOWN write"
	return strings.Join(append(binds, always), ", "), list(looks)
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// checkpointLine is the newest signed head that is remembered outside the log:
// what to write down somewhere else.
func (r *running) checkpointLine() string {
	list, err := receipts.ReadCheckpoints(r.trusted())
	if err != nil || len(list) == 0 {
		return "none yet"
	}
	c := list[len(list)-1]
	return fmt.Sprintf("%s size %d root %s", c.Origin, c.Size, c.Root)
}

// farewell is the last thing that a server says.
func (r *running) farewell() string {
	return fmt.Sprintf("stopped\ncheckpoint       %s\n                 in %s\nverify           %s\n", r.checkpointLine(), r.trusted(), verifyCommand(r.client.Config().Receipts.Dir))
}
