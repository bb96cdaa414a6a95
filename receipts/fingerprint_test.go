package receipts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestFingerprints: equal within a tenant and an epoch, and nowhere else (SPEC
// R-RCP-5).
func TestFingerprints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "fingerprint.secret")
	f, err := OpenFingerprinter(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	args := []byte(`{"to":"ann@example.com","amount":100}`)
	a := f.Sum("acme", "args", args, at)
	if !regexp.MustCompile(`^k\d+:[0-9a-f]{32}$`).MatchString(a) {
		t.Errorf("%q", a)
	}
	for name, b := range map[string]string{
		"tenant": f.Sum("bob", "args", args, at),
		"kind":   f.Sum("acme", "idempotency", args, at),
		"value":  f.Sum("acme", "args", []byte(`{"to":"ann@example.com","amount":101}`), at),
		"epoch":  f.Sum("acme", "args", args, at.Add(31*24*time.Hour)),
	} {
		if a == b || a[strings.Index(a, ":"):] == b[strings.Index(b, ":"):] {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
	later := at.Add(30 * 24 * time.Hour)
	if f.Previous("acme", "args", args, later) != a {
		t.Error("the previous epoch's fingerprint is not found again")
	}
	if !f.Match(a, "acme", "args", args) || f.Match(a, "bob", "args", args) || f.Match("k1", "acme", "args", args) || f.Match("", "", "", nil) {
		t.Error("match")
	}
	// The same file, the same fingerprints; another file, others.
	again, err := OpenFingerprinter(path, 0)
	if err != nil || again.Sum("acme", "args", args, at) != a {
		t.Error("after a restart fingerprints differ:", err)
	}
	other, err := OpenFingerprinter(path+"2", 0)
	if err != nil || other.Sum("acme", "args", args, at) == a {
		t.Error("two secrets give the same fingerprint:", err)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	os.Chmod(path, 0o644)
	if _, err := OpenFingerprinter(path, 0); err == nil {
		t.Error("a secret that others may read is accepted")
	}
}

func TestFingerprintKeysAreBounded(t *testing.T) {
	f, err := NewFingerprinter(make([]byte, 32), 0)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	want := f.Sum("t-0", "args", nil, at)
	for i := range fingerprintKeys * 2 {
		f.Sum(fmt.Sprint("t-", i), "args", nil, at)
	}
	if len(f.keys) > fingerprintKeys || f.used.Len() > fingerprintKeys {
		t.Errorf("%d keys", len(f.keys))
	}
	if f.Sum("t-0", "args", nil, at) != want {
		t.Error("a forgotten key is derived as another")
	}
	if _, err := NewFingerprinter(nil, 0); err == nil {
		t.Error("no secret is accepted")
	}
	if _, err := NewFingerprinter(make([]byte, 32), time.Second); err == nil {
		t.Error("an epoch of a second is accepted")
	}
}
