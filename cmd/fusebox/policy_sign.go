package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/sdk"
)

// archiveDoc is the answer of build, sign and verify with --json.
type archiveDoc struct {
	OK       bool   `json:"ok"`
	Path     string `json:"path"`
	Version  string `json:"version,omitempty"`
	Revision string `json:"revision,omitempty"`
	Bytes    int    `json:"bytes,omitempty"`
	SignedBy string `json:"signed_by,omitempty"` // id of the key
	Problem  string `json:"problem,omitempty"`
}

func policyBuildCommand() *cobra.Command {
	var out string
	var tests bool
	cmd := &cobra.Command{
		Use:   "build [PATH] --output FILE",
		Short: "Make one archive of a policy, signed or not",
		Long: `Build loads a policy as a server would, its tests included, and writes it as one
archive: Rego with its tests, data, policy.toml and the modules it pins. Stock opa
loads the archive, too. The same policy gives the same bytes. A policy that does
not load is not built.

` + keyHelp + `

Exit status: 0 it was written; 1 the policy does not load; 4 it cannot be
written.`,
		Example: `  fusebox policy build ./policies -o policy.tar.gz
  fusebox policy build ./policies -o policy.tar.gz --key release.key --new-key
  fusebox serve --policies policy.tar.gz`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write the archive to this `FILE`")
	cmd.Flags().BoolVar(&tests, "tests", true, "keep the Rego tests: a server runs them before the policy takes effect, and takes one without tests only from a signer it trusts")
	addSigning(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" {
			return usageError(cmd, errors.New("--output must name the archive"))
		}
		p, _, err := policyAt(cmd, args)
		if err != nil {
			return &statusError{exitFailed, err}
		}
		if err := p.Close(); err != nil {
			return err
		}
		b, err := bundleAt(first(args), policies.Options{})
		if err != nil {
			return &statusError{exitFailed, err}
		}
		key, err := signingKey(cmd)
		if err != nil {
			return err
		}
		d, err := writeArchive(out, b, policies.BuildOptions{Tests: tests, Key: key})
		if err != nil {
			return err
		}
		return d.print(cmd, *asJSON, "wrote")
	}
	return cmd
}

// writeArchive builds a bundle into a file.
func writeArchive(path string, b *policies.Bundle, o policies.BuildOptions) (archiveDoc, error) {
	raw, err := b.Build(o)
	if err != nil {
		return archiveDoc{}, withStatus(exitSetup, err)
	}
	if err := replaceFile(path, raw, 0o644); err != nil {
		return archiveDoc{}, withStatus(exitSetup, fmt.Errorf("write archive: %w", err))
	}
	d := archiveDoc{OK: true, Path: path, Version: string(sdk.Version(b)), Revision: b.Revision, Bytes: len(raw)}
	if o.Key != nil {
		d.SignedBy = policies.KeyID(o.Key.Public().(ed25519.PublicKey))
	}
	return d, nil
}

// print shows what became of an archive.
func (d archiveDoc) print(cmd *cobra.Command, asJSON bool, did string) error {
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), d)
	}
	by := "unsigned"
	if d.SignedBy != "" {
		by = "signed by key " + d.SignedBy
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s, %s\n", did, d.Path, d.Version, by)
	return err
}

func policySignCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sign PATH --key FILE",
		Short: "Sign a policy folder or archive",
		Long: `Sign writes a signature over everything in a policy that decides: into the
folder, as .fusebox-signature, or into the archive, which is rewritten.

` + keyHelp + `

Exit status: 0 it is signed; 1 the policy cannot be read; 2 the key cannot be
read; 4 the signature cannot be written.`,
		Example: `  fusebox policy sign policy.tar.gz --key release.key --new-key
  fusebox policy verify policy.tar.gz --key release.key.pub`,
		Args: cobra.ExactArgs(1),
	}
	addSigning(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b, err := bundleAt(args[0], policies.Options{})
		if err != nil {
			return &statusError{exitFailed, err}
		}
		key, err := signingKey(cmd)
		if err != nil {
			return err
		}
		if key == nil {
			return usageError(cmd, errors.New("--key must name the file of the private key"))
		}
		var d archiveDoc
		if b.Archive {
			d, err = writeArchive(args[0], b, policies.BuildOptions{Key: key, Tests: slices.ContainsFunc(b.Rego, policies.File.IsTest)})
		} else {
			d, err = signFolder(args[0], b, key)
		}
		if err != nil {
			return err
		}
		return d.print(cmd, *asJSON, "signed")
	}
	return cmd
}

func signFolder(dir string, b *policies.Bundle, key ed25519.PrivateKey) (archiveDoc, error) {
	sig, err := b.Sign(key)
	if err != nil {
		return archiveDoc{}, withStatus(exitSetup, err)
	}
	if err := replaceFile(filepath.Join(dir, ".fusebox-signature"), sig, 0o644); err != nil {
		return archiveDoc{}, withStatus(exitSetup, fmt.Errorf("write signature: %w", err))
	}
	return archiveDoc{OK: true, Path: dir, Version: string(sdk.Version(b)), Revision: b.Revision, SignedBy: policies.KeyID(key.Public().(ed25519.PublicKey))}, nil
}

func policyVerifyCommand() *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use:   "verify PATH --key FILE.pub",
		Short: "Check who signed a policy, and that nothing changed since",
		Long: `Verify holds a policy folder or archive against public keys, as a server does
whose fusebox.toml lists them under policies.keys.

Exit status: 0 one of the keys signed exactly this; 1 unsigned, changed, or
signed by another key; 2 a key or the path cannot be read.`,
		Example: `  fusebox policy verify policy.tar.gz --key release.key.pub
  fusebox policy verify ./policies --key a.pub --key b.pub --json`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "accept the public key in this `FILE`; may be repeated")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(keys) == 0 {
			return usageError(cmd, errors.New("--key must name the file of a public key; without one a signature proves nothing"))
		}
		public, err := readPublicKeys(keys)
		if err != nil {
			return err
		}
		if _, err := os.Stat(args[0]); err != nil {
			return withStatus(exitUsage, err)
		}
		b, err := policies.OpenPath(args[0], policies.Options{Keys: public})
		if err != nil {
			if *asJSON {
				err = errors.Join(writeJSON(cmd.OutOrStdout(), archiveDoc{Path: args[0], Problem: oneLine(err)}), errSilent)
			}
			return &statusError{exitFailed, err}
		}
		d := archiveDoc{OK: true, Path: args[0], Version: string(sdk.Version(b)), Revision: b.Revision, SignedBy: b.SignedBy}
		return d.print(cmd, *asJSON, "verified")
	}
	return cmd
}
