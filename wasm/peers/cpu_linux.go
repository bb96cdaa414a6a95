package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpu is the processor time this process has used.
func cpu() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
