// Command fusebox is the circuit breaker for AI agents: a local server that
// decides before every call whether it may be sent, judges what came back, and
// keeps evidence of both. Its subcommands run that server, show it at work,
// classify recorded observations and check the evidence.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// version is set by the build (-ldflags -X main.version=…).
var version = "dev"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: it executes one command line and returns
// the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if msg := oneLine(err); msg != "" {
		fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), msg)
	}
	return statusOf(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "fusebox",
		Version: version, // --version; the command of that name says more
		Short:   "The circuit breaker for AI agents",
		Long: `fusebox stands between AI agents and what they call: models, tools, services.

Before every call it decides whether the call may be sent (authority, loops,
circuits, budgets). After every call it judges what came back, counts it toward
the right circuits, and never repeats a write whose outcome nobody knows. Every
decision leaves a receipt in a tamper-evident log.

Start here:
  fusebox demo                      watch it work, under 30 seconds
  fusebox serve                     run it beside your agent, no configuration needed
  fusebox init                      write a policy of your own from a few answers
  fusebox mcp -- COMMAND            put it in front of an MCP server
  fusebox receipts verify DIR       check the evidence that a run left

` + exitHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().String("config", "", "read the wiring from this `FILE` (fusebox.toml); without it the defaults hold")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, err) })
	root.AddCommand(
		serveCommand(), initCommand(), doctorCommand(), mcpCommand(), demoCommand(), classifyCommand(), receiptsCommand(),
		breakersCommand(), reportCommand(), intentsCommand(), queueCommand(), deadCommand(), approvalsCommand(),
		policyCommand(), rolloutCommand(), wasmCommand(), pluginCommand(), replayCommand(), apiCommand(), tokenCommand(), versionCommand(),
	)
	strictArgs(root)
	return root
}

// strictArgs makes a wrong number of arguments, or a subcommand that does not
// exist, a usage error everywhere.
func strictArgs(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(cmd, suggest(cmd, args, err))
		}
		return nil
	}
	for _, sub := range cmd.Commands() {
		strictArgs(sub)
	}
}

// suggest adds the subcommand that was probably meant.
func suggest(cmd *cobra.Command, args []string, err error) error {
	if !cmd.HasSubCommands() || len(args) == 0 {
		return err
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("%w; did you mean %q?", err, near[0])
	}
	return err
}

// group is a command that only holds others.
func group(use, short, long string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(subs...)
	return cmd
}

// oneLine is an error as one line, also where a parser reported several.
func oneLine(err error) string {
	if errors.Is(err, errSilent) {
		return ""
	}
	parts := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return strings.Join(parts, "; ")
}
