// Command peers compares fusebox's circuits with four public libraries in one
// run: what a call costs, and what becomes of it in the histories that break
// them. It is a module of its own, so that nobody who uses fusebox gets those
// libraries.
//
//	go run .         RATIO name value bound ok|short, ours divided by theirs
//	go test -v .     the histories, as a table
//
// Exit status 1 when a bound is missed.
package main

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

const rounds = 300

func main() {
	fmt.Printf("go %s, %d cores; best of %d short batches each, taken in turns\n\n",
		runtime.Version(), runtime.NumCPU(), rounds)
	oneCircuit()
	shippedPath()
	rejections()
	listeners()
	memory()
	if failed {
		os.Exit(1)
	}
}

// oneCircuit: admit and record of one success on one circuit that is closed.
// Ours is given now, because its caller measured the latency; the others read
// the clock themselves. What reading it costs is printed, to be added by
// whoever thinks that fair.
func oneCircuit() {
	clock := contender{"clock", func(n int) {
		for range n {
			sink += int(time.Now().Nanosecond() & 1)
		}
	}}
	b := measure(rounds, goBreakerLoop("gobreaker", 1, false), failsafeLoop(false), cep21Loop(false), sentinelLoop("closed", false),
		oursOne(), oursAfterFailure(), clock)
	fmt.Println("One circuit, closed, one success admitted and recorded:")
	show(b, "fusebox", "fusebox, a failure in the window", "gobreaker", "failsafe-go", "cep21", "sentinel-golang", "clock")
	ratio("admit_record_one/gobreaker", b["fusebox"]/b["gobreaker"], 1.0/3)
	ratio("admit_record_one/failsafe-go", b["fusebox"]/b["failsafe-go"], 1.0/2)
	ratio("admit_record_one/cep21", b["fusebox"]/b["cep21"], 1.0/2)
	ratio("admit_record_one/sentinel-golang", b["fusebox"]/b["sentinel-golang"], 1.0/2)
	ratio("admit_record_one_with_clock/gobreaker", (b["fusebox"]+b["clock"])/b["gobreaker"], 1)
	ratio("admit_record_after_failure/gobreaker", b["fusebox, a failure in the window"]/b["gobreaker"], 1)
	ratio("allocs_admit_record", allocs(oursOne()), 0)
	fmt.Println()
}

// shippedPath: every circuit of the shipped policy on one model call, while one
// circuit that has nothing to do with it is open.
func shippedPath() {
	w := newWhole()
	b := measure(rounds, goBreakerLoop("gobreaker, one", 1, false), goBreakerLoop("gobreaker, as many", w.touched, false),
		w.admit(), w.admitAfterChange(), w.admitRecord())
	fmt.Printf("The shipped scopes (%d breakers, %d circuits on the path, %d counted by a success), an unrelated circuit open:\n",
		w.breakers, w.circuits, w.touched)
	show(b, "fusebox, admit", "fusebox, admit after any change", "fusebox, admit and record", "gobreaker, one", "gobreaker, as many")
	ratio("admit_shipped_scopes/gobreaker_execute", b["fusebox, admit"]/b["gobreaker, one"], 1.0/10)
	ratio("admit_record_shipped_scopes/as_many_gobreakers", b["fusebox, admit and record"]/b["gobreaker, as many"], 1.0/3)
	ratio("allocs_admit_shipped_scopes", allocs(w.admit()), 0)
	ratio("allocs_admit_record_shipped_scopes", allocs(w.admitRecord()), 0)
	fmt.Println()
}

// rejections: one circuit that is open.
func rejections() {
	b := measure(rounds, goBreakerLoop("gobreaker", 1, true), failsafeLoop(true), cep21Loop(true), sentinelLoop("open", true), oursReject())
	fmt.Println("One circuit, open, one call refused (ours with all figures of the refusal):")
	show(b, "fusebox", "gobreaker", "failsafe-go", "cep21", "sentinel-golang")
	for _, other := range []string{"gobreaker", "failsafe-go", "cep21", "sentinel-golang"} {
		ratio("reject_one/"+other, b["fusebox"]/b[other], 1.0/5)
	}
	ratio("allocs_reject", allocs(oursReject()), 0)
	fmt.Println()
}

func memory() {
	ours, theirs := memoryOf(oursMany), memoryOf(goBreakersMany)
	fmt.Printf("60,000 circuits with outcomes in their windows: fusebox %.1f MB, gobreaker in a sync.Map %.1f MB\n", ours/1e6, theirs/1e6)
	ratio("memory_60000/40MB", ours/40e6, 1)
	ratio("memory_60000/gobreaker", ours/theirs, 1.2)
}

func show(b map[string]float64, names ...string) {
	for _, n := range names {
		fmt.Printf("  %-36s %8.1f ns\n", n, b[n])
	}
}
