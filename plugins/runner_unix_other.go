//go:build unix && !linux

package plugins

import "syscall"

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitEnd(int) bool { return false }
