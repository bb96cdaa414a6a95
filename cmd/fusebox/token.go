package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/sdk"
)

// tokenCommand makes a token for a client or an operator, and the hash of it
// that fusebox.toml holds.
func tokenCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token for a client or an operator, and its hash for fusebox.toml",
		Long: `Make a new random token. The token itself goes to whoever will use it, in
$FUSEBOX_TOKEN or the Authorization header; only its hash goes into
fusebox.toml, so that reading the file lets nobody in. It is shown once.

Exit status: 0.`,
		Example: `  fusebox token
  # then, in fusebox.toml:
  # [[operator]]
  # name = "ann"
  # role = "operator"
  # token = "sha256:..."`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		secret := make([]byte, 32)
		rand.Read(secret) // never fails, see crypto/rand
		token := "fbx_" + base64.RawURLEncoding.EncodeToString(secret)
		hash := fmt.Sprint(sdk.HashToken(token))
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]string{"token": token, "hash": hash})
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "token  %s\nhash   %s\n\nGive the token to whoever will use it; put the hash into fusebox.toml.\n", token, hash)
		return err
	}
	return cmd
}
