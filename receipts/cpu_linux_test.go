package receipts

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// threadCPU is the time this thread has spent on a processor. On a machine
// with other work it is the only clock that measures ours.
func threadCPU() time.Duration {
	return cpuClock(unix.CLOCK_THREAD_CPUTIME_ID)
}

// processCPU is the time all threads have spent.
func processCPU() time.Duration {
	return cpuClock(unix.CLOCK_PROCESS_CPUTIME_ID)
}

func cpuClock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// race runs the candidates in turn, many short rounds each, and returns the
// smallest time per call of each: the round that was disturbed least.
func race(rounds, calls int, f ...func(i int)) []time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := make([]time.Duration, len(f))
	for range rounds {
		for k := range f {
			start := threadCPU()
			for i := range calls {
				f[k](i)
			}
			if d := (threadCPU() - start); best[k] == 0 || d < best[k] {
				best[k] = d
			}
		}
	}
	for k := range best {
		best[k] /= time.Duration(calls)
	}
	return best
}
