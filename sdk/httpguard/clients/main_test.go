package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestMain(m *testing.M) {
	if _, err := exec.LookPath("node"); err != nil {
		fmt.Fprintln(os.Stderr, "these tests run real clients of npm: install Node.js 20 or newer, then run make clients")
		os.Exit(1)
	}
	if _, err := os.Stat("node_modules"); err != nil {
		fmt.Fprintln(os.Stderr, "the clients of npm are not installed: run make clients, or npm ci in sdk/httpguard/clients")
		os.Exit(1)
	}
	status := m.Run()
	if bin, err := buildFusebox(); err == nil {
		_ = os.RemoveAll(filepath.Dir(bin)) // a folder left behind in the temporary one harms nobody
	}
	os.Exit(status)
}
