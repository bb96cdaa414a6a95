package plugins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
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

// hostile is the plugin that misbehaves, built once.
var hostile = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fusebox-hostile-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "hostile")
	out, err := exec.Command("go", "build", "-o", file, "./testdata/hostile").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, err := hostile(); err == nil {
		_ = os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

func sum(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// config is a plugin of a kind that behaves so. Deadlines are for tests of
// hanging only; everything else has a minute on a busy machine.
func config(t *testing.T, kind, how string, rest ...string) Config {
	t.Helper()
	file, err := hostile()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Name: "hostile", Kind: kind, SHA256: sum(t, file), Command: file, Args: append([]string{kind, how}, rest...),
		Deadline: time.Minute, Start: time.Minute}
}

var quick = pauses{first: time.Millisecond, most: 10 * time.Millisecond, healthy: time.Hour}

func start(t *testing.T, c Config) *Client {
	t.Helper()
	client, err := open(t.Context(), c, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func ask(c *Client) (answer string, err error) {
	err = c.Ask(context.Background(), []byte(`{"secret":"sk-from-the-caller"}`), func(b []byte) error { answer = string(b); return nil })
	return answer, err
}

func code(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Fault
	}
	return ""
}

// until waits for what other processes do.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting: %s", what)
		}
	}
}

func readPID(t *testing.T, file string) int {
	t.Helper()
	var pid int
	until(t, "its process id", func() bool {
		b, err := os.ReadFile(file)
		pid, _ = strconv.Atoi(string(b))
		return err == nil && pid > 0
	})
	return pid
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func TestAnswersAndEnds(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	c := start(t, config(t, Classifier, "pid", pid))
	if got, err := ask(c); err != nil || !strings.Contains(got, "plan_exhausted") {
		t.Fatalf("%q, %v", got, err)
	}
	n := readPID(t, pid)
	c.mu.Lock()
	home := c.live.home
	c.mu.Unlock()
	if s := c.Stats(); s.Calls != 1 || s.Starts != 1 || !s.Running {
		t.Errorf("%+v", s)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if alive(n) {
		t.Error("the process outlives Close")
	}
	if _, err := ask(c); code(err) != Closed {
		t.Errorf("after Close: %v", err)
	}
	if _, err := os.Stat(home); err == nil {
		t.Errorf("left behind: %s", home)
	}
}

// R-OPS-7: what is not what policy names is refused, and the error says why.
func TestRefused(t *testing.T) {
	changed := filepath.Join(t.TempDir(), "changed")
	good := config(t, Classifier, "ok")
	b, err := os.ReadFile(good.Command)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(changed, append(b, 'x'), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		code   Code
		says   string
	}{
		"another file":     {func(c *Config) { c.Command = changed }, ChecksumMismatch, "policy pins " + good.SHA256},
		"no file":          {func(c *Config) { c.Command = changed + "x" }, NotFound, "no such file"},
		"another kind":     {func(c *Config) { c.Kind = Approver }, WrongKind, `policy says that its kind is approver, and it says "classifier"`},
		"another protocol": {func(c *Config) { c.Args[1] = "otherprotocol" }, WrongVersion, "incompatible"},
		"another version":  {func(c *Config) { c.Args[1] = "otherversion" }, WrongVersion, "version 2"},
	} {
		t.Run(name, func(t *testing.T) {
			conf := config(t, Classifier, "ok")
			c.change(&conf)
			client, err := open(t.Context(), conf, quick)
			if err == nil {
				client.Close()
				t.Fatal("accepted")
			}
			if code(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", code(err), err)
			}
		})
	}
}

// R-OPS-7: one that does not come up does not keep fusebox from starting. What it
// wrote before it was given anything tells its author why.
func TestDoesNotStart(t *testing.T) {
	for how, says := range map[string]string{"exits": "no licence found", "elsewhere": "listens elsewhere", "nonsense": "hello", "silent": "not ready within"} {
		t.Run(how, func(t *testing.T) {
			conf := config(t, Classifier, how)
			if how == "silent" {
				conf.Start = 50 * time.Millisecond
			}
			var log bytes.Buffer
			conf.Log = slog.New(slog.NewTextHandler(&log, nil))
			c, err := open(t.Context(), conf, pauses{first: time.Hour, most: time.Hour, healthy: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			_, err = ask(c)
			if code(err) != Down {
				t.Errorf("%v", err)
			}
			if s := c.Stats(); s.Why == nil || !strings.Contains(s.Why.Error(), says) || len(s.Why.Error()) > 3000 {
				t.Errorf("%v", s.Why)
			}
			c.Close()
			if !strings.Contains(log.String(), says) {
				t.Errorf("the log does not say it: %s", log.String())
			}
		})
	}
}
