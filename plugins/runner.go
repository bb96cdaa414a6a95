package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A child is one started process, as go-plugin wants to see it. We start it
// ourselves for three reasons: its standard input is a pipe whose other end
// closes with us, whatever ends us; it leads a process group that goes as a
// whole; and a hanging one can be killed while go-plugin waits for it.
type child struct {
	cmd            *exec.Cmd
	sockets        string // the folder where its socket must lie
	stdout, stderr *os.File
	theirs         []*os.File // the child's ends of the pipes, until it has them
	alive          *os.File   // our end of its standard input
	ended          chan struct{}

	mu      sync.Mutex
	started bool
	killed  bool // also before it was started
	reaped  bool
}

// lastRead is for what an ended process wrote and nobody has read yet.
const lastRead = time.Second

func newChild() *child { return &child{ended: make(chan struct{})} }

// prepare gives the command its pipes. sockets is the folder where it has to
// make its socket.
func (c *child) prepare(cmd *exec.Cmd, sockets string) (*child, error) {
	c.cmd, c.sockets = cmd, sockets
	var stdin, stdout, stderr *os.File
	var err1, err2, err3 error
	stdin, c.alive, err1 = os.Pipe()
	c.stdout, stdout, err2 = os.Pipe()
	c.stderr, stderr, err3 = os.Pipe()
	c.theirs = []*os.File{stdin, stdout, stderr}
	if err := errors.Join(err1, err2, err3); err != nil {
		c.closePipes()
		return nil, fmt.Errorf("make pipes: %w", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.SysProcAttr = processAttributes()
	return c, nil
}

func (c *child) closePipes() {
	for _, f := range append(c.theirs, c.alive, c.stdout, c.stderr) {
		if f != nil {
			_ = f.Close() // a second close says so and does nothing
		}
	}
}

// Start implements go-plugin's runner. The process is started from a thread
// that stays as long as it does: the kernel's notice that a parent is gone is
// about the thread.
func (c *child) Start(context.Context) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c.mu.Lock()
		err := c.launch()
		c.started = err == nil
		c.mu.Unlock()
		for _, f := range c.theirs {
			_ = f.Close()
		}
		result <- err
		if err != nil {
			close(c.ended)
			return
		}
		c.await()
	}()
	return <-result
}

func (c *child) launch() error {
	if c.killed {
		return errors.New("stopped before it was started")
	}
	var err error
	for range 50 { // another thread may fork while the file is still open for writing
		if err = c.cmd.Start(); !errors.Is(err, errTextBusy) {
			break
		}
		runtime.Gosched()
		pauseBusy()
	}
	return err
}

// await reaps the process, and with it whatever is left of its group.
func (c *child) await() {
	pid := c.cmd.Process.Pid
	if !awaitEnd(pid) { // here nobody can tell that it ended without reaping it
		_ = c.cmd.Wait() // how it ended is asked below
	}
	c.mu.Lock()
	killGroup(pid) // while its number is still its own
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Wait()
	}
	c.reaped = true
	c.mu.Unlock()
	_ = c.alive.Close()
	// What left the group and holds the pipes would keep go-plugin reading for ever.
	for _, f := range []*os.File{c.stdout, c.stderr} {
		_ = f.SetReadDeadline(time.Now().Add(lastRead)) // where that cannot be, they end with their holder
	}
	close(c.ended)
}

// kill ends the process and its group at once.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	if c.started && !c.reaped {
		killGroup(c.cmd.Process.Pid)
	}
}

// Wait implements go-plugin's runner.
func (c *child) Wait(context.Context) error {
	<-c.ended
	if s := c.cmd.ProcessState; s != nil && !s.Success() {
		return errors.New(s.String())
	}
	return nil
}

// Kill implements go-plugin's runner.
func (c *child) Kill(context.Context) error {
	c.kill()
	return nil
}

// Stdout implements go-plugin's runner.
func (c *child) Stdout() io.ReadCloser { return c.stdout }

// Stderr implements go-plugin's runner.
func (c *child) Stderr() io.ReadCloser { return c.stderr }

// Name implements go-plugin's runner.
func (c *child) Name() string { return filepath.Base(c.cmd.Path) }

// Diagnose implements go-plugin's runner.
func (c *child) Diagnose(context.Context) string { return "" }

// ID implements go-plugin's runner.
func (c *child) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return ""
	}
	return strconv.Itoa(c.cmd.Process.Pid)
}

// PluginToHost refuses every address but a socket in the folder that was made
// for this process: what a plugin prints must not make us talk to somebody else.
func (c *child) PluginToHost(network, address string) (string, string, error) {
	if network == "tcp" && !unixSockets {
		if strings.HasPrefix(address, "127.0.0.1:") {
			return network, address, nil
		}
	}
	if network != "unix" || filepath.Dir(filepath.Clean(address)) != filepath.Clean(c.sockets) {
		return "", "", errors.New("it says that it listens elsewhere than at a socket in the folder that PLUGIN_UNIX_SOCKET_DIR names")
	}
	return network, address, nil
}

// HostToPlugin implements go-plugin's runner.
func (c *child) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
