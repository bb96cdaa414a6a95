// Command go is a module that misbehaves as the tool's name in its document
// asks.
package main

import (
	"strconv"
	"time"

	"github.com/fusebox-dev/fusebox/sdk/guest"
)

func main() {}

//go:wasmexport fb_classify
func classify(p *byte, n uint32) int64 { return guest.Classify(p, n, judge) }

//go:wasmexport fb_fallback
func fallback(p *byte, n uint32) int64 {
	return guest.Fallback(p, n, func(guest.Document) (guest.Choice, bool) { return guest.Choice{}, false })
}

var (
	calls   int
	kept    [][]byte
	numbers = map[string]int{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
)

func judge(in guest.Document) (guest.Verdict, bool) {
	v := guest.Verdict{Outcome: guest.Failed, Class: guest.Budget}
	calls++
	switch in.Text("observation", "operation", "tool") {
	case "panic":
		panic("a guest's last words\x1b[31m")
	case "nil_map":
		var m map[string]int
		m["x"] = 1
	case "spin":
		for i := 0; ; i++ {
			kept = nil
		}
	case "recursion":
		v.Reason = strconv.Itoa(deep(0))
	case "memory_bomb":
		for {
			kept = append(kept, make([]byte, 8<<20))
		}
	case "goroutine_leak":
		for range 100 {
			go func() { select {} }()
		}
	case "deadlock":
		select {}
	case "sleep":
		time.Sleep(1000 * time.Hour)
	case "gc_churn":
		for i := range 1_000 {
			kept = append(kept[:0], make([]byte, 100+i%1000))
		}
	case "map_order": // the order of a map is random, from the runtime's own seed
		for k := range numbers {
			v.Facts = append(v.Facts, guest.Fact{Name: k, Value: strconv.Itoa(len(v.Facts))})
		}
	case "clock":
		v.Facts = []guest.Fact{{Name: "one", Value: strconv.FormatInt(time.Now().UnixNano()%1e15, 10)}}
	case "leak": // changes its answer with the number of calls
		v.Facts = []guest.Fact{{Name: "one", Value: strconv.Itoa(calls)}}
	}
	return v, true
}

func deep(n int) int {
	var pad [64]int
	pad[n%64] = n
	return deep(n+1) + pad[(n+1)%64]
}
