package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/wasm"
)

func wasmCommand() *cobra.Command {
	return group("wasm", "Write, build, check and try WebAssembly modules", `A module is a team's own classifier or fallback chooser, run in a sandbox with a
bounded amount of fuel and memory and pinned by its digest in policy.toml. These
commands are its author's day:

  fusebox wasm new acme-mail --language go    a project that works as it is
  fusebox wasm build acme-mail                the module, and the digest to pin
  fusebox wasm test acme-mail                 its golden files
  fusebox wasm bench acme-mail/acme-mail.wasm --input acme-mail/golden/hit.input.json`,
		wasmNewCommand(), wasmBuildCommand(), wasmCheckCommand(), wasmInspectCommand(),
		wasmTestCommand(), wasmRunCommand(), wasmBenchCommand(), wasmSignCommand())
}

// readModule reads a file that is perhaps a module.
func readModule(path string) ([]byte, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		err = fmt.Errorf("read module: %w", err)
	}
	return file, withStatus(exitUsage, err)
}

// tryConfig is how a file is tried: pinned to itself, in one instance, and never
// left alone however often it fails, so that every call says what it came to.
func tryConfig(file []byte) (wasm.Config, error) {
	c, err := wasm.ConfigFor(file)
	c.Bench.Failures = math.MaxInt
	return c, err
}

// loadModule reads a file and loads it as a policy would that pins it.
func loadModule(ctx context.Context, path string) (*wasm.Module, error) {
	file, err := readModule(path)
	if err != nil {
		return nil, err
	}
	c, err := tryConfig(file)
	if err != nil {
		return nil, named(err, path)
	}
	return wasm.Load(ctx, file, c)
}

// named gives a file that does not say what it is its own name in the error.
func named(err error, path string) error {
	if e, ok := errors.AsType[*wasm.LoadError](err); ok && e.Module == "" {
		e.Module = filepath.Base(path)
	}
	return err
}

// A refusal is why a module was not loaded.
type refusal struct {
	Code   wasm.Code `json:"code"`
	Detail string    `json:"detail,omitempty"`
}

// refusalOf tells a module that was refused from a file that cannot be read.
func refusalOf(err error) (refusal, bool) {
	e, ok := errors.AsType[*wasm.LoadError](err)
	if !ok {
		return refusal{}, false
	}
	return refusal{e.Code, e.Detail}, true
}

// checkedDoc is the answer of fusebox wasm check --json.
type checkedDoc struct {
	OK    bool       `json:"ok"`
	Error *refusal   `json:"error,omitempty"`
	Info  *wasm.Info `json:"info,omitempty"`
}

func wasmCheckCommand() *cobra.Command {
	var key, sig string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Load a module as a server would, and say why it is refused",
		Long: `Check holds a file against everything that loading demands: its imports and
exports, its sections, its memory, the ABI; it is compiled, metered and started.
--key also demands a signature of fusebox wasm sign.

Exit status: 0 it loads; 1 it is refused, with the code and the reason; 2 the
file cannot be read.`,
		Example: `  fusebox wasm check acme-mail.wasm
  fusebox wasm check acme-mail.wasm --key release.key.pub --json`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&key, "key", "", "demand a signature by the public key in this `FILE`")
	cmd.Flags().StringVar(&sig, "signature", "", "the signature's `FILE` (default: the module's name with .sig)")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		info, err := checkModule(cmd.Context(), args[0], key, sig)
		r, refused := refusalOf(err)
		if err != nil && !refused {
			return withStatus(exitUsage, err)
		}
		if *asJSON {
			d := checkedDoc{OK: !refused, Info: &info}
			if refused {
				d.Error, d.Info, err = &r, nil, withStatus(exitFailed, errSilent)
			}
			return errors.Join(writeJSON(cmd.OutOrStdout(), d), err)
		}
		if refused {
			return withStatus(exitFailed, err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s loads: %s, profile %s, ABI %d\nsha256 %s\n", printable(info.Name), dash(info.Kinds), info.Profile, info.ABI, info.SHA256)
		return err
	}
	return cmd
}

func checkModule(ctx context.Context, path, key, sig string) (wasm.Info, error) {
	file, err := readModule(path)
	if err != nil {
		return wasm.Info{}, err
	}
	c, err := tryConfig(file)
	if err != nil {
		return wasm.Info{}, named(err, path)
	}
	if key != "" {
		if c.PublicKey, err = readKeyFile(key); err != nil {
			return wasm.Info{}, err
		}
		if sig == "" {
			sig = path + ".sig"
		}
		text, err := os.ReadFile(sig)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return wasm.Info{}, err
		}
		c.Signature, _ = hex.DecodeString(strings.TrimSpace(string(text))) // what cannot be read is no signature
	}
	m, err := wasm.Load(ctx, file, c)
	if err != nil {
		return wasm.Info{}, err
	}
	defer m.Close()
	return m.Info(), nil
}

func wasmInspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Tell what a module is, without running it",
		Long: `Inspect prints the digest, the profile, the imports and exports, the memory, the
manifest and the size of a module. It runs none of its code.

Exit status: 0 told; 1 the file is no module that could be loaded, with the code
and the reason; 2 it cannot be read.`,
		Example: `  fusebox wasm inspect acme-mail.wasm
  fusebox wasm inspect acme-mail.wasm --json`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := readModule(args[0])
		if err != nil {
			return err
		}
		i, err := wasm.Inspect(file)
		if err != nil {
			err = named(err, args[0])
			if r, ok := refusalOf(err); ok && *asJSON {
				err = errors.Join(writeJSON(cmd.OutOrStdout(), checkedDoc{Error: &r}), errSilent)
			}
			return withStatus(exitFailed, err)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), i)
		}
		return writeInspection(cmd.OutOrStdout(), i)
	}
	return cmd
}

func writeInspection(w io.Writer, i *wasm.Inspection) error {
	rows := [][]string{
		{"sha256", i.SHA256}, {"bytes", fmt.Sprint(i.Bytes)}, {"profile", i.Profile}, {"kinds", dash(strings.Join(i.Kinds, ", "))},
		{"abi", dash(strings.Join(i.ABIs, ", "))}, {"memory", dash(i.Memory)},
	}
	if m := i.Manifest; m != nil {
		rows = append(rows, []string{"manifest", m.Name + "@" + m.Version + ", reads " + strings.Join(m.Schemas, ", ")})
	} else {
		rows = append(rows, []string{"manifest", "none"})
	}
	if i.Start {
		rows = append(rows, []string{"start", "a start function runs before anything else"})
	}
	for _, part := range []struct {
		name  string
		lines []string
	}{{"import", i.Imports}, {"export", i.Exports}, {"section", i.Customs}} {
		for _, l := range part.lines {
			rows = append(rows, []string{part.name, l})
		}
	}
	return writeTable(w, nil, rows)
}
