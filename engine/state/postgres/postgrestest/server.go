// Package postgrestest starts real PostgreSQL servers for tests: as an
// unprivileged user, on loopback, in folders of their own, ended by their
// process ids. It can kill one, copy one as a streaming standby and promote it.
package postgrestest

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
	"time"

	"github.com/jackc/pgx/v5"
)

// EnvBinaries names the folder of the server's binaries, where they are not
// found by themselves: beside the postgres of PATH, or in /usr/lib/postgresql.
const EnvBinaries = "FUSEBOX_POSTGRES"

// ErrNoServer says that there is nothing to start.
var ErrNoServer = errors.New("no PostgreSQL 15 or newer is installed")

// A Server is one PostgreSQL cluster and the process that serves it.
type Server struct {
	Dir  string // its folder; the cluster is in data below it
	Port int

	// Strace, where it is set before Start, is the strace that writes the
	// server's syncs to Trace.
	Strace, Trace string

	bin  string // folder of the binaries
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
}

// New makes a cluster and starts it.
func New(settings ...string) (*Server, error) { return newIn(quick(), settings) }

func newIn(dir string, settings []string) (*Server, error) {
	s, err := stopped(dir)
	if err != nil {
		return nil, err
	}
	if err := s.Start(settings...); err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// Stopped makes a cluster that is not started yet.
func Stopped() (*Server, error) { return stopped(quick()) }

func stopped(dir string) (*Server, error) {
	s, err := place(dir)
	if err != nil {
		return nil, err
	}
	out, err := unprivileged(exec.Command(filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "fusebox", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-instructions")).CombinedOutput()
	if err != nil {
		s.Remove()
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	return s, nil
}

// Standby makes a streaming copy of the primary that is reached at a port, and
// starts it.
func Standby(port int) (*Server, error) {
	s, err := place(quick())
	if err != nil {
		return nil, err
	}
	out, err := unprivileged(exec.Command(filepath.Join(s.bin, "pg_basebackup"), "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "fusebox",
		"-D", s.data(), "-R", "-X", "stream", "-c", "fast")).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("pg_basebackup: %w: %s", err, out)
	} else {
		err = s.Start("hot_standby=on")
	}
	if err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// place is a folder, below dir, and a port for a server.
func place(below string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(below, "fusebox-postgres-")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return &Server{bin: bin, Dir: dir, Port: l.Addr().(*net.TCPAddr).Port}, own(dir)
}

// binaries finds the newest server that is installed.
func binaries() (string, error) {
	var found []string
	if dir := os.Getenv(EnvBinaries); dir != "" {
		found = []string{filepath.Join(dir, "postgres")}
	} else {
		found, _ = filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		if path, err := exec.LookPath("postgres"); err == nil {
			found = append(found, path)
		}
		slices.Sort(found)
	}
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
	return "", ErrNoServer
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

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// URL is the address of a database of it.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://fusebox@127.0.0.1:%d/%s?sslmode=disable&pool_max_conns=8", s.Port, database)
}

// Start runs the server in the foreground of a child and waits until it serves.
func (s *Server) Start(settings ...string) error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.Port), "-k", s.Dir, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=400"}
	for _, set := range settings {
		args = append(args, "-c", set)
	}
	var log bytes.Buffer
	for begin := time.Now(); ; {
		line := append([]string{filepath.Join(s.bin, "postgres")}, args...)
		if s.Strace != "" {
			line = append([]string{s.Strace, "-f", "-qq", "-ttt", "-e", "trace=fsync,fdatasync", "-o", s.Trace}, line...)
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
func (s *Server) serves() bool {
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := s.connect(ctx)
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
	s.Kill()
	return false
}

// process is the postmaster itself, which is not what was started where strace
// stands between.
func (s *Server) process() *os.Process {
	if s.Strace != "" {
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

// Kill is kill -9 of the postmaster; its children notice and go.
func (s *Server) Kill() {
	s.process().Kill()
	<-s.gone
}

// Remove stops the server and deletes its folder.
func (s *Server) Remove() {
	if s.cmd != nil && s.cmd.Process != nil {
		s.process().Signal(syscall.SIGINT) // fast shutdown
		select {
		case <-s.gone:
		case <-time.After(20 * time.Second):
			s.Kill()
		}
	}
	os.RemoveAll(s.Dir)
}

func (s *Server) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, fmt.Sprintf("postgres://fusebox@127.0.0.1:%d/postgres?sslmode=disable", s.Port))
}
