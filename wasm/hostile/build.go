package hostile

// builder assembles a module byte by byte, so that it can be as wrong as needed.
type builder struct {
	types, imports, funcs, tables, mems, globals, exports, elems, codes, datas [][]byte
	customs                                                                    [][]byte // whole sections behind all others
	dataCount                                                                  []byte
	after                                                                      []byte // raw bytes at the end
}

func u(v uint32) []byte {
	var b []byte
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func s(v int64) []byte {
	var b []byte
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if (v == 0 && c&0x40 == 0) || (v == -1 && c&0x40 != 0) {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func cat(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func str(t string) []byte { return cat(u(uint32(len(t))), []byte(t)) }

func section(id byte, body []byte) []byte { return cat([]byte{id}, u(uint32(len(body))), body) }

func vec(items [][]byte) []byte { return cat(u(uint32(len(items))), cat(items...)) }

func custom(name string, data []byte) []byte { return section(0, cat(str(name), data)) }

// code wraps instructions, without their end, as a body.
func code(locals []byte, instructions ...[]byte) []byte {
	if locals == nil {
		locals = []byte{0}
	}
	body := cat(locals, cat(instructions...), []byte{0x0b})
	return cat(u(uint32(len(body))), body)
}

const good = `{"outcome":"FAILED","class":"budget"}`

// answer pushes the place and length of a good answer at address 64.
func answer() []byte { return cat([]byte{0x42}, s(64<<32|int64(len(good)))) }

// decent is a module that answers; classify is the body of fb_classify, without
// its end. Types: 0 () -> (), 1 (i32) -> (i32), 2 (i32 i32) -> (i64).
func decent(locals []byte, classify ...[]byte) *builder {
	b := &builder{
		types:   [][]byte{{0x60, 0, 0}, {0x60, 1, 0x7f, 1, 0x7f}, {0x60, 2, 0x7f, 0x7f, 1, 0x7e}},
		funcs:   [][]byte{u(0), u(1), u(2), u(2)},
		mems:    [][]byte{{0, 2}},
		exports: [][]byte{export("memory", 2, 0), export("fb_abi_1", 0, 0), export("fb_buf", 0, 1), export("fb_fallback", 0, 2), export("fb_classify", 0, 3)},
		codes:   [][]byte{code(nil), code(nil, []byte{0x41}, s(4096)), code(nil, []byte{0x42, 0}), code(locals, classify...)},
		datas:   [][]byte{cat([]byte{0, 0x41}, s(64), []byte{0x0b}, str(good))},
	}
	return b
}

func export(name string, kind byte, index uint32) []byte {
	return cat(str(name), []byte{kind}, u(index))
}

func (b *builder) bytes() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, sec := range []struct {
		id    byte
		items [][]byte
	}{{1, b.types}, {2, b.imports}, {3, b.funcs}, {4, b.tables}, {5, b.mems}, {6, b.globals}, {7, b.exports}, {9, b.elems}} {
		if sec.items != nil {
			out = append(out, section(sec.id, vec(sec.items))...)
		}
	}
	if b.dataCount != nil {
		out = append(out, section(12, b.dataCount)...)
	}
	out = append(out, section(10, vec(b.codes))...)
	if b.datas != nil {
		out = append(out, section(11, vec(b.datas))...)
	}
	return append(append(out, cat(b.customs...)...), b.after...)
}
