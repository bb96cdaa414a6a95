package main

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Keys of policies and modules are Ed25519 (RFC 8032) in files of one line: 64
// hexadecimal digits. NAME holds the 32-byte seed, mode 0600; NAME.pub the
// public key, as policies.keys in fusebox.toml names it.

// keyHelp is what the help of signing commands says of them.
const keyHelp = `A key file holds an Ed25519 key as 64 hexadecimal digits. --new-key makes one,
readable by you alone, and its public half in the same name with .pub: that one
goes to whoever verifies.`

// addSigning adds --key and --new-key.
func addSigning(cmd *cobra.Command) {
	cmd.Flags().String("key", "", "sign with the private key in this `FILE`")
	cmd.Flags().Bool("new-key", false, "make the key file and its .pub first; nothing is written over")
}

// signingKey is the key that the flags name; nil where they name none.
func signingKey(cmd *cobra.Command) (ed25519.PrivateKey, error) {
	path := cmd.Flag("key").Value.String()
	fresh := cmd.Flag("new-key").Value.String() == "true"
	if path == "" {
		if fresh {
			return nil, usageError(cmd, errors.New("--new-key needs --key FILE, where the key is to lie"))
		}
		return nil, nil
	}
	if fresh {
		return newKey(path)
	}
	seed, err := readKeyFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; make one with --new-key", err)
	}
	if err != nil {
		return nil, withStatus(exitUsage, err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// newKey makes a key and its public half. A key that is there already is not
// written over: what it signed could not be told from a forgery afterwards.
func newKey(path string) (ed25519.PrivateKey, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	if err := writeNew(path, keyText(private.Seed()), 0o600); err != nil {
		return nil, withStatus(exitSetup, err)
	}
	if err := writeNew(path+".pub", keyText(public), 0o644); err != nil {
		return nil, withStatus(exitSetup, errors.Join(err, os.Remove(path)))
	}
	return private, nil
}

func keyText(b []byte) []byte { return []byte(hex.EncodeToString(b) + "\n") }

// readKeyFile reads 32 bytes written as hexadecimal digits.
func readKeyFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != ed25519.SeedSize {
		return nil, fmt.Errorf("read key %s: it must hold an Ed25519 key as 64 hexadecimal digits", path)
	}
	return key, nil
}

// readPublicKeys reads the keys that signatures are held against.
func readPublicKeys(paths []string) ([]ed25519.PublicKey, error) {
	var out []ed25519.PublicKey
	for _, p := range paths {
		k, err := readKeyFile(p)
		if err != nil {
			return nil, withStatus(exitUsage, err)
		}
		out = append(out, k)
	}
	return out, nil
}

// writeNew writes a file that must not be there.
func writeNew(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; nothing is written over", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
