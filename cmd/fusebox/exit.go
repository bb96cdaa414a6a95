package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// Exit statuses. They mean the same in every command.
const (
	exitOK       = 0
	exitFailed   = 1   // the answer is no: tampered receipts, bad lines, a policy that does not pass
	exitUsage    = 2   // the command line, or an input, cannot be read
	exitUnproven = 3   // nothing wrong was found, and not everything could be proven
	exitSetup    = 4   // configuration, policy or data directory cannot be used
	exitLooser   = 4   // a policy that grants more than before, and nobody said that it may
	exitBusy     = 5   // the address or the data directory is in use
	exitStopped  = 130 // interrupted before it was done, as shells say it
)

const exitHelp = `Exit status: 0 success; 1 the check failed; 2 the command line or an input
cannot be read; 3 not everything could be proven; 4 the configuration, the
policy or the data directory cannot be used, or a new policy grants more and
nobody said that it may; 5 an address or the data directory is in use by another
process.`

// errSilent ends a command whose output has said everything already.
var errSilent = errors.New("")

// A statusError carries the exit status of an error.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// withStatus makes an error end the process with a status. An error that has
// one keeps it.
func withStatus(status int, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*statusError](err); ok {
		return err
	}
	return &statusError{status, err}
}

// usageError points at the help of the command that was called wrongly.
func usageError(cmd *cobra.Command, err error) error {
	return withStatus(exitUsage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
}

func statusOf(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	if errors.Is(err, context.Canceled) {
		return exitStopped
	}
	return exitFailed
}
