// Package wasm runs a team's own classifier or fallback chooser in a sandbox.
//
// A module is a WebAssembly file that answers one question about one JSON
// document (fusebox wasm ABI 1, written down in sdk/guest/ABI.md). [Load] reads
// it strictly, adds deterministic fuel (package meter), compiles it once and
// keeps a fixed pool of instances. Every call starts from the same state:
// memory and globals are restored after each one, so that an answer depends on
// the module's bytes and its input and on nothing else, and a replay can
// reproduce it.
//
// A module sees no file, socket, environment, clock or randomness. What goes
// wrong inside it costs only itself: the error has a [Code], the instance is
// thrown away, another takes its place, and after repeated failures the module
// is benched for a while.
//
// The package does not judge answers: whoever uses them applies the floor of
// package taxonomy.
package wasm
