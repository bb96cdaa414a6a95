package hostile

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// Generated returns the modules that the text format cannot say: too large for
// its tools, or wrong in a way they refuse to write.
func Generated() []Case {
	var out []Case
	add := func(name, fear, load, call string, wasm []byte) {
		out = append(out, Case{Name: name, Fear: fear, Load: load, Call: call, Wasm: wasm})
	}
	compileBombs(add)
	liars(add)
	attacks(add)
	manifests(add)
	nothing := decent(nil, answer())
	nothing.mems, nothing.datas = [][]byte{{0, 0}}, nil
	// Branches cost their square, and every fill has one of its own.
	fills := decent(nil, times(4_100, 0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 11, 0), answer())
	out = append(out, Case{Name: "many_fills", Fear: "4,100 fills in one function; two of 9,000 took 43 s of compiling for 158 KB.", Load: "over_limit:branches", Go: true, Wasm: fills.bytes()})
	return append(out, Case{Name: "memory_of_nothing", Fear: "A memory of no pages, and a buffer in it.", Call: "bad_pointer", Never: true, Wasm: nothing.bytes()})
}

type adder func(name, fear, load, call string, wasm []byte)

func times(n int, b ...byte) []byte { return bytes.Repeat(b, n) }

// compileBombs are small files that take a compiler seconds or gigabytes.
func compileBombs(add adder) {
	add("nest_blocks", "10,000 blocks inside each other: 0.8 s of compiling for 30 KB.", "over_limit:nesting", "",
		decent(nil, times(10_000, 0x02, 0x40), times(10_000, 0x0b), answer()).bytes())
	add("nest_ifs", "10,000 ifs inside each other: 8 s for 50 KB.", "over_limit:nesting", "",
		decent(nil, times(10_000, 0x41, 1, 0x04, 0x40), times(10_000, 0x0b), answer()).bytes())
	add("br_table", "A br_table with 40,000 targets: 1.6 s.", "over_limit:branch_targets", "",
		decent(nil, []byte{0x02, 0x40, 0x41, 0, 0x0e}, u(40_000), times(40_000, 0), []byte{0, 0x0b}, answer()).bytes())
	add("many_locals", "50,000 locals in five bytes.", "over_limit:locals", "",
		decent(cat([]byte{1}, u(50_000), []byte{0x7e}), answer()).bytes())
	add("locals_overflow", "More locals than 32 bits can count, by groups.", "over_limit:locals", "",
		decent(cat([]byte{2}, u(math.MaxUint32), []byte{0x7e}, u(math.MaxUint32), []byte{0x7f}), answer()).bytes())
	// Inside every single limit: 400 locals that change, 900 branches into one
	// block. Without a bound on the product, 45 s of compiling.
	var phi []byte
	phi = append(phi, 0x02, 0x40)
	for i := range 900 {
		phi = append(phi, cat([]byte{0x42}, s(int64(i)), []byte{0x21}, u(uint32(2+i%400)), []byte{0x20, 0, 0x0d, 0})...)
	}
	phi = append(phi, 0x0b)
	add("phi_explosion", "900 branches into one block while 400 locals change.", "over_limit:merges", "",
		decent(cat([]byte{1}, u(400), []byte{0x7e}), phi, answer()).bytes())
	add("many_grows", "1,900 requests for memory in one function: 0.4 s, and 68 such functions are 28 s.", "over_limit:branches", "",
		decent(nil, times(1_900, 0x41, 0, 0x40, 0, 0x1a), answer()).bytes())
	add("many_branches", "4,200 branches in one function without locals.", "over_limit:branches", "",
		decent(nil, times(4_200, 0x41, 0, 0x04, 0x40, 0x0b), answer()).bytes())
	add("big_function", "One function of 1.2 MB: 4 s and 378 MiB.", "over_limit:body_bytes", "",
		decent(nil, times(400_000, 0x41, 0, 0x1a), answer()).bytes())
	add("many_instructions", "30,000 instructions in one function.", "over_limit:instructions", "",
		decent(nil, times(15_000, 0x41, 0, 0x1a), answer()).bytes())
	many := decent(nil, answer())
	for range 60_000 {
		many.funcs, many.codes = append(many.funcs, u(0)), append(many.codes, code(nil))
	}
	add("many_functions", "60,000 functions: 1.9 s.", "over_limit:functions", "", many.bytes())
	total := decent(nil, answer())
	for range 60 {
		total.funcs, total.codes = append(total.funcs, u(0)), append(total.codes, code(nil, times(9_000, 0x41, 0, 0x1a)))
	}
	add("total_work", "60 functions just inside their limits.", "over_limit:total_instructions", "", total.bytes())
	types := decent(nil, answer())
	for range 10_000 {
		types.types = append(types.types, []byte{0x60, 0, 0})
	}
	add("many_types", "10,000 types.", "over_limit:types", "", types.bytes())
	params := decent(nil, answer())
	params.types = append(params.types, cat([]byte{0x60}, u(1000), times(1000, 0x7f), []byte{0}))
	add("many_params", "A function type of 1,000 parameters.", "over_limit:params", "", params.bytes())
	exports := decent(nil, answer())
	for i := range 10_000 {
		exports.exports = append(exports.exports, export(fmt.Sprint("x", i), 0, 0))
	}
	add("many_exports", "10,000 exports.", "over_limit:exports", "", exports.bytes())
	globals := decent(nil, answer())
	for range 5_000 {
		globals.globals = append(globals.globals, []byte{0x7f, 1, 0x41, 0, 0x0b})
	}
	add("many_globals", "5,000 mutable globals, all to be restored after every call.", "over_limit:globals", "", globals.bytes())
	long := decent(nil, answer())
	long.exports = append(long.exports, export(string(times(100_000, 'x')), 0, 0))
	add("long_export_name", "An export name of 100 KB.", "over_limit:name_bytes", "", long.bytes())
	giant := decent(nil, answer())
	giant.customs = append(giant.customs, custom("junk", make([]byte, 2<<20)))
	add("giant_custom_section", "2 MiB of data that nobody reads.", "over_limit:custom_bytes", "", giant.bytes())
	names := decent(nil, answer())
	names.customs = append(names.customs, custom("name", section(1, cat(u(1), u(3), str(string(times(900_000, 'n')))))))
	add("giant_names", "A function name of 900 KB; names are dropped, the module runs.", "", "", names.bytes())
	large := decent(nil, answer())
	large.customs = append(large.customs, custom("junk", make([]byte, 9<<20)))
	add("too_large", "9 MiB.", "too_large", "", large.bytes())
}

// liars are files whose structure is wrong.
func liars(add adder) {
	whole := decent(nil, answer()).bytes()
	add("leb128_overlong", "A number that goes on for ever.", "malformed", "",
		cat(whole[:8], []byte{1}, times(40, 0x80), []byte{0}))
	add("leb128_too_many_bits", "A number with bits beyond the 32nd.", "malformed", "",
		cat(whole[:8], []byte{1, 0xff, 0xff, 0xff, 0xff, 0x7f}))
	add("section_size_lies", "A section that claims four billion bytes.", "malformed", "",
		cat(whole[:8], []byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f}))
	add("count_lies", "A type section that claims two million types and holds none.", "over_limit:types", "",
		cat(whole[:8], section(1, u(2_000_000))))
	lying := decent(nil, answer())
	lying.customs = append(lying.customs, custom("name", section(1, u(math.MaxUint32))))
	add("name_count_lies", "A name section that claims four billion names: a reader that believes it takes all memory. Dropped.", "", "", lying.bytes())
	local := decent(nil, answer())
	local.customs = append(local.customs, custom("name", section(2, cat(u(1), u(0), u(math.MaxUint32)))))
	add("local_name_count_lies", "The same for the names of locals.", "", "", local.bytes())
	escape := decent(nil, []byte{0x00})
	escape.customs = append(escape.customs, custom("name", section(1, cat(u(1), u(3), str("\x1b[2Jevil\n\u202e")))))
	add("name_escapes", "A function name that clears the terminal of who reads the trap.", "", "trap:unreachable", escape.bytes())
	add("section_order", "The code before the types.", "bad_section", "",
		cat(whole[:8], section(10, u(0)), section(1, u(0))))
	add("section_twice", "Two type sections.", "bad_section", "",
		cat(whole[:8], section(1, u(0)), section(1, u(0))))
	add("section_unknown", "A section nobody knows.", "bad_section", "", cat(whole[:8], section(99, nil)))
	add("section_leftovers", "Bytes left over in a section.", "bad_section", "", cat(whole[:8], section(1, []byte{0, 0, 0})))
	add("empty", "No bytes.", "malformed", "", nil)
	add("not_wasm", "A shell script.", "malformed", "", []byte("#!/bin/sh\nrm -rf /\n"))
	add("component", "A component, not a module.", "malformed", "", []byte("\x00asm\x0d\x00\x01\x00"))
	dup := decent(nil, answer())
	dup.exports = append(dup.exports, export("fb_classify", 0, 2))
	add("duplicate_export", "Two exports of one name: which is it?", "malformed", "", dup.bytes())
	utf8 := decent(nil, answer())
	utf8.exports = append(utf8.exports, export("\xff\xfe", 0, 0))
	add("export_not_utf8", "An export name that is not UTF-8.", "malformed", "", utf8.bytes())
	count := decent(nil, answer())
	count.dataCount = u(7)
	add("data_count_lies", "A data count that is wrong.", "malformed", "", count.bytes())
	bodies := decent(nil, answer())
	bodies.codes = bodies.codes[:3]
	add("body_missing", "Fewer bodies than functions.", "malformed", "", bodies.bytes())
	passive := decent(nil, answer())
	passive.datas = append(passive.datas, cat([]byte{1}, str("later")))
	add("passive_segment", "A segment for later.", "bad_section", "", passive.bytes())
	add("after_the_end", "Half a section at the end.", "malformed", "", append(slices.Clone(whole), 0, 5, 'a'))
}

// attacks are invalid as shipped and would be valid, and dangerous, in the hands
// of a rewriter that does not look.
func attacks(add adder) {
	refuel := cat([]byte{0x42}, s(1<<62), []byte{0x24, 0}, []byte{0x03, 0x40, 0x42}, s(1<<62), []byte{0x24, 0, 0x0c, 0, 0x0b, 0x00})
	add("fuel_reset", "Writes global 0 while declaring none: after a naive rewrite that is the fuel counter.", "malformed", "",
		decent(nil, refuel).bytes())
	add("fuel_peek", "Reads global 0 while declaring none.", "malformed", "",
		decent(nil, []byte{0x23, 0}).bytes())
	add("local_past_end", "Uses the local that a rewriter would add for itself.", "malformed", "",
		decent(nil, []byte{0x41, 7, 0x21, 2}, answer()).bytes())
	add("type_past_end", "A block of the type that a rewriter would add.", "malformed", "",
		decent(nil, []byte{0x02, 3, 0x0b}, answer()).bytes())
	add("function_past_end", "Calls a function that is not there.", "malformed", "",
		decent(nil, []byte{0x10, 4}, answer()).bytes())
	add("label_past_end", "Branches out of the function: the wrapper around it would catch that.", "malformed", "",
		decent(nil, []byte{0x0c, 1}, answer()).bytes())
	exported := decent(nil, answer())
	exported.exports = append(exported.exports, export("counter", 3, 0))
	add("global_past_end", "Exports the global that a rewriter would add.", "malformed", "", exported.bytes())
	add("stack_confusion", "Takes an i64 for an i32.", "malformed", "",
		decent(nil, []byte{0x42, 0, 0x45, 0x1a}, answer()).bytes())
	add("stack_underflow", "Takes values that the block around it owns.", "malformed", "",
		decent(nil, []byte{0x41, 0, 0x02, 0x40, 0x1a, 0x0b}, answer()).bytes())
	add("stack_leftover", "Leaves values behind.", "malformed", "",
		decent(nil, []byte{0x41, 0, 0x41, 0}, answer()).bytes())
	add("end_missing", "A function that does not end.", "malformed", "",
		decent(nil, []byte{0x02, 0x40}, answer()).bytes())
	add("code_after_end", "Instructions behind the end of a function.", "malformed", "",
		decent(nil, answer(), []byte{0x0b, 0x01}).bytes())
	add("immutable_write", "Writes a constant.", "malformed", "", func() []byte {
		b := decent(nil, []byte{0x41, 1, 0x24, 0}, answer())
		b.globals = [][]byte{{0x7f, 0, 0x41, 0, 0x0b}}
		return b.bytes()
	}())
	add("align_lies", "Claims an alignment beyond its size.", "malformed", "",
		decent(nil, []byte{0x41, 0, 0x28, 7, 0, 0x1a}, answer()).bytes())
	add("prefix_opcode", "An opcode of a proposal nobody knows.", "malformed", "",
		decent(nil, []byte{0xfc, 0xff, 0x7f}, answer()).bytes())
	add("gc_types", "Garbage-collected types.", "forbidden_opcode", "", func() []byte {
		b := decent(nil, answer())
		b.types = append(b.types, []byte{0x5f, 0})
		return b.bytes()
	}())
	// A chain of functions, none recursive, whose frames together would take
	// the native stack by themselves.
	chain := decent(nil, []byte{0x10, 4}, answer())
	for i := range 5_000 {
		chain.funcs = append(chain.funcs, u(0))
		next := u(uint32(5 + i))
		if i == 4_999 {
			next = u(0)
		}
		chain.codes = append(chain.codes, code(cat([]byte{1}, u(200), []byte{0x7e}), []byte{0x10}, next))
	}
	add("frame_chain", "5,000 functions with large frames, each calling the next.", "", "stack_overflow", chain.bytes())
}

// manifests that do not say what the policy says.
func manifests(add adder) {
	with := func(text string) []byte {
		b := decent(nil, answer())
		b.customs = append(b.customs, custom("fusebox.manifest", []byte(text)))
		return b.bytes()
	}
	add("manifest_fine", "A manifest that agrees.", "", "",
		with(`{"abi":1,"kinds":["classifier","fallback"],"name":"x","profile":"pure","schemas":["fusebox.classify/v1"],"source":"","version":"1"}`))
	add("manifest_other_abi", "A manifest of another ABI.", "abi_mismatch", "", with(`{"abi":2,"kinds":["classifier"],"name":"x"}`))
	add("manifest_other_kind", "A manifest that does not offer what the module is used for.", "abi_mismatch", "", with(`{"abi":1,"kinds":["fallback"],"name":"x"}`))
	add("manifest_other_profile", "A manifest of another profile.", "abi_mismatch", "", with(`{"abi":1,"kinds":["classifier"],"name":"x","profile":"go"}`))
	twice := decent(nil, answer())
	for _, abi := range []string{"1", "2"} {
		twice.customs = append(twice.customs, custom("fusebox.manifest", []byte(`{"abi":`+abi+`,"name":"x"}`)))
	}
	add("manifest_two_sections", "Two manifests: one for people, one for the host.", "bad_section", "", twice.bytes())
	future := decent(nil, answer())
	future.exports[1] = export("fb_abi_\x1b[2J\x1b]0;pwned\x07"+string(times(900, '9')), 0, 0)
	add("abi_name_escapes", "A version of the ABI that clears the terminal of who reads the refusal.", "abi_mismatch", "", future.bytes())
	add("manifest_escapes", "A version that clears the terminal of who inspects it.", "bad_section", "", with(`{"abi":1,"name":"x","version":"\u009b2J"}`))
	add("manifest_garbage", "A manifest that is not JSON.", "bad_section", "", with(`abi = 1`))
	add("manifest_twice", "A manifest that says two things.", "bad_section", "", with(`{"abi":1,"abi":2}`))
	add("manifest_unknown_key", "A manifest that asks for rights.", "bad_section", "", with(`{"abi":1,"grant":["net"]}`))
}
