package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// serveGC lets the heap of a server grow to three times what is live, unless
// $GOGC says otherwise: a compiled policy is some 60 MB that stay for as long as
// it is in force, and every call pays for a part of marking them again.
const serveGC = 200

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run fusebox beside your agents; needs no configuration",
		Long: `Serve opens two planes on the loopback:

  agent plane     127.0.0.1:4141   what agents talk to
    /openai/…     reverse proxy to an OpenAI-compatible API
    /anthropic/…  reverse proxy to the Anthropic API
    /mcp/NAME     proxy to an MCP server over streamable HTTP, see [[mcp]]
    POST /v1/admit                    may this be sent?
    POST /v1/permits/{id}/dispatch    it is about to be sent
    POST /v1/record                   what came back, or did not
    POST /v1/reconcile                what a status look-up found
    POST /v1/queue, /v1/queue/claim   work that may wait, and who does it
    GET  /v1/breakers                 what is open, and why
    GET  /v1/intents?state=UNKNOWN    writes nobody can account for
    GET  /v1/receipts/{id}            the evidence of one decision

  operator plane  127.0.0.1:4142   what people and monitoring look at
    /             what is open and why
    /healthz      200 while calls can be decided and evidence written
    /metrics      Prometheus

Without a configuration the built-in policy holds: provider, tool, loop and
budget circuits bind reads and model calls, authority denials and the rule
against repeating an UNKNOWN write always bind, and everything else only
observes. Serve prints which is which.

SIGTERM or Ctrl-C stops it in order: calls that are out get 10 seconds, what
remains is declared UNKNOWN, and a last checkpoint is signed. SIGHUP reads the
policy again; one that does not load leaves the last good one in force.`,
		Example: `  fusebox serve
  fusebox serve --data /var/lib/fusebox --policies ./policies
  fusebox serve --config fusebox.toml

  # fusebox.toml: a model behind http://127.0.0.1:4141/local/v1
  #   [[upstream]]
  #   name = "local"
  #   dialect = "openai"
  #   url = "http://127.0.0.1:8000"
  # and an MCP server behind http://127.0.0.1:4141/mcp/mail
  #   [[mcp]]
  #   name = "mail"
  #   url = "https://mcp.example.com/mcp"

  OPENAI_BASE_URL=http://127.0.0.1:4141/openai/v1 your-agent`,
	}
	addData(cmd)
	cmd.Flags().String("policies", "", "read the policy from this `PATH`, a folder or an archive (default: the one that is built in)")
	cmd.Flags().String("listen", "", "`ADDRESS` of the agent plane (default 127.0.0.1:4141)")
	cmd.Flags().String("listen-operator", "", "`ADDRESS` of the operator plane (default 127.0.0.1:4142)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := readConfig(cmd)
		if err != nil {
			return err
		}
		override(cmd, "policies", &cfg.Policies.Path)
		override(cmd, "listen", &cfg.Listen.Agent)
		override(cmd, "listen-operator", &cfg.Listen.Operator)
		if os.Getenv("GOGC") == "" {
			defer debug.SetGCPercent(debug.SetGCPercent(serveGC))
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		run, err := start(ctx, startOptions{Config: cfg, Logger: newLogger(cmd.ErrOrStderr(), cfg.Log)})
		if err != nil {
			return err
		}
		if err := run.banner(cmd.OutOrStdout()); err != nil {
			return errors.Join(err, run.stop())
		}
		return run.wait(ctx, cmd.OutOrStdout())
	}
	return cmd
}

// override lets a flag that was given win over the configuration.
func override(cmd *cobra.Command, flag string, value *string) {
	if f := cmd.Flag(flag); f != nil && f.Changed {
		*value = f.Value.String()
	}
}

// wait serves until ctx ends or a plane fails, then stops in order.
func (r *running) wait(ctx context.Context, out io.Writer) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	var failed error
loop:
	for {
		select {
		case <-ctx.Done():
			break loop
		case failed = <-r.failed:
			break loop
		case <-hup:
			_ = r.client.Reload(ctx) // the log says what became of it; the last good policy stays
		}
	}
	fmt.Fprintln(out, "stopping")
	if err := errors.Join(failed, r.stop()); err != nil {
		return err
	}
	_, err := io.WriteString(out, r.farewell())
	return err
}
