package main

import (
	"fmt"
	"testing"
	"time"
)

// A contender does its work n times.
type contender struct {
	name string
	do   func(n int)
}

// measure runs contenders in turns, many short batches each, and returns each
// one's best time for one call in nanoseconds, its loop included. The best batch
// is the one that nothing else on the machine disturbed; turns see to it that
// all of them meet the same machine.
func measure(rounds int, list ...contender) map[string]float64 {
	const batch = 200 * time.Microsecond
	calls := make([]int, len(list))
	best := map[string]float64{}
	for i, c := range list {
		n := 16
		for {
			start := time.Now()
			c.do(n)
			took := time.Since(start)
			if took > batch/2 || n > 1<<20 {
				calls[i] = n
				best[c.name] = float64(took) / float64(n)
				break
			}
			n *= 2
		}
	}
	for range rounds {
		for i, c := range list {
			start := time.Now()
			c.do(calls[i])
			best[c.name] = min(best[c.name], float64(time.Since(start))/float64(calls[i]))
		}
	}
	return best
}

var (
	sink   int
	failed bool // a bound was missed
)

// allocs is how many allocations one call makes.
func allocs(c contender) float64 { return testing.AllocsPerRun(1000, func() { c.do(1) }) }

// ratio prints one line of the result.
func ratio(name string, value, bound float64) {
	verdict := "ok"
	if value > bound {
		verdict, failed = "short", true
	}
	fmt.Printf("RATIO %s %.4f %.4f %s\n", name, value, bound, verdict)
}
