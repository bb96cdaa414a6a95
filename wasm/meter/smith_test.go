package meter

// smith makes valid modules out of fuzz bytes: each byte is a choice. What it
// makes has branches, loops, calls of all kinds, several results, memory, bulk
// instructions and globals, so that everything the rewriter adds is exercised
// on programs nobody thought of.
type smith struct {
	in    []byte
	b     []byte
	types []FuncType
	funcs []int // type of each function
	local []ValType
	ret   []ValType
	label [][]ValType // innermost last
	deep  int
}

func (s *smith) pick(n int) int {
	if len(s.in) == 0 {
		return 0
	}
	v := int(s.in[0]) % n
	s.in = s.in[1:]
	return v
}

func (s *smith) emit(b ...byte) { s.b = append(s.b, b...) }

func (s *smith) u(op byte, v int) { s.b = putU32(append(s.b, op), uint32(v)) }

var valTypes = []ValType{I32, I64, F32, F64}

func typeIndex(t ValType) int { return int(I32 - t) }

// Five globals and three locals of each type follow the parameters.
const localsEach = 3

func (s *smith) module() []byte {
	for range 1 + s.pick(4) {
		var t FuncType
		for range s.pick(3) {
			t.Params = append(t.Params, valTypes[s.pick(4)])
		}
		for range s.pick(4) {
			t.Results = append(t.Results, valTypes[s.pick(4)])
		}
		s.types = append(s.types, t)
	}
	n := 1 + s.pick(5)
	for range n {
		s.funcs = append(s.funcs, s.pick(len(s.types)))
	}
	var types, funcs, exports, codes []byte
	for _, t := range s.types {
		types = append(types, 0x60)
		for _, list := range [][]ValType{t.Params, t.Results} {
			types = putU32(types, uint32(len(list)))
			for _, v := range list {
				types = append(types, byte(v))
			}
		}
	}
	elem := []byte{1, 0, 0x41, 0, 0x0b}
	elem = putU32(elem, uint32(n))
	for i, t := range s.funcs {
		funcs = putU32(funcs, uint32(t))
		exports = append(exports, 1, byte('a'+i), 0, byte(i))
		elem = putU32(elem, uint32(i))
	}
	exports = append(exports, 6, 'm', 'e', 'm', 'o', 'r', 'y', 2, 0)
	for _, t := range s.funcs {
		body := s.function(s.types[t])
		codes = putU32(codes, uint32(len(body)))
		codes = append(codes, body...)
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	sec := func(id byte, count int, body []byte) {
		content := body
		if count >= 0 {
			content = append(putU32(nil, uint32(count)), body...)
		}
		out = putU32(append(out, id), uint32(len(content)))
		out = append(out, content...)
	}
	sec(secType, len(s.types), types)
	sec(secFunction, n, funcs)
	sec(secTable, 1, []byte{0x70, 0, 8})
	sec(secMemory, 1, []byte{1, 1, 3})
	sec(secGlobal, 4, []byte{0x7f, 1, 0x41, 5, 0x0b, 0x7e, 1, 0x42, 6, 0x0b, 0x7d, 1, 0x43, 0, 0, 0x80, 0x3f, 0x0b, 0x7c, 1, 0x44, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x0b})
	sec(secExport, n+1, exports)
	sec(secElement, -1, elem)
	sec(secCode, n, codes)
	return out
}

func (s *smith) function(t FuncType) []byte {
	s.local = append([]ValType(nil), t.Params...)
	head := putU32(nil, uint32(len(valTypes)))
	for _, v := range valTypes {
		head = append(head, localsEach, byte(v))
		for range localsEach {
			s.local = append(s.local, v)
		}
	}
	s.ret, s.label, s.b = t.Results, [][]ValType{t.Results}, nil
	for range s.pick(6) {
		s.statement()
	}
	s.values(t.Results)
	s.emit(0x0b)
	return append(head, s.b...)
}

func (s *smith) values(ts []ValType) {
	for _, t := range ts {
		s.value(t)
	}
}

func (s *smith) localOf(t ValType) int {
	var at []int
	for i, l := range s.local {
		if l == t {
			at = append(at, i)
		}
	}
	return at[s.pick(len(at))]
}

// blockType writes () -> results; with two or more the type must exist.
func (s *smith) blockType() []ValType {
	if i := s.pick(len(s.types) + 5); i < len(s.types) && len(s.types[i].Params) == 0 {
		s.b = putS64(s.b, int64(i))
		return s.types[i].Results
	} else if i %= 5; i < 4 {
		s.emit(byte(valTypes[i]))
		return valTypes[i : i+1]
	}
	s.emit(0x40)
	return nil
}

func (s *smith) body(label, out []ValType) {
	s.label = append(s.label, label)
	for range s.pick(4) {
		s.statement()
	}
	s.values(out)
	s.label = s.label[:len(s.label)-1]
}

func (s *smith) drop(ts []ValType) {
	for range ts {
		s.emit(0x1a)
	}
}

// statement leaves the stack as it was.
func (s *smith) statement() {
	if s.deep > 6 {
		return
	}
	s.deep++
	defer func() { s.deep-- }()
	switch s.pick(16) {
	case 0: // block
		s.emit(0x02)
		out := s.blockType()
		s.body(out, out)
		s.emit(0x0b)
		s.drop(out)
	case 1: // loop that may go round
		s.emit(0x03)
		out := s.blockType()
		s.body(nil, out)
		s.emit(0x0b)
		s.drop(out)
	case 2: // if else
		s.value(I32)
		s.emit(0x04)
		out := s.blockType()
		s.body(out, out)
		s.emit(0x05)
		s.body(out, out)
		s.emit(0x0b)
		s.drop(out)
	case 3: // br, with what follows unreachable
		s.emit(0x02, 0x40)
		s.label = append(s.label, nil)
		d := s.pick(len(s.label))
		s.values(s.label[len(s.label)-1-d])
		s.u(0x0c, d)
		for range s.pick(3) {
			s.statement()
		}
		s.label = s.label[:len(s.label)-1]
		s.emit(0x0b)
	case 4: // br_if
		d := s.pick(len(s.label))
		ts := s.label[len(s.label)-1-d]
		s.values(ts)
		s.value(I32)
		s.u(0x0d, d)
		s.drop(ts)
	case 5: // br_table over labels of one type
		s.emit(0x02, 0x40)
		s.label = append(s.label, nil)
		var fit []int
		for d := range s.label {
			if len(s.label[len(s.label)-1-d]) == 0 {
				fit = append(fit, d)
			}
		}
		n := s.pick(4)
		s.value(I32)
		s.u(0x0e, n)
		for range n + 1 {
			s.b = putU32(s.b, uint32(fit[s.pick(len(fit))]))
		}
		s.label = s.label[:len(s.label)-1]
		s.emit(0x0b)
	case 6: // return
		s.value(I32)
		s.emit(0x04, 0x40)
		s.label = append(s.label, nil)
		s.values(s.ret)
		s.label = s.label[:len(s.label)-1]
		s.emit(0x0f, 0x0b)
	case 7: // call
		i := s.pick(len(s.funcs))
		t := s.types[s.funcs[i]]
		s.values(t.Params)
		s.u(0x10, i)
		s.drop(t.Results)
	case 8: // call_indirect
		i := s.pick(len(s.types))
		s.values(s.types[i].Params)
		s.value(I32)
		s.u(0x11, i)
		s.emit(0)
		s.drop(s.types[i].Results)
	case 9: // local.set
		t := valTypes[s.pick(4)]
		s.value(t)
		s.u(0x21, s.localOf(t))
	case 10: // global.set
		i := s.pick(4)
		s.value(valTypes[i])
		s.u(0x24, i)
	case 11: // store
		op := []byte{0x36, 0x37, 0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e}[s.pick(9)]
		s.value(I32)
		s.value(mems[op].typ)
		s.emit(op, 0, byte(s.pick(100)))
	case 12: // memory.fill or memory.copy
		s.value(I32)
		s.value(I32)
		s.value(I32)
		if s.pick(2) == 0 {
			s.emit(0xfc, 11, 0)
		} else {
			s.emit(0xfc, 10, 0, 0)
		}
	case 13: // memory.grow
		s.value(I32)
		s.emit(0x40, 0, 0x1a)
	case 14:
		s.value(I32)
		s.emit(0x04, 0x40, 0x00, 0x0b) // if unreachable end
	case 15:
		s.value(valTypes[s.pick(4)])
		s.emit(0x1a)
	}
}

// value leaves one value of a type.
func (s *smith) value(t ValType) {
	s.deep++
	defer func() { s.deep-- }()
	choice := s.pick(9)
	if s.deep > 9 {
		choice %= 2
	}
	switch choice {
	case 0: // constant
		switch v := int64(s.pick(256)) - 3; t {
		case I32:
			s.b = putS64(append(s.b, 0x41), v)
		case I64:
			s.b = putS64(append(s.b, 0x42), v)
		case F32:
			s.emit(0x43, byte(v), 0, 0x80, 0x3f)
		case F64:
			s.emit(0x44, 0, byte(v), 0, 0, 0, 0, 0xf0, 0x3f)
		}
	case 1:
		s.u(0x20, s.localOf(t))
	case 2:
		s.u(0x23, typeIndex(t))
	case 3: // load
		op := map[ValType]byte{I32: 0x28, I64: 0x29, F32: 0x2a, F64: 0x2b}[t]
		s.value(I32)
		s.emit(op, 0, byte(s.pick(100)))
	case 4: // some instruction with this result
		var ops []int
		for op := range shapes {
			if shapes[op].ok && letters[shapes[op].out[0]] == t {
				ops = append(ops, op)
			}
		}
		op := ops[s.pick(len(ops))]
		for i := range shapes[op].in {
			s.value(letters[shapes[op].in[i]])
		}
		s.emit(byte(op))
	case 5: // block with a value
		s.emit(0x02, byte(t))
		s.body([]ValType{t}, []ValType{t})
		s.emit(0x0b)
	case 6: // select
		s.value(t)
		s.value(t)
		s.value(I32)
		s.emit(0x1b)
	case 7: // tee
		s.value(t)
		s.u(0x22, s.localOf(t))
	case 8: // a call with exactly this result
		for i, f := range s.funcs {
			if r := s.types[f].Results; len(r) == 1 && r[0] == t {
				s.values(s.types[f].Params)
				s.u(0x10, i)
				return
			}
		}
		s.u(0x20, s.localOf(t))
	}
}
