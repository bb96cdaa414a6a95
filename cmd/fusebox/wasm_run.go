package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/wasm"
)

func wasmRunCommand() *cobra.Command {
	var input string
	var repeat int
	cmd := &cobra.Command{
		Use:   "run FILE --input FILE",
		Short: "Ask a module about one document",
		Long: `Run gives a module one document, a fusebox.classify/v1 or fusebox.fallback/v1,
and prints its answer and the fuel it took. The host's floor applies as it does
in a server: an answer that would repeat an unaccounted write, for one, is
refused with the code "floor:…". --repeat asks again and again in the same
pooled instance, one line each; the lines are equal when the module is pure.

With --json a line is {"result":…,"fuel":…}, null for no opinion, or
{"error":{"code":…},"fuel":…}; a module that is refused at load answers with its
code and 0.

Exit status: 0 it answered, or had no opinion; 1 it was refused, failed, or its
answer was refused; 2 a file cannot be read.`,
		Example: `  fusebox wasm run acme-mail.wasm --input golden/hit.input.json
  fusebox wasm run acme-mail.wasm --input - --json < document.json
  fusebox wasm run acme-mail.wasm --input document.json --repeat 1000 --json | sort -u`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&input, "input", "", "the document in this `FILE`; - is standard input")
	cmd.Flags().IntVar(&repeat, "repeat", 1, "ask `N` times")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if input == "" || repeat < 1 {
			return usageError(cmd, errors.New("--input must name a document, and --repeat be at least 1"))
		}
		document, err := readDocument(cmd, input)
		if err != nil {
			return withStatus(exitUsage, err)
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		m, err := loadModule(ctx, args[0])
		if r, refused := refusalOf(err); refused && *asJSON {
			err := writeJSONLine(cmd.OutOrStdout(), refusedDoc{Error: r})
			return errors.Join(err, withStatus(exitFailed, errSilent))
		}
		if err != nil {
			return withStatus(exitFailed, err)
		}
		defer m.Close()
		return runModule(ctx, cmd.OutOrStdout(), m, document, repeat, *asJSON)
	}
	return cmd
}

// refusedDoc answers for a module that was not loaded.
type refusedDoc struct {
	Error refusal `json:"error"`
	Fuel  int64   `json:"fuel"`
}

// readDocument reads one document; - is standard input.
func readDocument(cmd *cobra.Command, path string) ([]byte, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = io.ReadAll(cmd.InOrStdin())
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	return bytes.TrimSpace(text), nil
}

func runModule(ctx context.Context, w io.Writer, m *wasm.Module, document []byte, repeat int, asJSON bool) error {
	var failed wasm.Result
	for range repeat {
		if err := ctx.Err(); err != nil {
			return err
		}
		r := m.Run(ctx, document)
		if r.Code != "" && r.Code != wasm.Declined {
			failed = r
		}
		var line []byte
		if asJSON {
			line = r.AppendJSON(nil)
		} else {
			line = describeRun(&r)
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	switch {
	case failed.Code == "":
		return nil
	case asJSON:
		return withStatus(exitFailed, errSilent)
	case failed.Detail == "":
		return fmt.Errorf("the module failed: %s", failed.Code)
	}
	return fmt.Errorf("the module failed: %s: %s", failed.Code, failed.Detail)
}

// describeRun is one answer for people.
func describeRun(r *wasm.Result) []byte {
	fuel := r.Answer.Info.Fuel
	switch r.Code {
	case "":
		return fmt.Appendf(nil, "%s  (fuel %d)", printable(string(r.Answer.Raw)), fuel)
	case wasm.Declined:
		return fmt.Appendf(nil, "no opinion  (fuel %d)", fuel)
	}
	b := fmt.Appendf(nil, "%s  (fuel %d)", r.Code, fuel)
	for _, s := range r.Stack {
		b = fmt.Appendf(b, "\n  at %s", printable(s))
	}
	return b
}
