package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// evidence leaves a log of a few decisions and returns its data directory.
func evidence(t *testing.T, data string) {
	t.Helper()
	p := serve(t, data)
	for i := range 3 {
		id, token := admitted(t, p.agent, strings.Replace(mailOperation, `"a-1"`, fmt.Sprintf(`"a-%d"`, i), 1))
		ask(t, "POST", p.agent+"/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
		ask(t, "POST", p.agent+"/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, timedOut))
	}
	p.stop(t)
}

// R-RCP-2: changing any byte of a sealed receipt makes fusebox receipts verify
// end with 1, whatever the byte.
func TestVerifyFindsEveryChangedByte(t *testing.T) {
	data := t.TempDir()
	evidence(t, data)
	root := filepath.Join(data, "receipts")
	if status, out, errs := fusebox(t, "", "receipts", "verify", root); status != 0 || !strings.Contains(out, "not compared with a trusted checkpoint") {
		t.Fatalf("an untouched log: status %d\n%s%s", status, out, errs)
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no receipts files: %v", err)
	}
	changed := 0
	for _, f := range files {
		whole := []byte(mustRead(t, f))
		step := len(whole)/97 + 1 // every byte with FUSEBOX_CAMPAIGN set
		if os.Getenv("FUSEBOX_CAMPAIGN") != "" {
			step = 1
		}
		for i := 0; i < len(whole); i += step {
			broken := append([]byte(nil), whole...)
			broken[i] ^= 1 << (i % 8)
			if err := os.WriteFile(f, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			if status, out, _ := fusebox(t, "", "receipts", "verify", root); status != 1 {
				t.Errorf("byte %d of %s changed: status %d\n%s", i, filepath.Base(f), status, out)
			}
			changed++
		}
		if err := os.WriteFile(f, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d bytes changed, one at a time", changed)
	if status, _, _ := fusebox(t, "", "receipts", "verify", root, "--deep"); status != 0 {
		t.Errorf("the log as it was: status %d", status)
	}
}

// R-RCP-2: a log that was cut back to an older checkpoint is consistent by
// itself, and is found out by a checkpoint that was kept elsewhere; a log that
// went on since is unproven beyond it.
func TestVerifyAgainstATrustedCheckpoint(t *testing.T) {
	data, older := t.TempDir(), t.TempDir()
	evidence(t, data)
	copyTree(t, filepath.Join(older, "data"), data)
	evidence(t, data)
	trusted := filepath.Join(data, "trusted", "receipts-0.checkpoint")
	oldTrusted := filepath.Join(older, "data", "trusted", "receipts-0.checkpoint")
	cut := filepath.Join(older, "data", "receipts")
	for _, c := range []struct {
		name string
		args []string
		want int
		says string
	}{
		{"the log against its checkpoint", []string{filepath.Join(data, "receipts"), "--trusted", trusted}, 0, "compared with a trusted checkpoint"},
		{"the log cut back, alone", []string{cut}, 0, "not compared"},
		{"the log cut back, against the checkpoint kept elsewhere", []string{cut, "--trusted", trusted}, 1, "truncated"},
		{"the log against an older checkpoint", []string{filepath.Join(data, "receipts"), "--trusted", oldTrusted}, 3, "UNPROVEN"},
		{"an emptied folder, against the checkpoint", []string{t.TempDir(), "--trusted", trusted}, 1, "folder is gone"},
	} {
		status, out, errs := fusebox(t, "", append([]string{"receipts", "verify"}, c.args...)...)
		if status != c.want || !strings.Contains(out, c.says) {
			t.Errorf("%s: status %d, want %d\n%s%s", c.name, status, c.want, out, errs)
		}
		status, out, _ = fusebox(t, "", append([]string{"receipts", "verify", "--json"}, c.args...)...)
		if status != c.want || !strings.Contains(out, fmt.Sprintf(`"exit": %d`, c.want)) {
			t.Errorf("%s, as JSON: status %d\n%s", c.name, status, out)
		}
	}
}

// What list, show and tail print is what the log holds.
func TestReceiptsAreRead(t *testing.T) {
	data := t.TempDir()
	evidence(t, data)
	status, out, errs := fusebox(t, "", "receipts", "list", "--data", data, "--kind", "outcome")
	if status != 0 || strings.Count(out, "UNKNOWN read_timeout") != 3 {
		t.Fatalf("list: status %d\n%s%s", status, out, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := strings.Fields(lines[len(lines)-1])
	id := last[len(last)-1]
	status, out, errs = fusebox(t, "", "receipts", "show", id, "--data", data)
	if status != 0 || !strings.Contains(out, `"error_class": "ambiguous_write"`) {
		t.Errorf("show: status %d\n%s%s", status, out, errs)
	}
	status, out, _ = fusebox(t, "", "receipts", "list", "--data", data, "-n", "2", "--json")
	if status != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(out, `"kind":"shutdown"`) {
		t.Errorf("list --json: status %d\n%s", status, out)
	}
	if status, _, errs := fusebox(t, "", "receipts", "show", "0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c", "--data", data); status != 1 || !strings.Contains(errs, "receipts list") {
		t.Errorf("a receipt that is not there: status %d, %s", status, errs)
	}
}
