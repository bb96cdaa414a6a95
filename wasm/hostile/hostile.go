// Package hostile is the collection of modules that no host wants to meet. Each
// is a case: what it does, and the code by which the host refuses it or stops
// it. The sources lie in wat/ and testdata/, what the WebAssembly text format
// cannot say is made by generate.go.
//
// The package is for tests: of the sandbox, and of whatever has to live on when
// a module fails.
package hostile

import (
	"embed"
	"slices"
	"strings"
)

//go:embed wat/*.wasm testdata/*.wasm
var files embed.FS

// A Case is one hostile module.
type Case struct {
	Name    string
	Fear    string // what it does
	Wasm    []byte
	Go      bool   // profile go, which offers the stand-in for WASI
	Log     bool   // fusebox.log is granted
	Load    string // the code by which loading refuses it; "" when it loads
	Call    string // the code by which a call ends; "" when it answers
	Chooser bool   // asked as a fallback chooser
	Tool    string // operation.tool of the document, which tells C and Go modules what to do
	Bytes   int    // length of the response body; 0 is short
	Refused string // what taxonomy.Floor refuses of its answer
	Never   bool   // it fails whatever it is asked
	Keeps   bool   // an error that leaves the instance in use: nothing ran off, the answer was wrong
}

// Vocabulary is what the cases are allowed to say.
var (
	Reasons = []string{"declared_reason"}
	Facts   = map[string][]string{"owner": {"finance"}, "one": {}, "two": {}, "three": {}, "four": {}, "five": {}, "six": {},
		"seven": {}, "eight": {}, "nine": {}}
)

// wat lists the modules of wat/ with the code of loading and of a call.
var wat = []Case{
	// Work without end.
	{Name: "inf_loop", Call: "fuel_exhausted"},
	{Name: "exp_calls", Call: "fuel_exhausted"},
	{Name: "bulk_fill", Call: "fuel_exhausted"},
	{Name: "bulk_copy", Call: "fuel_exhausted"},
	{Name: "bulk_negative_length", Call: "fuel_exhausted"},
	{Name: "bulk_in_dead_code"},
	{Name: "nested_empty_loops", Call: "fuel_exhausted"},
	{Name: "all_but_the_fuel"},
	{Name: "deep_recursion", Call: "stack_overflow"},
	{Name: "mutual_recursion", Call: "stack_overflow"},
	{Name: "indirect_recursion", Call: "stack_overflow"},
	{Name: "multi_value_recursion", Call: "stack_overflow"},
	{Name: "bounded_recursion"},
	{Name: "buf_loops", Call: "fuel_exhausted", Never: true},
	{Name: "touch_every_page"},
	// Traps.
	{Name: "unreachable", Call: "trap:unreachable"},
	{Name: "div_zero", Call: "trap:divide_by_zero"},
	{Name: "int_overflow", Call: "trap:integer_overflow"},
	{Name: "bad_conversion", Call: "trap:invalid_conversion"},
	{Name: "oob_load", Call: "trap:out_of_bounds"},
	{Name: "oob_store", Call: "trap:out_of_bounds"},
	{Name: "bad_indirect", Call: "trap:type_mismatch"},
	{Name: "null_indirect", Call: "trap:table_access"},
	{Name: "outside_indirect", Call: "trap:table_access"},
	{Name: "buf_traps", Call: "trap:unreachable", Never: true},
	{Name: "trap_then_call", Call: "trap:unreachable", Bytes: 4000},
	// Memory and tables.
	{Name: "grow_to_limit", Call: "memory_limit"},
	{Name: "grow_page_by_page", Call: "fuel_exhausted"},
	{Name: "grow_then_answer"},
	{Name: "grow_negative"},
	{Name: "mem_min_over", Load: "over_limit:memory_pages"},
	{Name: "mem_max_over"},
	{Name: "no_memory", Load: "missing_export"},
	{Name: "two_memories", Load: "over_limit:memories"},
	{Name: "imported_memory", Load: "forbidden_import"},
	{Name: "imported_global", Load: "forbidden_import"},
	{Name: "imported_table", Load: "forbidden_import"},
	{Name: "shared_memory", Load: "bad_section"},
	{Name: "memory64", Load: "bad_section"},
	{Name: "huge_table", Load: "over_limit:table_entries"},
	{Name: "table_ops", Load: "bad_section"},
	{Name: "table_grow", Load: "forbidden_opcode"},
	{Name: "element_oob", Load: "bad_section"},
	{Name: "data_oob", Load: "bad_section"},
	{Name: "passive_data", Load: "forbidden_opcode"},
	{Name: "many_segments", Load: "over_limit:data_segments"},
	// Where answers and buffers lie.
	{Name: "out_huge_len", Call: "output_too_large"},
	{Name: "out_huge_ptr", Call: "bad_pointer"},
	{Name: "out_ptr_end", Call: "bad_pointer"},
	{Name: "out_wraps", Call: "bad_pointer"},
	{Name: "out_zero_len", Call: "bad_json", Keeps: true},
	{Name: "out_overlaps_input"},
	{Name: "out_smallest", Call: "guest_error:-9223372036854775808", Keeps: true},
	{Name: "out_at_zero", Call: "bad_json", Keeps: true},
	{Name: "output_4097", Call: "output_too_large"},
	{Name: "buf_zero", Call: "guest_error:0", Keeps: true, Never: true},
	{Name: "buf_oob", Call: "bad_pointer", Never: true},
	{Name: "buf_wraps", Call: "bad_pointer", Never: true},
	{Name: "buf_moves_each_call"},
	{Name: "buf_grows"},
	{Name: "buf_exits", Call: "exit", Go: true, Never: true},
	{Name: "buf_logs", Log: true},
	// Starting.
	{Name: "start_loop", Load: "init:fuel_exhausted"},
	{Name: "start_trap", Load: "init:trap:unreachable"},
	{Name: "start_imported", Load: "bad_section", Log: true},
	{Name: "init_loop", Load: "init:fuel_exhausted"},
	{Name: "init_recursion", Load: "init:stack_overflow"},
	{Name: "init_grows"},
	{Name: "init_exit", Load: "init:exit", Go: true},
	// Imports and exports.
	{Name: "import_wasi_fs", Load: "forbidden_import", Go: true},
	{Name: "import_sockets", Load: "forbidden_import", Go: true},
	{Name: "import_clock_random", Load: "forbidden_import"},
	{Name: "import_unknown", Load: "forbidden_import", Go: true, Log: true},
	{Name: "import_log_ungranted", Load: "forbidden_import"},
	{Name: "import_wrong_type", Load: "bad_signature", Log: true},
	{Name: "export_of_import", Load: "bad_section", Log: true},
	{Name: "table_of_import", Load: "bad_section", Log: true},
	{Name: "wrong_signature", Load: "bad_signature"},
	{Name: "missing_marker", Load: "missing_export"},
	{Name: "marker_from_future", Load: "abi_mismatch"},
	{Name: "marker_both"},
	{Name: "marker_wrong_type", Load: "bad_signature"},
	{Name: "no_function", Load: "missing_export"},
	{Name: "memory_is_a_function", Load: "missing_export"},
	{Name: "reserved_export_name", Load: "reserved_export"},
	// The host's functions.
	{Name: "log_flood", Call: "fuel_exhausted", Log: true},
	{Name: "log_huge", Log: true},
	{Name: "log_bad_ptr", Log: true},
	{Name: "log_control_characters", Log: true},
	{Name: "proc_exit", Call: "exit", Go: true},
	{Name: "random_flood", Call: "fuel_exhausted", Go: true},
	{Name: "sleep_for_ever", Call: "fuel_exhausted", Go: true},
	{Name: "clock_spin", Call: "fuel_exhausted", Go: true},
	{Name: "iov_bomb", Call: "fuel_exhausted", Go: true},
	{Name: "wasi_bad_pointers", Go: true},
	{Name: "poll_overlap", Go: true},
	{Name: "clock_wraps", Go: true},
	{Name: "write_over_itself", Go: true},
	// State.
	{Name: "state_leak_global"},
	{Name: "state_leak_memory"},
	{Name: "state_leak_float"},
	{Name: "reads_earlier_input"},
	{Name: "nan_bits"},
	{Name: "warm_up_trap"},
	// Answers.
	{Name: "not_json", Call: "bad_json", Keeps: true},
	{Name: "truncated_json", Call: "bad_json", Keeps: true},
	{Name: "json_array", Call: "bad_json", Keeps: true},
	{Name: "invalid_utf8", Call: "schema_violation", Keeps: true},
	{Name: "deep_json", Call: "schema_violation", Keeps: true},
	{Name: "duplicate_keys", Call: "schema_violation", Keeps: true},
	{Name: "unknown_enum", Call: "schema_violation", Keeps: true},
	{Name: "unknown_class", Call: "schema_violation", Keeps: true},
	{Name: "unknown_key", Call: "schema_violation", Keeps: true},
	{Name: "nan_number", Call: "schema_violation", Keeps: true},
	{Name: "negative_retry", Call: "schema_violation", Keeps: true},
	{Name: "huge_retry"},
	{Name: "number_exponent", Call: "schema_violation", Keeps: true},
	{Name: "lone_surrogate", Call: "schema_violation", Keeps: true},
	{Name: "escaped_reason", Call: "schema_violation", Keeps: true},
	{Name: "escaped_key", Call: "schema_violation", Keeps: true},
	{Name: "trailing_bytes", Call: "schema_violation", Keeps: true},
	{Name: "reason_unlisted", Call: "schema_violation", Keeps: true},
	{Name: "fact_unlisted", Call: "schema_violation", Keeps: true},
	{Name: "fact_value_unlisted", Call: "schema_violation", Keeps: true},
	{Name: "success_with_class", Call: "schema_violation", Keeps: true},
	{Name: "upgrade_outcome", Refused: "outcome_of_a_dispatched_write"},
	{Name: "before_send_claim", Refused: "before_send_without_proof"},
	{Name: "definitive_failure_claim", Refused: "outcome_of_a_dispatched_write"},
	{Name: "unknown_candidate", Call: "schema_violation", Chooser: true, Keeps: true},
	{Name: "choice_reason_escapes", Call: "schema_violation", Chooser: true, Keeps: true},
	{Name: "empty_choice", Call: "schema_violation", Chooser: true, Keeps: true},
	// Outside the accepted language.
	{Name: "tail_call", Load: "forbidden_opcode"},
	{Name: "exceptions", Load: "forbidden_opcode"},
	{Name: "simd", Load: "forbidden_opcode"},
	{Name: "threads", Load: "forbidden_opcode"},
	{Name: "reference_values", Load: "forbidden_opcode"},
}

// guests lists what the modules in C and Go do, by the tool they are asked about.
var guests = []Case{
	{Name: "c_trap_stack", Fear: "Traps with half of its own stack in use, again and again.", Tool: "trap_stack", Call: "trap:unreachable"},
	{Name: "c_spin", Fear: "Spins.", Tool: "spin", Call: "fuel_exhausted"},
	{Name: "c_malloc_bomb", Fear: "Takes memory until there is none and gives up.", Tool: "malloc_bomb", Call: "memory_limit"},
	{Name: "c_grow_refused", Fear: "Asks for four gigabytes, is refused, and answers.", Tool: "grow_refused"},
	{Name: "c_overflow", Fear: "Overflows its own stack into its data.", Tool: "overflow", Call: "trap:out_of_bounds"},
	{Name: "c_scribble", Fear: "Overwrites all of its own data, tables of the toolchain included.", Tool: "scribble", Call: "no_opinion"},
	{Name: "c_own_error", Fear: "Answers an error of its own.", Tool: "own_error", Call: "guest_error:-117", Keeps: true},
	{Name: "go_panic", Fear: "Panics with terminal escapes in its last words.", Tool: "panic", Call: "trap:unreachable", Go: true},
	{Name: "go_nil_map", Fear: "Panics inside the runtime.", Tool: "nil_map", Call: "trap:unreachable", Go: true},
	{Name: "go_spin", Fear: "Spins.", Tool: "spin", Call: "fuel_exhausted", Go: true},
	{Name: "go_recursion", Fear: "Recurses until the stack takes all memory.", Tool: "recursion", Call: "", Go: true},
	{Name: "go_memory_bomb", Fear: "Allocates until there is nothing.", Tool: "memory_bomb", Call: "memory_limit", Go: true},
	{Name: "go_goroutine_leak", Fear: "Leaves a hundred goroutines behind in every call.", Tool: "goroutine_leak", Go: true},
	{Name: "go_deadlock", Fear: "Waits for nothing.", Tool: "deadlock", Call: "trap:unreachable", Go: true},
	{Name: "go_sleep", Fear: "Sleeps a thousand hours; its clock passes at once.", Tool: "sleep", Go: true},
	{Name: "go_gc_churn", Fear: "Keeps its collector busy.", Tool: "gc_churn", Go: true},
	{Name: "go_map_order", Fear: "Answers in the order of a map, which is random.", Tool: "map_order", Go: true},
	{Name: "go_clock", Fear: "Puts the time into its answer.", Tool: "clock", Go: true},
	{Name: "go_leak", Fear: "Counts its calls.", Tool: "leak", Go: true},
}

// Cases returns them all, in a fixed order.
func Cases() []Case {
	var out []Case
	for _, c := range wat {
		c.Wasm, c.Fear = file("wat/"+c.Name+".wasm"), "see wat/"+c.Name+".wat"
		out = append(out, c)
	}
	out = append(out, Generated()...)
	for _, c := range guests {
		c.Wasm = file("testdata/hostile.wasm")
		if c.Go {
			c.Wasm = file("testdata/go.wasm")
		}
		out = append(out, c)
	}
	return out
}

// Named returns one case; ok is false when there is none with this name.
func Named(name string) (c Case, ok bool) {
	all := Cases()
	i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name })
	if i < 0 {
		return Case{}, false
	}
	return all[i], true
}

func file(name string) []byte {
	b, err := files.ReadFile(name)
	if err != nil {
		panic("hostile: " + name + " is missing; run make in wasm/hostile")
	}
	return b
}

// Sources lists the names of the modules in wat/.
func Sources() []string {
	entries, _ := files.ReadDir("wat")
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".wasm"))
	}
	return out
}
