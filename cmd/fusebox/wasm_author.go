package main

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/sdk/guest/template"
	"github.com/fusebox-dev/fusebox/wasm"
)

func wasmNewCommand() *cobra.Command {
	var language, dir, source string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write the project of a new module",
		Long: `New writes a project that builds and passes its golden files as it is: the
source, module.json, which says what the module is, and golden/, which says what
it answers. Nothing is downloaded.

Exit status: 0 written; 2 the name or the language cannot be used; 4 the folder
cannot be used.`,
		Example: `  fusebox wasm new acme-mail --language c
  fusebox wasm new acme-mail --language go --fusebox ../fusebox`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&language, "language", string(template.Go), "write it in `LANGUAGE`: go, c, assemblyscript or wat")
	cmd.Flags().StringVar(&dir, "dir", "", "into this `FOLDER` (default: the name)")
	cmd.Flags().StringVar(&source, "fusebox", "", "a Go module builds against the fusebox source in this `FOLDER` (default: the one around this program or this folder, else the released one)")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(template.Languages(), template.Language(language)) {
			return usageError(cmd, fmt.Errorf("--language must be go, c, assemblyscript or wat, got %q", language))
		}
		if dir == "" {
			dir = args[0]
		}
		if strings.Trim(args[0], "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return usageError(cmd, fmt.Errorf("the name must be of a-z, 0-9 and -, got %q", args[0]))
		}
		if source == "" && language == string(template.Go) {
			source = ownSource()
		}
		if err := template.New(dir, template.Options{Name: args[0], Language: template.Language(language), Fusebox: source}); err != nil {
			return withStatus(exitSetup, err)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"dir": dir, "language": language})
		}
		return sayNext(cmd.OutOrStdout(), dir, template.Language(language), source)
	}
	return cmd
}

// ownSource is the source tree that this program was built in, or that we stand
// in: what a Go module can build against while no release is to be had.
func ownSource() string {
	if program, err := os.Executable(); err == nil {
		if dir := template.SourceAround(filepath.Dir(program)); dir != "" {
			return dir
		}
	}
	return template.SourceAround(".")
}

// sayNext names the commands that lead on from a new project.
func sayNext(w io.Writer, dir string, l template.Language, source string) error {
	before := ""
	switch _, released := template.Released(); {
	case l == template.AssemblyScript:
		before = "npm --prefix " + shellQuote(dir) + " install && "
	case l == template.Go && source != "":
		fmt.Fprintf(w, "it builds against the fusebox source in %s\n", source)
	case l == template.Go && !released:
		fmt.Fprintln(w, "this fusebox is no release, so that its guest package cannot be downloaded: begin again with --fusebox FOLDER, a clone of its source")
	}
	_, err := fmt.Fprintf(w, "wrote %s; next: %s%s wasm build %s && %s wasm test %s\n", dir, before, self(), shellQuote(dir), self(), shellQuote(dir))
	return err
}

func wasmBuildCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build a module's project, and print the digest to pin",
		Long: `Build compiles the project in DIR (default: here) into NAME.wasm with the
toolchain that is installed, puts the manifest of module.json into it, and loads
it once as a server would. The same sources give the same bytes.

Exit status: 0 built, and it loads; 1 it does not compile, or is refused; 2 DIR
is no project.`,
		Example: `  fusebox wasm build acme-mail
  fusebox wasm build acme-mail --json`,
		Args: cobra.MaximumNArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := "."
		if len(args) > 0 {
			dir = args[0]
		}
		if _, err := projectModule(dir); err != nil {
			return withStatus(exitUsage, err)
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		p := progressOf(cmd, "")
		p.say("building " + dir)
		b, err := template.Build(ctx, dir)
		p.end()
		if err != nil {
			return withStatus(exitFailed, err)
		}
		if _, err := checkModule(ctx, b.Path, "", ""); err != nil {
			return withStatus(exitFailed, err)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"path": b.Path, "sha256": b.SHA256, "bytes": b.Bytes, "manifest": b.Manifest})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, %d bytes\nsha256 = %q\n", b.Path, b.Bytes, b.SHA256)
		return err
	}
	return cmd
}

func wasmSignCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sign FILE --key FILE",
		Short: "Sign a module beside its file",
		Long: `Sign writes FILE.sig: an Ed25519 signature over the module's digest, in
hexadecimal digits. A policy pins modules by digest, so the signature is for the
way from the team that builds one to the people who pin it.

` + keyHelp + `

Exit status: 0 signed; 2 the module or the key cannot be read; 4 the signature
cannot be written.`,
		Example: `  fusebox wasm sign acme-mail.wasm --key release.key --new-key
  fusebox wasm check acme-mail.wasm --key release.key.pub`,
		Args: cobra.ExactArgs(1),
	}
	addSigning(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := readModule(args[0])
		if err != nil {
			return err
		}
		key, err := signingKey(cmd)
		if err != nil {
			return err
		}
		if key == nil {
			return usageError(cmd, errors.New("--key must name the file of the private key"))
		}
		sig := args[0] + ".sig"
		if err := replaceFile(sig, []byte(hex.EncodeToString(wasm.Sign(key, file))+"\n"), 0o644); err != nil {
			return withStatus(exitSetup, fmt.Errorf("write signature: %w", err))
		}
		by := policies.KeyID(key.Public().(ed25519.PublicKey))
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"signature": sig, "signed_by": by})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s, signed by key %s\n", sig, by)
		return err
	}
	return cmd
}
