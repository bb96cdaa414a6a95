package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A permit token proves that this server admitted exactly this operation under
// exactly this permit. Its form is
//
//	v1.<expiry in Unix milliseconds>.<base64url of HMAC-SHA256>
//
// where the MAC covers the permit's id, the digest of the canonical operation
// document and the expiry. It travels in JSON bodies, never in a URL, because
// URLs end up in logs. Ids of permits show in receipts and lists and are no
// secret; without the token they dispatch and record nothing (SPEC R-ADM-5).
type permitTokens struct{ key []byte }

var (
	errTokenMissing = errors.New(`is missing: send the "token" of the permit that admit gave`)
	errTokenForged  = errors.New("does not belong to this permit: it was changed, or given for another operation")
	errTokenExpired = errors.New("has expired; admit again")
)

const tokenKeySize = 32

// openPermitTokens reads DIR/permit.key, or makes it. The key outlives a
// restart, so that what was dispatched before it can still be recorded after.
func openPermitTokens(dir string) (*permitTokens, error) {
	path := filepath.Join(dir, "permit.key")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newPermitTokens(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of permit tokens: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != tokenKeySize {
		return nil, fmt.Errorf("read the key of permit tokens: %s does not hold %d bytes of base64; remove it to make a new one (permits that are out are then refused)", path, tokenKeySize)
	}
	return &permitTokens{key}, nil
}

func newPermitTokens(path string) (*permitTokens, error) {
	key := make([]byte, tokenKeySize)
	rand.Read(key) // never fails, see crypto/rand
	text := base64.StdEncoding.EncodeToString(key) + "\n"
	// Written aside and renamed: a crash leaves no half key behind.
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("make the key of permit tokens: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, fmt.Errorf("make the key of permit tokens: %w", err)
	}
	return &permitTokens{key}, nil
}

// issue makes the token of a permit.
func (t *permitTokens) issue(id string, operation []byte, expires time.Time) string {
	exp := strconv.FormatInt(expires.UnixMilli(), 10)
	return "v1." + exp + "." + base64.RawURLEncoding.EncodeToString(t.mac(id, operation, exp))
}

func (t *permitTokens) mac(id string, operation []byte, exp string) []byte {
	digest := sha256.Sum256(operation)
	h := hmac.New(sha256.New, t.key)
	// An id is a UUID and an expiry a number: neither can hold the separator.
	fmt.Fprintf(h, "fusebox.permit/v1\n%s\n%x\n%s", id, digest, exp)
	return h.Sum(nil)
}

// check compares a token with the permit it is shown for. expired is told
// apart: a result may come late, a dispatch may not.
func (t *permitTokens) check(token, id string, operation []byte, now time.Time) error {
	if token == "" {
		return errTokenMissing
	}
	rest, ok := strings.CutPrefix(token, "v1.")
	exp, mac, ok2 := strings.Cut(rest, ".")
	got, err := base64.RawURLEncoding.Strict().DecodeString(mac)
	if !ok || !ok2 || err != nil || subtle.ConstantTimeCompare(got, t.mac(id, operation, exp)) != 1 {
		return errTokenForged
	}
	ms, err := strconv.ParseInt(exp, 10, 64)
	if err != nil {
		return errTokenForged
	}
	if now.UnixMilli() > ms {
		return errTokenExpired
	}
	return nil
}
