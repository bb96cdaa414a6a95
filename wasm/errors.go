package wasm

import (
	"strconv"

	"github.com/fusebox-dev/fusebox/wasm/meter"
)

// Code names what went wrong with a module. Codes are stable, go into receipts
// and never contain anything the module wrote.
type Code string

// Codes of loading, beside those of package meter.
const (
	ForbiddenImport Code = Code(meter.ForbiddenImport)
	BadSection      Code = Code(meter.BadSection)
	ABIMismatch     Code = "abi_mismatch"    // it speaks another version of the ABI, or its manifest says otherwise than the policy
	MissingExport   Code = "missing_export"  // memory, marker or a function of a declared kind
	BadSignature    Code = "bad_signature"   // an export or import of the ABI with other types
	DigestMismatch  Code = "digest_mismatch" // the file is not the pinned one
	Unsigned        Code = "unsigned"        // a required signature is missing or wrong
	CompileBudget   Code = "compile_budget"  // compiling took longer than allowed
	BadConfig       Code = "bad_config"      // the module's settings contradict themselves
	InitFailed      Code = "init:"           // followed by the code of what went wrong while the module started
)

// Codes of calls.
const (
	FuelExhausted   Code = "fuel_exhausted"
	MemoryLimit     Code = "memory_limit"     // it trapped or exited after its memory could not grow
	StackOverflow   Code = "stack_overflow"   // recursion too deep
	Trapped         Code = "trap:"            // followed by the kind
	Exited          Code = "exit"             // proc_exit
	BadPointer      Code = "bad_pointer"      // buffer or answer lies outside the memory
	OutputTooLarge  Code = "output_too_large" // more than Limits.OutputBytes
	InputTooLarge   Code = "input_too_large"  // more than Limits.InputBytes; the module was not asked
	BadJSON         Code = "bad_json"         // the answer is not a JSON object
	SchemaViolation Code = "schema_violation" // it is one, and says something it may not
	GuestError      Code = "guest_error:"     // followed by the number the module returned
	Closed          Code = "closed"           // the module was replaced and nobody uses it any more
	Busy            Code = "busy"             // no instance became free in time
	Benched         Code = "benched"          // too many failures lately; it is left alone for a while
	Declined        Code = "no_opinion"       // not an error: the next classifier is asked
)

// A LoadError says why a module was refused.
type LoadError struct {
	Module string // its name in the policy
	Code   Code
	Detail string // for people
	Cause  error
}

func (e *LoadError) Error() string {
	s := "load wasm module " + strconv.Quote(e.Module) + ": " + string(e.Code)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap gives the technical cause, where there is one.
func (e *LoadError) Unwrap() error { return e.Cause }

// A CallError says how a call went wrong. The module's answer is not used; the
// caller asks the next classifier.
type CallError struct {
	Module string
	Fault  Code
	Detail string   // for people; control characters are escaped
	Stack  []string // guest frames of a trap, innermost first
	Info   CallInfo
}

func (e *CallError) Error() string {
	s := "call wasm module " + strconv.Quote(e.Module) + ": " + string(e.Fault)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Code is the fault as text, for receipts.
func (e *CallError) Code() string { return string(e.Fault) }

// Is makes errors.Is(err, &CallError{Fault: c}) compare codes.
func (e *CallError) Is(target error) bool {
	t, ok := target.(*CallError)
	return ok && t.Fault == e.Fault && (t.Module == "" || t.Module == e.Module)
}

// Is makes errors.Is(err, &LoadError{Code: c}) compare codes.
func (e *LoadError) Is(target error) bool {
	t, ok := target.(*LoadError)
	return ok && t.Code == e.Code && (t.Module == "" || t.Module == e.Module)
}
