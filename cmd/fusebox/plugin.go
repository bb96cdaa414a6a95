package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/plugins"
	"github.com/fusebox-dev/fusebox/sdk/extension/template"
	guest "github.com/fusebox-dev/fusebox/sdk/guest/template"
)

func pluginCommand() *cobra.Command {
	return group("plugin", "Write and try extensions that run in a process of their own", `A plugin is a team's own classifier, reconciler, approver, evaluator or receipt
sink in a process of its own, pinned by its checksum. It may look things up, which
a WebAssembly module cannot; it is no sandbox.

  fusebox plugin new my-lookup --kind reconciler    a project that works as it is
  fusebox plugin ask ./my-lookup/my-lookup --kind reconciler < document.json`,
		pluginNewCommand(), pluginAskCommand())
}

func pluginNewCommand() *cobra.Command {
	var kind, dir, source string
	cmd := &cobra.Command{
		Use:   "new NAME --kind KIND",
		Short: "Write the project of a new plugin",
		Long: `New writes a project in Go that builds as it is. Nothing is downloaded.

Exit status: 0 written; 2 the name or the kind cannot be used; 4 the folder cannot
be used.`,
		Example: `  fusebox plugin new my-lookup --kind reconciler
  fusebox plugin new warehouse --kind receipts --fusebox ../fusebox`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&kind, "kind", "", "what it is: `KIND` is classifier, reconciler, approver, evaluator or receipts")
	cmd.Flags().StringVar(&dir, "dir", "", "into this `FOLDER` (default: the name)")
	cmd.Flags().StringVar(&source, "fusebox", "", "build against the fusebox source in this `FOLDER` (default: the one around this program or this folder, else the released one)")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := knownKind(cmd, kind); err != nil {
			return err
		}
		if strings.Trim(args[0], "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return usageError(cmd, fmt.Errorf("the name must be of a-z, 0-9 and -, got %q", args[0]))
		}
		if dir == "" {
			dir = args[0]
		}
		if source == "" {
			source = ownSource()
		}
		released, _ := guest.Released()
		if err := template.New(dir, template.Options{Name: args[0], Kind: kind, Version: released, Fusebox: source}); err != nil {
			return withStatus(exitSetup, err)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"dir": dir, "kind": kind})
		}
		tidy := ""
		if source == "" {
			tidy = "go -C " + shellQuote(dir) + " mod tidy && "
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; next: %sgo -C %s build . && sha256sum %s\n", dir, tidy, shellQuote(dir), shellQuote(dir+"/"+args[0]))
		return err
	}
	return cmd
}

func knownKind(cmd *cobra.Command, kind string) error {
	if slices.Contains(plugins.Kinds(), kind) {
		return nil
	}
	return usageError(cmd, fmt.Errorf("--kind must be one of %s, got %q", strings.Join(plugins.Kinds(), ", "), kind))
}

func pluginAskCommand() *cobra.Command {
	var kind string
	var env []string
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "ask FILE --kind KIND < DOCUMENT",
		Short: "Start a plugin as fusebox would, and put one document to it",
		Long: `Ask starts FILE, hands it the document on standard input, and prints its answer:
nothing for no opinion. What it writes is shown. Schemas of the documents and
answers are part of GET /v1/openapi.json of "fusebox serve", and lie in
taxonomy/schemas of the source.

Exit status: 0 it answered; 1 it does not start, or failed; 2 wrong use.`,
		Example: `  fusebox plugin ask ./my-lookup --kind reconciler --env LEDGER < question.json`,
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&kind, "kind", "", "what it is: `KIND` is classifier, reconciler, approver, evaluator or receipts")
	cmd.Flags().StringSliceVar(&env, "env", nil, "`NAMES` of environment variables that are handed on")
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "how long the answer may take (default: that of its kind)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := knownKind(cmd, kind); err != nil {
			return err
		}
		program, err := os.ReadFile(args[0])
		if err != nil {
			return usageError(cmd, fmt.Errorf("read plugin: %w", err))
		}
		document, err := io.ReadAll(cmd.InOrStdin())
		if err != nil {
			return usageError(cmd, fmt.Errorf("read document: %w", err))
		}
		sum := sha256.Sum256(program)
		c := plugins.Config{Name: "tried", Kind: kind, SHA256: hex.EncodeToString(sum[:]), Command: args[0], Deadline: deadline,
			Logs: true, Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))}
		for _, name := range env {
			c.Env = append(c.Env, name+"="+os.Getenv(name))
		}
		p, err := plugins.Open(cmd.Context(), c)
		if err != nil {
			return withStatus(exitFailed, err)
		}
		defer p.Close()
		return withStatus(exitFailed, p.Ask(cmd.Context(), document, func(answer []byte) error {
			if len(answer) > 0 {
				answer = append(answer, '\n')
			}
			_, err := cmd.OutOrStdout().Write(answer)
			return err
		}))
	}
	return cmd
}
