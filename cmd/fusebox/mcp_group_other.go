//go:build !unix

package main

import (
	"os/exec"
	"syscall"
)

func ownGroup(*exec.Cmd) {}

// signalGroup tells the command; where there are no process groups, it alone.
func signalGroup(cmd *exec.Cmd, s syscall.Signal) {
	if s == syscall.SIGKILL {
		_ = cmd.Process.Kill() // an error means that it has ended
		return
	}
	_ = cmd.Process.Signal(s) // likewise
}
