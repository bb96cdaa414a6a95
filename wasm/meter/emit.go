package meter

// emitter writes one rewritten function.
type emitter struct {
	b                    []byte
	fuel, stack, refused uint32 // indices of the counters
}

// body copies a function and adds what was recorded for it.
func (e *emitter) body(f *body, wrap []byte) {
	r := reader{b: f.code}
	r.u32() // group count
	decl := f.code[r.pos:f.start]
	if f.scratch {
		e.b = putU32(e.b, uint32(f.groups+1))
		e.b = append(e.b, decl...)
		e.b = append(e.b, 1, byte(I32))
	} else {
		e.b = putU32(e.b, uint32(f.groups))
		e.b = append(e.b, decl...)
	}
	if f.counted {
		e.enter(f, wrap)
	} else {
		e.charge(f.entry)
	}
	pos := f.start
	for _, in := range f.inserts {
		e.b = append(e.b, f.code[pos:in.at]...)
		pos = in.at
		switch in.kind {
		case atLoop, atFlat:
			e.charge(in.cost)
		case atBulk:
			e.bulk(uint32(f.locals))
		case atGrow:
			e.charge(in.cost)
			e.grow(uint32(f.locals))
			pos += 2
		case atReturn:
			if f.counted {
				// Label of the block around the function: where returns have to pass.
				e.b = putU32(append(e.b, 0x0c), in.cost)
				pos++
			}
		}
	}
	if !f.counted {
		e.b = append(e.b, f.code[pos:]...)
		return
	}
	// The function's own end now closes the block around it.
	e.b = append(e.b, f.code[pos:]...)
	e.get(e.stack)
	e.constant(int64(f.frame()))
	e.b = append(e.b, 0x7c) // i64.add
	e.set(e.stack)
	e.b = append(e.b, 0x0b)
}

func (e *emitter) get(global uint32) { e.b = putU32(append(e.b, 0x23), global) }
func (e *emitter) set(global uint32) { e.b = putU32(append(e.b, 0x24), global) }
func (e *emitter) constant(v int64)  { e.b = putS64(append(e.b, 0x42), v) }
func (e *emitter) take(g uint32, n int64) {
	e.get(g)
	e.constant(n)
	e.b = append(e.b, 0x7d) // i64.sub
	e.set(g)
}

// charge takes fuel and traps when none is left.
func (e *emitter) charge(cost uint32) {
	e.take(e.fuel, int64(cost))
	e.get(e.fuel)
	e.trapIfNegative()
}

func (e *emitter) trapIfNegative() {
	e.constant(0)
	e.b = append(e.b, 0x53, 0x04, 0x40, 0x00, 0x0b) // i64.lt_s; if; unreachable; end
}

// enter takes fuel and stack, checks both with one branch, and opens the block
// that every way out of the function passes.
func (e *emitter) enter(f *body, wrap []byte) {
	e.take(e.fuel, int64(f.entry))
	e.take(e.stack, int64(f.frame()))
	e.get(e.fuel)
	e.get(e.stack)
	e.b = append(e.b, 0x84) // i64.or: negative when either is
	e.trapIfNegative()
	e.b = append(e.b, 0x02)
	e.b = append(e.b, wrap...)
}

// bulk charges for the length on top of the stack and leaves it there.
func (e *emitter) bulk(scratch uint32) {
	e.b = putU32(append(e.b, 0x22), scratch) // local.tee
	e.get(e.fuel)
	e.b = putU32(append(e.b, 0x20), scratch)
	e.b = append(e.b, 0xad) // i64.extend_i32_u
	e.constant(bulkShift)
	e.b = append(e.b, 0x88, 0x7d) // i64.shr_u, i64.sub
	e.set(e.fuel)
	e.get(e.fuel)
	e.trapIfNegative()
}

// grow grows the memory and notes a refusal, so that a trap that follows can be
// told from any other.
func (e *emitter) grow(scratch uint32) {
	e.b = append(e.b, 0x40, 0x00)
	e.b = putU32(append(e.b, 0x22), scratch)        // local.tee
	e.b = append(e.b, 0x41, 0x7f, 0x46, 0x04, 0x40) // i32.const -1; i32.eq; if
	e.constant(1)
	e.set(e.refused)
	e.b = append(e.b, 0x0b)
	e.b = putU32(append(e.b, 0x20), scratch)
}

func putU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func putS64(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if (v == 0 && c&0x40 == 0) || (v == -1 && c&0x40 != 0) {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
