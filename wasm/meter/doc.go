// Package meter makes a WebAssembly module safe to compile and its work
// countable.
//
// [Parse] reads a module strictly: section order, indices, types, the operand
// stack of every instruction, and a set of admission [Limits] that keep small
// inputs from costing seconds of compile time. [Module.Rewrite] then adds fuel:
// a counter charged at function entry, at each loop head, and for the
// instructions whose cost depends on their operands. A rewritten module traps
// when the counter falls below zero, so that its work is bounded without a
// clock, and two runs on the same input use exactly the same fuel.
//
// The original is validated completely before anything is added to it. A naive
// rewriter can turn an invalid module into a valid one: a module that writes
// global 0 while declaring none is invalid as shipped, and refills its own fuel
// once the counter has become global 0.
//
// The package knows no runtime and no ABI: it sees bytes and returns bytes. The
// accepted language is WebAssembly 2.0 without SIMD, without reference values,
// and without the instructions that change tables or drop segments; the module
// format is https://www.w3.org/TR/wasm-core-2/.
package meter
