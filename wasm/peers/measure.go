package main

import (
	"fmt"
	"slices"
	"time"
)

// A contender does its work n times.
type contender struct {
	name string
	do   func(n int)
}

// measure runs contenders in turns and returns each one's median batch: processor
// time for one call in nanoseconds. Processor time counts what the garbage
// collector does on other cores for a call, and does not count what other
// programs do in between. The median and not the best: the best batch of who
// allocates much is the one in which the collector happened not to run.
func measure(rounds int, list ...contender) map[string]float64 {
	const batch = 20 * time.Millisecond
	calls := make([]int, len(list))
	took := make([][]float64, len(list))
	for i, c := range list {
		for n := 1; ; n *= 2 {
			start := cpu()
			c.do(n)
			if calls[i] = n; cpu()-start > batch/2 {
				break
			}
		}
	}
	for range rounds {
		for i, c := range list {
			start := cpu()
			c.do(calls[i])
			took[i] = append(took[i], float64(cpu()-start)/float64(calls[i]))
		}
	}
	median := map[string]float64{}
	for i, c := range list {
		slices.Sort(took[i])
		median[c.name] = took[i][len(took[i])/2]
	}
	return median
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
