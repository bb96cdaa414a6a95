package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const guestPath = "../../sdk/guest/README.md"

// TestAuthorsPage follows the page for module authors from nothing to a module
// that is named in a receipt, as its commands are printed. Only the source that
// the Go module builds against, and the server's address, are others.
func TestAuthorsPage(t *testing.T) {
	if _, err := exec.LookPath("sha256sum"); err != nil {
		t.Skip("sha256sum is not installed: the page's module is not pinned")
	}
	page := mustRead(t, guestPath)
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	author := strings.Replace(block(t, page, "author"), "--language go", "--language go --fusebox '"+source+"'", 1)
	out := shell(t, dir, author+block(t, page, "pin"))
	for _, want := range []string{"sha256 = ", "ok    hit (fuel ", "ok    other (fuel ", " loads\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page's commands do not print %q:\n%s", want, out)
		}
	}
	data := filepath.Join(dir, "data")
	p := serve(t, data, "--policies", filepath.Join(dir, "my-policies"))
	script := strings.ReplaceAll(block(t, page, "receipt"), "http://127.0.0.1:4141", p.agent)
	out = shell(t, dir, strings.Replace(script, "receipts explain", "receipts explain --data '"+data+"'", 1))
	for _, want := range []string{"Module my-module@0.1.0 said FAILED budget, plan_exhausted (sha256:", "Asking my-module@0.1.0 took ", " units of fuel"} {
		if !strings.Contains(out, want) {
			t.Errorf("the receipt does not say %q:\n%s", want, out)
		}
	}
}
