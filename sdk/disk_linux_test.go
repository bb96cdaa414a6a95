package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// diskEnv tells this test binary to play with a small disk of its own, which
// readOnlyEnv does with a folder that becomes read-only.
const (
	diskEnv     = "FUSEBOX_TEST_SDK_DISK"
	readOnlyEnv = "FUSEBOX_TEST_SDK_READONLY"
)

// again runs this test in a process of its own and shows what it said.
func again(t *testing.T, env string, attr *syscall.SysProcAttr) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), env), attr
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran || strings.Contains(string(out), "SKIP:") {
		t.Skipf("SKIP: not possible here: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// sending keeps four callers busy until stop.
func sending(t *testing.T, c *Client, l *ledger, name string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_ = l.write(context.Background(), c, fmt.Sprintf("%s-%d-%d", name, w, i), nil) // l keeps how it ended
			}
		})
	}
	return func() { cancel(); group.Wait() }
}

// until waits for a call that ends as it should, and returns how it ended.
func until(t *testing.T, l *ledger, name string, as func(error) bool) error {
	t.Helper()
	for range 6000 {
		l.mu.Lock()
		for id, err := range l.told {
			if strings.HasPrefix(id, name) && as(err) {
				l.mu.Unlock()
				return err
			}
		}
		l.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no call named %s ended like this within a minute", name)
	return nil
}

func worked(err error) bool { return err == nil }

// R-FLT-15, R-RCP-2: the disk with state and receipts fills while calls run: writes
// are refused before they are sent, with the reason; once there is room again it
// goes on by itself, and nothing that was acknowledged is lost.
func TestDiskFillsWhileCallsRun(t *testing.T) {
	dir := os.Getenv(diskEnv)
	if dir == "" {
		again(t, diskEnv+"="+t.TempDir(), &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		})
		return
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=48m"); err != nil {
		t.Skipf("SKIP: mount: %v", err)
	}
	config := Config{Data: filepath.Join(dir, "data")}
	c, err := Open(t.Context(), config, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	stop := sending(t, c, l, "full")
	until(t, l, "full", worked)
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	err = until(t, l, "full", func(err error) bool { return err != nil && strings.Contains(err.Error(), "the request was not sent") })
	stop()
	refusedWith(t, err, "state_unavailable", "evidence_unavailable")
	if !strings.Contains(err.Error(), "disk") && !strings.Contains(err.Error(), "space") {
		t.Errorf("the message does not speak of the disk: %v", err)
	}
	t.Logf("full: %v", err)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	stop = sending(t, c, l, "room")
	until(t, l, "room", worked)
	stop()
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	l.audit(t, config)
}

// fill takes what is left of the disk, page by page.
func fill(t *testing.T, file string) {
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 16, 1 << 12} {
		page := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(page)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// The data directory becomes read-only while calls run. What is open goes on, as
// files do; what needs a new file says so. The next start is refused in one line,
// and once the folder can be written again nothing is missing.
func TestDirectoryBecomesReadOnly(t *testing.T) {
	if os.Getenv(readOnlyEnv) == "" {
		again(t, readOnlyEnv+"=1", nil) // a process of its own, which may give up its rights
		return
	}
	dir, err := os.MkdirTemp("", "fusebox-readonly-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if os.Getuid() == 0 { // to root no folder is read-only
		if err := errors.Join(os.Chown(dir, 65534, 65534), syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
			t.Skipf("SKIP: become somebody else: %v", err)
		}
	}
	config := Config{Data: filepath.Join(dir, "data")}
	c, err := Open(t.Context(), config, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	stop := sending(t, c, l, "before")
	until(t, l, "before", worked)
	mode(t, config.Data, 0o555)
	during := sending(t, c, l, "during")
	until(t, l, "during", func(error) bool { return true })
	during()
	stop()
	if err := c.Close(t.Context()); err != nil {
		t.Logf("close: %v", err) // what it could not write is found by the next start
	}
	_, err = Open(t.Context(), config, Parts{})
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "make it writable for this user, or choose another with --data DIR") {
		t.Errorf("a start on a read-only folder: %v", err)
	}
	t.Logf("read-only: %v", err)
	mode(t, config.Data, 0o755)
	l.audit(t, config)
}

// mode changes the folders below and including root.
func mode(t *testing.T, root string, to os.FileMode) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, to)
	})
	if err != nil {
		t.Fatal(err)
	}
}
