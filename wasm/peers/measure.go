package main

import (
	"fmt"
	"time"
)

// A contender does its work n times.
type contender struct {
	name string
	do   func(n int)
}

// measure runs contenders in turns and returns each one's best batch: processor
// time for one call in nanoseconds. Processor time counts what the garbage
// collector does on other cores for a call, and does not count what other
// programs do in between; batches are long enough to hold the collector's share.
func measure(rounds int, list ...contender) map[string]float64 {
	const batch = 20 * time.Millisecond
	calls := make([]int, len(list))
	best := map[string]float64{}
	for i, c := range list {
		for n := 1; ; n *= 2 {
			start := cpu()
			c.do(n)
			took := cpu() - start
			if calls[i], best[c.name] = n, float64(took)/float64(n); took > batch/2 {
				break
			}
		}
	}
	for range rounds {
		for i, c := range list {
			start := cpu()
			c.do(calls[i])
			best[c.name] = min(best[c.name], float64(cpu()-start)/float64(calls[i]))
		}
	}
	return best
}

var failed bool // a bound was missed

func line(name string, value, bound float64, ok bool) {
	verdict := "ok"
	if !ok {
		verdict, failed = "short", true
	}
	fmt.Printf("RATIO %s %.3g %.3g %s\n", name, value, bound, verdict)
}

func atMost(name string, value, bound float64)  { line(name, value, bound, value <= bound) }
func atLeast(name string, value, bound float64) { line(name, value, bound, value >= bound) }

func show(b map[string]float64, names ...string) {
	for _, n := range names {
		fmt.Printf("  %-52s %10.2f µs\n", n, b[n]/1e3)
	}
}
