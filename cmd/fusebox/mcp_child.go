package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fusebox-dev/fusebox/sdk/mcpguard"
)

// patience is how long a server may take to end by itself, once its input is
// closed and again once it was asked to.
const patience = 5 * time.Second

// haste is the same when we are to end ourselves: the official TypeScript client
// kills what has not ended two seconds after it was asked, and a server whose
// wrapper was killed may run for ever.
const haste = 1500 * time.Millisecond

// A child is an MCP server that was started by us.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser // what it reads
	out   *os.File       // what it writes
	ended chan struct{}
}

func startChild(args []string, stderr io.Writer) (*child, error) {
	c := &child{cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	c.cmd.Stderr = stderr
	ownGroup(c.cmd)
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	// A pipe of our own: with StdoutPipe, Wait would cut off what is not read yet.
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	c.out, c.cmd.Stdout = out, theirs
	err = c.cmd.Start()
	_ = theirs.Close()
	if err != nil {
		_ = out.Close()
		return nil, withStatus(exitSetup, fmt.Errorf("start %s: %w; say the server's command after --", args[0], plainExec(err)))
	}
	go func() {
		_ = c.cmd.Wait() // ProcessState says how it ended
		close(c.ended)
	}()
	return c, nil
}

// plainExec leaves out the name of the command, which is said already.
func plainExec(err error) error {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		return e.Err
	}
	return err
}

// stop ends the server as the protocol asks: its input is closed; then it is
// asked, at once when ctx ends, and then it is made to.
func (c *child) stop(ctx context.Context) {
	if c.wait(patience, ctx.Done()) {
		return
	}
	signalGroup(c.cmd, syscall.SIGTERM)
	if !c.wait(patience, ctx.Done()) && !c.wait(haste, nil) {
		signalGroup(c.cmd, syscall.SIGKILL)
		<-c.ended
	}
}

// wait reports whether the server ended in time, and before cut.
func (c *child) wait(d time.Duration, cut <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.ended:
		return true
	case <-t.C:
	case <-cut:
	}
	return false
}

// status is how the server ended, as shells say it.
func (c *child) status() int {
	if ws, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// wrap runs a server behind the guard until the client closes its side, the
// server ends, or ctx does; then it ends both in order.
func wrap(ctx context.Context, guard *mcpguard.Guard, who mcpguard.Identity, args []string, stdin io.Reader, stdout, stderr io.Writer) (status int, err error) {
	c, err := startChild(args, stderr)
	if err != nil {
		return 0, err
	}
	work := context.WithoutCancel(ctx) // what was begun is settled
	relay := guard.NewRelay(who, stdout, c.in)
	asked, answered := make(chan struct{}), make(chan struct{})
	go func() {
		_ = relay.FromClient(work, stdin) // however it ends, there is nothing more to carry
		// A server whose input ends may drop what it is doing: calls that are out
		// get their answer first, or their outcome would be anybody's guess.
		for end := time.Now().Add(patience); relay.Waiting() > 0 && time.Now().Before(end) && !c.wait(10*time.Millisecond, nil); {
		}
		_ = c.in.Close()
		close(asked)
	}()
	go func() {
		_ = relay.FromServer(work, c.out) // likewise
		relay.Lost(work)
		close(answered)
	}()
	select {
	case <-asked:
		c.stop(ctx)
	case <-ctx.Done():
		_ = c.in.Close()
		c.stop(ctx)
	case <-c.ended:
	case <-answered: // it closed its output: it will say no more
		_ = c.in.Close()
		c.stop(ctx)
	}
	// A process that the server left behind may hold its output open.
	select {
	case <-answered:
	case <-time.After(time.Second):
		_ = c.out.Close()
		<-answered
	}
	_ = c.out.Close()
	return c.status(), nil
}
