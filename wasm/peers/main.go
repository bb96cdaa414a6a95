// Command peers measures the sandbox and its nearest peer, Extism's Go SDK, in
// one run: the same classifier in C, the same document in, the same answer out.
// It is a module of its own, so that nobody who uses fusebox gets that library.
//
//	go run .    RATIO name value bound ok|short
//
// Exit status 1 when a bound is missed.
package main

import (
	"fmt"
	"os"
	"runtime"
)

const rounds = 30

func main() {
	fmt.Printf("%s, %d cores; processor time, median of %d batches each, taken in turns\n\n", runtime.Version(), runtime.NumCPU(), rounds)
	report()
	if failed {
		os.Exit(1)
	}
}

func report() {
	calls()
	loops()
	instances()
}

// calls: one document of about 1.1 KB in, about 100 bytes out.
func calls() {
	c, g, e := newFusebox("c"), newFusebox("go"), newExtism()
	defer c.close()
	defer g.close()
	defer e.close()
	want := c.answer()
	if got := e.answer(); got != want {
		panic("the two C modules differ: " + got + " and " + want)
	}
	b := measure(rounds, c.call(), c.decide(), c.fresh(), g.call(), e.reused(false), e.fresh(), e.newPlugin())
	t := measure(rounds/2, e.reused(true))
	b["Extism, reused, with a timeout"] = t["Extism, reused, with a timeout"]
	fmt.Printf("One classifier, %d bytes in, %d bytes out. fusebox counts fuel and restores the state after every call; Extism keeps it:\n", len(c.document), len(want))
	show(b, "fusebox, C", "fusebox, C, document built and answer checked", "fusebox, C, new instance", "fusebox, Go",
		"Extism, reused", "Extism, reused, with a timeout", "Extism, new instance", "Extism, new plugin, compilation cached")
	atMost("wasm_c_call_us", b["fusebox, C"]/1e3, 6)
	atMost("wasm_go_call_us", b["fusebox, Go"]/1e3, 25)
	atLeast("extism_reused/wasm_c_call", b["Extism, reused"]/b["fusebox, C"], 8)
	// Extism has two ways to a fresh instance, and the lines say which they mean:
	// NewPlugin for every call, which is the first thing its documentation shows, and
	// an instance of a plugin compiled before, which takes about half of that. The
	// same bound is held against both. The second is the one that may come out
	// short: most of what it costs is garbage, and how dear that is depends on what
	// else the machine does.
	atLeast("extism_fresh_by_new_plugin/wasm_c_call", b["Extism, new plugin, compilation cached"]/b["fusebox, C"], 80)
	atLeast("extism_fresh_by_compiled_instance/wasm_c_call", b["Extism, new instance"]/b["fusebox, C"], 80)
	// Like against like: a new instance here, too.
	atLeast("extism_fresh_by_compiled_instance/wasm_c_new_instance", b["Extism, new instance"]/b["fusebox, C, new instance"], 4)
	fmt.Println()
}

// loops: a million turns of a tight loop.
func loops() {
	l := newLoops()
	defer l.close()
	b := measure(rounds, l.list...)
	fmt.Println("A million turns of a tight loop:")
	show(b, "plain, no limit at all", "fuel", "context deadline")
	atMost("wasm_fuel_loop/plain", b["fuel"]/b["plain, no limit at all"], 1.10)
	atLeast("wasm_deadline_loop/fuel", b["context deadline"]/b["fuel"], 2)
	fmt.Println()
}

func instances() {
	kib, ok := instanceKiB()
	if !ok {
		fmt.Println("This platform does not tell its resident memory.")
		return
	}
	fmt.Println("A further instance of the Go example, called, in KiB of memory of its own:")
	atMost("wasm_go_instance_kib", kib, 512)
}
