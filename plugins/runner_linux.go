package plugins

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes makes a process group, so that an interrupt at the terminal
// is ours to handle, and has the kernel end the child with us.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd returns when the process has ended, and leaves it to be reaped.
func awaitEnd(pid int) bool {
	for {
		switch unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) {
		case nil:
			return true
		case unix.EINTR:
		default:
			return false
		}
	}
}
