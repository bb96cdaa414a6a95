// Command go is where a module in Go begins: a classifier with one rule.
package main

import "github.com/fusebox-dev/fusebox/sdk/guest"

func main() {}

//go:wasmexport fb_classify
func classify(p *byte, n uint32) int64 { return guest.Classify(p, n, judge) }

// judge says what an observation means. Where it has nothing to say it answers
// false, and the next classifier is asked.
func judge(in guest.Document) (guest.Verdict, bool) {
	obs := in.Get("observation")
	if obs.Text("operation", "provider") != "example" {
		return guest.Verdict{}, false
	}
	// The body is a JSON document inside a JSON string.
	if code := obs.Inner("response", "body").Text("error", "code"); code == "plan_exhausted" {
		return guest.Verdict{Outcome: guest.Failed, Class: guest.Budget, Reason: code}, true
	}
	return guest.Verdict{}, false
}
