package sdk

import (
	"crypto/ed25519"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/policies"
)

// R-POL-4: a bundle whose own tests fail never takes effect, not at the start
// and not on reload, and the last good one stays.
func TestFailingTestsAreRefused(t *testing.T) {
	dir := copyPolicies(t)
	no := false
	config := Config{Policies: PolicySource{Path: dir, Watch: &no}}
	c := open(t, config, Parts{})
	first := c.Version()
	data := filepath.Join(dir, "fusebox", "config", "data.json")
	edit(t, data, `"approve_above": 10000,`, `"approve_above": 90000,`) // it loads, and its tests say otherwise
	err := c.Reload(t.Context())
	if err == nil || !strings.Contains(err.Error(), "fusebox/authority/authority_test.rego:") || !strings.Contains(err.Error(), "FAIL") {
		t.Fatalf("got %v", err)
	}
	if s := c.PolicyStatus(); c.Version() != first || s.Err == nil {
		t.Errorf("version %s, status %+v", c.Version(), s)
	}
	config.Data = t.TempDir()
	if late, err := Open(t.Context(), config, Parts{}); err == nil {
		_ = late.Close(t.Context())
		t.Error("started with a policy whose tests fail")
	}
	edit(t, data, `"approve_above": 90000,`, `"approve_above": 10000,`)
	if err := c.Reload(t.Context()); err != nil {
		t.Error(err)
	}
}

// A bundle without tests is refused, unless a trusted key signed it.
func TestMissingTestsAreRefused(t *testing.T) {
	dir := copyPolicies(t)
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, "_test.rego") {
			err = os.Remove(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	no := false
	config := Config{Data: t.TempDir(), Policies: PolicySource{Path: dir, Watch: &no}}
	if c, err := Open(t.Context(), config, Parts{}); err == nil || !strings.Contains(err.Error(), "has no tests") {
		if c != nil {
			_ = c.Close(t.Context())
		}
		t.Fatalf("got %v", err)
	}
	b, err := policies.OpenPath(dir, policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "release.pub")
	write(t, key, hex.EncodeToString(public))
	raw, err := b.Build(policies.BuildOptions{Key: private})
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "policy.tar.gz")
	write(t, archive, string(raw))
	config.Policies = PolicySource{Path: archive, Keys: []string{key}}
	if c := open(t, config, Parts{}); c.PolicyStatus().SignedBy == "" {
		t.Error("not signed")
	}
}

// A policy that fails is not taken for proven the next time.
func TestAProofIsRememberedOnlyWhenItPassed(t *testing.T) {
	dir := copyPolicies(t)
	write(t, filepath.Join(dir, "fusebox", "never_test.rego"), "package fusebox.never_test\n\ntest_never if 1 == 2\n")
	no := false
	for range 2 {
		_, _, err := LoadPolicy(t.Context(), Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
		if err == nil || !strings.Contains(err.Error(), "fusebox/never_test.rego:3") {
			t.Fatalf("got %v", err)
		}
	}
}
