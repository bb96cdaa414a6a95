//go:build unix

package plugins

import (
	"syscall"
	"time"
)

const unixSockets = true

// openNow has a pipe opened without a writer, so that it can be seen for one.
const openNow = syscall.O_NONBLOCK

var errTextBusy error = syscall.ETXTBSY

func pauseBusy() { time.Sleep(5 * time.Millisecond) }

// killGroup ends the process and everything it started in its group.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // gone already is as good
