package wasm

import (
	"crypto/ed25519"
	"crypto/sha256"
)

// signed is what a signature covers: a context, so that no other signature of
// the same key fits, and the digest of the file.
func signed(digest [sha256.Size]byte) []byte {
	return append([]byte("fusebox wasm module v1\n"), digest[:]...)
}

// Sign makes the detached signature that [Config].Signature takes: ed25519 over
// "fusebox wasm module v1\n" and the 32 bytes of the file's sha256.
func Sign(key ed25519.PrivateKey, file []byte) []byte {
	return ed25519.Sign(key, signed(sha256.Sum256(file)))
}

// Verify reports whether a signature belongs to this file and key.
func Verify(key ed25519.PublicKey, file, signature []byte) bool {
	return verify(key, sha256.Sum256(file), signature)
}
