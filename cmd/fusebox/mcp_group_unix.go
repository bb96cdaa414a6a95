//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup starts a command in a process group of its own, so that what its
// launcher (npx, sh) started is ended with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup tells the command and all that it started.
func signalGroup(cmd *exec.Cmd, s syscall.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, s) // an error means that they have ended
}
