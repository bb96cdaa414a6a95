package policies

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// BuildOptions say what goes into an archive.
type BuildOptions struct {
	Tests bool               // keep the Rego tests, so that the receiver can run them
	Key   ed25519.PrivateKey // nil is unsigned
}

const signatureFile = ".fusebox-signature"

// opaSignatureFile is what `opa sign` and `opa build --signing-key` write. It
// lists Rego, data and manifest, and neither policy.toml nor modules, which decide
// as much. So it never stands for a signature that is required here, and where
// none is required it is passed over.
const opaSignatureFile = ".signatures.json"

// Errors of signatures.
var (
	ErrUnsigned     = errors.New("the policy is not signed, and a signature is required")
	ErrBadSignature = errors.New("the signature does not fit the policy")
	ErrUnknownKey   = errors.New("the policy is signed by a key that is not trusted here")
)

// signature is .fusebox-signature. It covers the content (revision, roots, every
// Rego module by package, tests apart, data, settings, modules), not the
// container: a signed bundle may be unpacked into a folder and stays signed.
type signature struct {
	Version   int    `json:"v"`
	Algorithm string `json:"algorithm"`
	Key       string `json:"key"`
	Tests     bool   `json:"tests"` // tests are part of what was signed
	Signature string `json:"signature"`
}

// KeyID names a public key: the first 16 hexadecimal digits of its SHA-256.
func KeyID(k ed25519.PublicKey) string {
	s := sha256.Sum256(k)
	return hex.EncodeToString(s[:8])
}

// message is what is signed.
func (b *Bundle) message(revision string, tests bool) []byte {
	lines := append(b.Lines(), "revision "+revision)
	for _, r := range b.Roots {
		lines = append(lines, "root "+r)
	}
	if tests {
		for _, l := range b.packages(true) {
			lines = append(lines, "test "+l)
		}
	}
	s := sum("fusebox-policy-signature/v1", lines)
	return []byte("fusebox-policy-signature/v1\n" + hex.EncodeToString(s[:]) + "\n")
}

func (b *Bundle) sign(key ed25519.PrivateKey, tests bool) ([]byte, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("sign policy %s: the key has %d bytes, an ed25519 private key has %d", b.Source, len(key), ed25519.PrivateKeySize)
	}
	public := key.Public().(ed25519.PublicKey)
	return json.Marshal(signature{Version: 1, Algorithm: "ed25519", Key: KeyID(public), Tests: tests,
		Signature: base64.StdEncoding.EncodeToString(ed25519.Sign(key, b.message(trimDev(b.Revision), tests)))})
}

// Sign returns the content of .fusebox-signature, for a folder or to lie beside
// an archive of `opa build`.
func (b *Bundle) Sign(key ed25519.PrivateKey) ([]byte, error) {
	return b.sign(key, slices.ContainsFunc(b.Rego, File.IsTest))
}

// verify holds a bundle against its signature. Without required keys a
// signature is not looked at, since it could prove nothing.
func (b *Bundle) verify(raw []byte, o Options) error {
	if len(o.Keys) == 0 {
		return nil
	}
	if raw == nil && b.OPASigned {
		return fmt.Errorf("%w; its %s is of opa sign, which covers neither %s nor modules: sign the whole with fusebox policy sign", ErrUnsigned, opaSignatureFile, SettingsFile)
	}
	if raw == nil {
		return ErrUnsigned
	}
	var s signature
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("%s: %w: %w", signatureFile, ErrBadSignature, err)
	}
	if s.Version != 1 || s.Algorithm != "ed25519" {
		return fmt.Errorf("%s: version %d with %q is not known: %w", signatureFile, s.Version, s.Algorithm, ErrBadSignature)
	}
	if !s.Tests && slices.ContainsFunc(b.Rego, File.IsTest) {
		return fmt.Errorf("%s does not cover the tests in the bundle: %w", signatureFile, ErrBadSignature)
	}
	bytes, err := base64.StdEncoding.Strict().DecodeString(s.Signature)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", signatureFile, ErrBadSignature, err)
	}
	for _, k := range o.Keys {
		if KeyID(k) != s.Key {
			continue
		}
		if !ed25519.Verify(k, b.message(b.Revision, s.Tests), bytes) {
			return fmt.Errorf("key %s: %w; something in it was changed after it was signed", s.Key, ErrBadSignature)
		}
		b.SignedBy = s.Key
		return nil
	}
	return fmt.Errorf("key %s: %w", s.Key, ErrUnknownKey)
}
