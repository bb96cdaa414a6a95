package policies

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stockOPA finds the stock opa tool: $FUSEBOX_OPA, bin/opa (`make policies`
// builds it there), or the PATH.
func stockOPA(t *testing.T) string {
	t.Helper()
	for _, p := range []string{os.Getenv("FUSEBOX_OPA"), "../bin/opa"} {
		if abs, err := filepath.Abs(p); p != "" && err == nil {
			if _, err := os.Stat(abs); err == nil {
				return abs
			}
		}
	}
	p, err := exec.LookPath("opa")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the stock opa tool is not here; `make policies` builds bin/opa")
		}
		t.Skip("skipped: the stock opa tool is not here; `make policies` builds bin/opa")
	}
	return p
}

// A plain `opa build` archive with its settings beside it is the same policy,
// with the same version, and can be signed as well (R-POL-3, R-POL-4).
func TestArchiveOfOpaBuild(t *testing.T) {
	opa := stockOPA(t)
	dir := t.TempDir()
	archive := filepath.Join(dir, "bundle.tar.gz")
	build := exec.Command(opa, "build", "-b", ".", "--capabilities", "../rego/capabilities.json", "--ignore", "*_test.rego", "-o", archive)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if _, err := OpenPath(archive, Options{}); err == nil {
		t.Fatal("an archive without settings was accepted")
	}
	folder := open(t)
	write := func(name string, b []byte) {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(SettingsFile, folder.SettingsTOML)
	for _, m := range folder.Settings.Modules {
		write(m.File, folder.Modules[m.Name])
	}
	b, err := OpenPath(archive, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b.Digest() != folder.Digest() || !b.Archive {
		t.Errorf("opa build: %s\nfolder:    %s", b.Digest(), folder.Digest())
	}
	public, private, _ := ed25519.GenerateKey(nil)
	keys := Options{Keys: []ed25519.PublicKey{public}}
	if _, err := OpenPath(archive, keys); err == nil {
		t.Error("unsigned, and accepted")
	}
	sig, err := b.Sign(private)
	if err != nil {
		t.Fatal(err)
	}
	write(signatureFile, sig)
	if b, err := OpenPath(archive, keys); err != nil || b.SignedBy != KeyID(public) {
		t.Errorf("signed beside: %v", err)
	}
}

// Stock OPA loads what Build makes, signed or not, and answers from it.
func TestStockOPALoadsOurArchive(t *testing.T) {
	opa := stockOPA(t)
	_, private, _ := ed25519.GenerateKey(nil)
	for name, o := range map[string]BuildOptions{"plain": {}, "with tests": {Tests: true}, "signed": {Tests: true, Key: private}} {
		raw, err := open(t).Build(o)
		if err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(t.TempDir(), "policy.tar.gz")
		if err := os.WriteFile(archive, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(opa, "eval", "--format", "json", "-b", archive, "data.fusebox.admission.decision.reason").Output()
		if err != nil {
			t.Fatalf("%s: %v %s", name, err, out)
		}
		var answer struct {
			Result []struct {
				Expressions []struct{ Value string }
			}
		}
		if err := json.Unmarshal(out, &answer); err != nil || len(answer.Result) != 1 || answer.Result[0].Expressions[0].Value != "low_priority" {
			t.Errorf("%s: %v %s", name, err, out)
		}
		if o.Tests {
			if out, err := exec.Command(opa, "test", "--timeout", "5m", "-b", archive).CombinedOutput(); err != nil {
				t.Errorf("%s: opa test: %v %s", name, err, out)
			}
		}
		again := filepath.Join(t.TempDir(), "again.tar.gz")
		if out, err := exec.Command(opa, "build", "-b", archive, "-o", again).CombinedOutput(); err != nil {
			t.Errorf("%s: opa build: %v %s", name, err, out)
		}
	}
}

// What new-rule writes passes the stock tool, as it is, in the shipped bundle.
func TestNewRulePassesStockOPA(t *testing.T) {
	opa := stockOPA(t)
	for _, kind := range []RuleKind{RuleDeny, RuleApproval} {
		dir := t.TempDir()
		for _, f := range open(t).Rego {
			put(t, dir, f)
		}
		files, err := NewRule("payments", "big_order", kind, "order.place")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			put(t, dir, f)
		}
		data := open(t).Data
		put(t, dir, File{"data.json", data})
		for _, args := range [][]string{
			{"fmt", "--fail", "-l", dir},
			{"check", "--strict", "--capabilities", "../rego/capabilities.json", "-s", "../rego/schemas", dir},
			{"test", "--timeout", "5m", dir},
		} {
			if out, err := exec.Command(opa, args...).CombinedOutput(); err != nil {
				t.Errorf("opa %v: %v %s", args, err, out)
			}
		}
	}
}

func put(t *testing.T, dir string, f File) {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(f.Path))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, f.Bytes, 0o644); err != nil {
		t.Fatal(err)
	}
}

// R-POL-4: what `opa sign` signs is not the whole policy, so its signature never
// stands for one that is required, and is passed over where none is.
func TestSignatureOfOpaIsNotEnough(t *testing.T) {
	opa := stockOPA(t)
	dir := t.TempDir()
	archive := filepath.Join(dir, "bundle.tar.gz")
	build := exec.Command(opa, "build", "-b", ".", "--signing-key", "secret", "--signing-alg", "HS256", "-o", archive)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	folder := open(t)
	if err := os.MkdirAll(filepath.Join(dir, "modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{SettingsFile: folder.SettingsTOML, "modules/acme-mail.wasm": folder.Modules["acme-mail"]} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := OpenPath(archive, Options{})
	if err != nil || !b.OPASigned || b.SignedBy != "" || b.Digest() != folder.Digest() {
		t.Fatalf("without keys: %v", err)
	}
	if !slices.ContainsFunc(b.Findings(), func(f Finding) bool { return f.Code == "foreign_signature" }) {
		t.Error("nobody is told that the signature is not checked")
	}
	public, private, _ := ed25519.GenerateKey(nil)
	keys := Options{Keys: []ed25519.PublicKey{public}}
	if _, err := OpenPath(archive, keys); !errors.Is(err, ErrUnsigned) || !strings.Contains(err.Error(), "fusebox policy sign") {
		t.Errorf("required: %v", err)
	}
	sig, err := b.Sign(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, signatureFile), sig, 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := OpenPath(archive, keys); err != nil || b.SignedBy != KeyID(public) {
		t.Errorf("signed by us as well: %v", err)
	}
}
