// Command peers compares fusebox's circuits with four public libraries in one
// run: what a call costs, and what becomes of it in the histories that break
// them. It is a module of its own, so that nobody who uses fusebox gets those
// libraries.
//
//	go run .         RATIO name value bound ok|short, ours divided by theirs
//	go test -v .     the histories, as a table
package main

func main() {
	rounds := 400
	base := measure(rounds, goBreakerLoop("gobreaker", 1, false), failsafeLoop(false), oursOne())
	ratio("admit_record_one_circuit/gobreaker", base["fusebox"]/base["gobreaker"], 1.0/3)
	ratio("admit_record_one_circuit/failsafe-go", base["fusebox"]/base["failsafe-go"], 1.0/2)
	println(int(base["fusebox"]*10), int(base["gobreaker"]), int(base["failsafe-go"]))
}
