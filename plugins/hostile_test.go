package plugins

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// R-OPS-7: a call that hangs ends at the deadline, and so does its plugin after a
// few of them: the next life answers.
func TestHangs(t *testing.T) {
	awake := filepath.Join(t.TempDir(), "awake")
	conf := config(t, Classifier, "hangsonce", awake)
	conf.Deadline, conf.Failures, conf.Rest = 20*time.Millisecond, 3, time.Millisecond
	c := start(t, conf)
	for range 3 {
		if _, err := ask(c); code(err) != DeadlineExceeded {
			t.Fatalf("%v", err)
		}
	}
	if !c.Stats().Benched {
		t.Fatal("not benched")
	}
	if err := os.WriteFile(awake, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.config.Deadline = time.Minute
	until(t, "the comeback", func() bool { _, err := ask(c); return err == nil })
	if s := c.Stats(); s.Benched || s.Starts < 2 {
		t.Errorf("%+v", s)
	}
}

// A circuit of its own keeps calls away from a plugin that keeps failing.
func TestBenched(t *testing.T) {
	conf := config(t, Classifier, "fails")
	conf.Failures, conf.Rest = 2, time.Hour
	c := start(t, conf)
	for range 2 {
		_, err := ask(c)
		if code(err) != Failed || strings.Contains(err.Error(), "sk-from-the-caller") {
			t.Fatalf("%v", err)
		}
	}
	for range 3 {
		if _, err := ask(c); code(err) != Benched {
			t.Fatalf("%v", err)
		}
	}
	if s := c.Stats(); !s.Benched || s.Calls != 2 || s.Failures != 2 || s.Kept != 3 {
		t.Errorf("%+v", s)
	}
}

// A crash in the middle of a call costs that call; the plugin is started again,
// and a circuit bounds how often.
func TestCrashes(t *testing.T) {
	c := start(t, config(t, Classifier, "crashesonce", filepath.Join(t.TempDir(), "crashed")))
	if _, err := ask(c); code(err) != Crashed {
		t.Fatalf("%v", err)
	}
	until(t, "the second life", func() bool { _, err := ask(c); return err == nil })
	if s := c.Stats(); s.Starts != 2 {
		t.Errorf("%+v", s)
	}

	conf := config(t, Classifier, "crashes")
	conf.Rest = time.Hour
	c = start(t, conf)
	until(t, "the bench", func() bool { _, err := ask(c); return code(err) == Benched })
	if s := c.Stats(); s.Failures != 5 || s.Starts > 6 {
		t.Errorf("%+v", s)
	}
}

// The pause between two lives doubles up to its bound.
func TestBackoff(t *testing.T) {
	dir := t.TempDir()
	conf := config(t, Classifier, "exits")
	conf.Command = filepath.Join(dir, "plugin")
	count := filepath.Join(dir, "count")
	if err := os.WriteFile(conf.Command, []byte("#!/bin/sh\necho x >> "+count+"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	conf.SHA256 = sum(t, conf.Command)
	c, err := open(t.Context(), conf, pauses{first: time.Millisecond, most: time.Hour, healthy: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	lives := func() int { b, _ := os.ReadFile(count); return bytes.Count(b, []byte("x")) }
	until(t, "a few lives", func() bool { return lives() >= 4 })
	c.Close()
	// 4 starts need at least (1+2+4)/2 ms, and in a minute there are at most 17.
	if n := lives(); n > 17 {
		t.Errorf("%d lives", n)
	}
}

// A plugin that floods its log costs nothing but its own time, and what it was
// given is not in ours, unless the wiring asks for what it writes.
func TestFloods(t *testing.T) {
	for _, show := range []bool{false, true} {
		var log syncBuffer
		conf := config(t, Classifier, "floods")
		conf.Logs, conf.Log = show, slog.New(slog.NewTextHandler(&log, nil))
		c := start(t, conf)
		if _, err := ask(c); err != nil {
			t.Fatal(err)
		}
		c.Close()
		text := log.String()
		if n := strings.Count(text, "plugin says"); show != (n > 0) || n > 2*logLines {
			t.Errorf("shown %v: %d lines", show, n)
		}
		if len(text) > 64<<10 {
			t.Errorf("%d bytes of log", len(text))
		}
		if !show && strings.Contains(text, "sk-from-the-caller") {
			t.Error("what it was given is in the log")
		}
		if !strings.Contains(text, "not shown") {
			t.Errorf("shown %v: the log does not say that lines are missing", show)
		}
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// An answer that is too large is refused before it is held, and the connection
// stays good.
func TestHugeAnswer(t *testing.T) {
	c := start(t, config(t, Classifier, "huge"))
	for range 2 {
		if _, err := ask(c); code(err) != AnswerTooLarge {
			t.Fatalf("%v", err)
		}
	}
	if s := c.Stats(); s.Starts != 1 {
		t.Errorf("%+v", s)
	}
}

// What the reader of an answer refuses counts against the plugin.
func TestNonsense(t *testing.T) {
	for how, want := range map[string]Code{"notjson": BadJSON, "unknownclass": SchemaViolation} {
		c := start(t, config(t, Classifier, how))
		err := c.Ask(t.Context(), nil, func([]byte) error { return errors.New("no") })
		if code(err) != want || c.Stats().Failures != 1 {
			t.Errorf("%s: %v, %+v", how, err, c.Stats())
		}
	}
}

// A panic costs one call, not the process.
func TestPanics(t *testing.T) {
	c := start(t, config(t, Classifier, "panics"))
	_, err := ask(c)
	if code(err) != Failed || strings.Contains(err.Error(), "sk-from") {
		t.Errorf("%v", err)
	}
	if s := c.Stats(); s.Starts != 1 || !s.Running {
		t.Errorf("%+v", s)
	}
}

// A caller that leaves, and a place that is taken, say nothing about the plugin.
func TestNotItsFault(t *testing.T) {
	conf := config(t, Classifier, "hangs")
	conf.Parallel = 1
	c := start(t, conf)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Ask(ctx, nil, func([]byte) error { return nil }) }()
	until(t, "the call", func() bool { return c.Stats().Calls == 1 })
	if _, err := ask(c); code(err) != Busy {
		t.Errorf("%v", err)
	}
	leave()
	if err := <-done; code(err) != Canceled {
		t.Errorf("%v", err)
	}
	if s := c.Stats(); s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// Close ends a process that does not even run any more, and one with a family.
func TestCloseEndsEverything(t *testing.T) {
	conf := config(t, Classifier, "stops")
	conf.Deadline = 50 * time.Millisecond
	c := start(t, conf)
	if _, err := ask(c); code(err) != DeadlineExceeded {
		t.Errorf("%v", err)
	}
	c.mu.Lock()
	stopped := c.live.child.cmd.Process.Pid
	c.mu.Unlock()
	c.Close()
	if alive(stopped) {
		t.Error("a stopped process outlives Close")
	}

	file := filepath.Join(t.TempDir(), "pid")
	c = start(t, config(t, Classifier, "family", file))
	child := readPID(t, file)
	c.Close()
	until(t, "the end of the plugin's child", func() bool { return !alive(child) })
}

// Nobody waits for what a plugin leaves behind: a child that left the process
// group and holds the pipes delays neither the next life nor Close.
func TestLeftBehind(t *testing.T) {
	for _, how := range []string{"ok", "killed", "silent"} {
		left := filepath.Join(t.TempDir(), "left")
		conf := config(t, Classifier, "daemon", left, how)
		if how == "silent" {
			conf.Start = time.Second
		}
		c := start(t, conf)
		child := readPID(t, left)
		t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
		if how == "killed" {
			c.mu.Lock()
			killGroup(c.live.child.cmd.Process.Pid)
			c.mu.Unlock()
			until(t, "the second life", func() bool { return c.Stats().Starts == 2 })
			next := readPID(t, left)
			t.Cleanup(func() { _ = syscall.Kill(next, syscall.SIGKILL) })
		}
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Fatal(how + ": Close waits for what the plugin left behind")
		}
	}
}

// A handshake without end is refused without being held.
func TestEndlessHandshake(t *testing.T) {
	c := start(t, config(t, Classifier, "endless"))
	if s := c.Stats(); s.Running || code(s.Why) != StartFailed {
		t.Errorf("%+v", s)
	}
}

// What is no plain file, or has no end, is refused before it is read: a pipe would
// hold the start for ever, a device would fill the disk.
func TestNoProgram(t *testing.T) {
	dir := t.TempDir()
	pipe, vast := filepath.Join(dir, "pipe"), filepath.Join(dir, "vast")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(vast, nil, 0o600), os.Truncate(vast, maxProgram+1)); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{pipe, vast, dir, os.DevNull} {
		conf := config(t, Classifier, "ok")
		conf.Command = file
		refused := make(chan error, 1)
		go func() { _, err := Open(t.Context(), conf); refused <- err }()
		select {
		case err := <-refused:
			if code(err) != NotFound {
				t.Errorf("%s: %v", file, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the start waits", file)
		}
	}
}

// Only what is named of our environment is handed on.
func TestEnvironment(t *testing.T) {
	t.Setenv("FUSEBOX_TEST_SECRET", "hidden")
	file := filepath.Join(t.TempDir(), "env")
	conf := config(t, Classifier, "env", file)
	conf.Env = []string{"TOKEN=for-it"}
	if _, err := ask(start(t, conf)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil || bytes.Contains(b, []byte("hidden")) || !bytes.Contains(b, []byte("TOKEN=for-it")) || !bytes.Contains(b, []byte("PATH=")) {
		t.Errorf("%v: %s", err, b)
	}
}

// The child ends with its parent, also one that is killed; on Linux also a child
// that does not look whether it has a parent.
func TestNoOrphan(t *testing.T) {
	if file := os.Getenv("FUSEBOX_ORPHAN"); file != "" { // the parent
		start(t, config(t, Classifier, os.Getenv("FUSEBOX_ORPHAN_HOW"), file))
		select {}
	}
	hows := []string{"pid"}
	if runtime.GOOS == "linux" {
		hows = append(hows, "silentpid")
	}
	for _, how := range hows {
		file := filepath.Join(t.TempDir(), "pid")
		parent := exec.Command(os.Args[0], "-test.run=^TestNoOrphan$")
		parent.Env = append(os.Environ(), "FUSEBOX_ORPHAN="+file, "FUSEBOX_ORPHAN_HOW="+how)
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		child := readPID(t, file)
		if !alive(child) {
			t.Error("the child is gone before its parent")
		}
		if err := parent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = parent.Wait() // killed
		until(t, how+": the end of the child", func() bool { return !alive(child) })
	}
}

// A plugin ends by itself when its standard input does, which is how it notices
// everywhere that fusebox is gone.
func TestEndsWithItsInput(t *testing.T) {
	file, err := hostile()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file, Classifier, "ok")
	cmd.Env = append(os.Environ(), Handshake.MagicCookieKey+"="+Handshake.MagicCookieValue, "PLUGIN_PROTOCOL_VERSIONS=1")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = input.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		_ = cmd.Process.Kill()
		t.Error("it runs on")
	}
}
