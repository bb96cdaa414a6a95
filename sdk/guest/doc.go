// Package guest is for authors of fusebox modules in Go: it turns the ABI into
// one function from a document to an answer.
//
// A module is a main package built with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath
//
// that exports what it answers:
//
//	//go:wasmexport fb_classify
//	func classify(p *byte, n uint32) int64 { return guest.Classify(p, n, judge) }
//
//	func judge(in guest.Document) (guest.Verdict, bool) { … }
//
// The state of a module does not survive a call: the host restores its memory
// afterwards. The package avoids encoding/json, reflection and fmt, which more
// than double the size and cost a hundred times the work of a small classifier.
//
// ABI.md in this folder is the contract; README.md is the way from nothing to a
// module in use.
package guest
