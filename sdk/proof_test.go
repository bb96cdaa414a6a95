package sdk

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
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

// R-POL-4: a test file that takes all memory ends neither the server nor the
// policy in force; the refusal names the test.
func TestATestThatTakesAllMemoryIsRefused(t *testing.T) {
	dir := copyPolicies(t)
	no := false
	c := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	first := c.Version()
	write(t, filepath.Join(dir, "fusebox", "big_test.rego"), "package fusebox.big_test\n\ntest_big if {\n\tcount(numbers.range(1, 1000000000)) != 3\n}\n")
	err := c.Reload(t.Context())
	if err == nil || !strings.Contains(err.Error(), "fusebox/big_test.rego:3: data.fusebox.big_test.test_big: ERROR it was ended") || strings.Contains(err.Error(), "no tests") {
		t.Fatalf("got %v", err)
	}
	if s := c.PolicyStatus(); c.Version() != first || s.Err == nil {
		t.Errorf("version %s, status %+v", c.Version(), s)
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

// R-POL-8: one rule of a team is observed while all others bind: the call goes
// through, and its receipt says what the rule would have said.
func TestObservedRuleIsReceiptedAndDoesNotBind(t *testing.T) {
	dir := copyPolicies(t)
	write(t, filepath.Join(dir, "fusebox", "authority", "rules", "night.rego"),
		"package fusebox.authority.rules.night\n\ndeny contains \"no_mail\" if input.operation.action_class == \"mail.send\"\n")
	data := filepath.Join(dir, "fusebox", "config", "data.json")
	edit(t, data, `"observe": []`, `"observe": ["night.no_mail"]`)
	no := false
	c := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	if _, err := c.Admit(t.Context(), mail("r1")); err != nil {
		t.Fatalf("an observed rule stopped it: %v", err)
	}
	if err := c.log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	spoke := false
	for e, err := range c.log.Reader().All(receipts.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		spoke = spoke || e.Receipt.Kind == receipts.KindAdmission && slices.Contains(e.Receipt.Rules, "observed:deny:night.no_mail")
	}
	if !spoke {
		t.Error("no receipt says what the observed rule would have said")
	}
	edit(t, data, `"observe": ["night.no_mail"]`, `"observe": []`)
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	rejection, ok := errors.AsType[*engine.Rejection](func() error { _, err := c.Admit(t.Context(), mail("r2")); return err }())
	if !ok || !slices.Contains(rejection.Reasons, "no_mail") {
		t.Errorf("in force: %+v", rejection)
	}
}

// The page of the policies says what a refund needs beside its rule: with the
// [[tool]] of the page the first live one passes, and without it no rule helps
// (R-CALL-4). What the page declares is enough to enforce writes (R-POL-8).
func TestTheRefundOfThePage(t *testing.T) {
	dir := copyPolicies(t)
	_, page, _ := strings.Cut(read(t, filepath.Join(dir, "README.md")), "```toml policy.toml\n")
	tools, _, found := strings.Cut(page, "```")
	if !found {
		t.Fatal("the page has no [[tool]] for refunds")
	}
	no := false
	c := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	refund := func(id string) error {
		_, err := c.Admit(t.Context(), taxonomy.Operation{Kind: "tool", Name: "refund", Tool: "shop", Action: "refund", ActionClass: "refund",
			Tenant: "acme", Agent: "support-bot", RequestID: id, Amount: 900})
		return err
	}
	if rejection, ok := errors.AsType[*engine.Rejection](refund("r1")); !ok || rejection.Reason != "no_key_no_reconciliation" {
		t.Fatalf("without the declaration: %+v", rejection)
	}
	settings := filepath.Join(dir, "policy.toml")
	write(t, settings, read(t, settings)+"\n"+tools)
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := refund("r2"); err != nil {
		t.Errorf("with it: %v", err)
	}
	edit(t, settings, "enforce_writes = false", "enforce_writes = true")
	if err := c.Reload(t.Context()); err != nil {
		t.Errorf("with writes enforced: %v", err)
	}
}
