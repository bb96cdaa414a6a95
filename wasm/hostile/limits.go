package hostile

// AtTheLimit returns modules that are inside every admission limit of the pure
// profile and as hard to compile as those allow: what they cost is the worst
// that an admitted module can cost.
func AtTheLimit() []Case {
	var out []Case
	add := func(name string, functions int, locals []byte, body []byte) {
		b := decent(nil, answer())
		for range functions {
			b.funcs, b.codes = append(b.funcs, u(0)), append(b.codes, code(locals, body))
		}
		out = append(out, Case{Name: name, Wasm: b.bytes()})
	}
	merge := func(branches, locals int) []byte {
		body := []byte{0x02, 0x40}
		for i := range branches { // local i = load; leave if load
			body = append(body, cat([]byte{0x41, 0, 0x29, 0}, u(uint32(8*i)), []byte{0x21}, u(uint32(i%locals)), []byte{0x41, 0, 0x28, 0}, u(uint32(4*i)), []byte{0x0d, 0})...)
		}
		return append(body, 0x0b)
	}
	add("limit_merge_wide", 8, cat([]byte{1}, u(500), []byte{0x7e}), merge(190, 500))
	add("limit_merge_deep", 7, cat([]byte{1}, u(50), []byte{0x7e}), merge(1400, 50))
	var ifs []byte
	for i := range 180 {
		ifs = append(ifs, cat([]byte{0x41, 0, 0x28, 0}, u(uint32(i)), []byte{0x04, 0x40, 0x41, 0, 0x29, 0}, u(uint32(i)), []byte{0x21}, u(uint32(i%250)), []byte{0x05, 0x0b})...)
	}
	add("limit_ifs", 8, cat([]byte{1}, u(250), []byte{0x7e}), ifs)
	nest := cat(times(60, 0x02, 0x40), times(3000, 0x41, 0, 0x1a), times(60, 0x0b))
	add("limit_nest", 60, nil, nest)
	loops := cat(times(60, 0x03, 0x40), times(700, 0x20, 0, 0x50, 0x0d, 0), times(60, 0x0b))
	add("limit_loops", 20, cat([]byte{1}, u(30), []byte{0x7e}), loops)
	var tables []byte
	tables = append(tables, times(60, 0x02, 0x40)...)
	for range 2 {
		tables = append(tables, cat([]byte{0x02, 0x40, 0x41, 0, 0x28, 0, 0, 0x0e}, u(1990))...)
		for i := range 1990 {
			tables = append(tables, byte(i%60))
		}
		tables = append(tables, 0, 0x0b)
	}
	tables = append(tables, times(60, 0x0b)...)
	add("limit_br_tables", 11, []byte{1, 1, 0x7e}, tables)
	add("limit_straight", 40, nil, times(9_900/2, 0x41, 0, 0x1a))
	bulk := times(3_000, 0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 11, 0)
	add("limit_bulk", 1, nil, bulk)
	calls := times(6_000, 0x10, 0)
	add("limit_calls", 60, nil, calls)
	var alive []byte // values that all live to the end: spills
	for i := range 4_000 {
		alive = append(alive, cat([]byte{0x41}, s(int64(i)), []byte{0x29, 0, 0})...)
	}
	alive = append(alive, times(3_999, 0x85)...)
	alive = append(alive, 0x1a)
	add("limit_alive", 33, nil, alive)
	grows := times(440, 0x20, 0, 0x40, 0, 0x21, 0)
	add("limit_grows", 11, []byte{1, 3, 0x7f}, grows)
	var across []byte // values that all live across branches
	for i := range 2_500 {
		across = append(across, cat([]byte{0x41}, s(int64(i)), []byte{0x29, 0, 0})...)
	}
	across = append(across, times(1_800, 0x20, 0, 0x04, 0x40, 0x0b)...)
	across = append(across, times(2_499, 0x85)...)
	add("limit_across", 26, []byte{1, 1, 0x7f}, append(across, 0x1a))
	return out
}

// AtTheLimitGo are the hardest found inside the limits of profile go.
func AtTheLimitGo() []Case {
	var out []Case
	add := func(name string, functions int, locals []byte, body []byte) {
		b := decent(nil, answer())
		for range functions {
			b.funcs, b.codes = append(b.funcs, u(0)), append(b.codes, code(locals, body))
		}
		out = append(out, Case{Name: name, Wasm: b.bytes(), Go: true})
	}
	add("limit_go_fills", 8, nil, times(2_900, 0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 11, 0))
	var across []byte
	for i := range 4_000 {
		across = append(across, cat([]byte{0x41}, s(int64(i)), []byte{0x29, 0, 0})...)
	}
	across = append(across, times(2_900, 0x20, 0, 0x04, 0x40, 0x0b)...)
	across = append(across, times(3_999, 0x85)...)
	add("limit_go_across", 100, []byte{1, 1, 0x7f}, append(across, 0x1a))
	return out
}
