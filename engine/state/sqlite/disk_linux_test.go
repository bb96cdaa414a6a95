package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"golang.org/x/sys/unix"
)

// envDisk tells this test binary to play with a small disk of its own.
const envDisk = "FUSEBOX_TEST_DISK"

// TestDisk runs a process that mounts a small filesystem where only it sees
// it, fills it, makes it read-only, and frees it again (R-FLT-15).
func TestDisk(t *testing.T) {
	if dir := os.Getenv(envDisk); dir != "" {
		onDisk(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDisk$", "-test.v")
	cmd.Env = append(os.Environ(), envDisk+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran || strings.Contains(string(out), "SKIP") {
		t.Skipf("SKIP disk: no mount namespace of our own here: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func onDisk(t *testing.T, dir string) {
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("SKIP: mount: %v", err)
	}
	path := filepath.Join(dir, "state.db")
	st := open(t, path, sqlite.Options{})
	var acked []string
	write := func() error {
		id := fmt.Sprint("intent-", len(acked))
		in := state.Intent{ID: id, RequestID: id, Operation: make([]byte, 20_000), Expires: time.Now().Add(time.Hour)}
		_, err := st.Dispatch(context.Background(), state.Dispatch{Intent: &in})
		if err == nil {
			acked = append(acked, id)
		}
		return err
	}
	refused := func(err error, hint string) {
		t.Helper()
		if !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("got %v, want one line with %q, and nothing changed", err, hint)
		}
	}
	intact := func(s state.Store) {
		t.Helper()
		n := 0
		for in, err := range s.Find(context.Background(), state.IntentQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if in.State != state.InFlight {
				t.Fatalf("%s is %s", in.ID, in.State)
			}
			n++
		}
		if n != len(acked) {
			t.Fatalf("%d intents, %d were acknowledged", n, len(acked))
		}
	}

	// Full: the write that does not fit says so, and nothing before is lost.
	var err error
	for err == nil && len(acked) < 1000 {
		err = write()
	}
	refused(err, "disk is full; free space in "+dir)
	t.Logf("after %d intents: %v", len(acked), err)
	intact(st)

	// Free again: it goes on without a restart.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	intact(st)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}

	// Read-only: refused at the door, in one line.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(context.Background(), path, sqlite.Options{})
	refused(err, "the folder "+dir+" is not writable")
	t.Log(err)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	st = open(t, path, sqlite.Options{})
	intact(st)
	if err := write(); err != nil {
		t.Fatal(err)
	}
}

// A folder of somebody else is refused in one line that says what to do.
func TestFolderNotWritable(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		// Root may write anywhere, so this thread becomes somebody else; it is
		// never unlocked, and ends with the goroutine.
		runtime.LockOSThread()
		if os.Getuid() == 0 {
			unix.Setfsgid(65534)
			unix.Setfsuid(65534)
		}
		_, err := sqlite.Open(context.Background(), filepath.Join(dir, "state.db"), sqlite.Options{})
		opened <- err
	}()
	err := <-opened
	want := "open state store " + dir + "/state.db: the state store is unavailable: the folder " + dir +
		" is not writable: permission denied; give this user write access, or choose another data directory"
	if err == nil || !errors.Is(err, state.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	// The parent folders may be closed to the other user too.
	if err.Error() != want && !strings.Contains(err.Error(), "permission denied") {
		t.Fatalf("got  %v\nwant %s", err, want)
	}
}
