package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const root = "../../.."

// buildFusebox builds the program under test, once.
var buildFusebox = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fusebox-clients-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "fusebox")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/fusebox")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build fusebox: %w\n%s", err, out)
	}
	return bin, nil
})

func fuseboxBinary(t *testing.T) string {
	t.Helper()
	bin, err := buildFusebox()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// policies is the built-in policy with what the scenarios need: a model that
// nobody may use, one that costs more than a day's budget, the tools of the MCP
// server, and a cooldown of the provider's circuit that does not hang on how fast
// this machine is.
func policies(t *testing.T, cooldown string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policies")
	if out, err := exec.Command(fuseboxBinary(t), "policy", "export", dir).CombinedOutput(); err != nil {
		t.Fatalf("policy export: %v\n%s", err, out)
	}
	rule := `package fusebox.authority.rules.clients

# METADATA
# labels: { rule: clients.forbidden_model }
deny contains "forbidden_model" if input.operation.model == "forbidden"
`
	rules := filepath.Join(dir, "fusebox", "authority", "rules", "clients.rego")
	if err := os.WriteFile(rules, []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "policy.toml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	provider := `cooldown = { base = "30s", growth = 1.5, max = "2m", jitter = 0.2, retry_after_max = "10m" }`
	own := fmt.Sprintf(`cooldown = { base = %[1]q, growth = 1.0, max = %[1]q, jitter = 0.0, retry_after_max = "1h" }`, cooldown)
	text := strings.Replace(string(b), provider, own, 1)
	if text == string(b) {
		t.Fatal("the provider's cooldown is worded otherwise in the built-in policy")
	}
	if err := os.WriteFile(file, []byte(text+morePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

const morePolicy = `
[[price]]
provider = "*"
model = "gold"
input = 1000000
output = 1000000

[[tool]]
tool = "everything"
action = "echo"
effect = "read_only"

[[tool]]
tool = "everything"
action = "get-sum"
effect = "read_only"

[[tool]]
tool = "everything"
action = "trigger-long-running-operation"
effect = "non_repeatable"
action_class = "ticket.write"
timeout = "2s"
reconcile = { by = "human" }
`

// A served fusebox is a process of its own, as a user would start it.
type served struct {
	agent string // base URL of the agent plane
	data  string
	bin   string
}

// startFusebox serves under a policy, with the given rest of fusebox.toml.
func startFusebox(t *testing.T, policies, rest string) *served {
	t.Helper()
	dir := t.TempDir()
	s := &served{data: filepath.Join(dir, "data"), bin: fuseboxBinary(t)}
	config := filepath.Join(dir, "fusebox.toml")
	text := fmt.Sprintf("data = %q\n\n[policies]\npath = %q\nwatch = false\n\n[listen]\nagent = \"127.0.0.1:0\"\noperator = \"127.0.0.1:0\"\n\n%s", s.data, policies, rest)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(s.bin, "serve", "--config", config)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan string, 1)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		defer close(up)
		for lines := newLines(out); ; {
			line, ok := lines.next()
			if !ok {
				return
			}
			if at, ok := strings.CutPrefix(line, "agent plane"); ok {
				up <- strings.TrimSpace(at)
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended, which Wait tells
		<-drained
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("fusebox serve: %v\n%s", err, log.String())
		}
	})
	select {
	case s.agent = <-up:
	case <-time.After(2 * time.Minute):
	}
	if s.agent == "" {
		t.Fatalf("fusebox serve did not start:\n%s", log.String())
	}
	return s
}

// metric reads a counter of the operator plane: the sum of the series whose
// labels have all of the given parts.
func (s *served) metric(t *testing.T, name string, labels ...string) (sum float64) {
	t.Helper()
	var at struct{ Operator string }
	b, err := os.ReadFile(filepath.Join(s.data, "serve.json"))
	if err == nil {
		err = json.Unmarshal(b, &at)
	}
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(at.Operator + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
next:
	for all := newLines(resp.Body); ; {
		line, ok := all.next()
		if !ok {
			return sum
		}
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue next
			}
		}
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += n
	}
}

// ask runs a command of the program and reads the JSON it prints.
func (s *served) ask(t *testing.T, into any, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.bin, append(args, "--json", "--data", s.data)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("fusebox %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("fusebox %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
