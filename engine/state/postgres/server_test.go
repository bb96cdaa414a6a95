package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A server is a real PostgreSQL, run as an unprivileged user on loopback in a
// folder of its own, and stopped by its process id.
type server struct {
	bin  string // folder of the binaries
	dir  string
	port int
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended

	strace, trace string // the server's syncs are written to trace; "" is no trace
}

var errNoServer = errors.New("no PostgreSQL 15 or newer is installed")

// binaries finds the newest server that is installed.
func binaries() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if path, err := exec.LookPath("postgres"); err == nil {
		found = append(found, path)
	}
	slices.Sort(found)
	for _, path := range slices.Backward(found) {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real // the other binaries are beside the real one
		}
		out, err := exec.Command(path, "--version").Output()
		fields := strings.Fields(string(out))
		if err != nil || len(fields) < 3 {
			continue
		}
		major, _ := strconv.Atoi(strings.Split(fields[2], ".")[0])
		if major >= 15 {
			return filepath.Dir(path), nil
		}
	}
	return "", errNoServer
}

// unprivileged makes a command run as nobody where this test runs as root,
// which the server refuses.
func unprivileged(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return cmd
}

func own(dir string) error {
	if os.Getuid() == 0 {
		return os.Chown(dir, 65534, 65534)
	}
	return nil
}

// newServer makes a cluster and starts it.
func newServer() (*server, error) {
	s, err := emptyServer()
	if err != nil {
		return nil, err
	}
	if err = s.init(); err == nil {
		err = s.start()
	}
	if err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

func (s *server) init() error {
	out, err := unprivileged(exec.Command(filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "fusebox", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-instructions")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func emptyServer() (*server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(quick(), "fusebox-postgres-")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return &server{bin: bin, dir: dir, port: l.Addr().(*net.TCPAddr).Port}, own(dir)
}

// quick is a folder in memory where there is one with room: most of these tests
// are about what the server is asked, not about its disk. "" is the usual one.
func quick() string {
	const dir, room = "/dev/shm", 600 << 20
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || int64(st.Bavail)*int64(st.Bsize) < room {
		return ""
	}
	return dir
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

// start runs the server in the foreground of a child and waits until it serves.
func (s *server) start(settings ...string) error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"}
	for _, set := range settings {
		args = append(args, "-c", set)
	}
	var log bytes.Buffer
	for begin := time.Now(); ; {
		line := append([]string{filepath.Join(s.bin, "postgres")}, args...)
		if s.strace != "" {
			line = append([]string{s.strace, "-f", "-qq", "-ttt", "-e", "trace=fsync,fdatasync", "-o", s.trace}, line...)
		}
		s.cmd = unprivileged(exec.Command(line[0], line[1:]...))
		s.cmd.Stderr = &log
		if err := s.cmd.Start(); err != nil {
			return err
		}
		cmd, gone := s.cmd, make(chan struct{})
		s.gone = gone
		go func() {
			cmd.Wait()
			close(gone)
		}()
		if s.serves() {
			return nil
		}
		<-gone
		// After kill -9 of a former life its children need a moment to go.
		if time.Since(begin) > time.Minute {
			return fmt.Errorf("the server does not start: %s", log.String())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// serves waits for the first answer, or for the end of the process.
func (s *server) serves() bool {
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://fusebox@127.0.0.1:%d/postgres?sslmode=disable", s.port))
		if err == nil {
			conn.Close(ctx)
			cancel()
			return true
		}
		cancel()
		select {
		case <-s.gone:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.kill()
	return false
}

func (s *server) url(database string) string {
	return fmt.Sprintf("postgres://fusebox@127.0.0.1:%d/%s?sslmode=disable&pool_max_conns=8", s.port, database)
}

// process is the postmaster itself, which is not what was started where strace
// stands between.
func (s *server) process() *os.Process {
	if s.strace != "" {
		if b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid")); err == nil {
			first, _, _ := strings.Cut(string(b), "\n")
			if pid, err := strconv.Atoi(first); err == nil {
				p, _ := os.FindProcess(pid)
				return p
			}
		}
	}
	return s.cmd.Process
}

// kill is kill -9 of the postmaster; its children notice and go.
func (s *server) kill() {
	s.process().Kill()
	<-s.gone
}

// remove stops the server and deletes its folder.
func (s *server) remove() {
	if s.cmd != nil {
		s.process().Signal(syscall.SIGINT) // fast shutdown
		select {
		case <-s.gone:
		case <-time.After(20 * time.Second):
			s.kill()
		}
	}
	os.RemoveAll(s.dir)
}

// shared is the server that most tests use, nil where none is installed.
var shared *server

// need skips without a server; where CI says that it is one, that is a failure.
func need(t testing.TB) *server {
	t.Helper()
	if shared == nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI runs without a PostgreSQL server")
		}
		t.Skip("SKIP postgres: ", errNoServer)
	}
	return shared
}
