package builtin_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fusebox-dev/fusebox/taxonomy/builtin"
)

// BenchmarkRatio prints what one ordinary observation costs in microseconds of
// this thread's own processor time: the round that was disturbed least, because
// a machine with other work slows every clock but not that one's minimum.
func BenchmarkRatio(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	table := builtin.Default()
	for _, name := range []string{"rate_limit", "ok_1k", "write_timeout", "tool_error"} {
		o := ordinary[name]
		const calls = 2000
		best := time.Hour
		for range 60 {
			start := threadTime(b)
			for range calls {
				table.Judge(&o)
			}
			best = min(best, (threadTime(b)-start)/calls)
		}
		verdict := "ok"
		if best > 2*time.Microsecond {
			verdict = "short"
		}
		fmt.Printf("RATIO classify_%s_us %.2f 2 %s\n", name, float64(best.Nanoseconds())/1000, verdict)
	}
	o := ordinary["ok_1k"]
	for b.Loop() {
		table.Judge(&o)
	}
}

func threadTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
